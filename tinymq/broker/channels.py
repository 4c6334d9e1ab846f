"""
All channels of a broker: which partitions have some, and who takes their messages.

It follows what the MetaServer says of channels, knows the subscriptions of all
sessions, and gives each partition with something to do its turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from twisted.logger import Logger

from tinymq.broker.channel.lease import epoch_of, lease_ids
from tinymq.broker.holding import Holding
from tinymq.broker.hosted import Hosted
from tinymq.broker.pacing import Pacing
from tinymq.broker.partition import Partition
from tinymq.broker.ports import Timer, Wanted
from tinymq.broker.subscription import MOST_HELD, Gone, Link, Subscription, row_of
from tinymq.errors import (
    MetaUnavailable,
    StateError,
    TinyMQError,
    UnknownChannel,
    UnknownTopicId,
    WireError,
)
from tinymq.names import users_channel
from tinymq.wire.messages import Subscribe, SubscribeReply

if TYPE_CHECKING:
    from tinymq.broker.broker import Broker
    from tinymq.meta.registry import ChannelInfo, GroupInfo, Topic
    from tinymq.stats import ClientSnapshot

#: Temporary channels that a broker says are in use, at a time.
MOST_LEASES: Final = 4000

#: Seconds for which partitions have their turns before others have theirs.
_TURN_SECONDS: Final = 0.02
_gave_at: Final = attrgetter("gave_at")

#: Told of the subscription and the reply, or why there is none.
Subscribed = Callable[["Subscription | None", "SubscribeReply | WireError"], None]


class Channels:
    """
    The channels of a broker.

    Args:
        broker: The broker.
    """

    _log = Logger()

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        #: The wall clock when the scheduler's was 0: no step of the former moves a deadline.
        # Rounded down, so that nothing comes a part of a millisecond early.
        self._origin_ms = broker.wall() - ceil(broker.scheduler.seconds() * 1000)
        self._hosted: dict[tuple[bytes, int], Hosted] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._by_topic: dict[bytes, dict[str, Subscription]] = {}
        #: Those to temporary channels: they are looked at once a second.
        self._temporary: dict[str, Subscription] = {}
        self._marked: dict[Hosted, None] = {}
        self._timer: Timer | None = None
        self.pacing = Pacing(broker.scheduler)
        self._resting = False
        self._gone = Gone()
        self._epoch = 0
        self._next_lease: Callable[[], int] | None = None
        #: Why the channels of a partition are not here, by its key.
        self._unopened: dict[tuple[bytes, int], str] = {}
        self._told = 0

    def now(self) -> int:
        """Milliseconds since the epoch; no step of the wall clock moves it."""
        return self._origin_ms + int(self.broker.scheduler.seconds() * 1000)

    @property
    def epoch(self) -> int:
        """A number that is higher than at every start before; what it counts is durable."""
        if not self._epoch:
            try:
                counted = self.broker.store.folder.count_start()
                # More than one proof: the file may have been lost or restored.
                self._epoch = max(counted, 1 + self._newest_epoch())
            except (OSError, TinyMQError) as error:
                # Unique all the same, as long as the clock does not fall.
                self._epoch = self.now() // 1000 % (1 << 20) or 1
                self._log.error("the start is not counted: {error}", error=error)
        return self._epoch

    def _newest_epoch(self) -> int:
        """The highest epoch of which a ledger knows a lease."""
        queues = (hosted.queue.channels.values() for hosted in self._hosted.values())
        return max(
            (epoch_of(one.channel.places.newest_lease) for each in queues for one in each),
            default=0,
        )

    def next_lease(self) -> int:
        """Give out a lease id that was never given out."""
        if self._next_lease is None:
            self._next_lease = lease_ids(self.epoch)
        return self._next_lease()

    def rest(self) -> None:
        """Give nothing out any more; what is in flight can be settled."""
        self._resting = True

    @property
    def resting(self) -> bool:
        """Whether nothing is given out any more."""
        return self._resting

    @property
    def in_flight(self) -> int:
        """How many messages those who are connected have in hand."""
        return sum(each.consumer.in_flight for each in self._subscriptions.values())

    # --- partitions ------------------------------------------------------------------

    def follow(self, topic: Topic) -> None:
        """
        Have the channels of a topic as the MetaServer has them, on all partitions that are here.

        Args:
            topic: As it is now.
        """
        registry = self.broker.meta.registry
        infos, routed = registry.channels_of(topic.id), topic.id in registry.exchanges
        here: list[Hosted] = []
        gone: list[Subscription] = []
        for partition in self.broker.partitions_of(topic):
            hosted = self._hosted.get(partition.key)
            if hosted is None and (infos or routed or self.broker.store.has_ledger(partition)):
                hosted = self._open(partition)
            if hosted is not None:
                here.append(hosted)
                gone += hosted.follow(infos)
        # Some may have no partition here that is open.
        gone += (each for each in self.of_topic(topic.id) if each.channel not in infos)
        # All partitions have told what is lost; then it is over.
        for subscription in dict.fromkeys(gone):
            why = f"channel {subscription.channel} of topic {topic.name} was deleted"
            self._end(subscription, UnknownChannel(why))
        for hosted in here:
            self._join_all(hosted)

    def follow_groups(
        self, before: Mapping[str, GroupInfo], after: Mapping[str, GroupInfo]
    ) -> None:
        """
        Have the consumer groups as the MetaServer has them.

        Args:
            before: As they were, by name.
            after: As they are.
        """
        # There may be thousands, and nearly all are the same objects.
        gone = {each.mark for name, each in before.items() if after.get(name) is not each}
        made = {name for name, each in after.items() if before.get(name) is not each}
        same = {name for name in made if before.get(name) == after[name]}
        gone, made = gone - {before[name].mark for name in same}, made - same
        for hosted in self._hosted.values():
            touched = {mark for mark in gone if hosted.positions.knows(mark)}
            touched |= {each for each in hosted.strangers if each.rpartition("@")[0] in made}
            hosted.follow_groups(touched)

    def hosting(self, partition: Partition) -> Hosted:
        """
        Return the place where groups that read a partition have their positions.

        Args:
            partition: It is here.

        Raises:
            StateError: Its ledger cannot be opened.
        """
        hosted = self._hosted.get(partition.key)
        if hosted is None:
            hosted = self._open(partition)
        if hosted is None:
            why = self._unopened[partition.key]
            raise StateError(f"the ledger of {partition.topic.name}/{partition.index}: {why}")
        return hosted

    def _open(self, partition: Partition) -> Hosted | None:
        infos = self.broker.meta.registry.channels_of(partition.topic.id)
        try:
            log = None if partition.volatile else self.broker.store.open_ledger(partition)
            hosted = Hosted(self, partition, log)
            hosted.recover(infos)
        except (OSError, TinyMQError) as error:
            self._unopened[partition.key] = str(error)
            self._log.error(
                "the channels of {partition} are not open: {error}",
                partition=partition,
                error=error,
            )
            return None
        self._unopened.pop(partition.key, None)
        self._hosted[partition.key] = hosted
        if hosted.held():
            self.broker.deciding.watch(partition)
        return hosted

    def _join_all(self, hosted: Hosted) -> None:
        """Let those take messages who want them of every partition; of a new one, too."""
        for subscription in self.of_topic(hosted.partition.topic.id):
            if hosted.index not in subscription.hosted and subscription.wants(hosted.index):
                held = hosted.join(subscription)
                for lease_id, _ in held:
                    hosted.give_back(subscription, lease_id)
                subscription.lost(hosted.index, held)

    def drop(self, partition: Partition) -> None:
        """
        Let go of the channels of a partition that is no longer here.

        Args:
            partition: Its topic was deleted.
        """
        hosted = self._hosted.pop(partition.key, None)
        if hosted is not None:
            self.broker.committer.forget(hosted.ledger)
            self._marked.pop(hosted, None)
            self.pacing.forget(hosted)
            hosted.close()
        topic = partition.topic
        for subscription in self.of_topic(topic.id):
            if not subscription.hosted:
                self._end(subscription, UnknownTopicId(f"topic {topic.name} was deleted"))

    def close(self) -> None:
        """Give nothing out any more; what was settled is written by who stops the broker."""
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None
        self._marked.clear()
        self.pacing.close()
        for hosted in self._hosted.values():
            hosted.stop()

    def trimmed(self, partition: Partition) -> None:
        """
        Let channels hear that what they may still want is gone.

        Args:
            partition: Its log starts elsewhere now.
        """
        hosted = self._hosted.get(partition.key)
        if hosted is not None:
            hosted.mark()

    def purged(self, partition: Partition, below: int) -> None:
        """
        Let channels hear that people took messages away, whoever wants them.

        Args:
            partition: Its log may start elsewhere now.
            below: All below this offset is gone.
        """
        hosted = self._hosted.get(partition.key)
        if hosted is not None:
            hosted.purged(below)

    def unopened(self, partition: Partition) -> str | None:
        """
        Say why the channels of a partition are not here, None if there are none or they are.

        Args:
            partition: The partition.
        """
        return self._unopened.get(partition.key)

    def holdings(self) -> list[Holding]:
        """Return what channels hold back from retention, the most bytes first."""
        found = (hosted.holding for hosted in self._hosted.values())
        return sorted(found, key=lambda each: each.bytes, reverse=True)

    def hosted(self, topic_id: bytes, index: int) -> Hosted | None:
        """
        Find the channels of a partition.

        Args:
            topic_id: The topic's id.
            index: The partition's number.
        """
        return self._hosted.get((topic_id, index))

    def all(self) -> list[Hosted]:
        """Return the channels of all partitions that are here."""
        return [*self._hosted.values()]

    def hosted_of(self, topic_id: bytes) -> list[Hosted]:
        """
        Return the channels of all partitions of a topic that are here, in order.

        Args:
            topic_id: The topic's id.
        """
        topic = self.broker.meta.registry.topics.get(topic_id)
        if topic is None:
            return [each for key, each in sorted(self._hosted.items()) if key[0] == topic_id]
        found = (self._hosted.get((topic_id, index)) for index in range(topic.partitions))
        return [each for each in found if each is not None]

    # --- turns -------------------------------------------------------------------------

    @property
    def turning(self) -> bool:
        """Whether a partition is about to have its turn."""
        return self._timer is not None

    def mark(self, hosted: Hosted) -> None:
        """
        Let a partition have its turn.

        Args:
            hosted: Its channels.
        """
        self._marked[hosted] = None
        if self._timer is None:
            self._timer = self.broker.scheduler.callLater(0, self._turn)

    def _turn(self) -> None:
        self._timer = None
        self.broker.outgoing.hold()
        marked, self._marked = self._marked, {}
        seconds = self.broker.scheduler.seconds
        until = seconds() + _TURN_SECONDS
        self.pacing.moved(marked)
        # A consumer may have credit for one of them only: the one that waited longest comes first.
        for hosted in sorted(marked, key=_gave_at) if len(marked) > 1 else marked:
            if seconds() > until:
                self.mark(hosted)
                continue
            try:
                hosted.turn()
            except Exception:  # noqa: BLE001 - others must have their turn
                self._log.failure("{hosted} failed", hosted=hosted)
        # Who takes messages has them before anything is written down.
        self.broker.outgoing.send()
        self.broker.committer.end_turn()

    # --- subscriptions -------------------------------------------------------------------

    def subscribe(self, request: Subscribe, session: bytes, link: Link, done: Subscribed) -> None:
        """
        Let a session take messages of a channel.

        Args:
            request: What it wants.
            session: Its id.
            link: Its connection.
            done: Called once, maybe before this returns.

        Raises:
            UnknownTopicId: There is no such topic.
            UnknownChannel: There is no such channel, and none is to be made.
            UnknownPartition, NotLeader: A partition that it names is not here.
        """
        registry = self.broker.meta.registry
        topic = registry.topic_of(request.topic_id)
        users_channel(request.channel)
        known = registry.channels_of(topic.id).get(request.channel)
        # A temporary one may be about to go: it must hear that it is wanted.
        if not request.create or (known is not None and not (known.temporary or request.temporary)):
            self._subscribe(request, session, link, done)
            return

        def ensured(found: ChannelInfo | WireError) -> None:
            away = known is not None and isinstance(found, MetaUnavailable)
            if isinstance(found, WireError) and not away:
                done(None, found)
                return
            try:
                self._subscribe(request, session, link, done)
            except WireError as error:
                done(None, error)

        wanted = Wanted(request.channel, request.start, request.temporary)
        self.broker.meta.ensure_channel(topic.name, wanted, ensured)

    def used_leases(self) -> list[int]:
        """What the temporary channels live by that somebody subscribes to here."""
        channels = self.broker.meta.registry.channels
        used = {(each.topic_id, each.channel) for each in self._temporary.values()}
        found = (channels[topic].get(name) for topic, name in used if topic in channels)
        leases = [info.lease for info in found if info is not None and info.temporary]
        # So many at a time; those that are left out stay long enough to have their turn.
        self._told = self._told % max(1, len(leases))
        part = (leases[self._told :] + leases[: self._told])[:MOST_LEASES]
        self._told += len(part)
        return part

    def _subscribe(self, request: Subscribe, session: bytes, link: Link, done: Subscribed) -> None:
        wanted = self._wanted(request)
        waiting = len(wanted)
        failed: WireError | None = None

        def safe(error: WireError | None) -> None:
            nonlocal waiting, failed
            waiting -= 1
            failed = failed or error
            if waiting > 0:
                return
            try:
                if failed is not None:
                    raise failed.with_traceback(None)
                found = self._joined(request, session, link)
            except WireError as reason:
                done(None, reason)
            else:
                done(*found)

        if not wanted:
            safe(None)
        for hosted in wanted:
            # A channel that was made just now must not begin elsewhere after a crash.
            hosted.settled(safe)

    def _wanted(self, request: Subscribe) -> list[Hosted]:
        registry = self.broker.meta.registry
        topic = registry.topic_of(request.topic_id)
        registry.channel(topic.id, request.channel)
        if request.partitions is None:
            return self.hosted_of(topic.id)
        found: list[Hosted] = []
        for index in sorted({*request.partitions}):
            partition = self.broker.partition(topic.id, index)
            hosted = self._hosted.get(partition.key)
            if hosted is None:
                why = self._unopened.get(partition.key, "it is being opened")
                raise StateError(f"the channels of {topic.name}/{index} are not open: {why}")
            found.append(hosted)
        return found

    def _joined(
        self, request: Subscribe, session: bytes, link: Link
    ) -> tuple[Subscription, SubscribeReply]:
        wanted = self._wanted(request)
        info = self.broker.meta.registry.channel(request.topic_id, request.channel)
        policy = info.policy
        name = f"{session.hex()}:{request.subscription}"
        former = self._subscriptions.get(name)
        if former is not None:
            self.lost(former, StateError("another connection of its session subscribed"))
        partitions = None if request.partitions is None else frozenset(request.partitions)
        subscription = Subscription(
            name,
            request.subscription,
            request.topic_id,
            request.channel,
            partitions,
            request.credit,
            link,
        )
        self._subscriptions[name] = subscription
        self._by_topic.setdefault(request.topic_id, {})[name] = subscription
        if info.temporary:
            self._temporary[name] = subscription
        held = [(hosted, *lease) for hosted in wanted for lease in hosted.join(subscription)]
        for hosted, lease_id, bits in held[MOST_HELD:]:
            hosted.give_back(subscription, lease_id)
            subscription.lost(hosted.index, [(lease_id, bits)])
        return subscription, SubscribeReply(
            lease_ms=policy.lease_ms,
            handler_ms=policy.handler_ms,
            order=policy.order,
            delivery=policy.delivery,
            held=[row_of(hosted.index, *lease) for hosted, *lease in held[:MOST_HELD]],
        )

    def lost(self, subscription: Subscription, why: WireError | None = None) -> None:
        """
        Keep what a subscription holds for a while: its link was lost.

        Args:
            subscription: Whose.
            why: What its client is told, if its link may be there still.
        """
        for hosted in tuple(subscription.hosted.values()):
            hosted.lost(subscription)
        self._end(subscription, why)

    def leave(self, subscription: Subscription, done: Callable[[WireError | None], None]) -> None:
        """
        End a subscription in good order.

        Args:
            subscription: What it holds comes back at once.
            done: Called once, when that is as safe as the topic promises.
        """
        left = [*subscription.hosted.values()]
        waiting = len(left)
        for hosted in left:
            hosted.leave(subscription)
        self._end(subscription)

        def safe(error: WireError | None) -> None:
            nonlocal waiting
            waiting -= 1
            if waiting <= 0:
                done(error)

        if not left:
            done(None)
        for hosted in left:
            hosted.settled(safe)

    # --- who is there ----------------------------------------------------------------------

    def subscriptions(self) -> list[Subscription]:
        """Return the subscriptions whose links are there, in the order in which they came."""
        return list(self._subscriptions.values())

    def of_topic(self, topic_id: bytes) -> list[Subscription]:
        """
        Return the subscriptions to channels of a topic, in the order in which they came.

        Args:
            topic_id: The topic; none that is here is no error.
        """
        return [*self._by_topic.get(topic_id, {}).values()]

    def subscription(self, consumer: str) -> Subscription | None:
        """
        Find the subscription of a consumer whose link is there.

        Args:
            consumer: Its name.
        """
        return self._subscriptions.get(consumer)

    def client_of(self, subscription: Subscription) -> ClientSnapshot | None:
        """
        Say whose a subscription is; None if its link is gone.

        Args:
            subscription: Of this broker.
        """
        link = subscription.link
        return None if link is None else link.snapshot(self._origin_ms)

    def client_named(self, consumer: str) -> ClientSnapshot | None:
        """
        Say whose a consumer is, or was while its link was there; None if that was forgotten.

        Args:
            consumer: Its name.
        """
        subscription = self._subscriptions.get(consumer)
        found = None if subscription is None else self.client_of(subscription)
        return found or self._gone.find(consumer)

    def client_known_as(self, consumer: str) -> str:
        """
        Say how the client of a consumer is known to people; empty if it was forgotten.

        Args:
            consumer: Its name; its link may be gone.
        """
        subscription = self._subscriptions.get(consumer)
        if subscription is not None:
            return subscription.known_as
        gone = self._gone.find(consumer)
        return "" if gone is None else gone.client_id or gone.address

    def _end(self, subscription: Subscription, why: WireError | None = None) -> None:
        """Forget a subscription; its client is told why if it does not know."""
        if why is not None:
            subscription.end(why)
        client = self.client_of(subscription)
        if client is not None:
            self._gone.add(subscription.name, client, self.now())
        subscription.link = None
        if self._subscriptions.get(subscription.name) is subscription:
            del self._subscriptions[subscription.name]
            self._temporary.pop(subscription.name, None)
            fellows = self._by_topic[subscription.topic_id]
            del fellows[subscription.name]
            if not fellows:
                del self._by_topic[subscription.topic_id]
