"""
COMMIT and COMMITTED: how far groups have read, in the partitions of this broker.

What is told is as safe as the topic promises before it is told: a commit, that a
partition was given to somebody, and also where a group is, so that nobody sees a
position that a crash would take back.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tinymq.broker.groups.positions import NONE, Identity, Move
from tinymq.errors import (
    InvalidRequest,
    LogTruncated,
    OffsetOutOfRange,
    Overloaded,
    UnknownGroup,
    UnstablePosition,
    WireError,
)
from tinymq.limits import KIB, LATEST_MS
from tinymq.meta.registry import GroupInfo
from tinymq.names import valid_name
from tinymq.wire.messages import (
    Commit,
    CommitReply,
    CommitRow,
    Committed,
    CommittedReply,
    CommittedRow,
    error_meta,
    start_time,
)

if TYPE_CHECKING:
    from tinymq.broker.broker import Broker
    from tinymq.broker.hosted import Hosted
    from tinymq.broker.partition import Partition

#: Told the answer once, maybe before the call returns.
Done = Callable[["CommitReply | WireError"], None]
Told = Callable[["CommittedReply | WireError"], None]

#: Bytes of texts and notes in one answer, which must fit into a reply; what is over is told
#: shorter, or when it is asked for again.
MOST_TOLD: Final = 512 * KIB

#: The last generation that a partition is given in. They are times in milliseconds, and rise by
#: one with each division where one was named that is ahead of the clock.
MOST_GENERATION: Final = 2 * LATEST_MS

#: What is told of a partition where nothing was committed, or nobody knows.
_NOTHING: Final = (NONE, NONE, "", NONE)


class _Together:
    """
    The ledgers that must be safe before an answer is given.

    Attributes:
        failed: Those that will not be, and why.
    """

    def __init__(self) -> None:
        self.failed: dict[Hosted, WireError] = {}
        self._touched: dict[Hosted, None] = {}

    def touch(self, hosted: Hosted) -> None:
        """Wait for the ledger of a partition."""
        self._touched[hosted] = None

    def when_safe(self, tell: Callable[[], None], *, synced: bool = False) -> None:
        """Call something once, maybe at once, when all is safe, or on the disk, or has failed."""
        waiting = [*self._touched]
        left = len(waiting)

        def safe(hosted: Hosted, error: WireError | None) -> None:
            nonlocal left
            left -= 1
            if error is not None:
                self.failed[hosted] = error
            if not left:
                tell()

        if not waiting:
            tell()
        for hosted in waiting:
            ask = hosted.synced if synced else hosted.settled
            ask(partial(safe, hosted))


class Committing:
    """
    The positions of groups, in all partitions of a broker.

    Args:
        broker: The broker.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    # --- COMMIT --------------------------------------------------------------------------

    def commit(self, request: Commit, done: Done) -> None:
        """
        Take commits.

        Who is no member makes the group by its first commit; a member commits only where
        the group is known, so that one that was deleted is not made anew by who is late.

        Args:
            request: What is asked.
            done: Called once, maybe before this returns.

        Raises:
            InvalidName: The group's name cannot be one.
            UnknownGroup: There is no such group, and a member of it cannot be.
        """
        member = any(row[1] != NONE for _, rows in request.topics for row in rows)

        def known(group: GroupInfo | WireError) -> None:
            if isinstance(group, WireError):
                done(group)
            else:
                self._commit(group.mark, request, done)

        self._find(request.group, known, make=not member)

    def _find(
        self, name: str, known: Callable[[GroupInfo | WireError], None], *, make: bool
    ) -> None:
        group = self._broker.meta.registry.groups.get(valid_name(name))
        if group is not None:
            known(group)
        elif make:
            self._broker.meta.ensure_group(name, known)
        else:
            known(
                UnknownGroup(
                    f"there is no group {name}; it was deleted, and joining makes it anew",
                    group=name,
                )
            )

    def _commit(self, group: str, request: Commit, done: Done) -> None:
        together = _Together()
        synced = request.transaction is not None
        told: list[tuple[bytes, list[tuple[int, Hosted | WireError]]]] = []
        for topic_id, rows in request.topics:
            answers: list[tuple[int, Hosted | WireError]] = []
            for row in rows:
                try:
                    hosted = self._commit_one(group, topic_id, row, request)
                except WireError as error:
                    answers.append((row[0], error.with_traceback(None)))
                else:
                    together.touch(hosted)
                    answers.append((row[0], hosted))
            told.append((topic_id, answers))

        def answer() -> None:
            failed, room = together.failed, _Room()
            done(
                CommitReply(
                    topics=[
                        (topic_id, [(index, _error(each, failed, room)) for index, each in answers])
                        for topic_id, answers in told
                    ]
                )
            )

        # It must not be lost when the transaction is committed, whatever the topic promises.
        together.when_safe(answer, synced=synced)

    def _commit_one(self, group: str, topic_id: bytes, row: CommitRow, request: Commit) -> Hosted:
        index, generation, offset, epoch, note = row
        _check_generation(generation)
        partition = self._broker.partition(topic_id, index)
        check_offset(partition, offset, epoch)
        hosted = self._broker.channels.hosting(partition)
        move = Move(group, generation, offset, epoch, note, request.member, hosted.now)
        if request.transaction is None:
            hosted.positions.commit(move)
        else:
            self.hold(hosted, request.transaction, move)
        return hosted

    def hold(self, hosted: Hosted, transaction: Identity, move: Move) -> None:
        """
        Take a commit that counts with a transaction.

        Args:
            hosted: The place of the positions.
            transaction: The transaction.
            move: What the commit says.

        Raises:
            FencedGeneration: It is not for this one to commit.
        """
        hosted.positions.hold(transaction, [move])
        self._broker.deciding.watch(hosted.partition)

    # --- COMMITTED -----------------------------------------------------------------------

    def committed(self, request: Committed, done: Told) -> None:
        """
        Tell where a group is; who names a generation is given the partitions by this.

        Args:
            request: What is asked.
            done: Called once, maybe before this returns.

        Raises:
            InvalidName: The group's name cannot be one.
        """
        takes = any(share[1] != NONE for _, shares in request.topics for share in shares)

        def known(group: GroupInfo | WireError) -> None:
            if not isinstance(group, WireError):
                self._committed(group.mark, request, done)
            elif takes:
                done(group)
            else:
                self._committed("", request, done)

        self._find(request.group, known, make=takes)

    def _committed(self, group: str, request: Committed, done: Told) -> None:
        together = _Together()
        told: list[tuple[bytes, list[tuple[Hosted | None, CommittedRow]]]] = []
        for topic_id, shares in request.topics:
            rows = [self._look(group, topic_id, share, request, together) for share in shares]
            told.append((topic_id, rows))

        def answer() -> None:
            failed, room = together.failed, _Room()
            done(CommittedReply(topics=[_told(each, failed, room) for each in told]))

        together.when_safe(answer)

    def _look(
        self,
        group: str,
        topic_id: bytes,
        share: tuple[int, int],
        request: Committed,
        together: _Together,
    ) -> tuple[Hosted | None, CommittedRow]:
        index, generation = share
        try:
            partition = self._broker.partition(topic_id, index)
            start, end = partition.log.start_offset, partition.stable_offset
            if generation != NONE:
                _check_generation(generation)
                hosted = self._broker.channels.hosting(partition)
                hosted.positions.take(group, generation, request.member)
                if request.start is not None:
                    _begin(hosted, request.start, group, generation, request.member)
            else:
                known = self._broker.channels.hosted(topic_id, index)
                if known is None or not group:
                    return None, (index, *_NOTHING, start, end, None)
                hosted = known
        except WireError as refused:
            return None, (index, *_NOTHING, NONE, NONE, error_meta(refused))
        together.touch(hosted)
        place = hosted.positions.of(group).place
        unstable = hosted.positions.unstable(group)
        error = error_meta(_undecided(group)) if unstable else None
        return hosted, (index, *place, start, end, error)


