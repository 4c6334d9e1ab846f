"""From a topic and a position to a stream of records that knows when to end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from tinymq import errors
from tinymq.cli.failure import UNREACHABLE, Failed
from tinymq.cli.output import note
from tinymq.cli.render import Placed
from tinymq.cli.session import Session
from tinymq.cli.values import Position

if TYPE_CHECKING:
    from tinymq.sync import Consumer, ConsumerBatch

#: Seconds between two looks at whether a gap was passed over.
GLANCE_S: Final = 0.1
#: Seconds without records after which a broker is asked whether it is there.
SILENCE_S: Final = 1.0
#: Seconds that brokers get to say where a partition ends, however late it is already.
_LEAST_S: Final = 0.5

#: Of the protocol: the end of a partition; not imported, for --help must be quick.
_LATEST: Final = -1
#: The end of a partition whose broker is silent.
UNKNOWN: Final = -1


@frozen
class Part:
    """
    One partition to be read.

    Attributes:
        partition: Its number.
        start: Where to begin: an offset, or a start of the client.
        end: Its end when it was looked at; `UNKNOWN` while its broker is silent.
        fault: Why its end is not known.
    """

    partition: int
    start: Any
    end: int
    fault: Exception | None = None

    @property
    def known(self) -> bool:
        """Whether its broker said where it ends."""
        return self.end != UNKNOWN


@frozen
class Wanted:
    """
    What is to be read.

    Attributes:
        topic: The topic.
        partitions: Which partitions; empty for all.
        position: Where to begin.
    """

    topic: str
    partitions: Sequence[int]
    position: Position


def parts_of(session: Session, wanted: Wanted) -> list[Part]:
    """
    Look where reading begins and where each partition ends now.

    The brokers are asked themselves, so that a MetaServer need not answer. A
    partition whose broker is silent is told of; its end is not known.

    Raises:
        UnknownTopic: There is no such topic. Looking never makes one.
        UnknownPartition: It has no such partition.
        OffsetOutOfRange: The one partition that was named has no such offset.
    """
    until = session.clock() + session.timeout
    count = session.client.metadata([wanted.topic])[wanted.topic].partitions
    chosen = list(wanted.partitions or range(count))
    for partition in chosen:
        if partition >= count:
            raise errors.UnknownPartition(
                f"topic {wanted.topic} has no partition {partition}, only {count}"
            )
    exact = len(wanted.partitions) == 1 or count == 1
    places = _look(session, wanted, chosen, until)
    return [
        Part(partition, _start_of_silent(wanted.position), UNKNOWN, place)
        if isinstance(place, Exception)
        else Part(partition, _start(wanted.position, partition, place, exact=exact), place.end)
        for partition, place in places.items()
    ]


@frozen
class _Place:
    """Where a partition begins, where it ends, and where the first record of a time is."""

    first: int
    end: int
    found: int


def _look(
    session: Session, wanted: Wanted, chosen: Sequence[int], until: float
) -> dict[int, _Place | Exception]:
    """Ask the brokers where the partitions begin and end; an error where one is silent."""
    from tinymq.sync import EARLIEST, LATEST  # noqa: PLC0415 - not needed for --help

    position = wanted.position
    times = [EARLIEST, LATEST] + ([position.value] if position.kind == "time" else [])
    answers: list[dict[int, int]] = []
    silent: dict[int, Exception] = {}
    for time_ms in times:
        asked = [partition for partition in chosen if partition not in silent]
        left = max(_LEAST_S, until - session.clock())
        found = session.client.survey(wanted.topic, asked, time_ms, left)
        answers.append(found.offsets)
        silent |= found.faults
    for partition, error in sorted(silent.items()):
        _tell_silent(partition, error)
    firsts, ends, found_at = answers[0], answers[1], answers[-1]
    return {
        partition: silent[partition]
        if partition in silent
        else _Place(firsts[partition], ends[partition], found_at[partition])
        for partition in chosen
    }


def _tell_silent(partition: int, error: Exception) -> None:
    text = str(error)
    named = f"partition {partition} of" in text
    note(f"{'' if named else f'partition {partition} '}cannot be read now: {text}")


def some_known(parts: Sequence[Part]) -> list[Part]:
    """
    Refuse to take silence for an empty topic.

    Raises:
        TinyMQError: No broker of these partitions answers.
    """
    faults = [part.fault for part in parts if part.fault is not None]
    if faults and len(faults) == len(parts):
        raise faults[0]
    return list(parts)


def all_known(parts: Sequence[Part]) -> list[Part]:
    """
    Refuse to take some partitions for all of them.

    Raises:
        Failed: The broker of one is silent.
        TinyMQError: All of them are.
    """
    silent = [str(part.partition) for part in some_known(parts) if not part.known]
    if silent:
        raise Failed(
            f"the end of partition {', '.join(silent)} is not known",
            "-p reads the others; without --exit the broker is waited for",
            UNREACHABLE,
        )
    return list(parts)


def _start_of_silent(position: Position) -> Any:
    """Say where reading begins in a partition of which nothing is known."""
    from tinymq.sync import EARLIEST, LATEST, At  # noqa: PLC0415 - not needed for --help

    starts = {"earliest": EARLIEST, "time": At(position.value), "offset": position.value}
    return starts.get(position.kind, LATEST)


def _start(position: Position, partition: int, place: _Place, *, exact: bool) -> Any:
    from tinymq.sync import EARLIEST  # noqa: PLC0415 - not needed for --help

    first, end = place.first, place.end
    if position.kind == "earliest":
        return EARLIEST if end > first else end
    if position.kind == "latest":
        return end
    if position.kind == "time":
        return min(place.found, end)
    if position.kind == "last":
        return max(first, end - position.value)
    if exact and not first <= position.value <= end:
        raise errors.OffsetOutOfRange(
            f"partition {partition} holds offsets {first} to {end}, not {position.value}",
            start=first,
            end=end,
        )
    return min(max(position.value, first), end)


def follow(consumer: Consumer, topic: str, parts: Sequence[Part]) -> Iterator[list[Placed]]:
    """Yield the records of each batch, for ever; the client outlasts an outage, and says so."""
    _assign(consumer, topic, parts)
    for batch in consumer:
        yield _placed(batch)


def _assign(consumer: Consumer, topic: str, parts: Sequence[Part]) -> None:
    consumer.assign(
        topic, [part.partition for part in parts], {part.partition: part.start for part in parts}
    )


def _placed(batch: ConsumerBatch) -> list[Placed]:
    return [Placed(batch.topic, batch.partition, record) for record in batch]


def until_end(
    session: Session, consumer: Consumer, topic: str, parts: Sequence[Part]
) -> Iterator[list[Placed]]:
    """
    Yield the records that were there when the parts were looked at, then end.

    Raises:
        DeadlineExceeded: Or another error: a broker was silent for the session's
            time-out.
    """
    ends = {part.partition: part.end for part in parts if part.start != part.end}
    if not ends:
        return
    _assign(consumer, topic, [part for part in parts if part.partition in ends])
    heard = asked = session.clock()
    while ends:
        batch = consumer.next_batch(GLANCE_S)
        now = session.clock()
        if batch is not None:
            heard = asked = now
        elif now - asked > SILENCE_S:
            left = max(_LEAST_S, heard + session.timeout - now)
            for error in session.client.survey(topic, list(ends), _LATEST, left).faults.values():
                raise error
            asked = session.clock()
        if batch is not None and batch.partition in ends:
            end = ends[batch.partition]
            yield [placed for placed in _placed(batch) if placed.record.offset < end]
        # Where an end is damaged no record tells that it was reached.
        for partition in list(ends) if batch is None else {batch.partition} & ends.keys():
            if consumer.position(topic, partition) >= ends[partition]:
                del ends[partition]
                if ends:
                    consumer.pause(topic, [partition])


def bounded(session: Session) -> Consumer:
    """Make a consumer whose calls end within the session's time-out."""
    from tinymq.sync import ConsumerConfig  # noqa: PLC0415 - not needed for --help

    return session.client.consumer(ConsumerConfig(deadline_s=session.timeout))


