"""Looking at messages for channels that must know keys or headers before they give out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from zlib import crc32

from tinymq.broker.channel.queue import Subscribers
from tinymq.broker.channel.runs import Run
from tinymq.broker.window import Window
from tinymq.conditions import Condition, matches
from tinymq.wire.records import RecordBatch

#: Batches that are looked at before others have their turn.
_BATCHES: Final = 20
#: Messages that are looked at before that, beside the rest of a batch.
_MESSAGES: Final = 10_000


def look(one: Subscribers, window: Window, high: int, now: int) -> bool:
    """
    Look at some messages of a channel.

    Args:
        one: The channel.
        window: Where its messages are.
        high: Offset behind the last that is visible.
        now: The time.

    Returns:
        Whether there are more that can be looked at.
    """
    channel, looked = one.channel, 0
    for _ in range(_BATCHES):
        if looked >= _MESSAGES:
            break
        wanted = channel.looking.wanted(high)
        if wanted is None:
            return False
        start, end = wanted
        stored = window.batch_at(start, end)
        if stored is None:
            channel.look(start, range(start, end), now, [(start, end)])
            continue
        header, data = stored
        if header.base_offset > start:
            channel.look(
                start, range(start, header.base_offset), now, [(start, header.base_offset)]
            )
            continue
        behind = min(end, header.next_offset)
        if not header.records:
            channel.look(start, range(start, behind), now, [(start, behind)])
            looked += behind - start
            continue
        keys, hidden = _seen(RecordBatch(data, header), channel.policy.conditions)
        first = start - header.base_offset
        found = keys[first : behind - header.base_offset]
        channel.look(start, found, now, [run for run in hidden if run[1] > start])
        looked += header.next_offset - header.base_offset
    return channel.looking.wanted(high) is not None


def _seen(batch: RecordBatch, conditions: Sequence[Condition]) -> tuple[list[int], list[Run]]:
    """Return a hash for the key of every offset of a batch, and what is not to be given out."""
    base, offsets = batch.header.base_offset, batch.offsets
    # A message without a key has one of its own.
    keys = [*range(base, batch.header.next_offset)]
    for offset, key in zip(offsets, batch.keys, strict=True):
        if key is not None:
            keys[offset - base] = crc32(key)
    hidden: list[Run] = []
    if len(offsets) < len(keys):
        there = {*offsets}
        hidden += ((each, each + 1) for each in range(base, base + len(keys)) if each not in there)
    if conditions:
        rows = zip(offsets, batch.headers, strict=True)
        hidden += ((each, each + 1) for each, headers in rows if not matches(conditions, headers))
    return keys, hidden
