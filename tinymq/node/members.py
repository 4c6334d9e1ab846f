"""Who takes messages of the channels of a broker, and who is slow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from tinymq.broker.broker import Broker
from tinymq.broker.channel.queue import Subscribers
from tinymq.broker.hosted import Hosted
from tinymq.broker.subscription import Subscription
from tinymq.figures.channels import SLOW_TOLD, Facts, how_slow, moment, no_signs
from tinymq.limits import KIB, MIB
from tinymq.stats import ClientSnapshot

#: A consumer that holds its oldest message for so long, and takes so long for each, is slow.
_SLOW_MS: Final = 1_000
#: One that holds its oldest message for so long, and finished none meanwhile, is slow.
_STUCK_MS: Final = 10_000
#: Of what it did in less time nobody can say that it is slow.
_STEADY_MS: Final = 5_000
Row = dict[str, Any]


class Members:
    """
    Describes the consumers of a broker.

    Args:
        broker: The broker.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._channels = broker.channels
        self._now = broker.channels.now()
        #: By topic and channel, of those topics that were asked about.
        self._found: dict[bytes, dict[str, list[Subscription]]] = {}

    def _of(self, topic_id: bytes, channel: str) -> list[Subscription]:
        """The subscriptions to a channel; those of other topics are not looked at."""
        known = self._found.get(topic_id)
        if known is None:
            known = self._found[topic_id] = {}
            for each in self._channels.of_topic(topic_id):
                known.setdefault(each.channel, []).append(each)
        return known.get(channel, [])

    def rows(self, topic_id: bytes, channel: str) -> list[Row]:
        """
        Describe who takes messages of a channel, also those whose link is lost.

        Args:
            topic_id: The topic.
            channel: The channel.
        """
        rows = [self._present(each) for each in self._of(topic_id, channel)]
        return [*rows, *self._absent(topic_id, channel)]

    def signs(self, topic_id: bytes, channel: str) -> Facts:
        """
        Tell what of a channel's consumers may explain its lag.

        Args:
            topic_id: The topic.
            channel: The channel.
        """
        signs = no_signs()
        for each in self._of(topic_id, channel):
            consumer = each.consumer
            signs["members"] += 1
            if not consumer.credit.usable(consumer.in_flight):
                signs["at_limit" if consumer.in_flight else "no_credit"] += 1
            if len(signs["slow"]) < SLOW_TOLD and self._may_be_slow(each):
                row = self._present(each)
                if row["slow"]:
                    # Of one whose link takes no bytes the text alone says what is the matter.
                    done_s = self._done_s(each) if consumer.ready else None
                    facts = (row["client_id"], row["address"], row["slow"], done_s)
                    signs["slow"].append([*facts, row["in_flight"], row["oldest_ms"] or 0])
        return signs

    def _done_s(self, subscription: Subscription) -> float | None:
        """Say how many messages a second a consumer is done with, over a while."""
        consumer = subscription.consumer
        lately = consumer.pace.rates(self._now, consumer.done, _STEADY_MS)
        return lately[1] if lately else None

    def _may_be_slow(self, subscription: Subscription) -> bool:
        """Say whether a closer look is worth its while: there may be thousands of consumers."""
        consumer = subscription.consumer
        if not consumer.ready or not consumer.in_flight:
            return not consumer.ready
        oldest = _oldest(consumer.name, _places(subscription))
        return oldest is not None and self._now - oldest >= _SLOW_MS

    def _present(self, subscription: Subscription) -> Row:
        consumer = subscription.consumer
        client = self._channels.client_of(subscription)
        rates = consumer.pace.rates(self._now, consumer.done)
        finished_s = None if rates is None else rates[0]
        oldest = _oldest(consumer.name, _places(subscription))
        age = None if oldest is None else max(0, self._now - oldest)
        row = {
            **who(client, self._broker),
            "partitions": sorted(subscription.hosted),
            "credit": max(0, consumer.credit.left),
            "in_flight": consumer.in_flight,
            "oldest_ms": age,
            "delivered": consumer.credit.delivered,
            "finished": consumer.finished,
            "requeued": consumer.requeued,
            "timed_out": consumer.timed_out,
            "finished_s": finished_s,
            "absent_until_ms": None,
        }
        slow = self._slow(client, oldest, consumer.in_flight, self._done_s(subscription))
        return {**row, **slow}

    def _slow(
        self,
        client: ClientSnapshot | None,
        oldest: int | None,
        in_flight: int,
        done_s: float | None,
    ) -> Row:
        """Say in what a consumer is slow: its link takes no bytes, or its handler is long."""
        if client is not None and client.slow_since_ms is not None:
            since = moment(client.slow_since_ms, self._now)
            text = f"takes no bytes since {since}; {_size(client.buffered)} wait for it"
            return {"slow_since_ms": client.slow_since_ms, "slow": text}
        age = 0 if oldest is None else self._now - oldest
        least = _SLOW_MS if done_s else _STUCK_MS
        if done_s is not None and age >= least and done_s < 1000 / _SLOW_MS:
            return {"slow_since_ms": oldest, "slow": how_slow(done_s, in_flight, age)}
        return {"slow_since_ms": None, "slow": ""}

    def _absent(self, topic_id: bytes, channel: str) -> Iterator[Row]:
        """Yield those whose link is lost, and whose messages are kept for them."""
        found: dict[str, list[tuple[Hosted, Subscribers, int]]] = {}
        for hosted in self._channels.hosted_of(topic_id):
            one = hosted.queue.channels.get(channel)
            for name, until in one.channel.custody.absent.items() if one is not None else ():
                if one is not None and name in one.channel.places.holders:
                    found.setdefault(name, []).append((hosted, one, until))
        for name, kept in found.items():
            held = sum(one.channel.places.holders[name].held for _, one, _ in kept)
            oldest = _oldest(name, (one for _, one, _ in kept))
            yield {
                **who(self._channels.client_named(name), self._broker),
                "client": None,
                "partitions": [hosted.index for hosted, _, _ in kept],
                "credit": 0,
                "in_flight": held,
                "oldest_ms": None if oldest is None else max(0, self._now - oldest),
                **dict.fromkeys(("delivered", "finished", "requeued", "timed_out"), 0),
                "finished_s": None,
                "slow_since_ms": None,
                "slow": "",
                "absent_until_ms": max(until for _, _, until in kept),
            }


