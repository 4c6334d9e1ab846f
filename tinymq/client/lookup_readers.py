"""What reads the nodes that have a topic: one reader for each, as nodes come and go."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from attrs import define

from tinymq.client.core.directory import Node

if TYPE_CHECKING:
    from tinymq.client.client import Client
    from tinymq.client.lookup import Lookup

#: What reads a node.
T = TypeVar("T")


@define(eq=False)
class Reader(Generic[T]):
    """
    Reads one node.

    Attributes:
        node: The node.
        client: Its client, taken on lease.
        what: What reads it.
    """

    node: Node
    client: Client
    what: T


class Readers(Generic[T]):
    """
    The readers of a topic.

    Args:
        lookup: Finds the nodes.
        topic: Name of the topic.
        make: Makes what reads a node.
        left: Told of a reader that was left; it gives its client back with `Readers.release`.

    Attributes:
        topic: Name of the topic.
        found: By the node's id.
        met: Whether the nodes were heard of at least once.
        stays: Whether a reader stays a while, though its node is announced no more.
    """

    def __init__(
        self,
        lookup: Lookup,
        topic: str,
        make: Callable[[Node, Client], T],
        left: Callable[[Reader[T]], None],
    ) -> None:
        self.topic = topic
        self.found: dict[str, Reader[T]] = {}
        self.met = False
        self.stays: Callable[[Reader[T]], bool] = lambda reader: False
        self._lookup = lookup
        self._make = make
        self._left = left
        self._begun: Callable[[Reader[T]], None] | None = None
        self._closed = False

    def start(self, begun: Callable[[Reader[T]], None] | None = None) -> None:
        """
        Begin to follow the nodes.

        Args:
            begun: Told of each reader that was made.
        """
        self._begun = begun
        self._lookup.add(self)
        self._lookup.directory.watch(self.topic, self._lookup.reactor.seconds())
        self._lookup.arm()

    @property
    def nodes(self) -> list[Node]:
        """The nodes that are read now."""
        return [reader.node for reader in self.found.values()]

    def follow(self) -> None:
        """Read the nodes that are known now, and no others."""
        if self._closed:
            return
        known = {node.id: node for node in self._lookup.directory.known(self.topic)}
        for one, reader in tuple(self.found.items()):
            gone = one not in known and not self.stays(reader)
            if gone or known.get(one, reader.node) != reader.node:
                self.leave(reader)
        for node in known.values():
            if node.id not in self.found:
                self._join(node)
        self.met = True

    def look(self) -> None:
        """Ask the lookup servers when a node does not answer."""
        if any(reader.client.failing for reader in self.found.values()):
            self._lookup.refresh(self.topic)

    def _join(self, node: Node) -> None:
        client = self._lookup.lease(node)
        reader = Reader(node, client, self._make(node, client))
        self.found[node.id] = reader
        if self._begun is not None:
            self._begun(reader)

    def leave(self, reader: Reader[T]) -> None:
        """
        Read a node no more.

        Args:
            reader: Its reader; one that was left already is no error.
        """
        if self.found.get(reader.node.id) is reader:
            del self.found[reader.node.id]
            self._left(reader)

    def release(self, reader: Reader[T]) -> None:
        """
        Give the client of a reader back that was left.

        Args:
            reader: The reader.
        """
        self._lookup.release(reader.node)

    def close(self) -> None:
        """Follow the nodes no more, and leave all."""
        self.end()
        for reader in tuple(self.found.values()):
            self.leave(reader)

    def end(self) -> None:
        """Follow the nodes no more."""
        if not self._closed:
            self._closed = True
            self._lookup.directory.unwatch(self.topic)
            self._lookup.discard(self)
