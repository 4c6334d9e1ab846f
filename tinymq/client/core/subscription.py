"""A subscription to a channel without I/O: finding the topic, handing out, ending."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from typing import Final

from tinymq.client.core.allowance import Pool
from tinymq.client.core.branch import Branch
from tinymq.client.core.branches import Branches
from tinymq.client.core.bundle import QueueBatch
from tinymq.client.core.cluster import Cluster
from tinymq.client.core.config import SubscriptionConfig
from tinymq.client.core.held import HeldLease, Part
from tinymq.client.core.message import QueueMessage
from tinymq.client.core.taking import Face, Told
from tinymq.client.core.whereabouts import Whereabouts
from tinymq.errors import (
    ClientError,
    ClosedError,
    DeadlineExceeded,
    TinyMQError,
    UnknownTopic,
    UnknownTopicId,
)
from tinymq.wire.messages import Subscribe

#: Errors that a topic made anew explains.
_MOVED: Final = (UnknownTopic, UnknownTopicId)


class SubscriptionCore:
    """
    A subscription without I/O.

    Args:
        cluster: The brokers.
        source: Names of topic and channel.
        config: Settings.
        face: Makes messages, and is told of them.
        pool: What it shares with other subscriptions; its own if there are none.

    Attributes:
        topic: Name of the topic.
        channel: Name of the channel.
        config: Settings.
        closed: Whether it was closed.
        failed: Why it ended by itself, or None.
        draining: Whether nothing more is handed out.
        delivered: Messages delivered so far.
    """

    def __init__(
        self,
        cluster: Cluster,
        source: tuple[str, str],
        config: SubscriptionConfig,
        face: Face,
        pool: Pool | None = None,
    ) -> None:
        self.topic, channel = source
        self.channel = config.channel_of(channel)
        self.config = config
        self.closed = False
        self.failed: TinyMQError | None = None
        self.draining = False
        self.delivered = 0
        self._cluster = cluster
        self._make, self._wake, self._soon, self._make_batch = face
        self._whereabouts = Whereabouts(cluster, self.topic, config, self)
        self._pool = pool or Pool(config.max_in_flight)
        self._branches = Branches(self, cluster, config, self._pool, self._ended)
        #: Leases of which something was not handed out, with who holds them.
        self._line: deque[tuple[Branch, HeldLease]] = deque()
        self._dirty: set[Branch] = set()
        self._waiting: list[tuple[float, Told]] = []
        self._ends: list[Callable[[], None]] = []
        self._drained: list[Callable[[], None]] = []

    def begin(self, now: float) -> None:
        """
        Look up the topic and join.

        Args:
            now: The time.
        """
        self._cluster.add(self)
        self._whereabouts.find(now, fresh=False)

    # --- handing out -----------------------------------------------------------

    @property
    def over(self) -> bool:
        """Whether it was closed, or ended by itself."""
        return self.closed or self.failed is not None

    @property
    def waiting(self) -> bool:
        """Whether `take` may have something."""
        return bool(self._line) or self.over

    @property
    def in_flight(self) -> int:
        """Messages that were delivered and are not settled."""
        return self._branches.held

    @property
    def late(self) -> int:
        """Messages whose settle came too late so far."""
        return self._branches.late

    def take(self, now: float) -> QueueMessage | None:
        """
        Take the next message, if one is ready.

        Args:
            now: The time.

        Raises:
            TinyMQError: The subscription ended.
        """
        if self.failed is not None or self.closed:
            raise self.failed or ClosedError("the subscription was closed")
        line = self._line
        while line:
            lease = line[0][1]
            left = lease.left
            if left < 2:
                line.popleft()
            if left:
                return lease.next(self._make, now)
        return None

    @property
    def most(self) -> int:
        """How many messages may be in flight, of what `Pool` allows."""
        return self._branches.most

    @most.setter
    def most(self, most: int) -> None:
        self._branches.most = most

    def resize(self, now: float) -> None:
        """
        Follow a new `most`.

        Args:
            now: The time.
        """
        self._branches.fill(now)

    def take_many(self, most: int, now: float) -> QueueBatch | None:
        """
        Take the next messages together, if some are ready.

        Args:
            most: How many at most.
            now: The time.

        Raises:
            TinyMQError: The subscription ended.
        """
        if self.failed is not None or self.closed:
            raise self.failed or ClosedError("the subscription was closed")
        parts: list[Part] = []
        line = self._line
        while line and most:
            lease = line[0][1]
            left = lease.left
            if left <= most:
                line.popleft()
            if left:
                parts.append(lease.part(most))
                most -= min(left, most)
        return self._make_batch(parts, self._make, now) if parts else None

    def more(self, now: float) -> None:
        """
        Ask for more, after messages without leases were handed out.

        Args:
            now: The time.
        """
        for branch in self._branches:
            branch.pump(now)

    # --- beginning -------------------------------------------------------------

    def ready_when(self, told: Told, now: float) -> None:
        """
        Call when a broker has let us join, or says why not.

        Args:
            told: Told the end.
            now: The time.
        """
        if self.over:
            told(self.failed or ClosedError("the subscription was closed"))
        elif self._branches.joined:
            told(None)
        else:
            self._waiting.append((now + self.config.deadline_s, told))

    # --- brokers ---------------------------------------------------------------

    def request(self, number: int, credit: int) -> Subscribe:
        """
        Make the SUBSCRIBE of a branch.

        Args:
            number: Of the branch.
            credit: How many messages it takes at first.
        """
        info = self._whereabouts.info
        assert info is not None
        return Subscribe(
            subscription=number,
            topic_id=info.id,
            channel=self.channel,
            credit=credit,
            create=self.config.create,
            start=self.config.begins,
            temporary=self.config.temporary,
        )

    def arrange(self, leaders: tuple[int, ...], now: float) -> None:
        """
        Follow the leaders of partitions.

        Args:
            leaders: Of each partition, -1 where there is none.
            now: The time.
        """
        only = self.config.only_broker
        if only is not None:
            leaders = tuple(leader for leader in leaders if leader in (-1, only))
        self._branches.follow(leaders, now)

    # --- told by branches ------------------------------------------------------

    def ready(self, branch: Branch, leases: list[HeldLease]) -> None:
        """
        Take messages that came.

        Args:
            branch: Where they came from.
            leases: The messages.
        """
        for lease in leases:
            self.delivered += lease.left
            if self.draining and lease.lease_id:
                branch.custody.give_back(lease)
            else:
                self._line.append((branch, lease))
        self._wake()

    def settled(self, branch: Branch) -> None:
        """
        Remember that something is to be told at the end of the turn.

        Args:
            branch: To whom.
        """
        if not self._dirty:
            self._soon()
        self._dirty.add(branch)

    def joined(self, branch: Branch, error: TinyMQError | None, now: float) -> None:
        """
        Hear how a SUBSCRIBE ended.

        Args:
            branch: Of whom.
            error: Why it failed, or None.
            now: The time.
        """
        if self.over or isinstance(error, ClosedError):
            return
        if error is None:
            self._whereabouts.why = None
            waiting, self._waiting = self._waiting, []
            for _, told in waiting:
                told(None)
            return
        self._whereabouts.why = error
        if isinstance(error, _MOVED):
            self._whereabouts.find(now, fresh=True)
        elif not isinstance(error, ClientError) and not getattr(error, "retriable", False):
            self.fail(error, now)

    # --- the cluster's calls ---------------------------------------------------

    @property
    def wake_at(self) -> float:
        """When `tick` has something to do."""
        if self._dirty:
            return -inf
        at = min(self._whereabouts.look_at, self._branches.turn_at)
        for until, _ in self._waiting:
            at = min(at, until)
        for branch in self._branches:
            at = min(at, branch.wake_at)
        return at

    def pump(self, now: float) -> None:
        """
        Tell brokers what became of messages, at the end of a turn.

        Args:
            now: The time.
        """
        dirty, self._dirty = self._dirty, set()
        for branch in dirty:
            branch.pump(now)
        self._branches.release(now)
        self._pool.share_out(now)
        if self._drained and self.settled_all:
            calls, self._drained = self._drained, []
            for call in calls:
                call()

    def tick(self, now: float) -> None:
        """
        Do what is due.

        Args:
            now: The time.
        """
        if self._whereabouts.look_at <= now:
            self._whereabouts.find(now, fresh=True)
        if self._branches.turn_at <= now:
            self._branches.rotate(now)
        for branch in self._branches:
            if branch.wake_at <= now:
                branch.tick(now)
        self.pump(now)
        overdue = [told for until, told in self._waiting if until <= now]
        self._waiting = [one for one in self._waiting if one[0] > now]
        for told in overdue:
            told(self._trouble)

    @property
    def _trouble(self) -> TinyMQError:
        """Why no broker has let us join."""
        troubles = (branch.trouble for branch in self._branches)
        error = self._whereabouts.why or next((one for one in troubles if one is not None), None)
        return error or DeadlineExceeded("no broker let the subscription join in time")

    def link_changed(self, now: float) -> None:
        """
        Join again, where a link was lost.

        Args:
            now: The time.
        """
        for branch in self._branches:
            branch.pump(now)

    def topics_changed(self, now: float) -> None:
        """
        Follow partitions that have another leader.

        Args:
            now: The time.
        """
        self._whereabouts.changed(now)

    def cluster_closed(self, now: float) -> None:
        """
        End every pending call.

        Args:
            now: The time.
        """
        self.closed = True
        self._branches.cancel(ClosedError("the client was closed"), now)
        self._end(ClosedError("the client was closed"))
        self._ended()

    # --- the end ---------------------------------------------------------------

    @property
    def settled_all(self) -> bool:
        """Whether the brokers have confirmed all that was said of messages."""
        return self._branches.settled

    def when_settled(self, call: Callable[[], None]) -> None:
        """
        Call when everything that was said of messages up to now is confirmed.

        Args:
            call: What to call.
        """
        if self.settled_all:
            call()
        else:
            self._drained.append(call)

    def drain(self, now: float) -> None:
        """
        Take no more messages, and give back those that were not handed out.

        Args:
            now: The time.
        """
        self.draining = self._branches.stopped = True
        line, self._line = self._line, deque()
        for branch, lease in line:
            if lease.lease_id:
                branch.custody.give_back(lease)
            else:
                self._line.append((branch, lease))
        self._branches.rest()
        self.pump(now)

    def close(self, done: Callable[[], None], now: float) -> None:
        """
        Leave the channel: what is held is given back, what became of messages is told.

        Args:
            done: Called when the brokers know, or are not waited for any more.
            now: The time.
        """
        self._ends.append(done)
        if not self.closed:
            self.closed = True
            self._end(ClosedError("the subscription was closed"))
            self._branches.leave_all(now)
        self._ended()

    def fail(self, error: TinyMQError, now: float) -> None:
        """
        End it, because it cannot go on.

        Args:
            error: Why.
            now: The time.
        """
        self.failed = error
        self._end(error)
        self._branches.leave_all(now)
        self._ended()

    def _end(self, error: TinyMQError) -> None:
        """Tell those who wait; messages that have no lease cannot be given back."""
        self.draining = self._branches.stopped = True
        self._whereabouts.look_at = self._branches.turn_at = inf
        lost = sum(lease.left for _, lease in self._line if not lease.lease_id)
        if lost:
            self._cluster.say(f"{self.topic}/{self.channel}: {lost} messages were not handed out")
        self._line.clear()
        waiting, self._waiting = self._waiting, []
        for _, told in waiting:
            told(error)
        self._wake()

    def _ended(self) -> None:
        if self._branches or not self.over:
            return
        self._cluster.remove(self)
        ends, self._ends = self._ends, []
        for call in ends:
            call()
        drained, self._drained = self._drained, []
        for call in drained:
            call()