def check_offset(partition: Partition, offset: int, epoch: int) -> None:
    """
    Refuse a position that the log never had, or has no more.

    Args:
        partition: Where.
        offset: The position; it may lie before what is kept.
        epoch: The leader epoch of the record before it, or -1.

    Raises:
        LogTruncated: The records before it did not survive an unclean stop.
        OffsetOutOfRange: It lies behind the end.
        PartitionOffline: The partition is.
    """
    failure = partition.failure
    if failure is not None:
        raise failure.with_traceback(None)
    start, end, epochs = partition.log.start_offset, partition.high_watermark, partition.epochs
    if epoch >= 0 and epochs is not None and epoch < epochs.current:
        survived = epochs.end_of(epoch, end)
        if offset > survived:
            raise LogTruncated(
                f"{partition.topic.name}/{partition.index} was cut back to {survived} after an "
                f"unclean stop; what was read up to {offset} did not survive",
                start=start,
                end=survived,
            )
    if offset > end:
        raise OffsetOutOfRange(
            f"{partition.topic.name}/{partition.index} can be read from offsets {start} to {end}, "
            f"and nobody can have read up to {offset}",
            start=start,
            end=end,
        )


def _begin(hosted: Hosted, start: str | int, group: str, generation: int, member: str) -> None:
    """
    Commit where a group begins, if it has committed nothing: no later owner begins elsewhere.

    A start that cannot be read is not committed: whoever reads there is told.
    """
    positions, partition = hosted.positions, hosted.partition
    if positions.of(group).place.offset != NONE or positions.unstable(group):
        return
    if isinstance(start, int):
        if not partition.log.start_offset <= start <= partition.stable_offset:
            return
        offset, epoch = start, partition.epoch_before(start)
    else:
        offset, epoch, _ = partition.offset_at(start_time(start))
    positions.commit(Move(group, generation, offset, epoch, "", member, hosted.now))


