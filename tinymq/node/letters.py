"""Looking at the dead letters of one partition: one by one, and in groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from attrs import frozen

from tinymq.broker.channel.queue import Subscribers
from tinymq.broker.channel.runs import Runs
from tinymq.broker.hosted import Hosted
from tinymq.broker.letters import Facts, facts_of
from tinymq.errors import CorruptBatch
from tinymq.limits import MIB
from tinymq.operation import Result
from tinymq.wire.records import Record, RecordBatch

#: Dead letters that are looked at for one answer, and bytes of them, about.
MOST_LOOKED: Final = 5000
_LOOKED_BYTES: Final = 8 * MIB
#: Letters that are looked at before it is time to see how late it is.
_AT_ONCE: Final = 20
#: Bytes of a key, a value and an error that are told of a letter.
_KEY_SHOWN: Final = 200
_VALUE_SHOWN: Final = 200
_TEXT_SHOWN: Final = 1000
#: Groups of one answer, and bytes of the error by which they are told apart.
_MOST_GROUPS: Final = 100
_GROUP_TEXT: Final = 200


@frozen(kw_only=True)
class Choice:
    """
    Which dead letters are meant; None is any.

    Attributes:
        topic: Those that come from a topic.
        channel: Those that a channel gave up.
        reason: Those with a reason.
        text: Those with a text in their error.
        since_ms: Those given up at a time or later.
        until_ms: Those given up before a time.
    """

    topic: str | None = None
    channel: str | None = None
    reason: str | None = None
    text: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    def takes(self, facts: Facts, written_ms: int) -> bool:
        """
        Whether a letter is meant.

        Args:
            facts: What it says of itself.
            written_ms: When it was written, if it does not say when it was given up.
        """
        at = written_ms if facts.last_ms is None else facts.last_ms
        return (
            self.topic in (None, facts.topic)
            and self.channel in (None, facts.channel)
            and self.reason in (None, facts.reason)
            and (self.text is None or self.text in facts.text)
            and (self.since_ms is None or at >= self.since_ms)
            and (self.until_ms is None or at < self.until_ms)
        )


class View:
    """
    Looks at the dead letters of one partition.

    Args:
        hosted: The partition.
        one: The channel that knows which are still there.
        choice: Which are meant.
        limit: Most of them.
        groups: Whether all the others are counted, too, as far as they are looked at.
    """

    def __init__(
        self, hosted: Hosted, one: Subscribers, choice: Choice, limit: int, *, groups: bool
    ) -> None:
        self._hosted = hosted
        self._choice = choice
        self._limit = limit
        self._all = groups
        self._one = one
        self._found: list[Result] = []
        self._groups: Counter[tuple[str, str, str, str]] = Counter()
        self._scanned = 0
        #: How many were looked at up to and with the last that is told.
        self._covered = 0
        self._next: int | None = None

    def look(self, start: int, only: Runs | None) -> Iterator[None]:
        """
        Look at what is still there; yields now and then, so that others may have their turn.

        Args:
            start: From this offset on.
            only: Nothing but these, if given.
        """
        partition = self._hosted.partition
        wanted = Runs(
            (max(low, start), high)
            for first, behind in self._one.steering.standing(partition.stable_offset)
            for low, high in ([(first, behind)] if only is None else only.within(first, behind))
            if high > start
        )
        left = _LOOKED_BYTES
        for header, data in self._hosted.window.over([*wanted]):
            try:
                records = iter(RecordBatch(data, header, partition.limits.inflated))
            except CorruptBatch:
                continue
            for record in records:
                if record.offset not in wanted:
                    continue
                if self._scanned >= MOST_LOOKED or left <= 0:
                    self._more(record.offset)
                if self._next is not None and (not self._all or self._scanned >= MOST_LOOKED):
                    return
                self._add(record, header.max_timestamp)
                left -= len(record.value or b"")
                if self._scanned % _AT_ONCE == 0:
                    yield

    def _add(self, record: Record, written_ms: int) -> None:
        self._scanned += 1
        facts = facts_of(record.headers)
        if not self._choice.takes(facts, written_ms):
            return
        self._groups[facts.reason, facts.topic, facts.channel, facts.text[:_GROUP_TEXT]] += 1
        if len(self._found) < self._limit:
            self._found.append(_letter(record, facts, written_ms))
            self._covered = self._scanned
        elif len(self._found) == self._limit:
            self._more(record.offset)

    def _more(self, offset: int) -> None:
        """Note where the next page begins, the first time."""
        if self._next is None:
            self._next = offset

    def told(self) -> Result:
        """What was seen."""
        return {
            "partition": self._hosted.index,
            "letters": self._found,
            "groups": [[*key, count] for key, count in self._groups.most_common(_MOST_GROUPS)],
            "scanned": self._scanned,
            "covered": self._covered if self._next is not None and self._found else self._scanned,
            "next": self._next,
        }


def _letter(record: Record, facts: Facts, written_ms: int) -> Result:
    value = record.value
    return {
        "offset": record.offset,
        "topic": facts.topic,
        "topic_id": None if facts.topic_id is None else facts.topic_id.hex(),
        "origin_partition": facts.partition,
        "origin_offset": facts.offset,
        "channel": facts.channel,
        "reason": facts.reason,
        "text": facts.text[:_TEXT_SHOWN],
        "attempts": facts.deliveries,
        "failures": facts.failures,
        "client": facts.client,
        "first_ms": facts.first_ms,
        "last_ms": written_ms if facts.last_ms is None else facts.last_ms,
        "hops": facts.hops,
        "redriven": facts.redriven,
        "loop": facts.loop,
        "key": None if record.key is None else record.key[:_KEY_SHOWN],
        "size": len(value or b""),
        "preview": None if value is None else value[:_VALUE_SHOWN],
    }
