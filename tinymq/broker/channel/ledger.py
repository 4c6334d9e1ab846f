"""
What a channel writes down, and how it is read back.

A *record* of the ledger is the msgpack array ``[time, consumer, entries]``: all
that one consumer did in one turn, or the broker on its own (consumer ``""``).
An entry is an array of a kind and its facts, as in `tinymq.broker.channel.places`.
Bits are an integer while they fit in 64 bits, else a ``bin``: two bytes that
say how many zero bytes were left out, and the rest, lowest first.

A *snapshot* is a record too, ``[time, nil, state]``; what lies before it is not
needed any more. Reading records in order from the last snapshot on gives the
state at the last of them: whatever was confirmed has been written down before.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgpack

from tinymq.broker.channel.entries import (
    BACK,
    DOOM,
    FINISH,
    HOLD,
    LEASE,
    REVIVE,
    TAKE,
    WAIT,
    Entry,
)
from tinymq.broker.channel.history import NEW, History
from tinymq.broker.channel.lease import Lease
from tinymq.broker.channel.marks import Mark
from tinymq.broker.channel.moves import apply
from tinymq.broker.channel.places import Doom, Holder, Places, Undo
from tinymq.broker.channel.runs import Runs
from tinymq.errors import CorruptBatch

#: Of a snapshot: what the state is written as.
_VERSION: Final = 1
#: Where bits stand in the entries that have some.
_BITS: Final = {LEASE: 3, TAKE: 2, FINISH: 2, BACK: 2, WAIT: 2, DOOM: 2, REVIVE: 2, HOLD: 2}
#: Records whose entries are kept together at most.
_MOST_ENTRIES: Final = 4096


def _pack_bits(bits: object) -> bytes:
    """Write an integer that msgpack has no form for."""
    if not isinstance(bits, int):
        raise TypeError(f"no entry has a {type(bits).__name__}")
    zeros = ((bits & -bits).bit_length() - 1) // 8
    rest = bits >> 8 * zeros
    return zeros.to_bytes(2, "little") + rest.to_bytes((rest.bit_length() + 7) // 8, "little")


def unpack_bits(packed: int | bytes) -> int:
    """
    Read bits as they stand in an entry.

    Args:
        packed: An integer, or the form of one that msgpack has no form for.
    """
    if isinstance(packed, int):
        return packed
    return int.from_bytes(packed[2:], "little") << 8 * int.from_bytes(packed[:2], "little")


_pack = msgpack.Packer(use_bin_type=True, autoreset=True, default=_pack_bits).pack


class Journal:
    """Gathers entries until they are written."""

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        self._groups: list[tuple[int, str, list[Entry]]] = []

    def __bool__(self) -> bool:
        return any(entries for _, _, entries in self._groups)

    def of(self, now: int, who: str) -> list[Entry]:
        """
        Return the list to which entries are appended.

        Args:
            now: The time.
            who: The consumer that they are about, or nobody.
        """
        if self._groups:
            time, last, entries = self._groups[-1]
            if time == now and last == who and len(entries) < _MOST_ENTRIES:
                return entries
        fresh: list[Entry] = []
        self._groups.append((now, who, fresh))
        return fresh

    def drain(self) -> list[bytes]:
        """Return what was gathered, as values of records, in order."""
        groups, self._groups = self._groups, []
        return [_pack(group) for group in groups if group[2]]


def replay(places: Places, values: Iterable[bytes]) -> Places:
    """
    Read records of a ledger.

    Args:
        places: The state to begin with.
        values: The values of records, in order.

    Returns:
        The state after them; another object if there was a snapshot.

    Raises:
        CorruptBatch: A record is none of a ledger, or of a newer version.
    """
    for value in values:
        try:
            time, who, entries = msgpack.unpackb(value, strict_map_key=False)
            if who is None:
                places = _restored(entries)
                continue
            for entry in entries:
                # Deliveries name what was due: those are ready by then.
                if entry[0] in (LEASE, TAKE):
                    places.wake(time)
                apply(places, time, who, _read(entry))
        except (msgpack.UnpackException, LookupError, TypeError, ValueError) as error:
            raise CorruptBatch(f"a record of the ledger cannot be read: {error}") from error
    return places


def _read(entry: list[Any]) -> Entry:
    at = _BITS.get(entry[0])
    if at is not None and len(entry) > at:
        entry[at] = unpack_bits(entry[at])
    return tuple(entry)


def describe(value: bytes) -> tuple[int, str | None, list[Entry]]:
    """
    Read one record for people: what somebody did, and when.

    Args:
        value: The value of a record of a ledger.

    Returns:
        Time, consumer or None for a snapshot, entries.
    """
    time, who, entries = msgpack.unpackb(value, strict_map_key=False)
    return time, who, [] if who is None else [_read(entry) for entry in entries]


def snapshot(places: Places, now: int) -> bytes:
    """
    Write the whole state as the value of one record.

    Args:
        places: The state.
        now: The time.
    """
    ready = [(start, end, *history) for start, end, history in places.ready]
    if places.order is not None:
        ready += [(start, end, *history) for start, end, history in places.order.parked]
    undo = places.undo
    state = [
        _VERSION,
        places.cursor,
        list(places.ahead),
        sorted(ready),
        [
            (
                *(one.lease_id, one.holder, one.base, _wide(one.bits), *one.history),
                *(one.deadline, one.since),
            )
            for one in places.leases.values()
        ],
        [(due, base, _wide(bits), *history) for due, base, bits, history in places.waiting],
        [doom._replace(bits=_wide(doom.bits)) for doom in places.doomed.values()],
        places.given_up,
        [
            places.losses.forgotten,
            places.losses.gaps,
            [(one, _wide(bits)) for one, bits in places.losses.rows()],
        ],
        places.newest_lease,
        None
        if undo is None
        else [[(a, b, *history) for a, b, history in undo.skipped], undo.revived, undo.until],
        places.paused,
        places.policy,
        [(offset, *mark) for offset, mark in places.marks],
    ]
    packed: bytes = _pack((now, None, state))
    return packed


def _wide(bits: int) -> Any:
    return bits if bits.bit_length() <= 64 else _pack_bits(bits)


def _restored(state: list[Any]) -> Places:
    (
        version,
        cursor,
        ahead,
        ready,
        leases,
        waiting,
        doomed,
        given_up,
        losses,
        newest_lease,
        undo,
        paused,
        policy,
        *later,
    ) = state
    if version != _VERSION:
        raise ValueError(f"a snapshot of version {version}")
    places = Places(cursor)
    places.ahead = Runs((start, end) for start, end in ahead)
    for start, end, *history in ready:
        places.ready.put(start, end, _history(history))
    for lease_id, holder, base, bits, *rest in leases:
        history, deadline = _history(rest[:3]), rest[3]
        # An older broker did not say when it was given out.
        since = rest[4] if len(rest) > 4 else deadline
        _hold(places, Lease(lease_id, holder, base, unpack_bits(bits), history, deadline, since))
    for due, base, bits, *history in waiting:
        places.put_waiting((due, base, unpack_bits(bits), _history(history)))
    for number, base, bits, reason, text, history, time, *who in doomed:
        found = Doom(number, base, unpack_bits(bits), reason, text, _history(history), time, *who)
        places.doomed[base] = found
        places.dooming += found.bits.bit_count()
    places.given_up = given_up
    forgotten, gaps, rows = losses
    places.losses.restore(
        forgotten,
        [(low, high) for low, high in gaps],
        [(lease_id, unpack_bits(bits)) for lease_id, bits in rows],
    )
    places.newest_lease = newest_lease
    if undo is not None:
        skipped, revived, until = undo
        places.undo = Undo(
            tuple((start, end, _history(history)) for start, end, *history in skipped),
            tuple((start, end) for start, end in revived),
            until,
        )
    places.paused = paused
    places.policy = policy
    # Earlier versions remembered nothing of single messages.
    for offset, *mark in later[0] if later else ():
        places.marks.put(offset, Mark(*mark))
    return places


def _history(facts: list[Any]) -> History:
    deliveries, failures, alone = facts
    return History(deliveries, failures, bool(alone)) if deliveries or failures else NEW


def _hold(places: Places, lease: Lease) -> None:
    places.leases[lease.lease_id] = lease
    holder = places.holders.setdefault(lease.holder, Holder())
    holder.leases[lease.lease_id] = None
    count = lease.bits.bit_count()
    holder.held += count
    places.in_flight += count
    holder.alone = lease.history.alone
