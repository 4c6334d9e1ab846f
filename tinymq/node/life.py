"""What the channels of a partition that is here did with one message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from twisted.internet.defer import Deferred

from tinymq.broker.broker import Broker
from tinymq.broker.channel.life import where
from tinymq.broker.hosted import Hosted
from tinymq.broker.lives import Lives
from tinymq.broker.partition import Partition
from tinymq.errors import OffsetOutOfRange
from tinymq.limits import KIB
from tinymq.node.partitions import topic_key
from tinymq.node.turns import Turns
from tinymq.operation import Operation, Parameter, Result, table
from tinymq.storage.log import Log
from tinymq.wire.batch import split
from tinymq.wire.fields import I64, PARTITION, integer, text

#: Seconds for which a ledger is looked through before others have their turn,
_TURN_SECONDS: Final = 0.002
#: and in all, for the MetaServer waits no longer; what was not seen by then is missing.
_MOST_SECONDS: Final = 2.0
#: By so much two clocks may differ that should not, in milliseconds.
_APART_MS: Final = 60_000
#: Bytes in which the batch of a message begins, at least.
_HEAD_BYTES: Final = 64 * KIB


class LifeLines:
    """The lives of messages."""

    _broker: Broker

    async def message_life(self, id: str, partition: int, offset: int) -> Result:  # noqa: A002
        """Tell what channels did with a message."""
        topic_id = topic_key(id)
        place = self._broker.partition(topic_id, partition)
        visible = place.stable_offset
        if offset >= visible:
            raise OffsetOutOfRange(
                f"{place.topic.name}/{partition} has no message at offset {offset} yet; "
                f"the next one is {visible}",
                start=place.log.start_offset,
                end=visible,
            )
        hosted = self._broker.channels.hosted(topic_id, partition)
        if hosted is None:
            return {"events": [], "channels": [], "since_ms": None, "more": False}
        ledger = hosted.ledger
        if not ledger.stored or not isinstance(ledger.log, Log):
            since: int | None = self._broker.wall()  # in memory nothing is written down
            lives, whole = None, True
        else:
            begun, first_ms = ledger.log.kept_since
            lives = Lives(
                self._broker.store.folder.disk,
                ledger.log.parts(await self._published(place, offset)),
                offset,
            )
            whole = await self._look_through(lives)
            since = first_ms if begun > 0 else None
        return _told(hosted, offset, lives, since, whole=whole)

    async def _look_through(self, lives: Lives) -> bool:
        """Look through a ledger; tell whether it was all of it."""
        seconds = self._broker.scheduler.seconds
        last, turns = seconds() + _MOST_SECONDS, Turns(self._broker.scheduler, _TURN_SECONDS)
        while lives.more:
            await self._elsewhere(lives.read)
            turns.begin()
            for _ in lives.take():
                if turns.over:
                    await turns.next()
            if seconds() > last:
                return not lives.more
        return True

    async def _published(self, place: Partition, offset: int) -> int:
        """Find a time before which nothing happened to a message: it was not published yet."""
        log = place.log
        if not log.start_offset <= offset < place.stable_offset:
            return -1
        if isinstance(log, Log):
            await self._elsewhere(log.warmer(offset, _HEAD_BYTES))
        chunk = log.read(offset, 1, place.stable_offset)
        batches = [] if chunk is None else split(chunk.data)
        if not batches:
            return -1
        # The channels' clock does not follow the steps of the wall's.
        behind = max(0, self._broker.wall() - self._broker.channels.now())
        return batches[0][0].max_timestamp - behind - _APART_MS

    def _elsewhere(self, work: Callable[[], None]) -> Deferred[None]:
        done: Deferred[None] = Deferred()
        self._broker.background.submit(work, lambda: done.callback(None))
        return done


def _told(
    hosted: Hosted, offset: int, lives: Lives | None, since: int | None, *, whole: bool
) -> Result:
    """Write it all down."""
    happenings = [] if lives is None else lives.happenings()
    return {
        "events": [
            {
                "channel": channel,
                "time_ms": each.time,
                "what": each.what,
                "attempt": each.attempt,
                "client_id": each.client,
                "text": each.text,
            }
            for channel, each in happenings
        ],
        "channels": [
            {"channel": name, "state": where(one.channel.places, offset)}
            for name, one in sorted(hosted.queue.channels.items())
        ],
        "since_ms": since,
        "more": not whole or (lives is not None and (lives.shortened or lives.incomplete)),
    }


LIFE_OPERATIONS: Final[dict[str, Operation]] = table(
    Operation(
        "node.message_life",
        "cluster",
        False,
        (
            Parameter("id", text(32)),
            Parameter("partition", PARTITION),
            Parameter("offset", integer(0, I64)),
        ),
        LifeLines.message_life,
    ),
)
