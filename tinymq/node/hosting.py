"""The channels of a broker, as operations see them."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Final, TypeVar

from twisted.internet.defer import Deferred

from tinymq.broker.broker import Broker
from tinymq.broker.channel.counts import figures
from tinymq.broker.channel.lease import Lost
from tinymq.broker.channel.queue import Subscribers
from tinymq.broker.channel.steering import UNDO_MS
from tinymq.broker.hosted import Hosted
from tinymq.broker.letters import dead_letter_topic
from tinymq.errors import WireError
from tinymq.node.channels import ChannelRow, SeekRow
from tinymq.node.members import Members

T = TypeVar("T")

#: Seconds for which logs are looked into for one answer, and until the next one begins.
_AGING_SECONDS: Final = 0.01
_AGING_PAUSE: Final = 0.05


class Hosting:
    """
    Keeps the channels of a broker's partitions.

    Args:
        broker: The broker.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        #: Until when logs are looked into for the age of messages.
        self._aging_until = 0.0

    def counts(self, topic_id: bytes, channel: str | None = None) -> Sequence[ChannelRow]:
        """
        Describe the channels of a topic on each partition that is here and open.

        Args:
            topic_id: The topic; none that is here is no error.
            channel: Only this one.
        """
        return [
            self._row(hosted, name, channels[name])
            for hosted in self._broker.channels.hosted_of(topic_id)
            for channels in (hosted.queue.channels,)
            for name in (channels if channel is None else {channel} & channels.keys())
        ]

    def members(self) -> Members:
        """Look at the consumers of all channels."""
        return Members(self._broker)

    def _row(self, hosted: Hosted, name: str, one: Subscribers) -> ChannelRow:
        places, end = one.channel.places, hosted.partition.stable_offset
        counts = one.counts(end)
        target = dead_letter_topic(
            hosted.partition.topic.name, name, one.channel.policy.dead_letter
        )
        return ChannelRow(
            channel=name,
            partition=hosted.index,
            counts=counts,
            end=end,
            consumers=len(one.consumers),
            paused=places.paused,
            undo_until_ms=None if places.undo is None else places.undo.until,
            lag_ms=self._age(hosted, name, counts.oldest),
            totals=one.channel.counters.totals,
            pace=one.pace.rates(self._broker.channels.now(), figures(one.channel, end)),
            kept=hosted.burying.kept.get(target, "") if counts.doomed else "",
        )

    def _age(self, hosted: Hosted, name: str, oldest: int | None) -> int | None:
        """Say how old the oldest unsettled message is; a long list is not waited for."""
        if oldest is None:
            return None
        seconds = self._broker.scheduler.seconds()
        if seconds > self._aging_until + _AGING_PAUSE:
            self._aging_until = seconds + _AGING_SECONDS
        cheaply = seconds > self._aging_until
        appended = hosted.aging.appended(name, oldest, cheaply=cheaply)
        return None if appended is None else max(0, self._broker.wall() - appended)

    def seek(
        self,
        topic_id: bytes,
        channel: str,
        cursors: Mapping[int, int],
        *,
        empty: bool = False,
        dry_run: bool,
    ) -> Awaitable[Sequence[SeekRow]]:
        """
        Let a channel begin anew on some partitions.

        Args:
            topic_id: The topic.
            channel: The channel.
            cursors: Where, by partition.
            empty: Whether all is to be settled, also what is kept below the start of the log.
            dry_run: Only tell what would happen.

        Returns:
            A row for each, once it is as durable as the topic promises.
        """
        now = self._broker.channels.now()
        rows: list[SeekRow] = []
        touched: list[Hosted] = []
        for hosted, one in self._places(topic_id, channel, cursors):
            cursor, preview = cursors[hosted.index], one.steering.preview(cursors[hosted.index])
            whole = not empty and cursor <= hosted.partition.log.start_offset
            places = one.channel.places
            # To go to the beginning settles nothing that is still there.
            spared = hosted.stragglers.needed_by(places, cursor) if whole else []
            rows.append(
                SeekRow(
                    partition=hosted.index,
                    cursor=places.cursor,
                    skipped=preview.skipped - len(spared),
                    revived=preview.revived,
                    lost=preview.lost,
                    undo_until_ms=now + UNDO_MS,
                )
            )
            if not dry_run:
                tell(hosted, one, one.steering.seek(cursor, now))
                again = {offset: places.marks.of(offset).redriven for offset in spared}
                one.steering.revive(again, now)
                touched.append(hosted)
        return when_safe(touched, rows)

    def undo_seek(
        self, topic_id: bytes, channel: str, partitions: Sequence[int], *, dry_run: bool
    ) -> Awaitable[Sequence[int]]:
        """
        Take the last seek back.

        Args:
            topic_id: The topic.
            channel: The channel.
            partitions: Where.
            dry_run: Only tell where there is one to take back.

        Returns:
            The partitions where there was one that was not too old.
        """
        now = self._broker.channels.now()
        touched: list[Hosted] = []
        found: list[int] = []
        for hosted, one in self._places(topic_id, channel, partitions):
            undo = one.channel.places.undo
            if undo is None or undo.until <= now:
                continue
            found.append(hosted.index)
            if not dry_run:
                tell(hosted, one, one.steering.undo(now) or [])
                touched.append(hosted)
        return when_safe(touched, found)

    def _places(
        self, topic_id: bytes, channel: str, partitions: Mapping[int, int] | Sequence[int]
    ) -> list[tuple[Hosted, Subscribers]]:
        return [
            (hosted, hosted.queue.channels[channel])
            for hosted in self._broker.channels.hosted_of(topic_id)
            if hosted.index in partitions and channel in hosted.queue.channels
        ]


def tell(hosted: Hosted, one: Subscribers, lost: list[Lost]) -> None:
    """
    Tell consumers what they lost, and give out what is free by that.

    Args:
        hosted: The channels of a partition.
        one: The channel.
        lost: What is not in the hands of its holders any more.
    """
    hosted.take_away(one, lost)
    hosted.mark()


def when_safe(touched: list[Hosted], result: T) -> Deferred[T]:
    """
    Return something when what was done is as safe as the topics promise.

    Args:
        touched: Where something was done.
        result: What to return.
    """
    done: Deferred[T] = Deferred()
    waiting, failed = len(touched), list[WireError]()

    def safe(error: WireError | None) -> None:
        nonlocal waiting
        waiting -= 1
        if error is not None:
            failed.append(error)
        if waiting > 0:
            return
        if failed:
            done.errback(failed[0])
        else:
            done.callback(result)

    if not touched:
        done.callback(result)
    for hosted in touched:
        hosted.settled(safe)
    return done
