"""Positions of a group without being a member, for programs that block."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tinymq.client.core.group.positions import CommittedPosition, Offset, PositionCalls
from tinymq.errors import DeadlineExceeded, TinyMQError
from tinymq.sync.loop import Loop

_GRACE_S = 1.0


class Positions:
    """
    The positions of a group; made by `Client.positions`.

    For programs that choose their partitions themselves, and for a look from outside::

        positions = client.positions("billing")
        found = positions.committed("orders")
        consumer.assign("orders", start={0: found[0].mark or EARLIEST})
        ...
        positions.commit("orders", {0: batch.mark})

    Args:
        calls: Asks brokers.
        loop: Shared with the client.
    """

    def __init__(self, calls: PositionCalls, loop: Loop) -> None:
        self.group = calls.group
        self._calls = calls
        self._loop = loop

    def committed(
        self, topic: str, partitions: Iterable[int] | None = None
    ) -> dict[int, CommittedPosition]:
        """
        Ask what the group has committed.

        Args:
            topic: Name of the topic.
            partitions: Which; None means all.

        Returns:
            The position of each partition; its offset is -1 where nothing was committed.

        Raises:
            UnknownTopic: Or another of the broker's errors.
            DeadlineExceeded: Or `UnreachableError`, after `ClientConfig.deadline_s`.
            ClosedError: The client was closed.
        """
        ended: list[tuple[dict[int, CommittedPosition] | None, TinyMQError | None]] = []
        loop = self._loop
        with loop.lock:
            loop.check()
            until = self._calls.committed(
                topic, partitions, lambda found, error: ended.append((found, error)), loop.now()
            )
            if not loop.run(lambda: ended, until + _GRACE_S):
                raise DeadlineExceeded("no answer within the deadline")
        found, error = ended[0]
        if error is not None:
            raise error
        return found or {}

    def commit(self, topic: str, positions: Mapping[int, Offset], note: str = "") -> None:
        """
        Commit positions: nobody has to be a member for that, and nobody may be.

        Args:
            topic: Name of the topic.
            positions: By partition: the offset that is to be read next, or a `Mark`.
            note: Text to be kept with them, at most 4096 bytes.

        Raises:
            FencedGeneration: A member of the group reads one of the partitions; or
                another of the broker's errors.
            DeadlineExceeded: Or `UnreachableError`, after `ClientConfig.deadline_s`.
            UsageError: A position is none.
            ClosedError: The client was closed.
        """
        ended: list[TinyMQError | None] = []
        loop = self._loop
        with loop.lock:
            loop.check()
            until = self._calls.commit(topic, positions, note, ended.append, loop.now())
            if not loop.run(lambda: ended, until + _GRACE_S):
                raise DeadlineExceeded("no answer within the deadline")
        if ended[0] is not None:
            raise ended[0]
