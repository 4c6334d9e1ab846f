"""Reading partitions to their present end, for the judge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from tinymq.verify.checker import Checker

if TYPE_CHECKING:
    from tinymq.sync import Client
    from tinymq.wire.records import Record

#: Seconds in which records that are there must come.
_PATIENCE: Final = 20.0


def list_topics(client: Client) -> set[str]:
    """Name all topics, page after page."""
    names: set[str] = set()
    after = ""
    while True:
        reply = client.admin.operate("topic.list", after=after, limit=500)
        found = [row["name"] for row in reply["topics"]]
        names.update(found)
        if not reply["more"] or not found:
            return names
        after = found[-1]


def ends_of(client: Client, topic: str) -> dict[int, int]:
    """Tell the end of each partition."""
    found: dict[str, Any] = client.admin.operate("topic.info", name=topic)["topic"]
    return {row["partition"]: row["end"] for row in found["partitions"]}


def feed(
    client: Client, topic: str, checkers: Mapping[int, Checker], patience: float = _PATIENCE
) -> list[str]:
    """
    Read a topic's partitions from where their checkers stand to their present end.

    Args:
        client: Where to read.
        topic: The topic.
        checkers: By partition.
        patience: Seconds to wait for records.

    Returns:
        What is wrong with the ends themselves.
    """
    ends = ends_of(client, topic)
    problems = []
    left = set()
    for partition, checker in checkers.items():
        end = ends.get(partition, -1)
        if end < checker.position:
            problems.append(f"{checker.place} ends at {end}; {checker.position} were read before")
        elif end > checker.position:
            left.add(partition)
    consumer = client.consumer()
    try:
        if left:
            starts = {partition: checkers[partition].position for partition in left}
            consumer.assign(topic, sorted(left), starts)
        while left:
            batch = consumer.next_batch(patience)
            if batch is None:
                gone = {each for each in left if consumer.position(topic, each) >= ends[each]}
                problems += [
                    f"{checkers[each].place} is damaged from {checkers[each].position} to its end"
                    for each in sorted(gone)
                ]
                left -= gone
                if gone:
                    continue
                waiting = ", ".join(f"{topic}/{partition}" for partition in sorted(left))
                return [*problems, f"nothing comes of {waiting}, short of the end"]
            checker, end = checkers[batch.partition], ends[batch.partition]
            _judge(batch, end, checker)
            if checker.position >= end:
                left.discard(batch.partition)
    finally:
        consumer.close()
    return problems


def read_all(client: Client, topic: str) -> Iterator[Record]:
    """
    Read a topic to its present end.

    Args:
        client: Where to read.
        topic: The topic.
    """
    ends = {partition: end for partition, end in ends_of(client, topic).items() if end}
    with client.consumer() as consumer:
        if ends:
            consumer.assign(topic, sorted(ends), dict.fromkeys(ends, 0))
        while any(consumer.position(topic, each) < end for each, end in ends.items()):
            batch = consumer.next_batch(_PATIENCE)
            if batch is None:
                return
            yield from batch


def _judge(batch: Iterable[Any], end: int, checker: Checker) -> None:
    for record in batch:
        if record.offset >= end:
            return
        checker.read(record.offset, record.value)
