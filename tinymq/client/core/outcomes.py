"""What became of the records of a batch that a broker has stored, one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tinymq.client.core.results import Delayed, Failed, Position, Run
from tinymq.errors import Unroutable

if TYPE_CHECKING:
    from tinymq.client.core.batches import Batch


def astray(bits: bytes | None, place: int) -> bool:
    """
    Say whether no binding takes a record.

    Args:
        bits: Of the reply; the first record is bit 0 of the first byte.
        place: Which record of the batch.
    """
    return bits is not None and place >> 3 < len(bits) and bool(bits[place >> 3] >> (place & 7) & 1)


def outcomes(topic: str, partition: int, batch: Batch) -> Iterator[Position | Delayed | Unroutable]:
    """
    Tell what became of each record of a batch that is stored.

    Args:
        topic: Where it went.
        partition: Where it went.
        batch: The batch.
    """
    base, timestamp = batch.base_offset, batch.timestamp
    step = int(base >= 0)
    for place in range(len(batch.values)):
        at = base + step * place
        if place in batch.known:
            yield Position(topic, partition, batch.known[place], -1, batch.volatile, duplicate=True)
        elif astray(batch.unroutable, place):
            yield _unroutable(topic, partition, at)
        elif batch.dues is None:
            yield Position(topic, partition, at, timestamp, batch.volatile)
        else:
            due = (batch.written or batch.dues)[place]
            counted = timestamp - due if timestamp >= 0 else None
            yield Delayed(topic, partition, at, due if due > 0 else counted, batch.volatile)


def stored_runs(partition: int, batch: Batch) -> list[Run]:
    """
    Tell where the records of a stored batch are, without those that no binding takes.

    Args:
        partition: Where it went.
        batch: The batch; records of it that were there before are left out.
    """
    base, count, bits = batch.base_offset, len(batch.values), batch.unroutable
    if bits is None and not batch.known:
        return [(partition, base, count)]
    step = int(base >= 0)
    return [
        (partition, base + step * place, 1)
        for place in range(count)
        if not astray(bits, place) and place not in batch.known
    ]


def left_over(topic: str, partition: int, batch: Batch) -> list[Failed]:
    """
    Tell which records of a stored batch no binding takes.

    Args:
        topic: Where it went.
        partition: Where it went.
        batch: The batch.
    """
    return [
        Failed(topic, value, told)
        for value, told in zip(batch.values, outcomes(topic, partition, batch), strict=True)
        if isinstance(told, Unroutable)
    ]


def _unroutable(topic: str, partition: int, offset: int) -> Unroutable:
    return Unroutable(
        f"no binding of exchange {topic} takes this message; it is stored at "
        f"{topic}/{partition} offset {offset}, and goes to the exchange's dead-letter topic",
        exchange=topic,
        topic=topic,
        partition=partition,
        offset=offset,
    )
