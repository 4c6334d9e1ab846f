"""
Telling publishers which of their records no binding takes.

A batch is stored all the same, and at once; only its answer waits until it was looked
through. Short batches are looked through before they are appended, long ones, or those of
costly rules, in slices, one behind the other, so that nobody else waits for them.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from twisted.logger import Logger

from tinymq.broker.partition import Answer, Appended
from tinymq.broker.routing.tables import Look, Names, Sight, Tables
from tinymq.errors import ShuttingDown, WireError
from tinymq.wire.batch import HAS_DUE, checked_header
from tinymq.wire.frames import Bytes
from tinymq.wire.records import RecordBatch

if TYPE_CHECKING:
    from tinymq.broker.broker import Broker
    from tinymq.broker.partition import Partition
    from tinymq.broker.ports import Timer

#: Seconds for which batches are looked through before others have their turn.
SLICE_SECONDS: Final = 0.002
#: Records and names of targets that are remembered until they are copied, of one partition.
_MOST_KNOWN: Final = 150_000


class Judgement:
    """
    One batch that is looked through.

    Args:
        judge: Of its partition.
        sight: The table by which it is.
        batch: The batch.
        answer: Told when it is stored and looked through.
    """

    __slots__ = (
        "_answer",
        "_at",
        "_batch",
        "_bits",
        "_look",
        "_mixed",
        "_records",
        "_result",
        "_sight",
        "judge",
    )

    def __init__(self, judge: Judge, sight: Sight, batch: RecordBatch, answer: Answer) -> None:
        self.judge = judge
        self._sight = sight
        self._batch = batch
        self._look: Look = sight.look(batch)
        self._records = batch.header.records
        self._answer = answer
        self._result: Appended | None = None
        self._at: list[Names] = []
        self._bits = bytearray()
        #: Whether one table did not look at all records.
        self._mixed = False

    def stored(self, found: Appended | WireError) -> None:
        """
        Hear what came of the batch.

        Args:
            found: Its place, or why it has none.
        """
        if isinstance(found, WireError):
            self._records = len(self._at)  # there is nothing to look for any more
            self.judge.open.pop(self, None)
            self._answer(found)
            return
        self._result = found
        self._tell()

    @property
    def base(self) -> int | None:
        """The first offset of the batch; None if it is not stored yet, or was before."""
        return None if self._result is None or self._result.duplicate else self._result.base_offset

    def _tell(self) -> None:
        result = self._result
        if result is None or len(self._at) < self._records:
            return
        self.judge.open.pop(self, None)
        if not (result.duplicate or self._mixed):
            self.judge.keep(result.base_offset, self._sight, self._at)
        bits = bytes(self._bits)
        self._answer(result._replace(unroutable=bits) if bits else result)

    def go_on(self, judging: Judging) -> bool:
        """
        Look at more records.

        Args:
            judging: Knows the topics, and the time.

        Returns:
            Whether all were looked at.
        """
        self._follow(judging)
        found, sight, look = self._at, self._sight, self._look
        if sight.constant and len(found) < self._records:
            targets = sight.targets(look, 0)
            if not judging.topics(targets):
                bits = (1 << self._records) - (1 << len(found))
                bits |= int.from_bytes(self._bits, "little")
                self._bits = bytearray(bits.to_bytes((self._records + 7) >> 3, "little"))
            found += [targets] * (self._records - len(found))
        while len(found) < self._records:
            for at in range(len(found), min(self._records, len(found) + sight.at_once)):
                targets = sight.targets(look, at)
                found.append(targets)
                if not judging.topics(targets):
                    self._mark(at)
            if judging.late():
                break
        done = len(found) >= self._records
        if done:
            self._tell()
        return done

    def _follow(self, judging: Judging) -> None:
        """Go on by what the table says now: it was changed in place, if it was."""
        now = judging.sight(self.judge)
        if now is not None and now is not self._sight:
            self._look, self._sight = now.look(self._batch), now
            self._mixed = True

    def end(self, why: WireError) -> None:
        """
        Answer that nobody knows.

        Args:
            why: Why it was not looked through.
        """
        self.judge.open.pop(self, None)
        if self._result is not None:
            self._result = None
            self._answer(why)

    def give_up(self) -> None:
        """Answer all the same; what was not looked at is taken for routed."""
        self._mixed = True
        self._at += [()] * (self._records - len(self._at))
        self._tell()

    def _mark(self, at: int) -> None:
        if not self._bits:
            self._bits = bytearray((self._records + 7) >> 3)
        self._bits[at >> 3] |= 1 << (at & 7)


class Judging:
    """
    Looks through what is published to the exchanges of a broker.

    Args:
        broker: The broker.
        tables: Its tables.
    """

    _log = Logger()

    def __init__(self, broker: Broker, tables: Tables) -> None:
        self._broker = broker
        self._tables = tables
        self._waiting: deque[Judgement] = deque()
        self._timer: Timer | None = None
        self._until = 0.0
        self.topics = tables.topics

    def sight(self, judge: Judge) -> Sight | None:
        """
        Return the table of an exchange as it is now; None if the topic is none.

        Args:
            judge: Of a partition of it.
        """
        return self._tables.sight(judge.partition.topic.id)

    def late(self) -> bool:
        """Whether others are to have their turn."""
        return self._broker.scheduler.seconds() >= self._until

    def begin(self, judge: Judge, batch: Bytes, answer: Answer) -> Answer:
        """
        Look at a batch before it is appended.

        Args:
            judge: Of its partition.
            batch: The batch.
            answer: Told when it is stored and looked through.

        Returns:
            What is to be told when it is stored.

        Raises:
            CorruptBatch: What the table looks at cannot be read.
        """
        sight = self.sight(judge)
        if sight is None:
            return answer
        header = checked_header(batch)
        if header.attributes & HAS_DUE or not header.native:
            return answer  # where it goes is known when it is due
        opened = RecordBatch(batch, header, judge.partition.limits.inflated)
        found = Judgement(judge, sight, opened, answer)
        judge.open[found] = None
        if self._waiting:
            self._waiting.append(found)
        else:
            self._until = self._broker.scheduler.seconds() + SLICE_SECONDS
            if not self._go_on(found):
                self._waiting.append(found)
                self._timer = self._broker.scheduler.callLater(0, self._turn)
        return found.stored

    def _go_on(self, one: Judgement) -> bool:
        """Look at more records of a batch; who published it, and others, have their answers."""
        try:
            return one.go_on(self)
        except Exception:  # noqa: BLE001 - it would fail again whenever it is sent again
            self._log.failure("a batch could not be looked through")
            one.give_up()
            return True

    def _turn(self) -> None:
        self._timer = None
        self._until = self._broker.scheduler.seconds() + SLICE_SECONDS
        while self._waiting:
            if self._go_on(self._waiting[0]) and self._waiting:
                self._waiting.popleft().judge.looked()
            if self.late():
                break
        if self._waiting:
            self._timer = self._broker.scheduler.callLater(0, self._turn)

    def close(self) -> None:
        """Look through nothing any more; what is stored will be a repeat when it comes again."""
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None
        waiting, self._waiting = self._waiting, deque()
        for one in waiting:
            one.end(ShuttingDown())


class Judge:
    """
    Looks through what is published to one partition of an exchange.

    Args:
        judging: That of the broker.
        partition: The partition.
        looked: Called when something was looked through that may have waited for it.
    """

    def __init__(self, judging: Judging, partition: Partition, looked: Callable[[], None]) -> None:
        self._judging = judging
        self.looked = looked
        self.partition = partition
        #: What was said of batches that are not copied yet, by their first offsets, in order.
        self._known: OrderedDict[int, tuple[Sight, list[Names], int]] = OrderedDict()
        self._count = 0
        #: What is not looked through yet, or not stored, in order.
        self.open: dict[Judgement, None] = {}

    @property
    def end(self) -> int | None:
        """The offset from which on records are being looked at just now; None if none is."""
        return next((base for one in self.open if (base := one.base) is not None), None)

    def begin(self, batch: Bytes, answer: Answer) -> Answer:
        """
        Look at a batch before it is appended; `Judging.begin`.

        Args:
            batch: The batch.
            answer: Told when it is stored and looked through.
        """
        return self._judging.begin(self, batch, answer)

    def keep(self, base: int, sight: Sight, targets: list[Names]) -> None:
        """
        Remember the targets of a batch until it is copied.

        Args:
            base: Its first offset.
            sight: The table that was asked.
            targets: Of each record.
        """
        if base in self._known or self._count + len(targets) > _MOST_KNOWN:
            return
        size = len(targets) + sum(map(len, targets))
        if self._count + size <= _MOST_KNOWN:
            self._known[base] = sight, targets, size
            self._count += size

    def known(self, base: int, sight: Sight) -> list[Names] | None:
        """
        Return the targets of a batch, if the same table was asked.

        Args:
            base: Its first offset.
            sight: The table.
        """
        found = self._known.get(base)
        return found[1] if found is not None and found[0] is sight else None

    def forget(self, below: int) -> None:
        """
        Forget what is planned.

        Args:
            below: All batches that end below this offset, or there.
        """
        known = self._known
        while known:
            base = next(iter(known))
            if base + len(known[base][1]) > below:
                break
            self._count -= known.pop(base)[2]
