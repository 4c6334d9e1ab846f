"""The client for asyncio: links, and what is made from them."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from typing_extensions import override

from tinymq.aio.consumer import Consumer
from tinymq.aio.group import GroupConsumer
from tinymq.aio.network import Connect, LoopNetwork, give, refuse
from tinymq.aio.positions import Positions
from tinymq.aio.producer import Producer
from tinymq.aio.subscription import Subscription
from tinymq.aio.transactional import TransactionalProducer
from tinymq.client.core.address import parse_url, url_from
from tinymq.client.core.admin import AdminCalls, operate
from tinymq.client.core.cluster import Cluster
from tinymq.client.core.config import (
    ClientConfig,
    ConsumerConfig,
    ProducerConfig,
    SubscriptionConfig,
)
from tinymq.client.core.group.positions import PositionCalls
from tinymq.client.core.group.settings import GroupConfig, group_config, listed
from tinymq.client.core.metadata import TopicInfo
from tinymq.client.core.results import Result
from tinymq.client.core.sources import Topics
from tinymq.errors import ClosedError, TinyMQError


class Admin(AdminCalls[Coroutine[Any, Any, Result]]):
    """
    Administrative operations, each a coroutine.

    Each raises

    - the broker's error, a `tinymq.errors.WireError`;
    - `ConnectionLost` when the link died after the request was written: an
      operation that changes something may then have been carried out, and is
      not repeated;
    - `DeadlineExceeded` or `UnreachableError` after `ClientConfig.deadline_s`;
    - `ClosedError` when the client is closed, `UsageError` in another loop,
      `ForkedError` in another process;
    - `CancelledError` when it is cancelled: the answer is then ignored.

    Args:
        call: Carries out an operation.
    """

    def __init__(self, call: Callable[[str, dict[str, Any]], Coroutine[Any, Any, Result]]) -> None:
        self._call = call

    @override
    def operate(self, operation: str, /, **arguments: Any) -> Coroutine[Any, Any, Result]:
        return self._call(
            operation, {name: value for name, value in arguments.items() if value is not None}
        )


class Client:
    """
    A client of one cluster; an asynchronous context manager.

    It belongs to the loop in which it is first used: make one in each loop.
    Nothing is connected before something is asked for. A lost link comes back
    by itself; what was not answered is repeated where that does no harm. A host
    given by name is looked up as asyncio does it, in the loop's executor.

    Leaving an `async with`, also by an error or a cancellation, waits as `close` does;
    the error comes out as it is. A client that is left open when its loop ends is
    lost, with what was not sent: no other loop can close it.

    Args:
        url: ``tinymq://host[:port][,...]``; otherwise the environment's
            ``TINYMQ_URL``, otherwise ``tinymq://127.0.0.1:7800``.
        config: Settings.
        connect: Connects a protocol to an address, for TLS or tests.
        chance: Random numbers from 0 to 1, for back-off and partitions.
        environment: Variables of the process.

    Raises:
        ConfigError: The URL is wrong.
    """

    def __init__(
        self,
        url: str | None = None,
        config: ClientConfig | None = None,
        *,
        connect: Connect | None = None,
        chance: Callable[[], float] = random.random,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self.config = config or ClientConfig()
        self._network = LoopNetwork(self.config, connect)
        addresses = parse_url(url_from(url, environment))
        self._cluster = Cluster(addresses, self.config, self._network, chance)
        self._network.cluster = self._cluster
        self._producers: set[Producer] = set()
        self._transactional: set[TransactionalProducer] = set()
        self._consumers: set[Consumer] = set()
        self._subscriptions: set[Subscription] = set()
        self._groups: set[GroupConsumer] = set()
        self._closing: asyncio.Task[None] | None = None
        self.admin = Admin(self._operate)

    async def __aenter__(self) -> Self:
        self._check()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def producer(self, config: ProducerConfig | None = None) -> Producer:
        """
        Make a producer; close it when it is not needed any more.

        Args:
            config: Settings.

        Raises:
            ClosedError: The client was closed.
            UsageError: No loop runs, or another one; `ForkedError` in another
                process.
        """
        self._check()
        producer = Producer(self._network, config or ProducerConfig(), self._producers.discard)
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
            UsageError: The name or the time-out is none, or as `producer`.
        """
        self._check()
        producer = TransactionalProducer(
            self._network,
            name,
            config or ProducerConfig(),
            timeout_s,
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
            UsageError: As `producer`.
        """
        self._check()
        consumer = Consumer(self._network, config or ConsumerConfig(), self._consumers.discard)
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
            UsageError: As `producer`.
        """
        self._check()
        subscription = Subscription(
            self._network,
            (topic, channel),
            config or SubscriptionConfig(),
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
            ConfigError: A setting is wrong.
            ClosedError: The client was closed.
            UsageError: There is neither a topic nor a pattern; or as `producer`.
        """
        self._check()
        consumer = GroupConsumer(
            self._network,
            name,
            (listed(topics), listed(patterns)),
            group_config(config, settings),
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
            UsageError: As `producer`.
        """
        self._check()
        return Positions(PositionCalls(self._cluster, group), self._network)

    async def metadata(
        self, topics: Iterable[str], *, create: bool = False
    ) -> dict[str, TopicInfo]:
        """
        Describe topics, freshly asked.

        Args:
            topics: Their names.
            create: Create those that do not exist.

        Returns:
            The descriptions by name.

        Raises:
            UnknownTopic: Or another of the broker's errors.
            DeadlineExceeded: Or `UnreachableError`, after `ClientConfig.deadline_s`.
            ClosedError: The client was closed.
            UsageError: As `producer`.
            CancelledError: Its task was cancelled; the answer is ignored.
        """
        self._check()
        left = set(topics)
        found: dict[str, TopicInfo] = {}
        if not left:
            return found
        waiting: asyncio.Future[None] = self._network.future()

        def told(info: TopicInfo | None, error: TinyMQError | None, now: float) -> None:
            if info is None:
                refuse(waiting, error or ClosedError("the client was closed"))
                return
            found[info.name] = info
            if len(found) == len(left):
                give(waiting, None)

        now = self._network.seconds()
        deadline = now + self.config.deadline_s
        for name in left:
            self._cluster.topic(name, deadline, told, now, create=create, fresh=True)
        self._network.stir()
        await waiting
        return found

    async def close(self) -> None:
        """
        Close producers, which flush, consumers, subscriptions and links.

        All producers take no more from now on, and settle what they have within
        `ProducerConfig.deadline_s`. Messages that could not be stored are told by
        their own futures and by `Producer.close`. Again is no error.

        Raises:
            CancelledError: Its task was cancelled; closing goes on, and can be waited
                for again.
            UsageError: No loop runs, or another one; `ForkedError` in another
                process.
        """
        self._network.check()
        if self._closing is None:
            self._closing = self._network.loop.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        try:
            for consumer in tuple(self._consumers):
                await consumer.close()
            await asyncio.gather(*[one.close() for one in self._groups])
            await asyncio.gather(*[one.close() for one in self._subscriptions])
            # All at once: none of them takes more while others still send.
            await asyncio.gather(
                *[producer.close() for producer in self._producers],
                *[producer.close() for producer in self._transactional],
            )
        finally:  # also when the loop ends and cancels what is left
            self._cluster.close(self._network.seconds())
            self._network.stir()
            await self._network.idle()

    # --- inside ----------------------------------------------------------------

    def _check(self) -> None:
        self._network.check()
        if self._cluster.closed or self._closing is not None:
            raise ClosedError("the client was closed")

    async def _operate(self, name: str, arguments: dict[str, Any]) -> Result:
        self._check()
        waiting: asyncio.Future[Result] = self._network.future()

        def done(result: Result | None, error: TinyMQError | None) -> None:
            if result is None:
                refuse(waiting, error or ClosedError())
            else:
                give(waiting, result)

        operate(self._cluster, name, arguments, done, self._network.seconds())
        self._network.stir()
        return await waiting
