"""Dead letters of the partitions that a broker leads: looking at them, and what becomes of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from attrs import frozen
from twisted.internet.defer import Deferred

from tinymq.broker.broker import Broker
from tinymq.broker.channel.queue import Subscribers
from tinymq.broker.channel.runs import Run, Runs
from tinymq.broker.graves import lay
from tinymq.broker.hosted import Hosted
from tinymq.broker.letters import (
    Facts,
    dead_letter_topic,
    facts_of,
    redrive_reason,
)
from tinymq.broker.ports import Letters
from tinymq.catalog.deadletters import MOST_STEP
from tinymq.errors import CorruptBatch, StateError, WireError
from tinymq.limits import MIB
from tinymq.names import DEAD_LETTERS
from tinymq.node.hosting import when_safe
from tinymq.node.partitions import topic_key
from tinymq.node.records import Records
from tinymq.node.turns import Turns, later
from tinymq.operation import Operation, Parameter, Result, table
from tinymq.wire.fields import (
    I64,
    PARTITION,
    array,
    binary,
    boolean,
    integer,
    mapping,
    optional,
    row,
    text,
)
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
#: Seconds that letters have to arrive where they are sent.
ARRIVAL_SECONDS: Final = 2.0
#: Seconds between two looks whether they have.
_LOOK_SECONDS: Final = 0.02


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


class DeadLetters(Records):
    """What is done with dead letters; only partitions that are here count."""

    _broker: Broker

    # --- looking ----------------------------------------------------------------

    async def dead_letters(self, ids: list[str]) -> Result:
        """Count the dead letters that are still there, by partition."""
        rows: list[Result] = []
        turns = Turns(self._broker.scheduler)
        for topic_id in ids:
            for hosted, one in self._grave_yards(topic_key(topic_id)):
                if turns.over:
                    await turns.next()
                partition = hosted.partition
                standing = one.steering.standing(partition.high_watermark)
                count = sum(end - start for start, end in standing)
                oldest = newest = None
                if standing:
                    oldest = _time_at(hosted, standing[0][0])
                    newest = _time_at(hosted, standing[-1][1] - 1)
                rows.append(
                    {
                        "id": topic_id,
                        "partition": partition.index,
                        "messages": count,
                        "oldest_ms": oldest,
                        "newest_ms": newest,
                    }
                )
        return {"partitions": rows}

    def _grave_yards(self, topic_id: bytes) -> Iterator[tuple[Hosted, Subscribers]]:
        for hosted in self._broker.channels.hosted_of(topic_id):
            one = hosted.queue.channels.get(DEAD_LETTERS)
            if one is not None:
                yield hosted, one

    def kept_letters(self) -> Result:
        """Tell what was given up here and is not in its dead-letter topic yet."""
        found: dict[tuple[str, str, str], list[Any]] = {}
        for hosted in self._broker.channels.all():
            for name, one in hosted.queue.channels.items():
                count = one.channel.places.dooming
                if count:
                    topic, given = hosted.partition.topic.name, one.channel.policy.dead_letter
                    target = dead_letter_topic(topic, name, given)
                    if name == DEAD_LETTERS:
                        target = topic
                    row = found.setdefault((target, topic, name), [0, ""])
                    row[0] += count
                    row[1] = row[1] or "; ".join(hosted.burying.kept.values())
        return {
            "kept": [
                {"target": target, "topic": topic, "channel": name, "kept": count, "why": why}
                for (target, topic, name), (count, why) in found.items()
            ]
        }

    async def letters(
        self,
        id: str,  # noqa: A002 - the wire's word
        places: list[tuple[int, int]],
        choice: dict[str, Any],
        offsets: list[tuple[int, int]] | None,
        limit: int,
        *,
        groups: bool,
    ) -> Result:
        """Look at the dead letters of some partitions, from a place on in each."""
        chosen, turns = Choice(**choice), Turns(self._broker.scheduler)
        rows = []
        for index, start in places:
            hosted, one = self._grave_yard(topic_key(id), index)
            only = None
            if offsets is not None:
                only = Runs((at, at + 1) for where, at in offsets if where == index)
            view = _View(hosted, one, chosen, limit, groups=groups)
            for _ in view.look(start, only):
                if turns.over:
                    await turns.next()
            rows.append(view.told())
        return {"partitions": rows}

    def _grave_yard(self, topic_id: bytes, index: int) -> tuple[Hosted, Subscribers]:
        """
        Find the dead letters of a partition.

        Raises:
            UnknownTopicId, UnknownPartition, NotLeader: It is not here.
            StateError: Nobody knows which of them are still there.
        """
        partition = self._broker.partition(topic_id, index)
        hosted = self._broker.channels.hosted(topic_id, index)
        one = None if hosted is None else hosted.queue.channels.get(DEAD_LETTERS)
        if hosted is None or one is None:
            raise StateError(f"{partition.topic.name}/{index} has no dead letters")
        return hosted, one

    # --- settling, coming back, and going elsewhere ---------------------------------

    def settle_letters(
        self,
        id: str,  # noqa: A002 - the wire's word
        partition: int,
        offsets: list[int],
        *,
        dropped: bool,
    ) -> Deferred[Result]:
        """Settle dead letters; those that are not there any more are passed over."""
        hosted, one = self._grave_yard(topic_key(id), partition)
        standing = Runs(one.steering.standing(hosted.partition.high_watermark))
        there = [offset for offset in offsets if offset in standing]
        one.steering.settle(Runs((at, at + 1) for at in there), self._broker.channels.now())
        if dropped:
            one.channel.counters.rejected += len(there)
        else:
            one.channel.counters.finished += len(there)
        return when_safe([hosted], {"done": there})

    def revive(
        self,
        id: str,  # noqa: A002 - the wire's word
        name: str,
        partition: int,
        letters: list[tuple[int, int]],
    ) -> Deferred[Result]:
        """Let messages come again in the channel that gave them up, as far as they exist."""
        topic_id = topic_key(id)
        place = self._broker.partition(topic_id, partition)
        self._broker.meta.registry.channel(topic_id, name)
        hosted = self._broker.channels.hosted(topic_id, partition)
        one = None if hosted is None else hosted.queue.channels.get(name)
        if hosted is None or one is None:
            raise StateError(f"{place.topic.name}/{partition} has not opened {name} yet")
        low, high = place.log.start_offset, place.high_watermark
        known = {at: redriven for at, redriven in letters if low <= at < high}
        gone = [at for at, _ in letters if at not in known]
        gone += (at for at in known if not _exists(hosted, at))
        for at in gone:
            known.pop(at, None)
        revived = one.steering.revive(known, self._broker.channels.now())
        told = {"there": revived.there, "dying": revived.dying, "gone": gone}
        return when_safe([hosted], told)

    async def send_letters(
        self,
        id: str,  # noqa: A002 - the wire's word
        partition: int,
        offsets: list[int],
        to: str,
        index: int | None,
    ) -> Result:
        """
        Copy dead letters to a topic; each is settled when it is there.

        What is not there in time goes on by itself, also after a restart.
        """
        hosted, one = self._grave_yard(topic_key(id), partition)
        self._broker.meta.registry.topic(to)
        now = self._broker.channels.now()
        for start, end in Runs((at, at + 1) for at in offsets):
            one.steering.discard(start, end, redrive_reason(to, index), now)
        hosted.mark()
        seconds = self._broker.scheduler.seconds
        until = seconds() + ARRIVAL_SECONDS
        wanted = Runs((at, at + 1) for at in offsets)
        while True:
            leaving = _leaving(one, wanted)
            if not leaving or seconds() >= until or to in hosted.burying.kept:
                break
            await later(self._broker.scheduler, _LOOK_SECONDS)
        back = Runs(one.steering.standing(hosted.partition.high_watermark))
        why = hosted.burying.kept.get(to, "it is on its way")
        failed = [[at, f"it is on its way to {to}: {why}"] for at in leaving]
        failed += ([at, f"{to} does not take it"] for at in offsets if at in back)
        done = [at for at in offsets if at not in back and at not in leaving]
        answer: Result = await when_safe([hosted], {"done": done, "failed": failed})
        return answer

    # --- taking dead letters from other brokers ---------------------------------------

    async def bury(  # noqa: PLR0913 - as it travels
        self,
        id: str,  # noqa: A002 - the wire's word
        partition: int,
        producer: int,
        first: int,
        batch: bytes,
        upload: int,
        *,
        more: bool,
    ) -> Result:
        """Append dead letters that another broker brings; many come in pieces."""
        if upload:
            whole = self._piece(upload, batch, more=more)
            if whole is None:
                return {}
            batch = whole
        done: Deferred[WireError | None] = Deferred()
        letters = Letters(topic_key(id), partition, producer, first, batch)
        lay(self._broker, letters, done.callback)
        error = await done
        if error is not None:
            raise error
        return {}


class _View:
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
            for first, behind in self._one.steering.standing(partition.high_watermark)
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


def _time_at(hosted: Hosted, offset: int) -> int | None:
    """Say when a message was written, None if that cannot be read."""
    log = hosted.partition.log
    try:
        header = next(log.headers(max(offset, log.start_offset)), None)
    except (OSError, WireError):
        return None
    return None if header is None else header.max_timestamp


def _exists(hosted: Hosted, offset: int) -> bool:
    """Whether there is a message at an offset: it may lie in a gap."""
    stored = hosted.window.batch_at(offset, offset + 1)
    return stored is not None and stored[0].base_offset <= offset


def _leaving(one: Subscribers, wanted: Runs) -> list[int]:
    """Return those of some letters that are on their way elsewhere."""
    found: list[Run] = [run for doom in one.channel.places.doomed.values() for run in doom.runs]
    return sorted(
        at
        for start, end in found
        for low, high in wanted.within(start, end)
        for at in range(low, high)
    )


_ID: Final = Parameter("id", text(32))
_INDEX: Final = Parameter("partition", PARTITION)
_OFFSET: Final = integer(0, I64)
_OFFSETS: Final = Parameter("offsets", array(_OFFSET, MOST_STEP))
_PLACE: Final = row(PARTITION, _OFFSET)
_COUNT: Final = integer(0, 1 << 31)

DEAD_LETTER_OPERATIONS: Final[dict[str, Operation]] = table(
    Operation(
        "node.dead_letters",
        "cluster",
        False,
        (Parameter("ids", array(text(32), MOST_STEP)),),
        DeadLetters.dead_letters,
    ),
    Operation("node.kept_letters", "cluster", False, (), DeadLetters.kept_letters),
    Operation(
        "node.letters",
        "cluster",
        False,
        (
            _ID,
            Parameter("places", array(_PLACE, 1000)),
            Parameter("choice", mapping, default={}),
            Parameter("offsets", optional(array(_PLACE, MOST_STEP)), default=None),
            Parameter("limit", integer(1, MOST_STEP)),
            Parameter("groups", boolean, default=False),
        ),
        DeadLetters.letters,
    ),
    Operation(
        "node.settle_letters",
        "cluster",
        True,
        (_ID, _INDEX, _OFFSETS, Parameter("dropped", boolean, default=False)),
        DeadLetters.settle_letters,
    ),
    Operation(
        "node.revive",
        "cluster",
        True,
        (
            _ID,
            Parameter("name", text(1024)),
            _INDEX,
            Parameter("letters", array(row(_OFFSET, _COUNT), MOST_STEP)),
        ),
        DeadLetters.revive,
    ),
    Operation(
        "node.send_letters",
        "cluster",
        True,
        (
            _ID,
            _INDEX,
            _OFFSETS,
            Parameter("to", text(1024)),
            Parameter("index", optional(PARTITION), default=None),
        ),
        DeadLetters.send_letters,
    ),
    Operation(
        "node.bury",
        "cluster",
        True,
        (
            _ID,
            _INDEX,
            Parameter("producer", _OFFSET),
            Parameter("first", _OFFSET),
            Parameter("batch", binary(0, I64)),
            Parameter("upload", integer(0, I64), default=0),
            Parameter("more", boolean, default=False),
        ),
        DeadLetters.bury,
    ),
)
