"""
Which autonomous brokers announced which topics: lookup mode, all in memory.

A broker that has its own MetaServer, perhaps inside a user's process, may announce
itself and its topics here, as often as it likes but at least every `SILENT_SECONDS`.
Nothing is stored: after a restart everybody has announced itself again within seconds.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Final

import attrs
from attrs import define, field, frozen

from tinymq.errors import InvalidRequest, Overloaded
from tinymq.meta.address import check_address
from tinymq.names import valid_name

#: Seconds of silence after which a node is forgotten.
SILENT_SECONDS: Final = 15.0

#: Seconds after which a node is forgotten whose link ended.
LOST_SECONDS: Final = 3.0

#: Most topics in one announcement, or on one page.
CALL_TOPICS: Final = 500

_ID_BYTES: Final = 16


@frozen
class Bounds:
    """
    How much may be announced.

    Attributes:
        nodes: Nodes.
        topics: Topics of one node.
        pairs: Topics of all nodes together.
    """

    nodes: int = 10_000
    topics: int = 100_000
    pairs: int = 1_000_000


@frozen(kw_only=True)
class Node:
    """
    A broker that announces itself.

    Attributes:
        id: 16 bytes that no other node has.
        name: Its name.
        host: Where clients reach it.
        port: And at which port.
        zone: Where it stands; may be empty.
        since_ms: Since when it has been heard without a break; set by the one who hears.
    """

    id: bytes
    name: str
    host: str
    port: int
    zone: str = ""
    since_ms: int = 0

    def check(self) -> None:
        """
        Make sure that all this can be a broker's.

        Raises:
            InvalidRequest: The id or the address.
            InvalidName: The name or the zone.
        """
        if len(self.id) != _ID_BYTES:
            raise InvalidRequest(f"a node's id is {_ID_BYTES} bytes", field="node")
        check_address(self.host, self.port)
        valid_name(self.name)
        if self.zone:
            valid_name(self.zone)


@define
class _Announced:
    node: Node
    deadline: float = 0.0
    link: object = None
    topics: set[str] = field(factory=set)


class Announcements:
    """
    Who announced what.

    Args:
        monotonic: Seconds, for what is too long ago.
        wall: Seconds since the epoch, to tell people.
        bounds: How much may be announced.
    """

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        bounds: Bounds | None = None,
    ) -> None:
        self._monotonic = monotonic
        self._wall = wall
        self._bounds = bounds or Bounds()
        self._nodes: dict[bytes, _Announced] = {}
        self._by_topic: dict[str, set[bytes]] = {}
        self._pairs = 0
        #: All names in order, as when somebody asked last, and what came or went since.
        self._names: list[str] = []
        self._touched: set[str] = set()

    # --- hearing

    def announce(
        self,
        node: Node,
        topics: Sequence[str] = (),
        gone: Sequence[str] = (),
        *,
        replace: bool = False,
        link: object = None,
    ) -> int:
        """
        Hear of a node, and keep it for `SILENT_SECONDS`.

        Args:
            node: The node.
            topics: What it has, beside what it said before.
            gone: What it no longer has.
            replace: Forget first all that it said before.
            link: What it said so over; the end of any other link means nothing then.

        Returns:
            How many topics are known of it: another number than the node has means
            that it should say all of them again.

        Raises:
            InvalidName: A name; nothing of the call was taken.
            InvalidRequest: The id or the address, or too many topics in one call.
            Overloaded: There are too many nodes, or topics.
        """
        node.check()
        if len(topics) + len(gone) > CALL_TOPICS:
            raise InvalidRequest(f"at most {CALL_TOPICS} topics in one call", field="topics")
        names = [valid_name(name) for name in topics]
        known = self._heard(node, link)
        if replace:
            self._forget_topics(known, tuple(known.topics.difference(names)))
        self._forget_topics(known, gone)
        self._add_topics(known, names)
        return len(known.topics)

    def _heard(self, node: Node, link: object) -> _Announced:
        known = self._nodes.get(node.id)
        if known is None:
            if len(self._nodes) >= self._bounds.nodes:
                raise Overloaded(
                    f"{self._bounds.nodes} nodes announce themselves here, and more may not",
                    limit=self._bounds.nodes,
                )
            known = self._nodes[node.id] = _Announced(
                attrs.evolve(node, since_ms=int(self._wall() * 1000))
            )
        known.node = attrs.evolve(node, since_ms=known.node.since_ms)
        known.link = link
        known.deadline = self._monotonic() + SILENT_SECONDS
        return known

    def _add_topics(self, known: _Announced, names: Sequence[str]) -> None:
        new = {name for name in names if name not in known.topics}
        for count, most, what in (
            (len(known.topics), self._bounds.topics, "of one node"),
            (self._pairs, self._bounds.pairs, "of all nodes together"),
        ):
            if count + len(new) > most:
                raise Overloaded(f"{most} topics {what} can be announced", limit=most)
        known.topics |= new
        self._pairs += len(new)
        for name in new:
            nodes = self._by_topic.get(name)
            if nodes is None:
                nodes = self._by_topic[name] = set()
                self._touched.add(name)
            nodes.add(known.node.id)

    def _forget_topics(self, known: _Announced, names: Sequence[str]) -> None:
        for name in names:
            if name not in known.topics:
                continue
            known.topics.remove(name)
            self._pairs -= 1
            nodes = self._by_topic[name]
            nodes.remove(known.node.id)
            if not nodes:
                del self._by_topic[name]
                self._touched.add(name)

    def lost(self, node_id: bytes, link: object = None) -> None:
        """
        Hear that a link ended: the node has `LOST_SECONDS` to announce itself again.

        Args:
            node_id: The node's id.
            link: The link; if the node was heard over another since, nothing is lost.
        """
        known = self._nodes.get(node_id)
        if known is not None and (known.link is None or known.link is link):
            known.deadline = min(known.deadline, self._monotonic() + LOST_SECONDS)

    def expire(self) -> tuple[Node, ...]:
        """Forget the silent nodes and return them; call it every second or so."""
        now = self._monotonic()
        silent = [known for known in self._nodes.values() if known.deadline <= now]
        for known in silent:
            self._forget_topics(known, tuple(known.topics))
            del self._nodes[known.node.id]
        return tuple(known.node for known in silent)

    # --- telling

    def find(self, topic: str) -> tuple[Node, ...]:
        """
        Return the nodes that have a topic, those heard for longest first.

        Raises:
            InvalidName: It cannot be a topic's.
        """
        found = [self._nodes[each].node for each in self._by_topic.get(valid_name(topic), ())]
        return tuple(sorted(found, key=lambda node: (node.since_ms, node.id)))

    def topics(self, after: str = "", limit: int = CALL_TOPICS) -> tuple[tuple[str, ...], bool]:
        """
        Return a page of the names of all topics, in order.

        Args:
            after: The last name of the page before.
            limit: At most so many; never more than `CALL_TOPICS`.

        Returns:
            The names, and whether there are more.
        """
        names = self._in_order()
        limit = max(1, min(limit, CALL_TOPICS))
        first = bisect_right(names, after)
        return tuple(names[first : first + limit]), first + limit < len(names)

    def _in_order(self) -> list[str]:
        if self._touched:
            touched, self._touched = self._touched, set()
            names = [name for name in self._names if name not in touched]
            names += sorted(name for name in touched if name in self._by_topic)
            names.sort()  # two runs, which is one merge
            self._names = names
        return self._names

    def nodes(self) -> tuple[Node, ...]:
        """Return all nodes, those heard for longest first."""
        found = (known.node for known in self._nodes.values())
        return tuple(sorted(found, key=lambda node: (node.since_ms, node.id)))
