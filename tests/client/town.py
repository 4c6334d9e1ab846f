"""Independent puppet brokers and lookup servers, on one fake clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionRefusedError as Refused
from twisted.internet.interfaces import IProtocolFactory, IStreamClientEndpoint
from twisted.internet.task import Clock
from typing_extensions import override
from zope.interface import implementer

from tests.client.puppet import Line, Puppet
from tests.client.stage import ADDRESS_SEEN, CutTransport, Stage
from tinymq.client import Lookup, LookupConfig
from tinymq.client.core.address import Address
from tinymq.wire.messages import Operate


@implementer(IStreamClientEndpoint)
class TownEndpoint:
    """Connects to whoever lives at an address."""

    def __init__(self, town: Town, address: Address) -> None:
        self.town = town
        self.address = address

    def connect(self, factory: IProtocolFactory) -> Deferred[Any]:
        """Connect, or refuse."""
        self.town.dialed.append(self.address)
        waiting: Deferred[Any] = Deferred()
        puppet = self.town.puppets.get(self.address)
        if puppet is None:
            waiting.errback(Refused())
            return waiting
        protocol: Any = factory.buildProtocol(ADDRESS_SEEN)
        transport = CutTransport()
        transport.protocol = protocol
        self.town.joins.append((protocol, transport, Line(puppet)))
        protocol.makeConnection(transport)
        waiting.callback(protocol)
        return waiting


class Town(Stage):
    """
    Nodes, lookup servers, and a `Lookup` that asks them.

    Attributes:
        puppets: Who lives where; take one out, and it is away.
        nodes: By name.
        servers: By name.
        rows: What each lookup server knows: topic to names of nodes.
        zones: Of nodes.
        lookup: What is tested.
    """

    def __init__(
        self,
        nodes: int = 3,
        servers: int = 2,
        *,
        make: Callable[[int], Puppet] = Puppet,
        **config: Any,
    ) -> None:
        self.clock = Clock()
        self.joins = []
        self.dialed = []
        self.puppets: dict[Address, Puppet] = {}
        self.nodes = {f"n{one}": make(one) for one in range(1, nodes + 1)}
        self.servers = {f"s{one}": Puppet(one) for one in range(1, servers + 1)}
        self.places = {name: Address(name, 7800) for name in (*self.nodes, *self.servers)}
        self.rows: dict[str, dict[str, list[str]]] = {name: {} for name in self.servers}
        self.zones: dict[str, str] = {}
        for name in self.places:
            self.start(name)
        for name, puppet in self.nodes.items():
            place = self.places[name]
            puppet.brokers = [(puppet.number, place.host, place.port, name)]
        for name, puppet in self.servers.items():
            puppet.operations["lookup.find"] = lambda name, _of=name: self._find(_of, name)
            puppet.operations["lookup.list"] = lambda after, limit, _of=name: {
                "topics": sorted(self.rows[_of]),
                "more": False,
            }
        self.lookup = Lookup(
            self.clock,
            [self.places[name] for name in self.servers],
            LookupConfig(**config),
            endpoint_for=lambda address, timeout: TownEndpoint(self, address),
            chance=lambda: 0.5,
            wall=lambda: 1_700_000_000.0,
        )

    def _find(self, server: str, topic: str) -> dict[str, Any]:
        return {
            "nodes": [
                {
                    "node": name * 16,
                    "name": name,
                    "host": self.places[name].host,
                    "port": self.places[name].port,
                    "zone": self.zones.get(name, ""),
                    "since_ms": 1,
                }
                for name in self.rows[server].get(topic, ())
            ]
        }

    def announce(self, topic: str, *names: str) -> None:
        """Let every lookup server know which nodes have a topic, and no others."""
        for rows in self.rows.values():
            rows[topic] = list(names)

    def start(self, name: str) -> None:
        """Let somebody be there."""
        self.puppets[self.places[name]] = {**self.nodes, **self.servers}[name]

    def kill(self, name: str) -> None:
        """Take somebody away, with all his connections."""
        puppet = self.puppets.pop(self.places[name])
        for join in tuple(self.joins):
            if join[2].puppet is puppet:
                self.joins.remove(join)
                join[2].close()
                join[1].loseConnection()

    def asked(self) -> int:
        """How many questions the lookup servers heard."""
        return sum(
            isinstance(request, Operate) for one in self.servers.values() for request in one.seen
        )

    @override
    def end(self) -> None:
        """Close the lookup; nothing may be left behind."""
        closing = self.lookup.close()
        self.advance(100)
        self.done(closing)
        assert self.clock.getDelayedCalls() == []
