"""
What was decided of transactions, in the partitions of this broker; and what nobody decided.

A partition that has something of a transaction waits for the word of its coordinator. If
that does not come for a while, because it was lost or because nobody ever said what
becomes of the transaction, this asks for it, again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from twisted.logger import Logger

from tinymq.broker.transactions.opened import Identity
from tinymq.broker.transactions.places import place_of_producer
from tinymq.errors import StateError, WireError
from tinymq.names import TRANSACTIONS

if TYPE_CHECKING:
    from tinymq.broker.broker import Broker
    from tinymq.broker.partition import Partition, Told
    from tinymq.broker.ports import Timer
    from tinymq.meta.registry import Topic

#: Seconds between two looks at what is not decided.
ASK_SECONDS: Final = 1.0
#: What was not decided for so many milliseconds is asked about.
ASK_MS: Final = 1000
#: Transactions in one question.
_MOST_ASKED: Final = 500

#: A partition: topic id and number.
Place: TypeAlias = tuple[bytes, int]


class Decided(NamedTuple):
    """
    What a partition is to do.

    Attributes:
        place: The partition.
        identity: The transaction.
        commit: Whether it counts.
    """

    place: Place
    identity: Identity
    commit: bool


class Question(NamedTuple):
    """
    What a partition wants to know.

    Attributes:
        place: The partition.
        identity: The transaction that is open in it.
        age_ms: For how long.
    """

    place: Place
    identity: Identity
    age_ms: int


#: Told what became of each: nothing, or what is wrong.
Outcomes: TypeAlias = Callable[[Sequence["WireError | None"]], None]
#: Told whether each counts; None if that is not decided.
Fates: TypeAlias = Callable[["Sequence[bool | None] | WireError"], None]


class Deciding:
    """
    The transactions in the partitions of one broker.

    Args:
        broker: The broker.
    """

    _log = Logger()

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        #: Partitions in which something may be open.
        self._watched: dict[Place, None] = {}
        self._timer: Timer | None = None
        #: Places of which a coordinator is being asked.
        self._asking: set[int] = set()
        #: Where the next question begins, so that all have their turn.
        self._turns: dict[int, int] = {}
        self._closed = False

    def opened(self, partition: Partition) -> None:
        """
        Look after a partition from now on.

        Args:
            partition: One that was opened; its channels say themselves if they hold something.
        """
        partition.transactions.began = partial(self.watch, partition)
        if partition.transactions.open:
            self.watch(partition)

    def watch(self, partition: Partition) -> None:
        """
        Hear that something of a transaction is in a partition.

        Args:
            partition: The partition.
        """
        self._watched[partition.key] = None
        if self._timer is None and not self._closed:
            self._timer = self._broker.scheduler.callLater(ASK_SECONDS, self._look)

    def drop(self, partition: Partition) -> None:
        """
        Forget a partition that is here no more.

        Args:
            partition: Its topic was deleted.
        """
        self._watched.pop(partition.key, None)

    def close(self) -> None:
        """Ask nobody any more."""
        self._closed = True
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None

    # --- what was decided ---------------------------------------------------------

    def decide_all(self, rows: Sequence[Decided], done: Outcomes) -> None:
        """
        Do what was decided in some partitions of this broker.

        Args:
            rows: What; in what is done already nothing changes.
            done: Called once, when all is on the disk that could be done.
        """
        found: list[WireError | None] = [None] * len(rows)
        waiting = len(rows)

        def told(at: int, error: WireError | None) -> None:
            nonlocal waiting
            found[at] = error
            waiting -= 1
            if not waiting:
                done(found)

        if not rows:
            done([])
        for at, row in enumerate(rows):
            self.decide(row, partial(told, at))

    def decide(self, row: Decided, done: Told) -> None:
        """
        Do what was decided in a partition of this broker.

        Args:
            row: What.
            done: Called once, when it is on the disk, or with what is wrong.
        """
        (topic_id, index), identity, commit = row
        try:
            partition = self._broker.partition(topic_id, index)
        except WireError as error:
            done(error.with_traceback(None))
            return
        failed: list[WireError] = []
        waiting = 2

        def told(error: WireError | None) -> None:
            nonlocal waiting
            if error is not None:
                failed.append(error)
            waiting -= 1
            if not waiting:
                done(failed[0] if failed else None)

        self._settle(partition, identity, told, commit=commit)
        self._end(partition, identity, told, commit=commit)

    def _settle(
        self, partition: Partition, identity: Identity, done: Told, *, commit: bool
    ) -> None:
        """Let positions and settles count, or not."""
        hosted = self._broker.channels.hosted(*partition.key)
        if hosted is None:
            # Its ledger may hold something, and cannot be read; its readers need not wait for that.
            why = self._broker.channels.unopened(partition)
            done(None if why is None else StateError(f"{partition}: {why}"))
            return
        hosted.decide(identity, commit=commit)
        # Though nothing was held: it may have been decided a moment ago.
        hosted.synced(done)

    def _end(self, partition: Partition, identity: Identity, done: Told, *, commit: bool) -> None:
        """Write the control batch where there are records."""

        def ended(error: WireError | None) -> None:
            if error is not None or partition.volatile or partition.synced_policy:
                done(error)
            else:
                # The coordinator forgets it then: no power cut may open it again.
                self._sync(partition, partition.log.written_offset, done)

        if partition.decide(identity, self._broker.wall(), ended, commit=commit):
            self._broker.committer.staged(partition)

    def _sync(self, partition: Partition, end: int, done: Told) -> None:
        """Wait for the disk, whatever the topic promises."""
        if partition.failure is not None or partition.log.synced_offset >= end:
            done(partition.failure)
            return

        def again() -> None:
            self._broker.scheduler.callLater(0, self._sync, partition, end, done)

        self._broker.committer.sync_all([partition])
        self._broker.committer.after_sync(again)

    # --- what nobody decided ---------------------------------------------------------

    def undecided(self, partition: Partition) -> dict[Identity, int]:
        """
        Say which transactions have something in a partition, and since when.

        Args:
            partition: The partition.
        """
        hosted = self._broker.channels.hosted(*partition.key)
        found = {} if hosted is None else hosted.held()
        for identity, (_, since) in partition.transactions.open.items():
            found[identity] = min(found.get(identity, since), since)
        return found

    def _look(self) -> None:
        self._timer = None
        now = self._broker.wall()
        asked: dict[int, list[Question]] = {}
        for place in tuple(self._watched):
            partition = self._broker.held(*place)
            found = {} if partition is None else self.undecided(partition)
            if not found or partition is None:
                del self._watched[place]
                continue
            for identity, since in found.items():
                # A clock that was set back must not keep them open for ever.
                age = now - since if now >= since else ASK_MS
                if age >= ASK_MS:
                    at = place_of_producer(identity[0])
                    asked.setdefault(at, []).append(Question(place, identity, age))
        for at, rows in asked.items():
            if at not in self._asking:
                first = self._turns.get(at, 0) % len(rows)
                self._turns[at] = first + _MOST_ASKED
                self._ask(at, [*rows[first:], *rows[:first]][:_MOST_ASKED])
        if self._watched and not self._closed:
            self._timer = self._broker.scheduler.callLater(ASK_SECONDS, self._look)

    def _ask(self, at: int, rows: list[Question]) -> None:
        self._asking.add(at)

        def told(found: Sequence[bool | None] | WireError) -> None:
            self._asking.discard(at)
            if isinstance(found, WireError):
                self._log.debug("what became of transactions is not known: {error}", error=found)
                return
            for row, commit in zip(rows, found, strict=True):
                if commit is not None:
                    self.decide(Decided(row.place, row.identity, commit), _nothing)

        topic = self._broker.meta.registry.by_name.get(TRANSACTIONS)
        if topic is not None:
            self._ask_leader(topic, at, rows, told)
            return

        def ensured(made: Topic | WireError) -> None:
            if isinstance(made, WireError):
                told(made)
            else:
                self._ask_leader(made, at, rows, told)

        self._broker.meta.ensure_topic(TRANSACTIONS, ensured)

    def _ask_leader(self, topic: Topic, at: int, rows: list[Question], told: Fates) -> None:
        leader = topic.leader(at)
        if leader == self._broker.id:
            self._broker.transacting.fates(rows, told)
            return

        def answered(result: dict[str, object] | WireError) -> None:
            told(result if isinstance(result, WireError) else result["fates"])  # type: ignore[arg-type]

        asked = [[row.place[0].hex(), row.place[1], *row.identity, row.age_ms] for row in rows]
        self._broker.neighbours.ask(leader, "node.fate", {"rows": asked}, answered)


def _nothing(error: WireError | None) -> None:
    """Go on asking if it failed: it is open still."""
