"""
What people do with single messages that are in the hands of consumers.

Each act is like one of the consumers themselves: a move, as exact and as durable, or
as a renewal, which like all of them is not written down. But the holder is not asked:
but for a renewal it loses the message, is told, and is refused as late when it settles it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from tinymq.broker.channel.entries import BACK, FINISH, OPERATOR, WAIT
from tinymq.broker.channel.lease import Lease, Lost
from tinymq.broker.channel.returns import Failure, Returns
from tinymq.broker.channel.runs import offsets_in
from tinymq.broker.channel.state import Channel

Verb: TypeAlias = Literal["requeue", "finish", "extend", "dead_letter"]


class Act(NamedTuple):
    """
    What is to be done.

    Attributes:
        verb: Given out again, settled, kept longer, or given up.
        ms: Milliseconds: the delay of what comes again, or the term of what is kept;
            None for the policy's term.
        text: Why, for the dead-letter topic.
    """

    verb: Verb
    ms: int | None = None
    text: str = ""


class Acted(NamedTuple):
    """
    What came of it.

    Attributes:
        done: The offsets with which it was done.
        missing: Those that were not in flight.
        lost: What consumers are to be told; also what was revoked to keep the order.
    """

    done: list[int]
    missing: list[int]
    lost: list[Lost]


def held(channel: Channel, offsets: Sequence[int]) -> list[tuple[Lease, int]]:
    """
    Find messages in flight.

    Args:
        channel: The channel.
        offsets: Which ones.

    Returns:
        Their leases, and the bits that they are.
    """
    wanted = sorted({*offsets})
    found: list[tuple[Lease, int]] = []
    for lease in channel.places.leases.values():
        base, bits = lease.base, 0
        at = bisect_left(wanted, base)
        # Most of many leases hold nothing of it.
        while at < len(wanted) and wanted[at] < base + lease.bits.bit_length():
            bits |= 1 << wanted[at] - base
            at += 1
        bits &= lease.bits
        if bits:
            found.append((lease, bits))
    return found


def act(
    channel: Channel, offsets: Sequence[int], what: Act, now: int, *, dry_run: bool = False
) -> Acted:
    """
    Do something with messages in flight, whoever holds them.

    Args:
        channel: The channel.
        offsets: Which ones.
        what: What to do.
        now: The time.
        dry_run: Only tell with which it would be done.
    """
    found = held(channel, offsets)
    done = sorted(offset for lease, bits in found for offset in offsets_in(lease.base, bits))
    missing = sorted({*offsets}.difference(done))
    lost: list[Lost] = []
    if not dry_run:
        returned: dict[str, list[tuple[int, int]]] = {}
        for lease, bits in found:
            if what.verb == "extend":
                term = channel.policy.lease_ms if what.ms is None else what.ms
                lease.touch(bits, now + term)
                continue
            lost.append(Lost(lease.holder, lease.lease_id, bits))
            _take(channel, lease, bits, what, now)
            if what.verb == "requeue":
                returned.setdefault(lease.holder, []).append((lease.base, bits))
        returns = Returns(channel)
        for holder, groups in returned.items():
            lost += returns.revoke(holder, groups, now)
        for holder in {one.consumer for one in lost}:
            channel.unguard(holder)
    return Acted(done, missing, lost)


def _take(channel: Channel, lease: Lease, bits: int, what: Act, now: int) -> None:
    """Take messages from their holder, and put them where they are to go."""
    past, holder = lease.history, lease.holder
    if what.verb == "finish":
        channel.move(now, holder, (FINISH, lease.lease_id, bits, 1))
        channel.counters.finished += bits.bit_count()
    elif what.verb == "dead_letter":
        Returns(channel).give_up(lease, bits, now, Failure(OPERATOR, what.text, 1))
        channel.counters.rejected += bits.bit_count()
    else:
        # Nobody failed. Whether it can be given out with others is not known better than before.
        facts = (lease.lease_id, bits, 1, past.deliveries + 1, past.failures, int(past.alone))
        said = (OPERATOR, what.text)
        entry = (WAIT, *facts, what.ms, *said) if what.ms else (BACK, *facts, *said)
        channel.move(now, holder, entry)
        channel.counters.requeued += bits.bit_count()
