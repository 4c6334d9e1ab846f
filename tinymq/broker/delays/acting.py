"""What becomes of messages that are not due yet: acts, from the wish until they are safe."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from attrs import define, field

from tinymq.broker.delays.acts import CANCELLED, MOVED, NOTED, RELEASED, Act, write
from tinymq.broker.delays.looking import Looking
from tinymq.errors import PartitionOffline, TinyMQError, WireError
from tinymq.wire.batch import PAYLOAD, checked_header
from tinymq.wire.records import encode_batch

if TYPE_CHECKING:
    from tinymq.broker.delays.delaying import Delaying
    from tinymq.broker.delays.index import Index
    from tinymq.broker.partition import Partition
    from tinymq.storage.log import Log
    from tinymq.storage.memory import MemoryLog

#: Told the ids with which it was done, or why it was not.
Done = Callable[["list[int] | WireError"], None]


@define(eq=False)
class Pending:
    """
    An act that is on its way to the disk.

    Attributes:
        act: The act.
        safe: Called when it is there, with the offset behind it.
        failed: Called if it could not be written; without it, it is tried again.
    """

    act: Act
    safe: Callable[[int], None] | None = field(default=None)
    failed: Callable[[WireError], None] | None = field(default=None)


class Acting(Looking):
    """What becomes of messages."""

    def __init__(
        self, host: Delaying, partition: Partition, log: Log | MemoryLog, index: Index
    ) -> None:
        super().__init__(host, partition, log, index)
        self._acts: list[Pending] = []
        self._written: deque[tuple[int, list[Pending]]] = deque()

    def cancel(self, ids: Sequence[int], done: Done) -> None:
        """
        Let messages never come.

        Args:
            ids: Which ones; those that do not wait are passed over.
            done: Told with which it was done, when that is as safe as the topic promises.
        """
        self._act(CANCELLED, ids, 0, done)

    def move(self, ids: Sequence[int], due: int, done: Done) -> None:
        """
        Let messages come at another time.

        Args:
            ids: Which ones; those that do not wait are passed over.
            due: When, milliseconds since the epoch.
            done: Told with which it was done, when that is as safe as the topic promises.
        """
        self._act(MOVED, ids, due, done)

    def _act(self, kind: int, ids: Sequence[int], due: int, done: Done) -> None:
        failure = self.failure
        try:
            found = {} if failure is not None else self._pick(ids)
        except TinyMQError as error:
            failure, found = error if isinstance(error, WireError) else offline(error), {}
        if failure is not None or not found:
            done([] if failure is None else failure)
            return
        waiting = self.memory
        held = {number: waiting.take(number) is not None for number in found}
        waiting.ghosts.update(dict.fromkeys(found, -1))
        stored = waiting.stored * len(found) // max(1, waiting.count)
        waiting.count -= len(found)
        waiting.stored -= stored

        def safe(end: int) -> None:
            if kind == MOVED:
                waiting.count += len(found)
                waiting.stored += stored
                self._place(found, due, end)
            else:
                for number in found:
                    waiting.elsewhere.pop(number, None)
            done([*found])

        def failed(error: WireError) -> None:
            waiting.count += len(found)
            waiting.stored += stored
            for number, before in found.items():
                waiting.ghosts.pop(number, None)
                if held[number] or (before, number) <= waiting.reach:
                    waiting.put(number, before)
            done(error)

        self._write(Pending(Act(kind, self.host.now(), sorted(found), due), safe, failed))

    def _place(self, ids: dict[int, int], due: int, end: int) -> None:
        """Let messages that were moved wait in their new place."""
        for number in ids:
            if (due, number) <= self.memory.reach:
                self.memory.put(number, due)
            else:
                # The index has it there once it has followed so far.
                self._far_end = max(self._far_end, end)

    def _pick(self, ids: Sequence[int]) -> dict[int, int]:
        """Find those messages that wait, and when they are due."""
        waiting = self.memory
        found: dict[int, int] = {}
        others: list[int] = []
        for number in dict.fromkeys(ids):
            due = waiting.due(number)
            if due is not None:
                found[number] = due
            elif number not in waiting.ghosts:
                others.append(number)
        if others:
            for number, row in self._rows_of(others).items():
                if not waiting.knows(number):
                    found[number] = row.due
                    waiting.lies(number, row.offset)
        return found

    def lose(self, ids: list[int]) -> None:
        """
        Write down that messages cannot be read any more.

        Args:
            ids: Which ones.
        """
        self.memory.count -= len(ids)
        self._write(Pending(Act(CANCELLED, self.host.now(), ids)))

    def _write(self, pending: Pending) -> None:
        self._acts.append(pending)
        self._staged_more()

    def _stage_acts(self) -> None:
        if not self._acts:
            return
        log, acts = self._delay_log, self._acts
        batch = encode_batch([write(each.act) for each in acts])
        base = log.end_offset
        self._append(batch[PAYLOAD:], checked_header(batch), base)
        self._acts = []
        self._written.append((log.end_offset, acts))
        ghosts, untold = self.memory.ghosts, self.follower.untold
        for offset, each in enumerate(acts, base):
            ids = each.act.ids
            if each.act.kind == RELEASED:
                # Of those that the index has not it will not hear.
                for number in ids:
                    if number >= untold:
                        ghosts.pop(number, None)
                ids = [number for number in ids if number < untold]
            if each.act.kind != NOTED:
                ghosts.update(dict.fromkeys(ids, offset))

    def rebuilt(self) -> None:
        """Follow anew: the index hears again of what went, and not yet of that it did."""
        self.follower.rebuilt()
        self.freeing.rebuilt()
        self._far_end = max(self._far_end, self.follower.seen)
        ghosts = self.memory.ghosts
        for end, acts in self._written:
            for offset, each in enumerate(acts, end - len(acts)):
                for number in each.act.ids if each.act.kind != NOTED else ():
                    if number not in ghosts:
                        ghosts[number] = offset
        self.mark()

    def _refuse_acts(self, error: WireError) -> None:
        """Tell those who wait for acts; what nobody waits for is tried again."""
        acts, self._acts = self._acts, []
        for each in acts:
            if each.failed is None:
                self._acts.append(each)
        for each in acts:
            if each.failed is not None:
                each.failed(error)


def offline(error: TinyMQError) -> WireError:
    """
    Say of an error of the disk what clients may hear.

    Args:
        error: The error.
    """
    return PartitionOffline(str(error))
