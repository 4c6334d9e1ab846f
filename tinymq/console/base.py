"""What all parts of the console stand on."""

from __future__ import annotations

from tinymq.board import Board
from tinymq.broker.broker import Broker
from tinymq.feeds import LocalFeed, Poller
from tinymq.listing import Listing
from tinymq.meta.registry import Registry
from tinymq.node import Node
from tinymq.operations import Nodes, Operations
from tinymq.sampling import Sampler


class Base:
    """
    The objects of one process with a MetaServer.

    Args:
        broker: The domain; its id is 0 if it leads nothing.
        operations: The administrative operations.
        node: What the broker of this process tells.
        nodes: The way to all brokers.
    """

    def __init__(self, broker: Broker, operations: Operations, node: Node, nodes: Nodes) -> None:
        self._broker = broker
        self._operations = operations
        self._nodes = nodes
        self._vitals = node.vitals
        self._board = Board(self._registry, broker.scheduler, broker.wall, broker.id)
        LocalFeed(node.reporter, self._board)
        self._poller = Poller(self._board, self._registry, nodes, broker.scheduler)
        self._sampler = Sampler(self._board, self._registry, broker.scheduler, broker.wall)
        self._listing = Listing(self._board, self._sampler, self._registry, broker.wall)
        self._next = 0

    def _registry(self) -> Registry:
        return self._broker.meta.registry

    def start(self) -> None:
        """Begin to sample, and to ask brokers elsewhere."""
        self._poller.start()
        self._sampler.start()

    def stop(self) -> None:
        """End both."""
        self._poller.stop()
        self._sampler.stop()
