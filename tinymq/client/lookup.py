"""
Independent brokers, found by lookup servers.

::

    lookup = Lookup(reactor, "tinymq://meta1,meta2")
    consumer = lookup.consumer("clicks")          # from every node that has it
    producer = lookup.producer(copies=2)          # to two of them
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from functools import partial
from math import inf
from typing import Any

from attrs import define, evolve
from twisted.internet.defer import Deferred, DeferredList, gatherResults
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from tinymq.client.client import Client
from tinymq.client.core.address import Address, parse_url, url_of
from tinymq.client.core.config import (
    ClientConfig,
    ConsumerConfig,
    LookupConfig,
    ProducerConfig,
    SubscriptionConfig,
)
from tinymq.client.core.directory import Directory, Node, read_nodes
from tinymq.client.core.results import Result
from tinymq.client.core.starts import EARLIEST, Start
from tinymq.client.lookup_consumer import LookupConsumer
from tinymq.client.lookup_producer import LookupProducer
from tinymq.client.lookup_readers import Readers
from tinymq.client.lookup_subscription import LookupSubscription
from tinymq.client.network import EndpointFor
from tinymq.client.subscription import Subscription
from tinymq.errors import ClosedError, TinyMQError, UnreachableError

#: Topics by whose nodes those of a new topic are found.
_SAMPLE = 20


@define(eq=False)
class _Lease:
    """The client of a node, and how many use it."""

    client: Client
    users: int = 0


class Lookup:
    """
    What lookup servers know, and clients of the nodes that they name.

    A node is a broker of its own, such as one inside another program, that
    announces its topics. All lookup servers are asked; one answer is enough.

    Args:
        reactor: Time and connecting.
        servers: A URL as for `Client`, or addresses, of the lookup servers.
        config: Settings.
        endpoint_for: Makes the endpoint for an address, for TLS or tests.
        chance: Random numbers from 0 to 1, for back-off, partitions and nodes.
        wall: The time of day, seconds since the epoch.

    Raises:
        ConfigError: The URL is wrong, or names nobody.
    """

    _log = Logger()

    def __init__(
        self,
        reactor: IReactorTime,
        servers: str | Iterable[Address],
        config: LookupConfig | None = None,
        *,
        endpoint_for: EndpointFor | None = None,
        chance: Callable[[], float] = random.random,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.config = config or LookupConfig()
        self.chance = chance
        self.wall = wall
        self.reactor = reactor
        self.closed = False
        self._endpoint_for = endpoint_for
        url = servers if isinstance(servers, str) else url_of(servers)
        patient = evolve(self.config.client, deadline_s=self.config.timeout_s)
        self._servers = [self._connect(one, patient) for one in parse_url(url)]
        self.directory = Directory(len(self._servers), self.config, self._ask, self._heard)
        self._leases: dict[Address, _Lease] = {}
        self._consumers: set[LookupConsumer] = set()
        self._subscriptions: set[LookupSubscription] = set()
        self._readers: set[Readers[Any]] = set()
        self._producers: set[LookupProducer] = set()
        self._timer: IDelayedCall | None = None

    def nodes(self, topic: str) -> Deferred[list[Node]]:
        """
        Find the nodes that have a topic.

        Args:
            topic: Its name.

        Returns:
            A Deferred that ends

            - with the nodes, none if nobody announces the topic; also with those
              known from before, when no lookup server answers;
            - with `UnreachableError` when none answers and nothing is known;
            - with `ClosedError` when the lookup is closed, or `CancelledError`.
        """
        waiting: Deferred[list[Node]] = Deferred()

        def found(nodes: list[Node] | None, error: TinyMQError | None) -> None:
            if nodes is None:
                waiting.errback(error or ClosedError())
            else:
                waiting.callback(nodes)

        self.directory.find(topic, found, self.reactor.seconds())
        if not waiting.called:  # else it was known, as for most records of a producer
            self.arm()
        return waiting

    def consumer(
        self, topic: str, start: Start = EARLIEST, config: ConsumerConfig | None = None
    ) -> LookupConsumer:
        """
        Read a topic from every node that has it.

        Args:
            topic: Its name.
            start: Where to start at each node: `EARLIEST`, or `LATEST`, which means
                what was stored after this call; also at nodes that appear later.
            config: Settings.

        Raises:
            ClosedError: The lookup was closed.
        """
        self._check()
        made = LookupConsumer(self, topic, start, config or ConsumerConfig())
        self._consumers.add(made)
        return made

    def subscription(
        self, topic: str, channel: str, config: SubscriptionConfig | None = None
    ) -> LookupSubscription:
        """
        Take messages of a channel from every node that has a topic.

        Args:
            topic: Its name.
            channel: Name of the channel; it is made where there is none.
            config: Settings.

        Raises:
            ClosedError: The lookup was closed.
        """
        self._check()
        made = LookupSubscription(self, (topic, channel), config or SubscriptionConfig())
        self._subscriptions.add(made)
        return made

    def producer(self, config: ProducerConfig | None = None, copies: int = 1) -> LookupProducer:
        """
        Send records to nodes.

        Args:
            config: Settings.
            copies: To how many different nodes each record goes. Consumers then
                get it as often, so they must be able to take a record twice.

        Raises:
            ClosedError: The lookup was closed.
            UsageError: Less than one copy.
        """
        self._check()
        made = LookupProducer(self, config or ProducerConfig(), copies)
        self._producers.add(made)
        return made

    def close(self) -> Deferred[None]:
        """
        Close consumers, subscriptions, producers, which flush, and all clients.

        Returns:
            A Deferred that ends with None and never fails.
        """
        return Deferred.fromCoroutine(self._close())

    async def _close(self) -> None:
        for consumer in tuple(self._consumers):
            consumer.close()
        await DeferredList([each.close() for each in tuple(self._subscriptions)])
        for producer in tuple(self._producers):
            await producer.close()
        self.closed = True
        self.directory.close()
        self.arm()
        leases, self._leases = self._leases, {}
        clients = [*self._servers, *(lease.client for lease in leases.values())]
        await DeferredList([client.close() for client in clients])

    # --- for consumers and producers -------------------------------------------

    def add(self, readers: Readers[Any]) -> None:
        """
        Tell them which nodes there are.

        Args:
            readers: The readers of a topic.
        """
        self._readers.add(readers)

    def discard(self, readers: Readers[Any]) -> None:
        """
        Tell them nothing more.

        Args:
            readers: The readers of a topic.
        """
        self._readers.discard(readers)

    def lease(self, node: Node) -> Client:
        """
        Take the client of a node; `release` gives it back.

        Args:
            node: The node.
        """
        lease = self._leases.get(node.address)
        if lease is None:
            # A node that refuses is left for another; one that answered is waited for.
            config = evolve(self.config.client, wait_for_broker=False)
            lease = self._leases[node.address] = _Lease(self._connect(node.address, config))
            lease.client.on_links(self._link_changed)
        lease.users += 1
        return lease.client

    def release(self, node: Node) -> None:
        """
        Give back the client of a node; the last one closes it.

        Args:
            node: The node.
        """
        lease = self._leases.get(node.address)
        if lease is None:
            return
        lease.users -= 1
        if not lease.users:
            del self._leases[node.address]
            lease.client.close()

    def refresh(self, topic: str) -> None:
        """
        Ask for the nodes of a topic soon.

        Args:
            topic: Its name.
        """
        if not self.closed:
            self.directory.refresh(topic, self.reactor.seconds())
            self.arm()

    def forget(self, one: LookupConsumer | LookupProducer | Subscription) -> None:
        """
        Note that a consumer, subscription or producer was closed.

        Args:
            one: Which.
        """
        for known in (self._consumers, self._subscriptions, self._producers):
            known.discard(one)

    async def any_nodes(self) -> list[Node]:
        """Find nodes that have some topic, for one that none of them has yet."""
        lists = [client.admin.list_announced(limit=_SAMPLE) for client in self._servers]
        names: dict[str, None] = {}
        for worked, result in await DeferredList(lists, consumeErrors=True):
            if worked:
                names.update(dict.fromkeys(result.get("topics") or ()))
        found = await gatherResults([self.nodes(name) for name in list(names)[:_SAMPLE]])
        return list({node.id: node for nodes in found for node in nodes}.values())

    def arm(self) -> None:
        """Make sure that the directory is woken when it wants to be."""
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None
        at = inf if self.closed else self.directory.wake_at
        if at < inf:
            delay = max(0.0, at - self.reactor.seconds())
            self._timer = self.reactor.callLater(delay, self._wake)

    # --- inside ----------------------------------------------------------------

    def _check(self) -> None:
        if self.closed:
            raise ClosedError("the lookup was closed")

    def _connect(self, address: Address, config: ClientConfig) -> Client:
        return Client(
            self.reactor,
            url_of([address]),
            config,
            endpoint_for=self._endpoint_for,
            chance=self.chance,
            environment={},
        )

    def _wake(self) -> None:
        self._timer = None
        self.directory.tick(self.reactor.seconds())
        self.arm()

    def _ask(self, server: int, topic: str) -> None:
        asked = self._servers[server].admin.find_nodes(topic)
        asked.addCallbacks(
            partial(self._answered, server, topic), partial(self._failed, server, topic)
        )
        asked.addErrback(partial(self._log.failure, "A lookup failed"))

    def _answered(self, server: int, topic: str, result: Result) -> None:
        self.directory.answered(server, topic, read_nodes(result), self.reactor.seconds())
        self.arm()

    def _failed(self, server: int, topic: str, failure: Failure) -> None:
        error = failure.value
        if not isinstance(error, TinyMQError):
            error = UnreachableError(str(error))
        self._log.debug("Lookup server {server}: {error}", server=server, error=error)
        self.directory.failed(server, topic, error, self.reactor.seconds())
        self.arm()

    def _link_changed(self) -> None:
        for readers in tuple(self._readers):
            readers.look()

    def _heard(self, topic: str) -> None:
        for readers in tuple(self._readers):
            if readers.topic == topic:
                readers.follow()


__all__ = ["Lookup", "LookupConsumer", "LookupProducer", "LookupSubscription", "Node"]
