"""Records as callers give them, checked and brought to one form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from tinymq.client.core.batches import (
    ITEM_OVERHEAD,
    as_headers,
    as_value,
    as_values,
    check_record,
    headers_size,
)
from tinymq.client.core.partitioners import Key, key_bytes, keys_bytes
from tinymq.client.core.timing import TIMES_OVERHEAD, Timing, Timings
from tinymq.errors import UsageError
from tinymq.limits import Limits
from tinymq.wire.records import Headers

#: Records below this size cannot break a limit, so they are not looked at one by one.
SURELY_FINE: Final = 32 * 1024
#: Bytes that a record without key and headers needs at most beside its value.
PLAIN_OVERHEAD: Final = 2 * ITEM_OVERHEAD


class Row(NamedTuple):
    """One record; `size` bounds the bytes that it takes in a batch."""

    value: bytes | None
    key: bytes | None
    headers: Headers | None
    size: int
    timing: Timing | None = None


class Rows(NamedTuple):
    """Many records as columns; those that no record has are None."""

    values: list[bytes | None]
    keys: list[bytes | None] | None
    headers: list[Headers] | None
    sizes: list[int]
    timings: Timings | None = None

    def pick(self, places: Sequence[int]) -> Rows:
        """
        Take some of them.

        Args:
            places: Which, in order.
        """
        values, keys, headers, sizes, timings = self
        return Rows(
            [values[place] for place in places],
            None if keys is None else [keys[place] for place in places],
            None if headers is None else [headers[place] for place in places],
            [sizes[place] for place in places],
            timings and timings.pick(places),
        )

    def parted(self) -> list[Rows]:
        """Part those that are due at once from those that are not."""
        if self.timings is None or self.timings.dues is None:
            return [self]
        dues = self.timings.dues
        if all(dues):
            return [self]
        soon = self.pick([place for place, due in enumerate(dues) if not due])
        late = self.pick([place for place, due in enumerate(dues) if due])
        assert soon.timings is not None
        return [soon._replace(timings=soon.timings._replace(dues=None)), late]


def one_record(
    value: Any, key: Key | None, headers: Any, limits: Limits, timing: Timing | None = None
) -> Row:
    """
    Check one record.

    Args:
        value: Bytes of any kind, or None.
        key: Bytes of any kind, a string, or None.
        headers: Pairs, a mapping, or None.
        limits: The limits in force.
        timing: When it comes and how long it lives, if it says so.

    Raises:
        UsageError: A field is of the wrong type.
        ValueTooLarge: Over a limit.
    """
    if type(value) is not bytes:
        value = as_value(value)
    plain = None if key is None else key_bytes(key)
    listed = None if headers is None else as_headers(headers)
    size = PLAIN_OVERHEAD + (len(value) if value else 0)
    if plain:
        size += len(plain)
    if listed is not None:
        size += headers_size(listed)
    if listed or size > SURELY_FINE:
        check_record(value, plain, listed, limits)
    if timing is not None:
        size += TIMES_OVERHEAD
    return Row(value, plain, listed, size, timing)


def many_records(
    values: Sequence[Any],
    keys: Sequence[Key | None] | None,
    headers: Sequence[Any] | None,
    limits: Limits,
    timing: Callable[[int], Timings | None] | None = None,
) -> Rows:
    """
    Check many records.

    Args:
        values: At least one.
        keys: As many, or None.
        headers: As many, or None.
        limits: The limits in force.
        timing: Says of so many when they come and how long they live.

    Raises:
        UsageError: A field is of the wrong type, or the lengths differ.
        ValueTooLarge: A record is over a limit.
    """
    plain = as_values(values)
    count = len(plain)
    if not count:
        raise UsageError("send_batch needs at least one value")
    plain_keys = None if keys is None else keys_bytes(keys)
    lists = None if headers is None else [as_headers(one or ()) for one in headers]
    for column in (plain_keys, lists):
        if column is not None and len(column) != count:
            raise UsageError("send_batch needs as many keys and headers as values")
    sizes = _sizes(plain, plain_keys, lists)
    if lists is not None or max(sizes) > SURELY_FINE:
        for place, value in enumerate(plain):
            key = None if plain_keys is None else plain_keys[place]
            check_record(value, key, None if lists is None else lists[place], limits)
    if timing is None:
        return Rows(plain, plain_keys, lists, sizes)
    sizes = [size + TIMES_OVERHEAD for size in sizes]
    return Rows(plain, plain_keys, lists, sizes, timing(count))


def _sizes(
    values: list[bytes | None],
    keys: list[bytes | None] | None,
    headers: list[Headers] | None,
) -> list[int]:
    """Bound the bytes of each record."""
    try:
        sizes = [len(value) + ITEM_OVERHEAD for value in values]  # type: ignore[arg-type]
    except TypeError:
        sizes = [len(value or b"") + ITEM_OVERHEAD for value in values]
    if keys is not None:
        sizes = [
            size + len(key or b"") + ITEM_OVERHEAD for size, key in zip(sizes, keys, strict=True)
        ]
    if headers is not None:
        sizes = [size + headers_size(one) for size, one in zip(sizes, headers, strict=True)]
    return sizes
