"""What all parts of the console stand on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from twisted.internet.defer import TimeoutError as DeferredTimeout

from tinymq.broker.broker import Broker
from tinymq.errors import BrokerSilent, ClientError
from tinymq.figures.board import Board
from tinymq.figures.feeds import LocalFeed, Poller, deadline
from tinymq.figures.groups import PAGE, Crowd
from tinymq.figures.listing import Listing
from tinymq.figures.queues import Queues
from tinymq.figures.sampling import Sampler
from tinymq.meta.registry import Registry
from tinymq.node import Node
from tinymq.operation import Nodes, Result
from tinymq.operations import Operations

#: Seconds that brokers elsewhere have for everything that one page needs.
PAGE_SECONDS: Final = 3.0
_SILENCE: Final = (ClientError, BrokerSilent, DeferredTimeout)


class Base:
    """
    The objects of one process with a MetaServer.

    Args:
        broker: The domain; its id is 0 if it leads nothing.
        operations: The administrative operations.
        node: What the broker of this process tells.
        nodes: The way to all brokers.

    Attributes:
        board: What all brokers reported.
        queues: The channels of all brokers.
        crowd: The consumer groups of all brokers.
    """

    def __init__(self, broker: Broker, operations: Operations, node: Node, nodes: Nodes) -> None:
        self._broker = broker
        self._operations = operations
        self._nodes = nodes
        self._node = node
        self.board = Board(self._registry, broker.scheduler, broker.wall, broker.id)
        LocalFeed(node.reporter, self.board)
        self._poller = Poller(self.board, self._registry, nodes, broker.scheduler)
        self._sampler = Sampler(self.board, self._registry, broker.scheduler, broker.wall)
        self._listing = Listing(
            self.board, self._sampler, self._registry, broker.scheduler, broker.wall
        )
        self.queues = Queues(self._registry, operations.channel_rows, broker.scheduler, broker.wall)
        self.crowd = Crowd(self._groups_behind, broker.scheduler, broker.wall)
        #: The rows of groups as they were told last, and as lists have them.
        self._listed: tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]] = ([], [])
        self._next = 0

    async def _groups_behind(self, name: str) -> Result:
        """Ask for a page of groups."""
        return await self._operations.run("group.list", {"limit": PAGE, "after": name})

    def _registry(self) -> Registry:
        return self._broker.meta.registry

    def arrivals(self, topic_id: bytes) -> float:
        """
        Say how many records a second a topic gets of late.

        Args:
            topic_id: The topic's id.
        """
        return self._sampler.history.rates(topic_id, self._broker.wall()).messages_in

    def start(self) -> None:
        """Begin to sample, and to ask brokers elsewhere."""
        self._poller.start()
        self._sampler.start()
        self._listing.start()

    def stop(self) -> None:
        """End it."""
        self._poller.stop()
        self._sampler.stop()
        self._listing.stop()
        self.queues.stop()
        self.crowd.stop()

    async def _ask(self, broker_id: int, operation: str, arguments: dict[str, Any]) -> Result:
        """
        Ask one broker; one that is elsewhere has three seconds, if it is not known to be silent.

        Args:
            broker_id: Which.
            operation: One of ``node.…``.
            arguments: By name.

        Raises:
            BrokerSilent: It does not answer in time; the cause says why.
            WireError: It refuses.
        """
        if broker_id == self._broker.id:
            return await self._nodes.ask(broker_id, operation, arguments)
        why = f"{self.board.name(broker_id)} does not answer"
        if broker_id in self._silent_ids():
            raise BrokerSilent(why, broker=broker_id)
        asked = self._nodes.ask(broker_id, operation, arguments)
        try:
            answer: Result = await deadline(asked, PAGE_SECONDS, self._broker.scheduler)
        except _SILENCE as error:
            raise BrokerSilent(why, broker=broker_id) from error
        return answer

    def _silent_ids(self) -> set[int]:
        """The brokers that are known not to answer; nobody waits for them."""
        self.board.look()
        return {each.id for each in self.board.silent()}
