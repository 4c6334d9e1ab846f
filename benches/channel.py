"""
How fast the core of the work queue is: no sockets, no files, the ledger's coding included.

Run it with ``python -m benches.channel [seconds]``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import perf_counter

from benches.machine import facts
from tinymq.broker.channel.lease import WHOLE, lease_ids
from tinymq.broker.channel.state import Channel
from tinymq.channelpolicy import ChannelPolicy
from tinymq.wire.records import encode_batch

#: The end of a log that is never reached.
END = 1 << 50


def write(channel: Channel) -> int:
    """Encode what the channel has to write down, as one batch."""
    values = channel.journal.drain()
    return len(encode_batch(values)) if values else 0


def ranges(window: int) -> Callable[[Channel], tuple[int, int]]:
    """Return a round in which a window is leased and settled by whole leases."""

    def round_of(channel: Channel) -> tuple[int, int]:
        found = channel.take("bench", window, 0, END)
        done = channel.finish("bench", [(one.lease_id, WHOLE) for one in found], 0).done
        return done, write(channel)

    return round_of


def singles(window: int, turn: int) -> Callable[[Channel], tuple[int, int]]:
    """Return a round in which each message is settled alone, some in each client turn."""

    def round_of(channel: Channel) -> tuple[int, int]:
        done = 0
        for one in channel.take("bench", window, 0, END):
            alone = [(one.lease_id, 1 << bit) for bit in range(one.messages)]
            for first in range(0, len(alone), turn):
                done += channel.finish("bench", alone[first : first + turn], 0).done
        return done, write(channel)

    return round_of


def measure(
    name: str, order: str, round_of: Callable[[Channel], tuple[int, int]], seconds: float
) -> None:
    """Repeat rounds for a time and print what came of them."""
    channel = Channel(ChannelPolicy(order=order), lease_ids(1))  # type: ignore[arg-type]
    messages = size = 0
    began = perf_counter()
    while perf_counter() - began < seconds:
        if order == "key":
            while channel.looking.wanted(END) is not None and channel.places.order is not None:
                start, end = channel.looking.wanted(END) or (0, 0)
                channel.look(start, range(start, end), 0)
                break
        more, grown = round_of(channel)
        messages += more
        size += grown
    spent = perf_counter() - began
    rate, each = messages / spent, size / max(1, messages)
    print(f"{name:<48} {rate:>14,.0f} msg/s {each:>8.2f} ledger B/msg")


def main() -> None:
    """Measure all."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    print(facts())
    for order in ("none", "strict", "key"):
        for window in (200, 2000, 20_000):
            measure(f"{order}: whole leases, window {window}", order, ranges(window), seconds)
        for turn in (1, 8, 64):
            name = f"{order}: one by one, window 200, {turn} a turn"
            measure(name, order, singles(200, turn), seconds)


if __name__ == "__main__":
    main()
