"""Which messages a person or a program wants to see, and how a list shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

from attrs import frozen

from tinymq.web.format import number, plural
from tinymq.web.input import MOST_OFFSET, BadInput, choice, integer, moment
from tinymq.web.msgpack_lines import begins_as_msgpack, msgpack_line
from tinymq.web.plaintext import one_line
from tinymq.web.port import At, Newest, Oldest, Page, RecordView, Since, Start

Where = Literal["newest", "oldest", "offset", "time"]
WHERES: Final[tuple[Where, ...]] = get_args(Where)
As = Literal["auto", "text", "json", "msgpack", "hex"]
KINDS: Final[tuple[As, ...]] = get_args(As)
MOST_RECORDS: Final = 500
#: Bytes read from disk for one page.
MOST_BYTES: Final = 4 * 1024 * 1024
_MOST_PARTITION: Final = 2**31 - 1
_PREVIEW: Final = 200


@frozen(kw_only=True)
class Wanted:
    """
    A look at a topic's messages.

    Attributes:
        where: Where it begins.
        start: The same, for the broker.
        partition: One, or None for all.
        limit: Most messages.
        kind: How values are shown in the list.
        at: The offset or time as it was written.
    """

    where: Where
    start: Start
    partition: int | None
    limit: int
    kind: As
    at: str


def wanted(query: Mapping[str, Any], limit: int = 50) -> Wanted:
    """
    Read what is wanted from a query.

    Args:
        query: Its fields: start, at, partition, limit, as.
        limit: When the query names none.
    """
    where: Where = choice(query, "start", WHERES, "newest")
    start: Start = Newest() if where == "newest" else Oldest()
    if where == "offset":
        start = At(integer(query, "at", 0, MOST_OFFSET) or 0)
    elif where == "time":
        ms = moment(query, "at")
        if ms is None:
            raise BadInput("at", "at must be a time such as 2026-11-29T14:32:06Z")
        start = Since(ms)
    return Wanted(
        where=where,
        start=start,
        partition=integer(query, "partition", 0, _MOST_PARTITION),
        limit=integer(query, "limit", 1, MOST_RECORDS) or limit,
        kind=choice(query, "as", KINDS, "auto"),
        at=str(query.get("at", "")) if where in {"offset", "time"} else "",
    )


def neighbours(found: Page, want: Wanted) -> tuple[int | None, int | None]:
    """
    Find where the pages before and behind this one begin.

    Returns:
        Offsets; None where there is nothing more. Over several partitions
        there is no such offset.
    """
    if want.partition is None or len(found.scanned) != 1:
        return None, None
    seen = found.scanned[0]
    older = max(seen.log_start, seen.first - want.limit) if seen.first > seen.log_start else None
    newer = seen.end if seen.end < seen.log_end else None
    return older, newer


def coverage(found: Page) -> str:
    """Say what was looked at, so that nobody takes a part for the whole."""
    kept = sum(one.log_end - one.log_start for one in found.scanned)
    looked = sum(one.end - one.first for one in found.scanned)
    if len(found.scanned) == 1:
        one = found.scanned[0]
        if one.end == one.first:
            if one.log_end == one.log_start:
                return f"Partition {one.partition} holds nothing."
            return (
                f"Partition {one.partition} holds offsets {number(one.log_start)} "
                f"to {number(one.log_end - 1)}; none of them was looked at."
            )
        return (
            f"Looked at offsets {number(one.first)} to {number(one.end - 1)} of partition "
            f"{one.partition}, which holds {plural(kept, 'offset')}."
        )
    parts = plural(len(found.scanned), "partition")
    return f"Looked at {number(looked)} of {plural(kept, 'offset')} in {parts}."


def preview(record: RecordView, kind: As) -> str:
    """
    Write a value in one line.

    Args:
        record: Whose value.
        kind: How; ``auto`` looks at the bytes.
    """
    value = record.preview
    if value is None:
        return ""
    whole = len(value) == record.size
    if kind == "hex":
        return value[: _PREVIEW // 3].hex(" ")
    if kind == "msgpack" or (kind == "auto" and whole and begins_as_msgpack(value)):
        line = msgpack_line(value, _PREVIEW)
        if line is not None:
            return line
        if kind == "msgpack":
            return value[: _PREVIEW // 3].hex(" ")
    return one_line(value, _PREVIEW)
