"""The client with Deferreds: links, and what is made from them."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, fail, gatherResults, maybeDeferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from tinymq.client.admin import Admin
from tinymq.client.consumer import Consumer
from tinymq.client.core.address import parse_url, url_from
from tinymq.client.core.admin import operate
from tinymq.client.core.allowance import Pool
from tinymq.client.core.cluster import Cluster
from tinymq.client.core.config import (
    ClientConfig,
    ConsumerConfig,
    ProducerConfig,
    SubscriptionConfig,
)
from tinymq.client.core.fork import Home
from tinymq.client.core.group.positions import PositionCalls
from tinymq.client.core.group.settings import GroupConfig, group_config, listed
from tinymq.client.core.metadata import TopicInfo
from tinymq.client.core.parts import LinkWatch
from tinymq.client.core.results import Result
from tinymq.client.core.sources import Topics, core_of
from tinymq.client.core.subscription import SubscriptionCore
from tinymq.client.core.taking import Face
from tinymq.client.group import GroupConsumer
from tinymq.client.line import pass_to
from tinymq.client.network import EndpointFor, TwistedNetwork
from tinymq.client.positions import Positions
from tinymq.client.producer import Producer
from tinymq.client.subscription import Subscription
from tinymq.client.transactional import TransactionalProducer
from tinymq.errors import ClosedError, TinyMQError


class Client:
    """
    A client of one cluster.

    Nothing is connected before something is asked for. A lost link comes back
    by itself; what was not answered is repeated where that does no harm.

    Args:
        reactor: Time and connecting.
        url: ``tinymq://host[:port][,...]``; otherwise the environment's
            ``TINYMQ_URL``, otherwise ``tinymq://127.0.0.1:7800``.
        config: Settings.
        endpoint_for: Makes the endpoint for an address, for TLS or tests.
        chance: Random numbers from 0 to 1, for back-off and partitions.
        environment: Variables of the process.

    Raises:
        ConfigError: The URL is wrong.
    """

    def __init__(
        self,
        reactor: IReactorTime,
        url: str | None = None,
        config: ClientConfig | None = None,
        *,
        endpoint_for: EndpointFor | None = None,
        chance: Callable[[], float] = random.random,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self.config = config or ClientConfig()
        self._reactor = reactor
        self._home = Home()
        self._network = TwistedNetwork(reactor, self.config, endpoint_for)
        addresses = parse_url(url_from(url, environment))
        self._cluster = Cluster(addresses, self.config, self._network, chance)
        self._network.cluster = self._cluster
        self._producers: set[Producer] = set()
        self._transactional: set[TransactionalProducer] = set()
        self._consumers: set[Consumer] = set()
        self._subscriptions: set[Subscription] = set()
        self._groups: set[GroupConsumer] = set()
        self._closing: Deferred[None] | None = None
        self.admin = Admin(self._operate)

    def producer(self, config: ProducerConfig | None = None) -> Producer:
        """
        Make a producer; close it when it is not needed any more.

        Args:
            config: Settings.

        Raises:
            ClosedError: The client was closed.
            ForkedError: This is another process.
        """
        self._check()
        core_config = config or ProducerConfig()
        producer = Producer(
            self._cluster, core_config, self._network, self._home, self._producers.discard
        )
        self._producers.add(producer)
        return producer

    def transactional(
        self, name: str, config: ProducerConfig | None = None, *, timeout_s: float = 60.0
    ) -> TransactionalProducer:
        """
        Make a producer of transactions; close it when it is not needed any more.

        Args:
            name: Its transactional id: the name of one program at a time, the same at
                each start.
            config: Settings.
            timeout_s: After how long the brokers abort a transaction that is not ended.

        Raises:
            ClosedError: The client was closed.
            UsageError: The name or the time-out is none.
            ForkedError: This is another process.
        """
        self._check()
        producer = TransactionalProducer(
            self._cluster,
            name,
            config or ProducerConfig(),
            timeout_s,
            self._network,
            self._home,
            self._transactional.discard,
        )
        self._transactional.add(producer)
        return producer

    def consumer(self, config: ConsumerConfig | None = None) -> Consumer:
        """
        Make a consumer; `Consumer.assign` says what it reads.

        Args:
            config: Settings.

        Raises:
            ClosedError: The client was closed.
            ForkedError: This is another process.
        """
        self._check()
        core_config = config or ConsumerConfig()
        consumer = Consumer(
            self._cluster,
            core_config,
            (self._reactor, self._network),
            self._home,
            self._consumers.discard,
        )
        self._consumers.add(consumer)
        return consumer

    def subscription(
        self, topic: Topics, channel: str, config: SubscriptionConfig | None = None
    ) -> Subscription:
        """
        Take messages of a channel, each of which is settled by itself.

        Args:
            topic: Name of the topic. Of several, ``["urgent", "normal"]``, a message
                of the second is handed out only while none of the first is there;
                ``{"urgent": 5, "normal": 1}`` lets them take turns by weight.
            channel: Name of the channel; it is made where there is none.
            config: Settings.

        Raises:
            ClosedError: The client was closed.
            UsageError: The topics, or their weights, are wrong.
            ForkedError: This is another process.
        """
        self._check()
        settings = config or SubscriptionConfig()
        subscription = Subscription(
            partial(core_of, self._cluster, (topic, channel), settings),
            settings,
            (self._reactor, self._network),
            self._home,
            self._subscriptions.discard,
        )
        self._subscriptions.add(subscription)
        return subscription

    def group(
        self,
        name: str,
        topics: Iterable[str] = (),
        patterns: Iterable[str] = (),
        config: GroupConfig | None = None,
        **settings: Any,
    ) -> GroupConsumer:
        """
        Read topics together with the other members of a group; it joins at once.

        Args:
            name: Name of the group.
            topics: Names of topics; those that do not exist yet are read once they do.
            patterns: Regular expressions (RE2) of whole names of more topics.
            config: Settings.
            **settings: Fields of `GroupConfig` that are to be different, such as
                ``start="latest"``.

        Raises:
            UsageError: There is neither a topic nor a pattern.
            ConfigError: A setting is wrong.
            ClosedError: The client was closed.
            ForkedError: This is another process.
        """
        self._check()
        consumer = GroupConsumer(
            self._cluster,
            name,
            (listed(topics), listed(patterns)),
            group_config(config, settings),
            (self._reactor, self._network),
            self._home,
            (self._groups.discard, self.producer),
        )
        self._groups.add(consumer)
        return consumer

    def positions(self, group: str) -> Positions:
        """
        Look at the positions of a group, or commit some, without being a member.

        Args:
            group: Name of the group.

        Raises:
            ClosedError: The client was closed.
            ForkedError: This is another process.
        """
        self._check()
        return Positions(PositionCalls(self._cluster, group), self._network, self._home)

    def part(
        self, source: tuple[str, str], config: SubscriptionConfig, face: Face, pool: Pool
    ) -> SubscriptionCore:
        """
        Make the part of a subscription that this cluster has in one to several.

        Args:
            source: Names of topic and channel.
            config: Settings.
            face: Makes messages, and is told of them.
            pool: What all parts may have in flight.
        """
        return SubscriptionCore(self._cluster, source, config, face, pool)

    def arm(self) -> None:
        """Make sure that what is due is done, when others have asked for something."""
        self._network.arm()

    def metadata(
        self, topics: Iterable[str], *, create: bool = False
    ) -> Deferred[dict[str, TopicInfo]]:
        """
        Describe topics, freshly asked.

        Args:
            topics: Their names.
            create: Create those that do not exist.

        Returns:
            A Deferred that ends

            - with the descriptions by name;
            - with `UnknownTopic` or another of the broker's errors;
            - with `DeadlineExceeded` or `UnreachableError` after
              `ClientConfig.deadline_s`;
            - with `ClosedError`, `ForkedError`, or `CancelledError`.
        """
        asked = [self._topic(name, create=create) for name in topics]
        self._network.arm()  # once: it looks at all that wait
        return _joined(asked)

    @property
    def failing(self) -> bool:
        """Whether no broker answers, though one was tried."""
        return all(link.failing for link in self._cluster.links)

    def expect(self, broker: int) -> None:
        """
        Talk to no other broker: at an address there may be another one by now.

        Args:
            broker: The number of the one that is meant.
        """
        self._cluster.seed.expected = broker

    def on_links(self, changed: Callable[[], None]) -> None:
        """
        Call whenever a link comes up, goes down or takes more.

        Args:
            changed: What to call.
        """
        self._cluster.add(LinkWatch(changed))

    def close(self) -> Deferred[None]:
        """
        Close producers, which flush, consumers, subscriptions and links.

        Returns:
            A Deferred that ends with None when every message is settled and
            every connection is closed. It never fails; messages that could not
            be stored are told by their own Deferreds and by `Producer.close`.
        """
        if self._closing is None:
            self._closing = Deferred.fromCoroutine(self._close())
        waiting: Deferred[None] = Deferred()
        self._closing.addCallback(pass_to(waiting))
        return waiting

    async def _close(self) -> None:
        for consumer in tuple(self._consumers):
            consumer.close()
        for member in tuple(self._groups):
            await member.close()
        for subscription in tuple(self._subscriptions):
            await subscription.close()
        for transactional in tuple(self._transactional):
            await transactional.close()
        for producer in tuple(self._producers):
            await producer.close()
        self._cluster.close(self._network.seconds())
        self._network.arm()
        await self._network.when_idle()

    # --- inside ----------------------------------------------------------------

    def _check(self) -> None:
        self._home.check()
        if self._cluster.closed or self._closing is not None:
            raise ClosedError("the client was closed")

    def _topic(self, name: str, *, create: bool) -> Deferred[tuple[str, TopicInfo]]:
        waiting: Deferred[tuple[str, TopicInfo]] = Deferred()

        def found(info: TopicInfo | None, error: TinyMQError | None, now: float) -> None:
            if info is not None:
                waiting.callback((name, info))
            else:
                waiting.errback(error or ClosedError())

        def ask() -> Deferred[tuple[str, TopicInfo]]:
            self._check()
            now = self._network.seconds()
            deadline = now + self.config.deadline_s
            self._cluster.topic(name, deadline, found, now, create=create, fresh=True)
            return waiting

        return maybeDeferred(ask)

    def _operate(self, name: str, arguments: dict[str, Any]) -> Deferred[Result]:
        waiting: Deferred[Result] = Deferred()

        def done(result: Result | None, error: TinyMQError | None) -> None:
            if result is None:
                waiting.errback(error or ClosedError())
            else:
                waiting.callback(result)

        try:
            self._check()
        except TinyMQError as error:
            return fail(error)
        operate(self._cluster, name, arguments, done, self._network.seconds())
        self._network.arm()
        return waiting


def _joined(
    parts: list[Deferred[tuple[str, TopicInfo]]],
) -> Deferred[dict[str, TopicInfo]]:
    """Wait for all; the first failure is the failure of the whole."""
    joined = gatherResults(parts, consumeErrors=True)

    def plain(failure: Failure) -> Failure:
        inner = getattr(failure.value, "subFailure", None)
        return inner if isinstance(inner, Failure) else failure

    return joined.addCallbacks(dict, plain)
