"""
What the channels of a partition hold back from retention, and for how long.

Retention removes nothing that a channel has not settled, until it is too old or
too much; then the topic says whether it is given up, dropped, or producers are
refused until the channel has gone on. Of a topic that keeps what is not settled,
and only there, consumer groups that read it count like channels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from twisted.logger import Logger

from tinymq.broker.routing.router import ROUTER
from tinymq.errors import Overloaded
from tinymq.names import OWN_CHANNELS

if TYPE_CHECKING:
    from tinymq.broker.broker import Broker
    from tinymq.broker.channel.queue import Subscribers
    from tinymq.broker.hosted import Hosted
    from tinymq.storage.facts import Due
    from tinymq.topicconfig import TopicConfig

#: Messages that are given up at a time; the next when those are in the dead-letter topic.
_MOST_GIVEN_UP: Final = 500
#: Why they are, and why producers are refused.
_REASON: Final = "retention"
_CAUSE: Final = "hold"


#: What stands before the name of a group where channels are named, which have no spaces.
GROUP: Final = "group "


class Held(NamedTuple):
    """
    What is held back.

    Attributes:
        channel: The channel that is behind the others, or "group" and the name of a group.
        offset: The first offset that it has not settled.
        bytes: Bytes of the files that would be removed if it had.
        since_ms: Append time of the oldest record in them.
    """

    channel: str
    offset: int
    bytes: int
    since_ms: int


class Holding:
    """
    What the channels of one partition hold back.

    Args:
        broker: The broker.
        hosted: The channels.

    Attributes:
        held: What is held back; None if nothing is.
        squeezed: Whether the disk is so full that nothing more may be held back.
    """

    _log = Logger()

    def __init__(self, broker: Broker, hosted: Hosted) -> None:
        self._broker = broker
        self._hosted = hosted
        self.held: Held | None = None
        self.squeezed = False
        #: What lies below is given up, or producers are refused until it is settled.
        self._beyond = 0
        self._giving_up = False
        #: Groups, by their marks, that are not waited for below an offset.
        self._freed: dict[str, int] = {}
        #: The topic's settings by which that was decided.
        self._decided: TopicConfig | None = None

    @property
    def bytes(self) -> int:
        """How many bytes are held back."""
        return 0 if self.held is None else self.held.bytes

    def told(self) -> dict[str, Any] | None:
        """Say what is held back, for people; None if nothing is."""
        if self.held is None:
            return None
        refusing = _CAUSE in self._hosted.partition.refusals
        return {**self.held._asdict(), "refusing": refusing}

    def holders(self) -> Iterator[tuple[str, Subscribers]]:
        """Yield who may hold something back: neither what is temporary, nor the broker's own."""
        for name, one in self._hosted.queue.channels.items():
            info = self._hosted.infos.get(name)
            temporary = info is not None and info.temporary
            if not temporary and not name.startswith(OWN_CHANNELS):
                yield name, one

    def _floor(self) -> tuple[int, str] | None:
        """The offset below which no channel needs the log, and the channel at it."""
        lowest = self._hosted.stragglers.lowest
        found = [(lowest(one.channel.places), name) for name, one in self.holders()]
        router = self._hosted.router
        if router is not None and router.floor is not None:
            found.append((router.floor, ROUTER))
        if self._hosted.partition.topic.config.retention_mode == "settled":
            group = self._hosted.positions.lowest(self._freed)
            if group is not None:
                found.append((group[0], GROUP + group[1].rpartition("@")[0]))
        return min(found, default=None)

    def _unknown(self) -> tuple[int, str] | None:
        """Likewise of those that may come back; nothing of theirs can be given up."""
        lowest = self._hosted.stragglers.lowest
        return min(((lowest(each), name) for name, each in self._hosted.unknown), default=None)

    def apply(self, now: int) -> int:
        """
        Let go of what the topic no longer keeps and no channel needs.

        Args:
            now: The wall clock.

        Returns:
            Files removed.
        """
        partition = self._hosted.partition
        log, config = partition.log, partition.topic.config
        limits = config.limits
        floor, unknown = self._floor(), self._unknown()
        if floor is None and unknown is None:
            self._free()
            self.held = None
            return log.expire(now, *limits)
        offset, channel = floor or (log.end_offset, "")
        if unknown is not None and unknown[0] < offset:
            rows = [row for row in log.due(now, *limits) if row.end > unknown[0]]
            allowed = max(unknown[0], self._too_much(rows, now))
            if allowed < offset:
                offset, channel = allowed, unknown[1]
        removed = log.remove_below(offset) if config.retention_mode == "settled" else 0
        removed += log.expire(now, *limits, below=offset)
        rows = [row for row in log.due(now, *limits) if row.end > offset]
        self.held = None
        if rows:
            size = sum(row.size for row in rows)
            self.held = Held(channel, offset, size, rows[0].first_time)
            self._hosted.stragglers.consider(rows)
        beyond = self._too_much(rows, now)
        if beyond <= offset:
            self._free()
        elif config.hold_then == "drop":
            self._free()
            removed += log.expire(now, *limits, below=beyond)
        elif config.hold_then == "refuse":
            partition.refusals[_CAUSE] = self._refusal(channel, offset)
            self._beyond, self._giving_up, self._decided = beyond, False, config
        else:
            partition.refusals.pop(_CAUSE, None)
            self._give_up_below(beyond, channel)
        return removed

    def _free(self) -> None:
        self._beyond, self._giving_up = 0, False
        self._freed = {}
        self._hosted.partition.refusals.pop(_CAUSE, None)

    def _too_much(self, rows: list[Due], now: int) -> int:
        """Return the offset behind what may not be held back any more, 0 if all may."""
        config, beyond = self._hosted.partition.topic.config, 0
        size = self._hosted.partition.log.size_bytes
        for row in rows:
            old = config.hold_max_ms is not None and row.max_time <= now - config.hold_max_ms
            long = config.hold_max_bytes is not None and size > config.hold_max_bytes
            if not (old or long or self.squeezed):
                break
            beyond = row.end
            size -= row.size
        return beyond

    def _refusal(self, channel: str, offset: int) -> Overloaded:
        topic, index = self._hosted.partition.topic, self._hosted.partition.index
        if channel == ROUTER:
            return Overloaded(
                f"copies of {topic.name}/{index} from offset {offset} on are not at their targets, "
                "and the exchange holds as much back for them as it may; publish again when they "
                f"are: `tinymq exchange info {topic.name}` says what is stuck and why; else raise "
                "hold.max.ms or hold.max.bytes, or set hold.then to dead_letter or drop",
                channel=channel,
                partition=index,
                offset=offset,
            )
        if channel.startswith(GROUP):
            name = channel.removeprefix(GROUP)
            return Overloaded(
                f"{channel} has not read offset {offset} of {topic.name}/{index}, and the topic "
                "holds as much back for it as it may; publish again when it has gone on: let its "
                f"members read, move it by `tinymq group seek {name}`, remove it by "
                f"`tinymq group rm {name}`, raise hold.max.ms or hold.max.bytes, or set hold.then "
                "to dead_letter or drop",
                channel=channel,
                partition=index,
                offset=offset,
            )
        return Overloaded(
            f"channel {channel} of {topic.name}/{index} has not settled offset {offset}, and the "
            f"topic holds as much back for it as it may; publish again when it has gone on: "
            "consume, empty or delete the channel, raise hold.max.ms or hold.max.bytes, or set "
            "hold.then to dead_letter or drop",
            channel=channel,
            partition=index,
            offset=offset,
        )

    def _give_up_below(self, beyond: int, channel: str) -> None:
        if not self._giving_up:
            self._log.warn(
                "{hosted}: what {channel} has not settled below offset {beyond} is given up, for "
                "the topic holds as much back as it may",
                hosted=self._hosted,
                channel=channel,
                beyond=beyond,
            )
        self._beyond, self._giving_up, self._decided = beyond, True, None
        for mark, found in self._hosted.positions.known.items():
            if found.place.offset < beyond:
                # There are no dead letters of a group: it hears what is there and what is not.
                self._freed[mark] = beyond
        self._hosted.mark()

    def turn(self, now: int) -> None:
        """
        Go on with what was begun.

        Args:
            now: The channels' time.
        """
        partition = self._hosted.partition
        if self._beyond:
            floor = self._floor()
            done = floor is None or floor[0] >= self._beyond
            # Where producers are refused, who altered the topic is not kept waiting.
            done = done or self._decided not in (None, partition.topic.config)
            if done and self.apply(self._broker.wall()):
                partition.moved.add(partition)
        if not self._giving_up:
            return
        if self._hosted.router is not None:
            self._hosted.router.give_up(self._beyond, now)
        for _, one in self.holders():
            if not one.channel.places.dooming:
                lost = one.steering.abandon(self._beyond, _MOST_GIVEN_UP, _REASON, now)
                self._hosted.take_away(one, lost)
