"""Where a group goes in one partition that is moved by hand, and what that means."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tinymq.broker.groups.positions import NONE, Place, Position

if TYPE_CHECKING:
    from tinymq.broker.hosted import Hosted
    from tinymq.broker.partition import Partition


class Step(NamedTuple):
    """
    What is done to a group in one partition.

    Attributes:
        hosted: Where.
        before: The position until now; None for none.
        after: The position from now on; None for none.
        skipped: Messages that will not be read.
        replayed: Messages that will be read again.
    """

    hosted: Hosted
    before: int | None
    after: int | None
    skipped: int
    replayed: int


def step(hosted: Hosted, position: Position, after: int | None) -> Step:
    """
    Say what a move means.

    Args:
        hosted: Where.
        position: What is known of the group.
        after: Where it goes; None to nowhere.
    """
    place = position.place.offset
    before = None if place == NONE else place
    skipped = replayed = 0
    if before is not None and after is not None:
        start = hosted.partition.log.start_offset
        skipped = max(0, after - max(before, start))
        replayed = max(0, before - max(after, start))
    return Step(hosted, before, after, skipped, replayed)


def target(partition: Partition, to: str | int, now: int | None) -> int | None:
    """
    Find where a move goes.

    Args:
        partition: The partition.
        to: earliest, latest, an offset, ``@MILLISECONDS``, ``+N`` or ``-N``.
        now: Where the group is; None for nowhere.

    Returns:
        The nearest offset that there is; None if it depends on where the group is, and it is
        nowhere.
    """
    start, end = partition.log.start_offset, partition.stable_offset
    if to == "earliest":
        return start
    if to == "latest":
        return end
    if isinstance(to, int):
        wanted = to
    elif to.startswith("@"):
        wanted = partition.offset_at(int(to[1:]))[0]
    elif now is None:
        return None
    else:
        wanted = now + int(to)
    return max(start, min(wanted, end))


def move(one: Step, group: str) -> None:
    """
    Carry a move out; it can be taken back for as long as a purge of the topic can.

    Args:
        one: The move.
        group: The group's mark.

    Raises:
        UnstablePosition: A transaction that is not decided would move it.
    """
    hosted, place = one.hosted, Place()
    now = hosted.now
    if one.after is not None:
        place = Place(one.after, hosted.partition.epoch_before(one.after), "", now)
    until = now + hosted.partition.topic.config.undo_ms
    hosted.positions.move(group, place, until)


def undone(hosted: Hosted, position: Position) -> Step | None:
    """
    Say what it means to take the last move back.

    Args:
        hosted: Where.
        position: What is known of the group.

    Returns:
        None if there is none, it is too long ago, or the messages that would be read are gone.
    """
    former = position.former
    if former is None or not position.takes_back(hosted.now):
        return None
    if former.offset == NONE:
        return step(hosted, position, None)
    if former.offset < hosted.partition.log.start_offset:
        return None
    return step(hosted, position, former.offset)
