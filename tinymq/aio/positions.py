"""Positions of a group without being a member, for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from tinymq.aio.network import LoopNetwork, give, refuse
from tinymq.client.core.group.positions import CommittedPosition, Offset, PositionCalls
from tinymq.errors import TinyMQError


class Positions:
    """
    The positions of a group; made by `Client.positions`.

    For programs that choose their partitions themselves, and for a look from outside::

        positions = client.positions("billing")
        found = await positions.committed("orders")
        await consumer.assign("orders", start={0: found[0].mark or EARLIEST})
        ...
        await positions.commit("orders", {0: batch.mark})

    Args:
        calls: Asks brokers.
        network: Loop and cluster.
    """

    def __init__(self, calls: PositionCalls, network: LoopNetwork) -> None:
        self.group = calls.group
        self._calls = calls
        self._network = network

    async def committed(
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
            UsageError: This is not the client's loop; `ForkedError` in another
                process.
        """
        network = self._network
        network.check()
        waiting: asyncio.Future[dict[int, CommittedPosition]] = network.future()

        def known(found: dict[int, CommittedPosition] | None, error: TinyMQError | None) -> None:
            if error is not None:
                refuse(waiting, error)
            else:
                give(waiting, found or {})

        self._calls.committed(topic, partitions, known, network.seconds())
        network.stir()
        return await waiting

    async def commit(self, topic: str, positions: Mapping[int, Offset], note: str = "") -> None:
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
            ClosedError: The client was closed.
            UsageError: A position is none, or this is not the client's loop;
                `ForkedError` in another process.
        """
        network = self._network
        network.check()
        waiting: asyncio.Future[None] = network.future()

        def done(error: TinyMQError | None) -> None:
            if error is not None:
                refuse(waiting, error)
            else:
                give(waiting, None)

        self._calls.commit(topic, positions, note, done, network.seconds())
        network.stir()
        await waiting
