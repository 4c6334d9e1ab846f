"""
The coordinators of a broker: one for each partition of the topic of transactions that it leads.

Each reads its log at a start, a piece in a turn of the reactor; who asks meanwhile waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from twisted.logger import Logger

from tinymq.broker.transactions.bringing import Bringing
from tinymq.broker.transactions.coordinator import Coordinator, Given
from tinymq.broker.transactions.deciding import Fates, Place, Question
from tinymq.broker.transactions.opened import Identity
from tinymq.broker.transactions.places import place_of, place_of_producer
from tinymq.errors import (
    CorruptBatch,
    InvalidRequest,
    NotCoordinator,
    PartitionOffline,
    StateError,
    StorageFull,
    TinyMQError,
    UnknownTopicId,
    WireError,
)
from tinymq.limits import MIB
from tinymq.names import TRANSACTIONS
from tinymq.wire.batch import split
from tinymq.wire.messages import (
    EndTransaction,
    EndTransactionReply,
    InitProducerReply,
    Topics,
)
from tinymq.wire.records import RecordBatch, encode_batch

if TYPE_CHECKING:
    from tinymq.broker.broker import Broker
    from tinymq.broker.partition import Appended, Partition
    from tinymq.broker.ports import Timer
    from tinymq.meta.registry import Topic

#: Bytes of a log that are read in one turn.
_PIECE_BYTES: Final = MIB // 16
#: Seconds until a log is tried again that cannot be read.
_AGAIN_SECONDS: Final = 5.0
#: Seconds after which it is written down that decisions were brought.
_TIDY_SECONDS: Final = 1.0
#: Seconds between two looks for producers that can be forgotten.
_FORGET_SECONDS: Final = 600.0

#: Called once with a coordinator that knows everything, or with what is wrong.
Found = Callable[["Coordinator | WireError"], None]


class _Seat:
    """
    A coordinator with its log.

    Args:
        transacting: All of this broker.
        broker: The broker.
        partition: The log.
    """

    _log = Logger()

    def __init__(self, transacting: Transacting, broker: Broker, partition: Partition) -> None:
        self._transacting = transacting
        self._broker = broker
        self.partition = partition
        self.coordinator = Coordinator(self)
        self._waiting: list[Found] | None = []
        self._offset = partition.log.start_offset
        self._timers: dict[str, Timer] = {}
        self._call("load", 0, self._load)

    # --- loading ------------------------------------------------------------------

    def when_loaded(self, found: Found) -> None:
        """Call something when everything is known."""
        if self._waiting is None:
            found(self.coordinator)
        else:
            self._waiting.append(found)

    @property
    def loaded(self) -> bool:
        """Whether everything is known."""
        return self._waiting is None

    def _load(self) -> None:
        log = self.partition.log
        try:
            chunk = log.read(self._offset, _PIECE_BYTES, log.written_offset)
            assert chunk is not None, "it was to wait for the disk"
            for header, data in split(chunk.data):
                self._take(RecordBatch(data, header, self.partition.limits.inflated))
        except (OSError, TinyMQError) as error:
            self._log.error(
                "{partition} cannot be read, so no transaction of it is decided: {error}",
                partition=self.partition,
                error=error,
            )
            self._call("load", _AGAIN_SECONDS, self._load)
            return
        if chunk.next_offset > self._offset:
            self._offset = chunk.next_offset
            self._call("load", 0, self._load)
            return
        waiting, self._waiting = self._waiting or [], None
        self.coordinator.begin()
        self._call("forget", _FORGET_SECONDS, self._forget)
        for found in waiting:
            found(self.coordinator)

    def _take(self, batch: RecordBatch) -> None:
        for key, value in zip(batch.keys, batch.values, strict=True):
            try:
                self.coordinator.replay((key or b"").decode(), value)
            except (CorruptBatch, UnicodeDecodeError) as error:
                self._log.error(
                    "{partition}: a record cannot be read: {error}",
                    partition=self.partition,
                    error=error,
                )

    # --- what the coordinator asks ---------------------------------------------------

    def now(self) -> int:
        """Tell the wall clock."""
        return self._broker.wall()

    def write(
        self, name: str, value: bytes | None, done: Callable[[WireError | None], None]
    ) -> None:
        """Write a record and wait for the disk."""

        def answer(found: Appended | WireError) -> None:
            if isinstance(found, WireError):
                if self.partition.failure is not None:
                    # It may be in the log all the same: only another start can tell.
                    self.coordinator.broken = found
                done(found.with_traceback(None))
            else:
                done(None)

        batch = encode_batch([value], keys=[name.encode()])
        self.partition.place(batch, self._broker.wall(), answer)
        self._broker.committer.staged(self.partition)

    def producer_id(self, done: Given) -> None:
        """Give a producer id that belongs here."""
        self._transacting.allocate(self.partition.index, done)

    def bring(
        self,
        identity: Identity,
        places: Iterable[Place],
        done: Callable[[Place], None],
        *,
        commit: bool,
    ) -> None:
        """Bring what was decided to partitions."""
        self._transacting.bringing.bring(identity, places, done, commit=commit)

    def tidy(self) -> None:
        """Let what is done be written down soon."""
        if "tidy" not in self._timers:
            self._call("tidy", _TIDY_SECONDS, self.coordinator.tidy)

    def _forget(self) -> None:
        self.coordinator.forget_idle()
        self._call("forget", _FORGET_SECONDS, self._forget)

    def _call(self, what: str, seconds: float, call: Callable[[], None]) -> None:
        def due() -> None:
            del self._timers[what]
            call()

        self._timers[what] = self._broker.scheduler.callLater(seconds, due)

    def close(self, why: WireError) -> None:
        """Do nothing any more."""
        for timer in self._timers.values():
            if timer.active():
                timer.cancel()
        self._timers.clear()
        self.coordinator.broken = why
        waiting, self._waiting = self._waiting or [], None
        for found in waiting:
            found(why)


class Transacting:
    """
    The coordinators of a broker.

    Args:
        broker: The broker.

    Attributes:
        bringing: Brings what they decide to partitions.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.bringing = Bringing(broker)
        self._seats: dict[int, _Seat] = {}
        #: Producer ids that belong to a place, and are nobody's yet.
        self._spare: dict[int, list[int]] = {}

    # --- which there are -----------------------------------------------------------

    def opened(self, partition: Partition) -> None:
        """
        Hear that a partition was opened here.

        Args:
            partition: Of any topic.
        """
        if partition.topic.name == TRANSACTIONS:
            partition.refusals["own"] = InvalidRequest(
                f"{TRANSACTIONS} is the brokers' own, and takes no messages", field="t"
            )
            self._seats[partition.index] = _Seat(self, self._broker, partition)

    def close(self) -> None:
        """Decide nothing any more."""
        for seat in self._seats.values():
            seat.close(PartitionOffline("the broker is stopping"))
        self._seats.clear()
        self.bringing.close()

    @property
    def seats(self) -> list[Coordinator]:
        """Those that know everything."""
        return [seat.coordinator for _, seat in sorted(self._seats.items()) if seat.loaded]

    def _at(self, place: int, found: Found) -> None:
        """Find the coordinator of a place."""
        topic = self._broker.meta.registry.by_name.get(TRANSACTIONS)

        def known(topic: Topic | WireError) -> None:
            if isinstance(topic, WireError):
                found(topic)
                return
            leader, seat = topic.leader(place), self._seats.get(place)
            if leader != self._broker.id:
                found(
                    NotCoordinator(
                        f"broker {leader} looks after this transactional id; ask it",
                        broker=leader,
                    )
                )
            elif seat is None:
                found(StateError(f"{TRANSACTIONS}/{place} is not open yet; try again"))
            else:
                seat.when_loaded(found)

        if topic is None:
            self._broker.meta.ensure_topic(TRANSACTIONS, known)
        else:
            known(topic)

    def allocate(self, place: int, done: Given) -> None:
        """
        Give a producer id that belongs to a place, and that nobody has or had.

        Args:
            place: The number of the partition.
            done: Called once.
        """
        spare = self._spare.get(place)
        if spare:
            done(spare.pop())
            return

        def given(reply: InitProducerReply | WireError) -> None:
            if isinstance(reply, WireError):
                done(reply)
                return
            at = place_of_producer(reply.producer_id)
            self._spare.setdefault(at, []).append(reply.producer_id)
            self.allocate(place, done)

        self._broker.init_producer(given)

    # --- what clients ask -----------------------------------------------------------

    def init_producer(
        self,
        name: str,
        timeout_ms: int,
        client: str,
        answer: Callable[[InitProducerReply | WireError], None],
    ) -> None:
        """
        Give a producer of transactions its identity.

        Args:
            name: The transactional id.
            timeout_ms: After how long its transactions are aborted.
            client: What the client calls itself.
            answer: Called once.
        """

        def told(found: Identity | WireError) -> None:
            if isinstance(found, WireError):
                answer(found)
            else:
                window = self._broker.limits.producer_window
                answer(InitProducerReply(producer_id=found[0], epoch=found[1], window=window))

        def found(coordinator: Coordinator | WireError) -> None:
            refusing = self._refusing
            if isinstance(coordinator, WireError):
                answer(coordinator)
            elif refusing is not None:
                answer(refusing)
            else:
                coordinator.init(name, timeout_ms, client, told)

        self._at(place_of(name), found)

    def end(
        self, request: EndTransaction, answer: Callable[[EndTransactionReply | WireError], None]
    ) -> None:
        """
        Decide a transaction, as its producer wants.

        Args:
            request: What it wants.
            answer: Called once.
        """

        def told(found: Identity | WireError) -> None:
            if isinstance(found, WireError):
                answer(found)
            else:
                answer(EndTransactionReply(identity=found))

        def found(coordinator: Coordinator | WireError) -> None:
            try:
                refusing = self._refusing
                if isinstance(coordinator, WireError):
                    raise coordinator.with_traceback(None)
                if refusing is not None:
                    raise refusing.with_traceback(None)
                places = [self._places(each) for each in (request.topics, *request.more)]
            except WireError as error:
                answer(error)
                return
            name, identity = request.transactional_id, request.transaction
            coordinator.end(name, identity, places, told, commit=request.commit)

        self._at(place_of(request.transactional_id), found)

    @property
    def _refusing(self) -> WireError | None:
        """Why nothing new is decided here; a full disk says so itself, at the write."""
        refusing = self._broker.refusing
        return None if type(refusing) is StorageFull else refusing

    def _places(self, topics: Topics) -> list[Place]:
        """Where a transaction has something; topics that were deleted have nothing."""
        registry = self._broker.meta.registry
        found: dict[Place, None] = {}
        for topic_id, indexes in topics:
            topic = registry.topics.get(topic_id)
            if topic is None:
                if topic_id in registry.deleted:
                    continue
                raise UnknownTopicId(f"there is no topic of the id {topic_id.hex()}, or not yet")
            for index in indexes:
                topic.leader(index)
                found[topic_id, index] = None
        return [*found]

    def fates(self, rows: Sequence[Question], told: Fates) -> None:
        """
        Say what became of transactions.

        Args:
            rows: Of one place.
            told: Called once.
        """

        def found(coordinator: Coordinator | WireError) -> None:
            if isinstance(coordinator, WireError):
                told(coordinator)
            else:
                told([coordinator.fate(row) for row in rows])

        if not rows:
            told([])
        else:
            self._at(place_of_producer(rows[0].identity[0]), found)

    def find(self, name: str, found: Found) -> None:
        """
        Find the coordinator of a producer.

        Args:
            name: The transactional id.
            found: Called once.
        """
        self._at(place_of(name), found)
