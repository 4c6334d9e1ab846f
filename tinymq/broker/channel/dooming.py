"""Giving messages up: they are on their way to the dead-letter topic until they are there."""

from __future__ import annotations

from collections.abc import Sequence

from tinymq.broker.channel.history import History
from tinymq.broker.channel.places import Doom, Places
from tinymq.broker.channel.runs import Runs, bits_of, lowest


def doom(  # noqa: PLR0913, PLR0917 - as it stands in the ledger
    places: Places,
    now: int,
    who: str,
    lease_id: int,
    bits: int,
    lost: int,
    deliveries: int,
    failures: int,
    reason: str,
    text: str,
) -> None:
    """Give up messages in flight."""
    base, hit = places.leave(lease_id, bits, lost)
    if hit:
        places.mark_failed(now, base, hit)
        history = History(deliveries, failures, False)
        _put(places, now, base, hit, reason, text, history, who)


def discard(  # noqa: PLR0913, PLR0917 - as it stands in the ledger
    places: Places,
    now: int,
    who: str,
    start: int,
    end: int,
    reason: str,
    deliveries: int,
    failures: int,
) -> None:
    """Give up a run of messages that are not in flight and have the same history."""
    if start < places.cursor:
        places.take_out(start, end)
    else:
        places.ahead.add(start, end)
    history = History(deliveries, failures, False)
    _put(places, now, start, (1 << (end - start)) - 1, reason, "", history)


def expire(places: Places, now: int, who: str, reason: str, facts: Sequence[int]) -> None:
    """
    Give up many runs of messages that are not in flight, in one go.

    Args:
        places: Where messages are.
        now: The time.
        who: Nobody.
        reason: One word.
        facts: In fours: the first offset of a run, the one behind its last,
            and how often all of it was given out, and failed.
    """
    numbers = iter(facts)
    rows = list(zip(numbers, numbers, numbers, numbers, strict=True))
    below = Runs((start, min(end, places.cursor)) for start, end, _, _ in rows)
    if below:
        places.take_out_all(below)
    for start, end, deliveries, failures in rows:
        places.ahead.add(max(start, places.cursor), end)
        history = History(deliveries, failures, False)
        _put(places, now, start, bits_of(end - start), reason, "", history)


def bury(places: Places, now: int, who: str, base: int) -> None:
    """Settle messages that are in the dead-letter topic now."""
    buried = places.doomed.pop(base, None)
    if buried is not None:
        places.dooming -= buried.bits.bit_count()
        places.marks.forget(buried.runs)


def _put(  # noqa: PLR0913, PLR0917 - what a doom is made of
    places: Places,
    now: int,
    base: int,
    bits: int,
    reason: str,
    text: str,
    history: History,
    who: str = "",
) -> None:
    low = lowest(bits)
    count = bits.bit_count()
    places.doomed[base + low] = Doom(
        places.given_up, base + low, bits >> low, reason, text, history, now, who
    )
    places.given_up += count
    places.dooming += count
    if places.order is not None:
        places.order.gone(base, bits)
