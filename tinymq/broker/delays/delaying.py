"""All messages of a broker that are not due yet."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgpack
from twisted.logger import Logger

from tinymq.broker.delays.delays import Delays
from tinymq.broker.delays.index import Index, Rebuilt
from tinymq.broker.delays.releasing import released_in
from tinymq.broker.delays.shelf import Shelf
from tinymq.broker.producers import ProducerTable
from tinymq.broker.snapshots import load_delayers, save_delayers
from tinymq.errors import StateError, StorageFull, TinyMQError, WireError

if TYPE_CHECKING:
    from tinymq.broker.broker import Broker
    from tinymq.broker.partition import Answer, Partition
    from tinymq.broker.ports import Timer
    from tinymq.storage.log import Log
    from tinymq.storage.memory import MemoryLog
    from tinymq.wire.frames import Bytes

#: Seconds between two steps of forgetting topics that are gone.
_FORGET_SECONDS: Final = 0.02
#: How often a partition is opened when the index turns out to be damaged meanwhile.
_ATTEMPTS: Final = 3
#: Seconds after which it is tried again to open what could not be opened.
_AGAIN_SECONDS: Final = 5.0


class Delaying:
    """
    What waits in the partitions of a broker.

    Args:
        broker: The broker.

    Attributes:
        shelf: Batches that were read last.
    """

    _log = Logger()

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.shelf = Shelf()
        self._delays: dict[tuple[bytes, int], Delays] = {}
        #: Partitions of which what waits is not here yet, and why, by their keys.
        self._unopened: dict[tuple[bytes, int], tuple[Partition, str]] = {}
        self._again: Timer | None = None
        self._stored: Index | None = None
        self._volatile: Index | None = None
        self._gone: list[tuple[Index, int]] = []
        self._timer: Timer | None = None

    def now(self) -> int:
        """Milliseconds since the epoch; no step of the wall clock moves it."""
        return self.broker.channels.now()

    def all(self) -> list[Delays]:
        """Return those of all partitions that have some."""
        return [*self._delays.values()]

    def of(self, partition: Partition) -> Delays | None:
        """
        Find those of a partition, None if it never had one.

        Args:
            partition: The partition.

        Raises:
            StateError: What waits there could not be read so far.
        """
        self.check(partition.topic.id, partition.index)
        return self._delays.get(partition.key)

    def check(self, topic_id: bytes | None, index: int | None) -> None:
        """
        Refuse to speak for partitions of which it is not known what waits.

        Args:
            topic_id: Of a topic; None for all.
            index: Of a partition; None for all.

        Raises:
            StateError: What waits in one of them could not be read so far.
        """
        for (owner, number), (partition, why) in self._unopened.items():
            if topic_id in (None, owner) and index in (None, number):
                raise StateError(_not_open(partition, why))

    def refusing(self, partition: Partition) -> WireError | None:
        """
        Say why nothing is appended to a partition now, None if something is.

        Args:
            partition: The partition.
        """
        refusing = self.broker.refusing or partition.full
        if partition.volatile and type(refusing) is StorageFull:
            return None
        return refusing

    # --- taking --------------------------------------------------------------------------

    def take(self, partition: Partition, batch: Bytes, answer: Answer) -> None:
        """
        Take a batch of messages that are not due yet.

        Args:
            partition: Where they are to come.
            batch: Exactly one batch.
            answer: Called once.
        """
        try:
            delays = self.opened(partition)
        except WireError as error:
            answer(error)
            return
        if delays.take(batch, answer):
            self.broker.committer.staged(delays)

    def opened(self, partition: Partition) -> Delays:
        """
        Return what waits in a partition, beginning with nothing where nothing ever did.

        Args:
            partition: The partition.

        Raises:
            StateError: What waits there could not be read.
            WireError: The partition cannot be used.
        """
        found = self._delays.get(partition.key)
        if found is not None:
            return found
        failure = partition.failure
        if failure is not None:
            raise failure.with_traceback(None)
        try:
            return self._open(partition)
        except (OSError, TinyMQError) as error:
            raise StateError(_not_open(partition, str(error))) from error

    # --- life ----------------------------------------------------------------------------

    def open(self) -> None:
        """Take over what waited before this start."""
        for partition in self.broker.partitions():
            self.recover(partition)
        self._forget_others()

    def recover(self, partition: Partition) -> None:
        """
        Take over what waited in a partition before this start, if something did.

        Where that fails, as on a full disk, it is tried again until it is done.

        Args:
            partition: The partition.
        """
        if partition.failure is not None or not self.broker.store.has_delays(partition):
            return
        try:
            self._open(partition)
        except (OSError, TinyMQError) as error:
            why = str(error)
            if self._unopened.get(partition.key) != (partition, why):
                self._log.error("{why}; it is tried again", why=_not_open(partition, why))
            self._unopened[partition.key] = partition, why
            if self._again is None:
                self._again = self.broker.scheduler.callLater(_AGAIN_SECONDS, self._try_again)

    def _try_again(self) -> None:
        self._again = None
        for partition, _ in [*self._unopened.values()]:
            self.recover(partition)
            if partition.key not in self._unopened:
                self._log.info("what waits in {partition} is open now", partition=partition)

    def _open(self, partition: Partition) -> Delays:
        log = self.broker.store.open_delays(partition)
        try:
            return self._take_over(partition, log)
        except (OSError, TinyMQError):
            log.close()
            raise

    def _take_over(self, partition: Partition, log: Log | MemoryLog) -> Delays:
        index = self._index(volatile=partition.volatile)
        for _ in range(_ATTEMPTS):
            delays = Delays(self, partition, log, index)
            try:
                delays.recover(lambda start: list(released_in(partition, start)))
                break
            except Rebuilt:
                # The index turned out to be damaged, and is empty now: from the start.
                delays.stop()
        else:
            raise StateError("its index is damaged again and again")
        self._delays[partition.key] = delays
        self._unopened.pop(partition.key, None)
        partition.delays = delays
        delays.mark()
        return delays

    def _index(self, *, volatile: bool) -> Index:
        found = self._volatile if volatile else self._stored
        if found is None:
            found = self.broker.store.open_index(self.broker.background, volatile=volatile)
            found.broken = partial(self._rebuilt, found)
            if volatile:
                self._volatile = found
            else:
                self._stored = found
        return found

    def _rebuilt(self, index: Index) -> None:
        # What was to be forgotten is gone, and others may be called so now.
        self._gone = [each for each in self._gone if each[0] is not index]
        for delays in self._delays.values():
            if delays.index is index:
                delays.rebuilt()

    def table(self, snapshot: list[Any]) -> ProducerTable:
        """
        Make a table of the producers of delayed messages.

        Args:
            snapshot: What is known of them.
        """
        config = self.broker.config.producers
        table = ProducerTable(
            self.broker.limits.producer_window, config.remembered, config.forget_seconds * 1000
        )
        table.restore(snapshot)
        return table

    def recall_producers(self, delays: Delays) -> int:
        """
        Take over what was kept of the producers of delayed messages.

        Args:
            delays: What waits in a partition.

        Returns:
            The offset below which nothing of the delay log need be looked at for it.
        """
        end = delays.log.written_offset
        known, packed = delays.index.producers(delays.follower.home)
        snapshot = [] if packed is None or known > end else msgpack.unpackb(packed)
        known = known if known <= end else 0
        if delays.stored:
            stored, other = load_delayers(self.broker.store.folder.disk, self._home(delays), end)
            if stored > known:
                known, snapshot = stored, other
        delays.producers = self.table(snapshot)
        return known

    def keep_producers(self, delays: Delays, *, durable: bool = False) -> None:
        """
        Keep what is known of the producers of delayed messages.

        Args:
            delays: What waits in a partition.
            durable: Whether the batches go from which it could be read again.
        """
        known = delays.follower.upto
        # What is beyond may be cut, and its offsets given again.
        table = self.table(delays.producers.snapshot())
        table.take_back(known)
        snapshot = table.snapshot()
        delays.index.keep_producers(delays.follower.home, known, msgpack.packb(snapshot))
        if durable and delays.stored:
            disk = self.broker.store.folder.disk
            save_delayers(disk, self._home(delays), known, snapshot)

    def _home(self, delays: Delays) -> str:
        path = self.broker.store.folder.partition_path(*delays.partition.key)
        return str(Path(path).parent)

    def drop(self, partition: Partition) -> None:
        """
        Let go of what waits in a partition that is here no more.

        Args:
            partition: Its topic was deleted.
        """
        self._unopened.pop(partition.key, None)
        delays = self._delays.pop(partition.key, None)
        if delays is not None:
            self.broker.committer.forget(delays)
            delays.stop()
            self.shelf.forget(partition.key)
            self._forget(self._index(volatile=partition.volatile), delays.follower.home)

    def _forget_others(self) -> None:
        """Forget the rows of topics that were deleted while this broker was away."""
        if self._stored is None:
            return
        with suppress(Rebuilt):  # with nothing but what was opened before
            for home, topic_id, _ in self._stored.homes():
                if topic_id in self.broker.meta.registry.deleted:
                    self._forget(self._stored, home)

    def _forget(self, index: Index, home: int) -> None:
        self._gone.append((index, home))
        if self._timer is None:
            self._timer = self.broker.scheduler.callLater(_FORGET_SECONDS, self._forget_some)

    def _forget_some(self) -> None:
        self._timer = None
        if not self._gone:
            return
        index, home = self._gone.pop()
        try:
            if index.forget(home):
                self._gone.append((index, home))
        except (TinyMQError, Rebuilt) as error:
            self._log.warn("rows of a deleted topic stay: {error}", error=error)
        if self._gone:
            self._timer = self.broker.scheduler.callLater(_FORGET_SECONDS, self._forget_some)

    def close(self) -> None:
        """Release nothing any more; who stops the broker writes what is left."""
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        if self._again is not None and self._again.active():
            self._again.cancel()
        self._timer = self._again = None
        for delays in self._delays.values():
            delays.stop()


def _not_open(partition: Partition, why: str) -> str:
    return f"what waits in {partition.topic.name}/{partition.index} is not open: {why}"
