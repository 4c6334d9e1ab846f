"""Channels of a broker that count messages, and give none out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tinymq.broker.broker import Broker
from tinymq.broker.channel.counts import Counts
from tinymq.figures.channels import Facts, no_signs
from tinymq.node.channels import ChannelRow, SeekRow

#: Of a channel on a partition: topic id, channel, partition.
Place = tuple[bytes, str, int]

UNDO_MS = 600_000


class FakeChannels:
    """
    What keeps channels: a cursor each, and what a test puts in flight.

    Args:
        broker: Whose partitions.

    Attributes:
        cursors: Where each channel is that was moved.
        in_flight: Messages in the hands of consumers.
        consumers: How many there are.
        before: Where each channel was before its last seek.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.cursors: dict[Place, int] = {}
        self.in_flight: dict[Place, int] = {}
        self.consumers: dict[Place, int] = {}
        self.before: dict[Place, int] = {}

    def counts(self, topic_id: bytes, channel: str | None = None) -> Sequence[ChannelRow]:
        """Count what lies behind the cursors."""
        registry = self._broker.meta.registry
        return [
            self._row((topic_id, name, partition.index), partition.high_watermark)
            for name in registry.channels_of(topic_id)
            if channel in (None, name)
            for partition in self._broker.partitions_of(registry.topic_of(topic_id))
        ]

    def _row(self, place: Place, end: int) -> ChannelRow:
        topic_id, name, partition = place
        cursor, held = self.cursors.get(place, 0), self.in_flight.get(place, 0)
        info = self._broker.meta.registry.channel(topic_id, name)
        counts = Counts(
            fresh=end - cursor,
            ready=0,
            alone=0,
            in_flight=held,
            absent=0,
            leases=held,
            waiting=0,
            next_due=None,
            parked=0,
            doomed=0,
            floor=cursor - held,
            cursor=cursor,
            why="",
        )
        return ChannelRow(
            channel=name,
            partition=partition,
            counts=counts,
            end=end,
            consumers=self.consumers.get(place, 0),
            paused=info.paused_at(self._broker.wall()),
            undo_until_ms=self._broker.wall() + UNDO_MS if place in self.before else None,
        )

    def members(self) -> FakeChannels:
        """Look at the consumers, who have nothing to say."""
        return self

    def signs(self, topic_id: bytes, channel: str) -> Facts:
        """Say nothing of consumers."""
        return no_signs()

    async def seek(
        self,
        topic_id: bytes,
        channel: str,
        cursors: Mapping[int, int],
        *,
        empty: bool = False,
        dry_run: bool,
    ) -> Sequence[SeekRow]:
        """Move cursors."""
        rows = []
        for partition, cursor in cursors.items():
            place = (topic_id, channel, partition)
            old = self.cursors.get(place, 0)
            rows.append(
                SeekRow(
                    partition=partition,
                    cursor=old,
                    skipped=max(0, cursor - old),
                    revived=max(0, old - cursor),
                    lost=self.in_flight.get(place, 0),
                    undo_until_ms=self._broker.wall() + UNDO_MS,
                )
            )
            if not dry_run:
                self.before[place], self.cursors[place] = old, cursor
                self.in_flight.pop(place, None)
        return rows

    async def undo_seek(
        self, topic_id: bytes, channel: str, partitions: Sequence[int], *, dry_run: bool
    ) -> Sequence[int]:
        """Move cursors back."""
        places = [(topic_id, channel, each) for each in partitions]
        found = [place for place in places if place in self.before]
        if not dry_run:
            for place in found:
                self.cursors[place] = self.before.pop(place)
        return [partition for _, _, partition in found]
