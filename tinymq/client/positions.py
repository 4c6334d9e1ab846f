"""Positions of a group without being a member, with Deferreds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from twisted.internet.defer import Deferred, fail

from tinymq.client.core.fork import Home
from tinymq.client.core.group.positions import CommittedPosition, Offset, PositionCalls
from tinymq.client.line import teller
from tinymq.client.network import TwistedNetwork
from tinymq.errors import ClosedError, TinyMQError


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
        network: Wakes the cluster.
        home: The process in which the client was made.
    """

    def __init__(self, calls: PositionCalls, network: TwistedNetwork, home: Home) -> None:
        self.group = calls.group
        self._calls = calls
        self._network = network
        self._home = home

    def committed(
        self, topic: str, partitions: Iterable[int] | None = None
    ) -> Deferred[dict[int, CommittedPosition]]:
        """
        Ask what the group has committed.

        Args:
            topic: Name of the topic.
            partitions: Which; None means all.

        Returns:
            A Deferred that ends

            - with the position of each partition; its offset is -1 where nothing was
              committed;
            - with `UnknownTopic` or another of the broker's errors;
            - with `DeadlineExceeded` or `UnreachableError` after
              `ClientConfig.deadline_s`;
            - with `ClosedError`, `ForkedError`, or `CancelledError`.
        """
        waiting: Deferred[dict[int, CommittedPosition]] = Deferred()

        def known(found: dict[int, CommittedPosition] | None, error: TinyMQError | None) -> None:
            if waiting.called:
                return
            if found is None:
                waiting.errback(error or ClosedError())
            else:
                waiting.callback(found)

        try:
            self._home.check()
        except TinyMQError as error:
            return fail(error)
        self._calls.committed(topic, partitions, known, self._network.seconds())
        self._network.arm()
        return waiting

    def commit(self, topic: str, positions: Mapping[int, Offset], note: str = "") -> Deferred[None]:
        """
        Commit positions: nobody has to be a member for that, and nobody may be.

        Args:
            topic: Name of the topic.
            positions: By partition: the offset that is to be read next, or a `Mark`.
            note: Text to be kept with them, at most 4096 bytes.

        Returns:
            A Deferred that ends

            - with None when they are on disk;
            - with `FencedGeneration` when a member of the group reads one of the
              partitions, or another of the broker's errors;
            - with `DeadlineExceeded` or `UnreachableError` after
              `ClientConfig.deadline_s`;
            - with `UsageError`, `ClosedError`, `ForkedError`, or `CancelledError`.
        """
        waiting: Deferred[None] = Deferred()
        try:
            self._home.check()
            told, now = teller(waiting), self._network.seconds()
            self._calls.commit(topic, positions, note, told, now)
        except TinyMQError as error:
            return fail(error)
        self._network.arm()
        return waiting
