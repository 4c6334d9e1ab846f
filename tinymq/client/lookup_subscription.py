"""A subscription to a channel of one topic at every node that has it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from twisted.logger import Logger
from typing_extensions import override

from tinymq.client.core.config import SubscriptionConfig
from tinymq.client.core.directory import Node
from tinymq.client.core.fork import Home
from tinymq.client.core.held import HeldLease
from tinymq.client.core.sources import Sources
from tinymq.client.core.subscription import SubscriptionCore
from tinymq.client.core.taking import Face
from tinymq.client.lookup_readers import Reader, Readers
from tinymq.client.subscription import Message, MessageBatch, Subscription
from tinymq.wire.records import Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from tinymq.client.client import Client
    from tinymq.client.lookup import Lookup


class _Turns:
    """The clock of all nodes together."""

    def __init__(self, lookup: Lookup, readers: Callable[[], list[Reader[SubscriptionCore]]]):
        self._reactor = lookup.reactor
        self._readers = readers

    def seconds(self) -> float:
        """The time."""
        return self._reactor.seconds()

    def stir(self, drain: Callable[[float], None]) -> None:
        """Call something at the end of this turn of the reactor."""
        self._reactor.callLater(0, lambda: drain(self.seconds()))

    def arm(self) -> None:
        """Make sure that every client is woken when it wants to be."""
        for reader in self._readers():
            reader.client.arm()

    def later(self, call: Callable[[], None]) -> None:
        """Call at the end of this turn of the reactor."""
        self._reactor.callLater(0, call)


class LookupSubscription(Subscription):
    """
    Takes messages of a channel from every node that has its topic; of `Lookup.subscription`.

    ::

        async for message in lookup.subscription("clicks", "count"):
            count(message.node.name, message.value)
            message.finish()

    It subscribes at nodes as they appear, and leaves those that are no longer announced,
    once nothing of them is in hand. They take turns. What it may have in flight is split
    over them, at least one message for each.

    Args:
        lookup: Finds the nodes.
        source: Names of topic and channel.
        config: Settings.
    """

    _log = Logger()

    def __init__(self, lookup: Lookup, source: tuple[str, str], config: SubscriptionConfig) -> None:
        self._lookup = lookup
        self._topic, channel = source
        self._name = channel
        self._readers: Readers[SubscriptionCore] = Readers(
            lookup, self._topic, self._make, self._left_node
        )
        self._readers.stays = lambda reader: reader.what.in_flight > 0
        self._turns = _Turns(lookup, lambda: [*self._readers.found.values()])
        self._sources: Sources

        def core(face: Face) -> Sources:
            self._sources = Sources(channel, config, face.wake)
            self._sources.failing = self._failing
            return self._sources

        super().__init__(core, config, (lookup.reactor, self._turns), Home(), lookup.forget)
        self._readers.start(self._begun)

    @property
    @override
    def topic(self) -> str:
        """Name of the topic."""
        return self._topic

    @property
    def nodes(self) -> list[Node]:
        """The nodes that are subscribed to now."""
        return self._readers.nodes

    # --- nodes -----------------------------------------------------------------

    def _make(self, node: Node, client: Client) -> SubscriptionCore:
        make = partial(self._message, node)
        face = Face(make, self._sources.woken, client.arm, MessageBatch)
        return client.part((self._topic, self._name), self.config, face, self._sources.pool)

    @staticmethod
    def _message(node: Node, record: Record, lease: HeldLease, now: float) -> Message:
        message = Message(record, lease, now)
        message.node = node
        return message

    def _begun(self, reader: Reader[SubscriptionCore]) -> None:
        self._sources.join(reader.what, self.seconds())
        self._turns.arm()

    def _left_node(self, reader: Reader[SubscriptionCore]) -> None:
        self._sources.leave(reader.what, partial(self._readers.release, reader), self.seconds())
        reader.client.arm()
        self._turns.arm()

    def _failing(self, core: SubscriptionCore) -> None:
        """Leave a node that does not let us; the next round tries again."""
        for reader in tuple(self._readers.found.values()):
            if reader.what is core:
                self._log.warn(
                    "{node} does not let us take messages of {topic}/{channel}: {error}",
                    node=reader.node.name,
                    topic=self.topic,
                    channel=self.channel,
                    error=core.failed,
                )
                self._readers.leave(reader)

    # --- the end ---------------------------------------------------------------

    @override
    def _leave(self) -> None:
        self._readers.end()
        super()._leave()

    @override
    def _left(self) -> None:
        for reader in tuple(self._readers.found.values()):
            del self._readers.found[reader.node.id]
            self._readers.release(reader)
        super()._left()