def _places(subscription: Subscription) -> Iterator[Subscribers]:
    """Yield the channel of a subscription on each of its partitions."""
    for hosted in subscription.hosted.values():
        one = hosted.queue.channels.get(subscription.channel)
        if one is not None:
            yield one


def _oldest(consumer: str, places: Iterable[Subscribers]) -> int | None:
    """Say since when a consumer has held the oldest of what it holds."""
    since: list[int] = []
    for one in places:
        holder = one.channel.places.holders.get(consumer)
        if holder is not None:
            # They are in the order in which they were given out.
            since.append(one.channel.places.leases[next(iter(holder.leases))].since)
    return min(since, default=None)


def who(client: ClientSnapshot | None, broker: Broker) -> Row:
    """
    Describe whose a consumer is.

    Args:
        client: Its connection; None if it is forgotten.
        broker: Where it is, or was.
    """
    return {
        "broker": broker.name,
        "broker_id": broker.id,
        "client": None if client is None else client.id,
        "client_id": "" if client is None else client.client_id,
        "address": "" if client is None else client.address,
        "agent": "" if client is None else client.agent,
    }


def _size(size: int) -> str:
    if size >= MIB:
        return f"{size / MIB:.1f} MiB"
    return f"{size / KIB:.1f} KiB" if size >= KIB else f"{size} bytes"
