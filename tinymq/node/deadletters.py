"""Dead letters of the partitions that a broker leads: looking at them, and what becomes of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from twisted.internet.defer import Deferred

from tinymq.broker.broker import Broker
from tinymq.broker.channel.queue import Subscribers
from tinymq.broker.channel.runs import Run, Runs
from tinymq.broker.graves import lay
from tinymq.broker.hosted import Hosted
from tinymq.broker.letters import dead_letter_topic, redrive_reason
from tinymq.broker.ports import Letters
from tinymq.catalog.deadletters import MOST_STEP
from tinymq.errors import StateError, WireError
from tinymq.names import DEAD_LETTERS
from tinymq.node.hosting import when_safe
from tinymq.node.letters import Choice, View
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

#: Seconds that letters have to arrive where they are sent.
ARRIVAL_SECONDS: Final = 2.0
#: Seconds between two looks whether they have.
_LOOK_SECONDS: Final = 0.02


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
                standing = one.steering.standing(partition.stable_offset)
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
            if hosted.router is not None:
                for target, count, why in hosted.router.kept():
                    row = found.setdefault((target, hosted.partition.topic.name, ""), [0, ""])
                    row[0] += count
                    row[1] = row[1] or why
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
            view = View(hosted, one, chosen, limit, groups=groups)
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
        standing = Runs(one.steering.standing(hosted.partition.stable_offset))
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
        low, high = place.log.start_offset, place.stable_offset
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
        back = Runs(one.steering.standing(hosted.partition.stable_offset))
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
