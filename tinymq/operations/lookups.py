"""Lookup mode: which independent brokers have a topic."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from tinymq.caller import Caller
from tinymq.catalog import PUBLIC
from tinymq.meta.lookup import CALL_TOPICS, Node
from tinymq.node.partitions import topic_key
from tinymq.operation import NAME, Operation, Parameter, Result, table
from tinymq.operations.base import Base
from tinymq.wire.fields import array, boolean, integer, text


class Lookups(Base):
    """
    A directory of brokers that are nobody's members.

    Each tells every lookup server it was told of which topics it has; a client
    asks all of them, and goes to the brokers themselves (as with nsqlookupd).
    """

    def announce(self, caller: Caller, **told: Any) -> Result:
        """Hear from a broker which topics it has, and that it lives."""
        node = Node(
            id=topic_key(told["node"]),
            name=told["name"],
            host=told["host"],
            port=told["port"],
            zone=told["zone"],
        )
        if node.id not in self._announcers:  # those who have gone must not take its place
            self._announcements.expire()
        known = self._announcements.announce(
            node, told["topics"], told["gone"], replace=told["replace"], link=caller
        )
        if self._announcers.get(node.id) is not caller:
            self._announcers[node.id] = caller
            caller.on_gone(partial(self._silenced, node.id, caller), ("node", node.id))
        return {"known": known}

    def _silenced(self, node_id: bytes, caller: Caller) -> None:
        if self._announcers.get(node_id) is caller:
            del self._announcers[node_id]
        self._announcements.lost(node_id, caller)

    def lookup(self, name: str) -> Result:
        """Tell which independent brokers have a topic."""
        self._announcements.expire()
        return {
            "nodes": [
                {
                    "node": each.id.hex(),
                    "name": each.name,
                    "host": each.host,
                    "port": each.port,
                    "zone": each.zone,
                    "since_ms": each.since_ms,
                }
                for each in self._announcements.find(name)
            ]
        }

    def announced(self, after: str, limit: int) -> Result:
        """List the topics of independent brokers in order of their names."""
        self._announcements.expire()
        names, more = self._announcements.topics(after, limit)
        return {"topics": list(names), "more": more}


_NAMES: Final = array(NAME, CALL_TOPICS)

LOOKUP_OPERATIONS: Final[dict[str, Operation]] = table(
    Operation(
        "lookup.announce",
        "cluster",
        True,
        (
            Parameter("node", text(32)),
            Parameter("name", text(200)),
            Parameter("host", text(255)),
            Parameter("port", integer(1, 65_535)),
            Parameter("zone", text(200), default=""),
            Parameter("topics", _NAMES, default=()),
            Parameter("gone", _NAMES, default=()),
            Parameter("replace", boolean, default=False),
        ),
        Lookups.announce,
        caller=True,
    ),
    PUBLIC["lookup.find"].by(Lookups.lookup),
    PUBLIC["lookup.list"].by(Lookups.announced),
)
