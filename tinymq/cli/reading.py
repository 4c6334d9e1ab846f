"""From a topic and a position to a stream of records that knows when to end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from tinymq import errors
from tinymq.cli.failure import Failed
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
    """

    partition: int
    start: Any
    end: int

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

    A partition whose broker is silent is told of; its end is not known.

    Raises:
        UnknownTopic: There is no such topic. Looking never makes one.
        UnknownPartition: It has no such partition.
        OffsetOutOfRange: The one partition that was named has no such offset.
    """
    rows = session.operate("topic.info", name=wanted.topic)["topic"]["partitions"]
    known = {row["partition"]: row for row in rows}
    for partition in wanted.partitions:
        if partition not in known:
            raise errors.UnknownPartition(
                f"topic {wanted.topic} has no partition {partition}, only {len(known)}"
            )
    chosen = [known[partition] for partition in wanted.partitions or sorted(known)]
    exact = len(wanted.partitions) == 1 or len(known) == 1
    parts = []
    for row in chosen:
        if row["end"] is None:
            note(f"partition {row['partition']} cannot be read now: {row['reason']}")
            parts.append(Part(row["partition"], _start_of_silent(wanted.position), UNKNOWN))
        else:
            start = _start(wanted.position, row, exact=exact)
            parts.append(Part(row["partition"], start, row["end"]))
    return parts


def all_known(parts: Sequence[Part]) -> list[Part]:
    """
    Refuse to take some partitions for all of them.

    Raises:
        Failed: The broker of one is silent.
    """
    silent = [str(part.partition) for part in parts if not part.known]
    if silent:
        raise Failed(
            f"the end of partition {', '.join(silent)} is not known",
            "-p reads the others; without --exit the broker is waited for",
        )
    return list(parts)


def _start_of_silent(position: Position) -> Any:
    """Say where reading begins in a partition of which nothing is known."""
    from tinymq.sync import EARLIEST, LATEST, At  # noqa: PLC0415 - not needed for --help

    starts = {"earliest": EARLIEST, "time": At(position.value), "offset": position.value}
    return starts.get(position.kind, LATEST)


def _start(position: Position, row: dict[str, Any], *, exact: bool) -> Any:
    from tinymq.sync import EARLIEST, At  # noqa: PLC0415 - not needed for --help

    first, end = row["start"], row["end"]
    if position.kind == "earliest":
        return EARLIEST if end > first else end
    if position.kind == "latest":
        return end
    if position.kind == "time":
        later = row["newest_ms"] is not None and row["newest_ms"] >= position.value
        return At(position.value) if later and end > first else end
    if position.kind == "last":
        return max(first, end - position.value)
    if exact and not first <= position.value <= end:
        raise errors.OffsetOutOfRange(
            f"partition {row['partition']} holds offsets {first} to {end}, not {position.value}",
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


def until_end(consumer: Consumer, topic: str, parts: Sequence[Part]) -> Iterator[list[Placed]]:
    """Yield the records that were there when the parts were looked at, then end."""
    ends = {part.partition: part.end for part in parts if part.start != part.end}
    if not ends:
        return
    _assign(consumer, topic, [part for part in parts if part.partition in ends])
    heard = time.monotonic()
    while ends:
        batch = consumer.next_batch(GLANCE_S)
        now = time.monotonic()
        if batch is not None:
            heard = now
        elif now - heard > SILENCE_S:
            consumer.end_offsets(topic, list(ends))  # an error, when no broker answers
            heard = time.monotonic()
        if batch is not None and batch.partition in ends:
            end = ends[batch.partition]
            yield [placed for placed in _placed(batch) if placed.record.offset < end]
        # Where an end is damaged no record tells that it was reached.
        for partition in list(ends) if batch is None else {batch.partition} & ends.keys():
            if consumer.position(topic, partition) >= ends[partition]:
                del ends[partition]
                if ends:
                    consumer.pause(topic, [partition])


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
    consumer = session.client.consumer()
    try:
        for records in filter(None, until_end(consumer, topic, parts)):
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
