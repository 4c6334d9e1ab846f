"""What the group consumers of every face tell of themselves, without asking a broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext

from tinymq.client.core.group.consumer import GroupCore
from tinymq.client.core.group.transactions import GroupShares
from tinymq.client.core.starts import Mark, Start
from tinymq.errors import TinyMQError


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

        Raises:
            UsageError: It commits by itself: make it with ``commit="manual"``.
        """
        with self._lock:
            return self._core.shares()

    # --- what is done ----------------------------------------------------------

    def commit_soon(
        self,
        positions: Mapping[tuple[str, int], int] | None = None,
        note: str | Mapping[tuple[str, int], str] | None = None,
    ) -> None:
        """
        Commit what is done, and wait for nothing; a later commit makes up for one that fails.

        Args:
            positions: As in `commit`.
            note: As in `commit`.

        Raises:
            UsageError: One of the partitions is not assigned, or this is another thread than
                the loop's; `ClosedError`, or `ForkedError` in another process.
        """
        with self._acting() as now:
            self._core.commit(_never_mind, now, positions, note)

    # --- moving ----------------------------------------------------------------

    def pause(self, topic: str, partitions: Iterable[int] | None = None) -> None:
        """
        Hand out nothing more of some partitions, as long as they are assigned.

        Args:
            topic: Name of the topic.
            partitions: Which; None means all that are assigned.

        Raises:
            UsageError: As `commit_soon`.
        """
        with self._acting() as now:
            self._core.pause(topic, partitions, now)

    def resume(self, topic: str, partitions: Iterable[int] | None = None) -> None:
        """
        Go on after `pause`, or try again after an error, at the same position.

        Args:
            topic: Name of the topic.
            partitions: Which; None means all that are assigned.

        Raises:
            UsageError: As `pause`.
        """
        with self._acting() as now:
            self._core.resume(topic, partitions, now)

    def seek(self, topic: str, partition: int, start: Start) -> None:
        """
        Go on elsewhere; what was handed out of the partition counts no more.

        Args:
            topic: Name of the topic.
            partition: Number of the partition.
            start: `EARLIEST`, `LATEST`, an offset, a `Mark`, or `At` a time.

        Raises:
            UsageError: As `pause`, or the start is none.
        """
        with self._acting() as now:
            self._core.seek(topic, partition, start, now)

    # --- the face's ------------------------------------------------------------

    def _acting(self) -> AbstractContextManager[float]:
        """Check that the call may be made here, give the time, and let the loop know."""
        raise NotImplementedError


def _never_mind(_: TinyMQError | None) -> None:
    """Nobody waits for this commit."""
