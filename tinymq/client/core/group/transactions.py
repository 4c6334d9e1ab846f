"""What a transaction commits for a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from attrs import field, frozen

if TYPE_CHECKING:
    from tinymq.client.core.group.consumer import GroupCore


class ShareRow(NamedTuple):
    """
    How far one partition was handed out.

    Attributes:
        topic: Name of the topic.
        topic_id: Its identity.
        partition: Number of the partition.
        generation: In which the member was given it.
        offset: What would be handed out next.
        epoch: Epoch of the record before that, or -1.
        note: What is committed with it.
    """

    topic: str
    topic_id: bytes
    partition: int
    generation: int
    offset: int
    epoch: int
    note: str


@frozen
class GroupShares:
    """
    What was handed out and is not committed: a transaction commits it with its records.

    Attributes:
        group: Name of the group.
        member: Number of the member.
        rows: How far each partition was handed out; those without anything new are left
            out.
    """

    group: str
    member: str
    rows: tuple[ShareRow, ...]
    _core: GroupCore = field(repr=False, eq=False)

    def done(self) -> None:
        """The transaction was committed: all of it is done, and needs no further commit."""
        self._core.settled(self)

    def back(self) -> None:
        """The transaction was aborted: all of it is handed out again."""
        self._core.again(self)
