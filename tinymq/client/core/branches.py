"""
Which brokers take part in a subscription, and with which share of its messages.

The most messages in flight are split over the brokers that lead partitions. When there
are fewer than brokers, some brokers do not take part, and they take turns.

When a broker joins, the shares of the others shrink, and what they were granted cannot be
taken back. A common pool sees to it that all together are never promised more than there
is; a broker that keeps more unused than its new share is left, and joins again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from math import inf
from typing import Final

from tinymq.client.core.allowance import Pool
from tinymq.client.core.branch import Branch, Phase
from tinymq.client.core.cluster import Cluster
from tinymq.client.core.config import SubscriptionConfig
from tinymq.client.core.trunk import Trunk
from tinymq.errors import TinyMQError

#: Seconds after which a share that is not used moves on.
_TURN_S: Final = 0.4


class Branches:
    """
    The branches of a subscription.

    Args:
        trunk: The subscription.
        cluster: The brokers.
        config: Settings.
        pool: The bound for all brokers, maybe of several subscriptions.
        ended: Called when a branch has ended.

    Attributes:
        most: How many messages all of these branches may have in flight.
        stopped: Whether no broker begins to take part any more.
        turn_at: When `rotate` is due.
    """

    def __init__(
        self,
        trunk: Trunk,
        cluster: Cluster,
        config: SubscriptionConfig,
        pool: Pool,
        ended: Callable[[], None],
    ) -> None:
        self.most = config.max_in_flight
        self.stopped = False
        self.turn_at = inf
        self._trunk = trunk
        self._cluster = cluster
        self._config = config
        self._pool = pool
        self._ended = ended
        self._live: dict[int, Branch] = {}
        #: Brokers for which there is no share just now.
        self._idle: deque[int] = deque()
        self._leaders: set[int] = set()
        self._past_late = 0

    def __iter__(self) -> Iterator[Branch]:
        return iter(tuple(self._live.values()))

    def __bool__(self) -> bool:
        return bool(self._live)

    @property
    def held(self) -> int:
        """Messages that were delivered and are not settled."""
        return sum(branch.held for branch in self._live.values())

    @property
    def late(self) -> int:
        """Messages whose settle came too late so far."""
        return self._past_late + sum(branch.late for branch in self._live.values())

    @property
    def settled(self) -> bool:
        """Whether the brokers have confirmed all that was said of messages."""
        return all(branch.settling.idle for branch in self._live.values())

    @property
    def joined(self) -> bool:
        """Whether some broker delivers."""
        return any(branch.phase is Phase.JOINED for branch in self._live.values())

    def follow(self, leaders: tuple[int, ...], now: float) -> None:
        """
        Have a branch for each broker that leads partitions, or for as many as may be.

        Args:
            leaders: The leader of each partition, -1 where there is none.
            now: The time.
        """
        self._leaders = {leader for leader in leaders if leader >= 0}
        if -1 not in leaders:  # otherwise one that leads nothing may only be away
            for broker in [one for one in self._live if one not in self._leaders]:
                self.leave(broker, now)
        self._idle = deque(broker for broker in self._idle if broker in self._leaders)
        self._idle += sorted(self._leaders - {*self._live, *self._idle})
        self.fill(now)

    def fill(self, now: float) -> None:
        """
        Let those brokers take part for which there is a share, and split the shares.

        Args:
            now: The time.
        """
        if self.stopped:
            return
        most = self.most
        while self._idle and len(self._live) < most:
            broker = self._idle.popleft()
            self._live[broker] = Branch(self._trunk, self._cluster, broker, self._pool)
        more = len(self._live) > most
        self.turn_at = min(self.turn_at, now + _TURN_S) if self._idle or more else inf
        for branch in tuple(self)[most:]:
            branch.rest()  # its turn comes again
        count = min(most, len(self._live))
        for place, branch in enumerate(self):
            if not branch.resting:
                share = most // count + (place < most % count)
                size = self._config.buffer_bytes * share / self._pool.most
                branch.allowance.allow(share, size)
                branch.pump(now)
        self.release(now)
        self._pool.share_out(now)

    def rotate(self, now: float) -> None:
        """
        Let the shares move on, if there are fewer than brokers.

        Args:
            now: The time.
        """
        self.turn_at = inf
        if self._idle:
            self.rest()
            self.turn_at = now + _TURN_S
        self.release(now)

    def rest(self) -> None:
        """Let no broker deliver more."""
        for branch in self:
            branch.rest()

    def release(self, now: float) -> None:
        """
        Leave those brokers that are to rest, once nothing of them is here.

        Those are to rest, too, that may still deliver more than their share is by now.

        Args:
            now: The time.
        """
        for broker, branch in tuple(self._live.items()):
            if branch.allowance.over and branch.phase is Phase.JOINED:
                branch.rest()
            if branch.resting and not branch.held and branch.settling.idle:
                self.leave(broker, now)

    def leave(self, broker: int, now: float) -> None:
        """
        Leave a broker in good order.

        Args:
            broker: Its number.
            now: The time.
        """
        branch = self._live[broker]

        def left(now: float) -> None:
            if self._live.get(broker) is branch:
                del self._live[broker]
                self._past_late += branch.late
                if broker in self._leaders:
                    self._idle.append(broker)
            self.fill(now)
            self._ended()

        branch.leave(now + self._config.leave_s, left, now)

    def leave_all(self, now: float) -> None:
        """
        Leave every broker in good order.

        Args:
            now: The time.
        """
        self.stopped = True
        for broker in tuple(self._live):
            self.leave(broker, now)

    def cancel(self, error: TinyMQError, now: float) -> None:
        """
        End all without a word to the brokers.

        Args:
            error: What is told of messages that were settled and not confirmed.
            now: The time.
        """
        self.stopped = True
        for branch in self:
            branch.cancel(error, now)
        self._live.clear()
