"""
Several subscriptions that are taken from as if they were one, by rank or by weight.

What is there of each lies ready under leases, which are renewed while it waits. Whose
message is handed out next is decided when one is asked for, and not before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, TypeVar

from attrs import define

from tinymq.client.core.allowance import Pool
from tinymq.client.core.bundle import QueueBatch
from tinymq.client.core.cluster import Cluster
from tinymq.client.core.config import SubscriptionConfig
from tinymq.client.core.message import QueueMessage
from tinymq.client.core.subscription import SubscriptionCore
from tinymq.client.core.taking import Core, Face, Told
from tinymq.errors import ClosedError, TinyMQError, UsageError

T = TypeVar("T")

#: What a subscription takes from: a topic, several by rank, or several by weight.
Topics: TypeAlias = str | Sequence[str] | Mapping[str, int]


def core_of(
    cluster: Cluster, source: tuple[Topics, str], config: SubscriptionConfig, face: Face
) -> Core:
    """
    Make the core of a subscription.

    Args:
        cluster: The brokers.
        source: A topic, or several, and the name of the channel.
        config: Settings.
        face: Makes messages, and is told of them.

    Raises:
        UsageError: There are no topics, or more than may be in flight, or a weight is not
            at least 1.
    """
    topics, channel = source
    if isinstance(topics, str):
        return SubscriptionCore(cluster, (topics, channel), config, face)
    weights = dict(topics) if isinstance(topics, Mapping) else dict.fromkeys(topics, 1)
    _check(topics, weights, config)
    ranked = not isinstance(topics, Mapping)
    sources = Sources(channel, config, face.wake, ranked=ranked)
    mine = face._replace(wake=sources.woken)
    for topic, weight in weights.items():
        sources.add(SubscriptionCore(cluster, (topic, channel), config, mine, sources.pool), weight)
    return sources


def _check(topics: Topics, weights: Mapping[str, int], config: SubscriptionConfig) -> None:
    if len(weights) != len(topics) or not weights:
        raise UsageError("a subscription takes from one topic, or from several different ones")
    wrong = [each for each in weights.values() if type(each) is not int or each < 1]
    if wrong:
        raise UsageError(f"the weight of a topic is a whole number from 1 on, not {wrong[0]!r}")
    if len(weights) > config.max_in_flight:
        raise UsageError(
            f"max_in_flight = {config.max_in_flight} is too few for {len(weights)} topics: "
            "each has its share"
        )


@define(eq=False)
class _Source:
    """
    One of them.

    Attributes:
        core: The subscription.
        weight: Its weight.
        due: How much it is behind its turn.
    """

    core: SubscriptionCore
    weight: int
    due: int = 0


class Sources:
    """
    Several subscriptions.

    The most messages in flight are split evenly over them, so that one whose messages
    nobody takes does not hold up the others.

    Args:
        channel: The channel's name.
        config: Settings of the whole.
        wake: Called when `take` may have something, or an error.
        ranked: Whether one is taken from only while nothing is there of those before.

    Attributes:
        channel: The channel's name, with the instance.
        pool: The bound for all of them.
        failed: Why it ended by itself, or None.
        failing: Called with one that failed; by default the whole fails.
    """

    def __init__(
        self,
        channel: str,
        config: SubscriptionConfig,
        wake: Callable[[], None],
        *,
        ranked: bool = False,
    ) -> None:
        self.channel = config.channel_of(channel)
        self.pool = Pool(config.max_in_flight)
        self.failed: TinyMQError | None = None
        self.failing: Callable[[SubscriptionCore], None] = self._fail
        self._config = config
        self._wake = wake
        self._ranked = ranked
        self._sources: list[_Source] = []
        self._draining = self._closed = False
        self._past_late = self._past_delivered = 0
        #: Those who wait for the first one.
        self._waiting: list[Told] = []

    # --- which there are ---------------------------------------------------------

    def add(self, core: SubscriptionCore, weight: int = 1) -> None:
        """
        Take from one more.

        Args:
            core: The subscription, which shares `pool`.
            weight: Its weight.
        """
        self._sources.append(_Source(core, weight))
        self._split()

    def begin(self, now: float) -> None:
        """
        Look up all topics and join.

        Args:
            now: The time.
        """
        for core in self._cores:
            core.begin(now)

    def join(self, core: SubscriptionCore, now: float) -> None:
        """
        Take from one more from now on.

        Args:
            core: The subscription, which shares `pool`.
            now: The time.
        """
        self.add(core)
        core.begin(now)
        for one in self._cores:
            one.resize(now)
        waiting, self._waiting = self._waiting, []
        for told in waiting:
            core.ready_when(told, now)

    def leave(self, core: SubscriptionCore, done: Callable[[], None], now: float) -> None:
        """
        Take no more from one, and leave it in good order.

        Args:
            core: The subscription.
            done: Called when that is done.
            now: The time.
        """
        self._sources = [source for source in self._sources if source.core is not core]
        self._past_late += core.late
        self._past_delivered += core.delivered
        core.close(done, now)
        self._split()
        for one in self._cores:
            one.resize(now)

    def _split(self) -> None:
        whole = max(self._config.max_in_flight, len(self._sources))
        self.pool.most = whole
        count = len(self._sources)
        for place, source in enumerate(self._sources):
            source.core.most = whole // count + (place < whole % count)

    @property
    def _cores(self) -> list[SubscriptionCore]:
        return [source.core for source in self._sources]

    # --- what there is -----------------------------------------------------------

    @property
    def topic(self) -> str:
        """Names of the topics."""
        return ", ".join(dict.fromkeys(core.topic for core in self._cores))

    @property
    def closed(self) -> bool:
        """Whether it was closed, or its client was."""
        return self._closed or any(core.closed for core in self._cores)

    @property
    def waiting(self) -> bool:
        """Whether `take` may have something."""
        return self.closed or self.failed is not None or any(one.waiting for one in self._cores)

    @property
    def in_flight(self) -> int:
        """Messages that were delivered and are not settled."""
        return sum(core.in_flight for core in self._cores)

    @property
    def delivered(self) -> int:
        """Messages delivered so far."""
        return self._past_delivered + sum(core.delivered for core in self._cores)

    @property
    def late(self) -> int:
        """Messages whose settle came too late so far."""
        return self._past_late + sum(core.late for core in self._cores)

    def take(self, now: float) -> QueueMessage | None:
        """
        Take the next message, if one is ready.

        Args:
            now: The time.

        Raises:
            TinyMQError: The subscription ended.
        """
        self._check(now)
        if self._ranked:
            return self._first(lambda core: core.take(now))
        return self._fair(lambda core: core.take(now), lambda _: 1)

    def take_many(self, most: int, now: float) -> QueueBatch | None:
        """
        Take the next messages of one topic together, if some are ready.

        Args:
            most: How many at most.
            now: The time.

        Raises:
            TinyMQError: The subscription ended.
        """
        self._check(now)
        if self._ranked:
            return self._first(lambda core: core.take_many(most, now))
        return self._fair(lambda core: core.take_many(most, now), len)

    def _first(self, take: Callable[[SubscriptionCore], T | None]) -> T | None:
        for core in self._cores:
            found = take(core) if core.waiting else None
            if found is not None:
                return found
        return None

    def _fair(
        self, take: Callable[[SubscriptionCore], T | None], size: Callable[[T], int]
    ) -> T | None:
        """Take from the one that is furthest behind, of those where something is there."""
        there = [source for source in self._sources if source.core.waiting]
        while there:
            best = max(there, key=lambda source: source.due + source.weight)
            found = take(best.core)
            if found is None:
                there.remove(best)
                continue
            count = size(found)
            for source in there:
                source.due += source.weight * count
            best.due -= sum(source.weight for source in there) * count
            return found
        return None

    def _check(self, now: float) -> None:
        if self.failed is not None:
            for core in self._cores:
                core.close(_nothing, now)  # nobody takes what comes from the others
            raise self.failed
        if self.closed:
            raise ClosedError("the subscription was closed")

    def more(self, now: float) -> None:
        """
        Ask for more, after messages without leases were handed out.

        Args:
            now: The time.
        """
        for core in self._cores:
            core.more(now)

    def woken(self) -> None:
        """Hear from one that it has something, or failed."""
        for core in self._cores:
            if core.failed is not None and self.failed is None:
                self.failing(core)
        self._wake()

    def _fail(self, core: SubscriptionCore) -> None:
        """End the whole: without one of them the others would be taken for all there is."""
        self.failed = core.failed

    # --- beginning, settling, ending ---------------------------------------------

    def ready_when(self, told: Told, now: float) -> None:
        """
        Call when brokers have let us join everywhere, or one says why not.

        Args:
            told: Told the end, once.
            now: The time.
        """
        if self.closed:
            told(ClosedError("the subscription was closed"))
            return
        if not self._sources:
            self._waiting.append(told)
            return
        left = len(self._sources)

        def joined(error: TinyMQError | None) -> None:
            nonlocal left
            left -= 1
            if left == 0 or (error is not None and left > 0):
                left = 0
                told(error)

        for core in self._cores:
            core.ready_when(joined, now)

    def pump(self, now: float) -> None:
        """
        Tell brokers what became of messages, at the end of a turn.

        Args:
            now: The time.
        """
        for core in self._cores:
            core.pump(now)

    def when_settled(self, call: Callable[[], None]) -> None:
        """
        Call when everything that was said of messages up to now is confirmed.

        Args:
            call: What to call.
        """
        _after(call, [core.when_settled for core in self._cores])

    def drain(self, now: float) -> None:
        """
        Take no more messages, and give back those that were not handed out.

        Args:
            now: The time.
        """
        for core in self._cores:
            core.drain(now)

    def close(self, done: Callable[[], None], now: float) -> None:
        """
        Leave all channels.

        Args:
            done: Called when the brokers know, or are not waited for any more.
            now: The time.
        """
        self._closed = True
        waiting, self._waiting = self._waiting, []
        for told in waiting:
            told(ClosedError("the subscription was closed"))

        def closing(core: SubscriptionCore) -> Callable[[Callable[[], None]], None]:
            return lambda ended: core.close(ended, now)

        _after(done, [closing(core) for core in self._cores])


def _nothing() -> None:
    """Nobody waits for it."""


def _after(call: Callable[[], None], waits: list[Callable[[Callable[[], None]], None]]) -> None:
    """Call something when several others have called back."""
    left = len(waits)

    def one() -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            call()

    for wait in waits:
        wait(one)
    if not waits:
        call()