def some(
    session: Session, topic: str, parts: Sequence[Part], count: int, *, newest: bool
) -> list[Placed]:
    """
    Read a few records of each partition and merge them by time.

    Args:
        session: Where to read.
        topic: The topic.
        parts: Where each partition begins and ends.
        count: Most records.
        newest: Whether the last of them are wanted, not the first.
    """
    parts = [Part(each.partition, each.start, _end(each, count)) for each in parts if each.known]
    found: dict[int, list[Placed]] = {part.partition: [] for part in parts}
    consumer = bounded(session)
    try:
        for records in filter(None, until_end(session, consumer, topic, parts)):
            mine = found[records[0].partition]
            mine += records[: count - len(mine)]
            if all(_enough(part, found[part.partition], count) for part in parts):
                break
    finally:
        consumer.close()
    merged = sorted(
        (placed for mine in found.values() for placed in mine),
        key=lambda placed: (placed.record.timestamp, placed.partition, placed.record.offset),
    )
    return merged[-count:] if newest else merged[:count]


def _end(part: Part, count: int) -> int:
    """Cut what is read of a partition when its first offset is known."""
    known = isinstance(part.start, int) and part.start >= 0
    return min(part.end, part.start + count) if known else part.end


def _enough(part: Part, mine: Sequence[Placed], count: int) -> bool:
    return (
        len(mine) >= count
        or part.start == part.end
        or bool(mine and mine[-1].record.offset + 1 >= part.end)
    )
