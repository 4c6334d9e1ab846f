"""Giving out what the consumers of one partition take, in pieces that fit a message."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Final

from twisted.logger import Logger

from tinymq.broker.channel.queue import Subscribers
from tinymq.broker.looks import look
from tinymq.broker.sending import Sending
from tinymq.broker.window import ColdPiece
from tinymq.errors import Overloaded, TinyMQError
from tinymq.limits import MIB

if TYPE_CHECKING:
    from tinymq.broker.broker import Broker
    from tinymq.broker.hosted import Hosted

#: Bytes, about, that go out before others have their turn.
_ROUND_BYTES: Final = MIB
#: How often consumers are served before others have their turn.
_ROUNDS: Final = 8
#: Pieces without records that are passed over at a time.
_MOST_PASSED: Final = 8
#: Seconds until a partition is tried again that could not be read.
_AGAIN_SECONDS: Final = 1.0


#: Numbers what is given out, so that partitions take turns.
_TURNS: Final = count(1)


class Giving:
    """
    Gives out what the channels of one partition have.

    Args:
        broker: The broker.
        hosted: The channels.
    """

    _log = Logger()

    def __init__(self, broker: Broker, hosted: Hosted) -> None:
        self._broker = broker
        self._hosted = hosted
        self._sending = Sending(broker.background, hosted)
        #: Where a piece begins that is fetched into memory, or was just now.
        self._warming: int | None = None
        self._warm = -1

    def turn(self, now: int) -> None:
        """
        Give out what consumers take.

        Args:
            now: The time.
        """
        self._shorten(now)
        self._serve(now)

    def _shorten(self, now: int) -> None:
        """Give up what makes a channel too long, or refuse producers, as its policy says."""
        partition = self._hosted.partition
        full: Overloaded | None = None
        for name, one in self._hosted.queue.channels.items():
            if one.steering.shorten(partition.stable_offset, now):
                longest = one.channel.policy.max_length
                full = full or Overloaded(
                    f"channel {name} of {partition.topic.name}/{partition.index} has all the "
                    f"{longest} messages that its max.length allows; publish again when some "
                    "are settled: consume or empty it, raise max.length, or set its overflow to "
                    "dead_letter",
                    channel=name,
                    partition=partition.index,
                    max_length=longest,
                )
        if full is not None:
            partition.refusals["length"] = full
        else:
            partition.refusals.pop("length", None)

    def _serve(self, now: int) -> None:
        for name, one in self._hosted.queue.channels.items():
            for consumer in one.release():
                self._hosted.subscriptions[consumer.name].mark()
            for _ in range(_ROUNDS):
                if not any(consumer.room for consumer in one.consumers):
                    break
                try:
                    given = self._give(name, one, now)
                except (OSError, TinyMQError) as error:
                    self._unreadable(error)
                    return
                if not given:
                    break
            else:
                self._hosted.mark()

    def _unreadable(self, error: Exception) -> None:
        if self._hosted.partition.closed is None:
            self._log.error("{hosted} cannot be read: {error}", hosted=self._hosted, error=error)
            self._broker.scheduler.callLater(_AGAIN_SECONDS, self._hosted.mark)

    def _give(self, name: str, one: Subscribers, now: int) -> bool:
        """Give out about as much as goes well into one message for each consumer."""
        high, places = self._hosted.partition.stable_offset, one.channel.places
        if not (one.channel.policy.looks or one.available(high)):
            return False
        limit = self._hosted.expiry.limit(name)
        if self._sending.behind(one) or limit == -1:
            return False  # what comes later must not overtake it; what expired must not come
        end = high
        try:
            with self._hosted.window.hasty(self._warm):
                if one.channel.policy.looks and look(one, self._hosted.window, high, now):
                    self._hosted.mark()
                start = places.cursor
                if start < high and self._hosted.partition.topic.config.compacts:
                    start = self._pass_over(one, high, now)
                if start < high:
                    end = min(high, self._hosted.window.end_of(start))
        except ColdPiece as cold:
            self._fetch(cold.offset)
            return False
        most = self._most(one)
        for consumer in one.consumers:
            consumer.most = most
        before = places.cursor
        end = end if limit is None else max(before, min(end, limit))
        deliveries = one.deliver(now, end)
        for consumer in one.consumers:
            consumer.most = max(1, consumer.most)
        if deliveries:
            self._hosted.gave_at = next(_TURNS)
            self._sending.send(one, deliveries, now)
        # It may have passed over a piece in which there is nothing to give out.
        return bool(deliveries) or places.cursor > before

    def _pass_over(self, one: Subscribers, high: int, now: int) -> int:
        """Settle what compaction took away at the cursor, and say what comes behind it."""
        places, window = one.channel.places, self._hosted.window
        start, _ = next(places.ahead.missing(places.cursor, high), (high, high))
        end = start
        for _ in range(_MOST_PASSED):
            behind = min(high, window.end_of(end)) if end < high else end
            stored = window.batch_at(end, behind)
            if stored is not None or behind <= end:
                end = end if stored is None else max(end, stored[0].base_offset)
                break
            end = behind
        if end > start:
            one.steering.skip(start, end, now)
        return end

    def _fetch(self, offset: int) -> None:
        """Bring a piece of the log into memory, and go on then."""
        if self._warming is None:
            self._warming = offset
            warm = self._hosted.window.warmer(offset)
            self._broker.background.submit(warm, self._fetched)

    def _fetched(self) -> None:
        # It may be gone from memory again; then it is waited for.
        self._warm, self._warming = -1 if self._warming is None else self._warming, None
        self._hosted.mark()

    def _most(self, one: Subscribers) -> int:
        """Return how many messages are about as long as goes well into one message."""
        log = self._hosted.partition.log
        count = max(1, log.written_offset - log.start_offset)
        most = max(1, _ROUND_BYTES * count // max(1, log.size_bytes))
        ready = one.channel.places.ready
        if ready:
            first = max(ready.first, log.start_offset)
            while most > 1 and log.bytes_between(first, first + most) > 2 * _ROUND_BYTES:
                most //= 2
        return most
