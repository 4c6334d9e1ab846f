"""Several puppet brokers that share their topics, as one cluster without I/O."""

from __future__ import annotations

from typing_extensions import override

from tests.client.puppet import Answer, CoreNetwork, Puppet, PuppetTopic
from tinymq.client.core.address import Address
from tinymq.client.core.cluster import Cluster
from tinymq.client.core.config import ClientConfig
from tinymq.errors import ConnectionLost, NotLeader, UnknownPartition, WireError
from tinymq.wire.frames import Bytes
from tinymq.wire.messages import (
    Fetch,
    FetchReply,
    FetchResult,
    Message,
    Metadata,
    MetadataReply,
    Offsets,
    OffsetsReply,
    Produce,
    ProduceReply,
    error_meta,
)


class FleetPuppet(Puppet):
    """One broker of a fleet; it knows of its own partitions, and says so."""

    def __init__(self, fleet: Fleet, number: int) -> None:
        super().__init__(number)
        self.fleet = fleet
        self.topics = fleet.topics
        #: What it says of METADATA instead of the truth.
        self.believes: MetadataReply | None = None

    def kinds_of(self, kind: type[Message]) -> int:
        """How many requests of a kind it saw."""
        return sum(isinstance(request, kind) for request in self.seen)

    @override
    def _metadata(self, request: Metadata) -> MetadataReply:
        self.revision = self.fleet.revision
        self.brokers = self.fleet.rows
        reply = super()._metadata(request) if self.believes is None else self.believes
        live = self.fleet.live
        reply.topics = [
            (name, topic_id, [one if one in live else -1 for one in leaders], config, error)
            for name, topic_id, leaders, config, error in reply.topics
        ]
        reply.zones = dict(self.fleet.zones) or None
        return reply

    def _refusal(self, topic_id: bytes, partition: int) -> WireError | None:
        try:
            leaders = self.find(topic_id).leaders
        except WireError as error:
            return error
        if partition >= len(leaders):
            return UnknownPartition()
        if leaders[partition] != self.number:
            return NotLeader(f"{leaders[partition]} leads it, not {self.number}")
        return None

    @override
    def _produce(self, request: Produce, payload: Bytes) -> ProduceReply:
        refusal = self._refusal(request.topic_id, request.partition)
        if refusal is not None:
            raise refusal
        return super()._produce(request, payload)

    @override
    def _offsets(self, request: Offsets) -> OffsetsReply:
        rows = []
        for query in request.queries:
            refusal = self._refusal(request.topic_id, query[0])
            if refusal is not None:
                rows.append((query[0], -1, -1, -1, error_meta(refusal)))
                continue
            rows += super()._offsets(Offsets(topic_id=request.topic_id, queries=[query])).results
        return OffsetsReply(results=rows)

    @override
    def _fetch(self, request: Fetch) -> Answer | None:
        refused: list[tuple[bytes, list[FetchResult]]] = []
        for topic_id, positions in request.topics:
            rows: list[FetchResult] = []
            for partition, _, _ in positions:
                refusal = self._refusal(topic_id, partition)
                if refusal is not None:
                    rows.append((partition, -1, -1, -1, 0, error_meta(refusal)))
            if rows:
                refused.append((topic_id, rows))
        if refused:
            return FetchReply(topics=refused), ()
        return super()._fetch(request)


class Fleet:
    """
    A cluster of puppets, and the network to them.

    Attributes:
        net: The network.
        puppets: By number, from 1.
        topics: Shared by all.
        live: Whom the metadata names as leaders.
        places: Where each registered.
        zones: By number, as text.
        revision: Of the metadata.
    """

    def __init__(self, count: int = 3, kind: type[FleetPuppet] = FleetPuppet) -> None:
        self.topics: dict[str, PuppetTopic] = {}
        self.revision = 1
        self.zones: dict[str, str] = {}
        self.puppets = {number: kind(self, number) for number in range(1, count + 1)}
        self.places = {number: Address(f"b{number}", 7800) for number in self.puppets}
        self.live = set(self.puppets)
        self.net = CoreNetwork(self.puppets[1])
        self.net.puppets = {self.places[one]: puppet for one, puppet in self.puppets.items()}

    @property
    def rows(self) -> list[tuple[int, str, int, str]]:
        """The brokers, as METADATA tells them."""
        return [(one, *self.places[one], f"name{one}") for one in sorted(self.live)]

    @property
    def seen(self) -> list[Message]:
        """Every request to any of them."""
        return [request for puppet in self.puppets.values() for request in puppet.seen]

    def cluster(self, config: ClientConfig | None = None, *seeds: int) -> Cluster:
        """Make a cluster that starts at some brokers, by default at the first one."""
        places = [self.places[one] for one in seeds or (1,)]
        self.net.made = Cluster(places, config or ClientConfig(), self.net, lambda: 0.5)
        return self.net.made

    def asked(self) -> int:
        """How many METADATA requests there were."""
        return sum(isinstance(request, Metadata) for request in self.seen)

    def make(self, name: str, *leaders: int) -> PuppetTopic:
        """Make a topic whose partitions have these leaders."""
        topic = self.puppets[1].make(name, len(leaders))
        topic.leaders = list(leaders)
        self.revision += 1
        return topic

    def cut(self, number: int) -> None:
        """Lose the connections to one broker."""
        for wire in tuple(self.net.wires):
            if wire.line.puppet is self.puppets[number]:
                self.net.wires.remove(wire)
                wire.line.close()
                if wire.open:
                    wire.link.lost(ConnectionLost("cut"), self.net.now)

    def kill(self, number: int, *, noticed: bool = True) -> None:
        """Take a broker away; the others may have noticed already."""
        self.net.puppets.pop(self.places[number], None)
        self.cut(number)
        if noticed:
            self.notice(number)

    def notice(self, number: int) -> None:
        """Let the metadata know that a broker is away."""
        self.live.discard(number)
        self.revision += 1

    def start(self, number: int, place: Address | None = None) -> None:
        """Bring a broker back, at another address if one is given."""
        self.places[number] = place or self.places[number]
        self.net.puppets[self.places[number]] = self.puppets[number]
        self.live.add(number)
        self.revision += 1
