"""The blocking client: links, and what is made from them."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from typing_extensions import override

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
from tinymq.client.core.offsets import OffsetSearch, Survey
from tinymq.client.core.results import Result
from tinymq.client.core.sources import Topics
from tinymq.errors import ClosedError, DeadlineExceeded, TinyMQError
from tinymq.sync.consumer import Consumer
from tinymq.sync.group import GroupConsumer
from tinymq.sync.keeper import Keeper
from tinymq.sync.loop import Loop
from tinymq.sync.network import SocketNetwork
from tinymq.sync.positions import Positions
from tinymq.sync.producer import Producer
from tinymq.sync.subscription import Subscription
from tinymq.sync.transactional import TransactionalProducer


class Admin(AdminCalls[Result]):
    """
    Administrative operations that return when they are done.

    Each raises the broker's error, `ConnectionLost` when the link died after the
    request was written (what changes something may have been carried out, and is
    not repeated), or `DeadlineExceeded` or `UnreachableError` after
    `ClientConfig.deadline_s`.

    Args:
        call: Carries out an operation.
    """

    def __init__(self, call: Callable[[str, dict[str, Any]], Result]) -> None:
        self._call = call

    @override
    def operate(self, operation: str, /, **arguments: Any) -> Result:
        return self._call(
            operation, {name: value for name, value in arguments.items() if value is not None}
        )


class Client:
    """
    A blocking client of one cluster; a context manager.

    It has sockets of its own, no thread and no reactor. So it works only while
    one of its calls runs, and each call ends within its deadline. A lock makes
    calls from several threads safe, one after the other: a thread that waits for
    records keeps the others waiting, so give each thread its own client.

    Args:
        url: ``tinymq://host[:port][,...]``; otherwise the environment's
            ``TINYMQ_URL``, otherwise ``tinymq://127.0.0.1:7800``.
        config: Settings.
        chance: Random numbers from 0 to 1, for back-off and partitions.
        clock: Seconds that never go back.
        environment: Variables of the process.

    Raises:
        ConfigError: The URL is wrong.
    """

    def __init__(
        self,
        url: str | None = None,
        config: ClientConfig | None = None,
        *,
        chance: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self.config = config or ClientConfig()
        network = SocketNetwork(self.config)
        self._loop = Loop(network, clock)
        addresses = parse_url(url_from(url, environment))
        self._cluster = Cluster(addresses, self.config, network, chance)
        self._loop.cluster = self._cluster
        self._producers: set[Producer] = set()
        self._transactional: set[TransactionalProducer] = set()
        self._consumers: set[Consumer] = set()
        self._subscriptions: set[Subscription] = set()
        self._groups: set[GroupConsumer] = set()
        self._keeper = Keeper(self._loop)
        self.admin = Admin(self._operate)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def producer(self, config: ProducerConfig | None = None) -> Producer:
        """
        Make a producer; close it when it is not needed any more.

        Args:
            config: Settings.

        Raises:
            ClosedError: The client was closed.
            ForkedError: This is another process.
        """
        with self._loop.lock:
            self._check()
            producer = Producer(self._loop, config or ProducerConfig(), self._producers.discard)
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
        with self._loop.lock:
            self._check()
            producer = TransactionalProducer(
                self._loop,
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
            ForkedError: This is another process.
        """
        with self._loop.lock:
            self._check()
            consumer = Consumer(self._loop, config or ConsumerConfig(), self._consumers.discard)
            self._consumers.add(consumer)
            return consumer

    def subscription(
        self, topic: Topics, channel: str, config: SubscriptionConfig | None = None
    ) -> Subscription:
        """
        Take messages of a channel, each of which is settled by itself.

        A thread of the client renews leases from now on, until it is closed.

        Args:
            topic: Name of the topic. Of several, ``["urgent", "normal"]``, a message
                of the second is handed out only while none of the first is there;
                ``{"urgent": 5, "normal": 1}`` lets them take turns by weight.
            channel: Name of the channel; it is made where there is none.
            config: Settings.

        Raises:
            ClosedError: The client was closed.
            ForkedError: This is another process.
        """
        with self._loop.lock:
            self._check()
            subscription = Subscription(
                (self._loop, self._keeper),
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

        A thread of the client keeps the membership from now on, until it is closed.

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
        with self._loop.lock:
            self._check()
            consumer = GroupConsumer(
                (self._loop, self._keeper),
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
            ForkedError: This is another process.
        """
        with self._loop.lock:
            self._check()
            return Positions(PositionCalls(self._cluster, group), self._loop)

    def metadata(self, topics: Iterable[str], *, create: bool = False) -> dict[str, TopicInfo]:
        """
        Describe topics, freshly asked.

        Args:
            topics: Their names.
            create: Create those that do not exist.

        Raises:
            UnknownTopic: Or another of the broker's errors.
            DeadlineExceeded: Or `UnreachableError`, after `ClientConfig.deadline_s`.
        """
        names = list(topics)
        found: dict[str, TopicInfo] = {}
        errors: list[TinyMQError] = []
        with self._loop.lock:
            self._check()
            now = self._loop.now()
            deadline = now + self.config.deadline_s

            def told(info: TopicInfo | None, error: TinyMQError | None, now: float) -> None:
                if info is not None:
                    found[info.name] = info
                else:
                    errors.append(error or ClosedError())

            for name in names:
                self._cluster.topic(name, deadline, told, now, create=create, fresh=True)
            self._loop.run(
                lambda: len(found) + len(errors) >= len(set(names)) or errors, deadline + 1
            )
        if errors:
            raise errors[0]
        return found

    def survey(
        self,
        topic: str,
        partitions: Iterable[int],
        time_ms: int,
        within_s: float | None = None,
    ) -> Survey:
        """
        Ask for offsets, of the partitions whose brokers answer; silent ones are named.

        It needs the brokers alone, no MetaServer.

        Args:
            topic: Name of the topic.
            partitions: Which.
            time_ms: `EARLIEST`, `LATEST`, or milliseconds since the epoch.
            within_s: Seconds after which who has not answered is silent;
                `ClientConfig.deadline_s` if not given. A partition without a live
                leader is not waited for.

        Raises:
            UnknownTopic: Or another error of the topic as a whole.
        """
        wanted = list(partitions)
        ended: list[TinyMQError | None] = []
        with self._loop.lock:
            self._check()
            now = self._loop.now()
            deadline = now + (self.config.deadline_s if within_s is None else within_s)
            search = OffsetSearch(
                self._cluster, deadline, lambda _, error: ended.append(error), partial=True
            )
            search.start(topic, wanted, time_ms, now)
            self._loop.run(lambda: ended, deadline + 1)
        late = (ended and ended[0]) or DeadlineExceeded("no answer within the deadline")
        if wanted and not search.found and not search.faults:
            raise late
        faults = {
            number: search.faults.get(number, late)
            for number in wanted
            if number not in search.found
        }
        return Survey(dict(search.found), faults)

    def close(self) -> None:
        """Close producers, which flush, consumers, subscriptions and links."""
        self._loop.check()
        for member in tuple(self._groups):
            member.close()  # which waits for others without the lock
        for subscription in tuple(self._subscriptions):
            subscription.close()  # which waits for others without the lock
        with self._loop.lock:
            self._loop.check()
            for consumer in tuple(self._consumers):
                consumer.close()
            for transactional in tuple(self._transactional):
                transactional.close()
            for producer in tuple(self._producers):
                producer.close()
            self._cluster.close(self._loop.now())

    # --- inside ----------------------------------------------------------------

    def _check(self) -> None:
        self._loop.check()
        if self._cluster.closed:
            raise ClosedError("the client was closed")

    def _operate(self, name: str, arguments: dict[str, Any]) -> Result:
        ended: list[tuple[Result | None, TinyMQError | None]] = []

        def done(result: Result | None, error: TinyMQError | None) -> None:
            ended.append((result, error))

        with self._loop.lock:
            self._check()
            deadline = operate(self._cluster, name, arguments, done, self._loop.now())
            if not self._loop.run(lambda: ended, deadline + 1):
                raise DeadlineExceeded(f"no answer to {name} within its deadline")
        result, error = ended[0]
        if result is None:
            raise error or ClosedError()
        return result