def _check_generation(generation: int) -> None:
    """
    Refuse a generation that no coordinator gives, for none could ever give a later one.

    Args:
        generation: What is named.

    Raises:
        InvalidRequest: It is far in the future.
    """
    if generation > MOST_GENERATION:
        raise InvalidRequest("no group is in such a generation", field="q")


def _undecided(group: str) -> UnstablePosition:
    return UnstablePosition(
        f"a transaction that moves group {group.rpartition('@')[0]} is not decided yet; ask again"
    )


class _Room:
    """What is left of the room of one answer."""

    def __init__(self) -> None:
        self._left = MOST_TOLD

    def takes(self, size: int) -> bool:
        """Say whether something has room, and take that."""
        self._left -= size
        return self._left >= 0

    def shortened(self, error: dict[str, Any]) -> dict[str, Any]:
        """Leave the text of an error out where there is no room; its code says enough."""
        return error if self.takes(len(error.get("x", ""))) else {**error, "x": ""}


def _error(
    found: Hosted | WireError, failed: dict[Hosted, WireError], room: _Room
) -> dict[str, Any] | None:
    error = found if isinstance(found, WireError) else failed.get(found)
    return None if error is None else room.shortened(error_meta(error))


def _told(
    rows: tuple[bytes, list[tuple[Hosted | None, CommittedRow]]],
    failed: dict[Hosted, WireError],
    room: _Room,
) -> tuple[bytes, list[CommittedRow]]:
    topic_id, found = rows
    return topic_id, [
        _row(None if hosted is None else failed.get(hosted), row, room) for hosted, row in found
    ]


def _row(failed: WireError | None, row: CommittedRow, room: _Room) -> CommittedRow:
    index, offset, epoch, note, time, start, end, error = row
    if failed is None and note and not room.takes(len(note.encode())):
        failed = Overloaded("the notes of these partitions are too long for one answer; ask again")
    if failed is not None:
        return index, *_NOTHING, NONE, NONE, room.shortened(error_meta(failed))
    told = error and room.shortened(error)
    return index, offset, epoch, note, time, start, end, told
