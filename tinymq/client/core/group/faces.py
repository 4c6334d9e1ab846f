"""What the group consumers of every face tell of themselves, without asking a broker."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from tinymq.client.core.group.consumer import GroupCore
from tinymq.client.core.group.transactions import GroupShares
from tinymq.client.core.starts import Mark


class GroupConsumerFace:
    """A group consumer with its core."""

    _core: GroupCore
    #: Held while positions are read; the loop's own where threads share a consumer.
    _lock: AbstractContextManager[object] = nullcontext()

    @property
    def group(self) -> str:
        """Name of the group."""
        return self._core.group

    @property
    def member(self) -> str:
        """Number of this member, new whenever it has to join anew."""
        return self._core.membership.id

    @property
    def generation(self) -> int:
        """The newest generation of the group that it knows; 0 before it has joined."""
        return self._core.membership.generation

    @property
    def assigned(self) -> list[tuple[str, int]]:
        """Topic and partition of everything that it reads."""
        with self._lock:
            return self._core.assigned

    def position(self, topic: str, partition: int) -> int:
        """
        Say which offset is handed out next, or -1 while that is not known.

        Args:
            topic: Name of the topic.
            partition: Number of the partition.
        """
        with self._lock:
            return self._core.position(topic, partition).offset

    def floor(self, topic: str, partition: int) -> Mark:
        """
        Say below which offset all is done: the next commit says so; -1 while not known.

        Args:
            topic: Name of the topic.
            partition: Number of the partition.
        """
        with self._lock:
            return self._core.done_to(topic, partition)

    def shares(self) -> GroupShares:
        """
        Say what a transaction commits: all that was handed out and is not committed.

        Call its `done` when the transaction was committed, and `back` when it was not.
        """
        with self._lock:
            return self._core.shares()
