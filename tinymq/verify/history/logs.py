"""What is in the topics in the end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Entry(NamedTuple):
    """
    One record, as whoever reads only what is committed finds it.

    Attributes:
        partition: Its partition.
        offset: Its offset.
        key: Its key.
        id: What names it: ``PRODUCER:NUMBER``.
    """

    partition: int
    offset: int
    key: str
    id: str


#: Records by topic, in the order of partitions and offsets.
Logs = Mapping[str, "list[Entry]"]


def by_partition(entries: Iterable[Entry]) -> dict[int, list[Entry]]:
    """
    Sort records out.

    Args:
        entries: In order of offsets within each partition.
    """
    found: dict[int, list[Entry]] = {}
    for each in entries:
        found.setdefault(each.partition, []).append(each)
    return found


def number_of(name: str) -> tuple[str, int]:
    """
    Take a record's name apart.

    Args:
        name: As in `Entry.id`.
    """
    producer, _, number = name.rpartition(":")
    return producer, int(number)
