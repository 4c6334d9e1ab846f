"""What is to be cleaned of a log, and what came of it: the values that two processes exchange."""

from __future__ import annotations

from typing import Any, NamedTuple

from attrs import asdict, frozen

from tinymq.limits import KIB, MIB


@frozen
class Source:
    """
    A closed file.

    Attributes:
        base: Its first offset.
        end: The offset behind its last.
        size: Its bytes.
        sound: Whether no damage is known in it.
    """

    base: int
    end: int
    size: int
    sound: bool = True


@frozen(kw_only=True)
class Task:
    """
    What is to be cleaned.

    Attributes:
        folder: The log's folder.
        sources: Its closed files that may change, in order, side by side but for gaps.
        behind: The files behind them, which tell how transactions ended.
        dirty: The first offset that was never cleaned.
        tombstones: Records without a value below this offset go.
        markers: Whether ends of transactions may go.
        since: Producers that appended nothing since this time are forgotten.
        memory: Bytes for keys and transactions.
        rate: Bytes to read and write a second; 0 is no bound.
        segment_bytes: How long a file may become.
        interval: Bytes between entries of an index.
    """

    folder: str
    sources: tuple[Source, ...]
    behind: tuple[Source, ...] = ()
    dirty: int = 0
    tombstones: int = 0
    markers: bool = True
    since: int = 0
    memory: int = 128 * MIB
    rate: int = 0
    segment_bytes: int = 128 * MIB
    interval: int = 16 * KIB

    def to_map(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    @classmethod
    def from_map(cls, value: dict[str, Any]) -> Task:
        """What `to_map` gave."""
        sources = tuple(Source(**each) for each in value.pop("sources"))
        behind = tuple(Source(**each) for each in value.pop("behind"))
        return cls(sources=sources, behind=behind, **value)


class Damaged(NamedTuple):
    """A file that is left alone: where its bytes are no batch."""

    base: int
    position: int


class Cleaned(NamedTuple):
    """
    A cleaned file that waits to take its place.

    Attributes:
        base: Its first offset.
        end: The offset behind its last.
        size: Its bytes.
        first_time: Append time of its first batch.
        max_time: Latest append time.
        sources: Base and bytes of each file that it replaces.
        records: Records that are gone.
    """

    base: int
    end: int
    size: int
    first_time: int
    max_time: int
    sources: tuple[tuple[int, int], ...]
    records: int


class Done(NamedTuple):
    """
    All that could be cleaned is.

    Attributes:
        until: The offset up to which keys were looked at.
        tombstones: Records without a value that stayed and would have gone later.
        sound: Whether every file was read.
        keys: Different keys that were seen.
        records: Records that are gone.
        read: Bytes read.
        written: Bytes written.
        memory: Bytes that the table of keys took.
    """

    until: int
    tombstones: int
    sound: bool
    keys: int
    records: int
    read: int
    written: int
    memory: int


Event = Damaged | Cleaned | Done
