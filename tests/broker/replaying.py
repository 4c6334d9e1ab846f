"""Whether a ledger says what memory knows: the state of channels, read back and compared."""

from __future__ import annotations

from typing import Any

from tinymq.broker.channel.ledger import replay
from tinymq.broker.channel.places import Places
from tinymq.broker.channel.runs import Runs, runs_in
from tinymq.broker.groups.positions import GROUPS_KEY, Positions
from tinymq.broker.hosted import Hosted, _key
from tinymq.broker.ledger import records_in
from tinymq.broker.routing.routes import ROUTES_KEY, Routes
from tinymq.broker.stragglers import KEPT_KEY


def facts_of(places: Places, now: int) -> dict[str, Any]:
    """What a restart must bring back; deadlines are not part of it."""
    places.wake(now)
    ready = [(at, *past) for start, end, past in places.ready for at in range(start, end)]
    if places.order is not None:
        ready += (
            (at, *past) for start, end, past in places.order.parked for at in range(start, end)
        )
    undo = places.undo
    return {
        "cursor": places.cursor,
        "ahead": list(Runs((max(a, places.cursor), b) for a, b in places.ahead)),
        "ready": sorted(ready),
        "leases": {
            one.lease_id: (one.holder, one.base, one.bits, *one.history)
            for one in places.leases.values()
        },
        "held": {name: (holder.held, holder.alone) for name, holder in places.holders.items()},
        "waiting": sorted(
            (due, at, *past)
            for due, base, bits, past in places.waiting
            for start, end in runs_in(base, bits)
            for at in range(start, end)
        ),
        "doomed": sorted(places.doomed.values()),
        "counts": (places.given_up, places.dooming, places.in_flight, places.delayed),
        "unsettled": places.unsettled,
        "losses": sorted(places.losses.rows()),
        "newest": places.newest_lease,
        "undo": undo if undo is not None and undo.until > now else None,
        "paused": places.paused,
        "marks": sorted(places.marks),
    }


def check_ledger(hosted: Hosted) -> None:
    """Compare; everything must have been written."""
    log = hosted._stored
    if log is None or hosted.ledger.behind or hosted.ledger.failure is not None:
        return
    found: dict[bytes, Places] = {}
    routes, positions = Routes(), Positions()
    for key, value in records_in(log):
        if key == ROUTES_KEY:
            routes.restore(value)
        elif key == GROUPS_KEY:
            positions.restore(value)
        elif key != KEPT_KEY:
            found[key] = replay(found.get(key) or Places(), [value])
    if hosted.router is not None:
        assert routes.facts() == hosted.router.routes.facts()
    written, kept = positions.facts(), hosted.positions.facts()
    assert written == kept, f"positions: {written} in the ledger, {kept}"
    now = hosted.now
    for name, one in hosted.queue.channels.items():
        assert not one.channel.journal, f"{name} was not written"
        stored = facts_of(found[_key(hosted.infos[name])], now)
        known = facts_of(one.channel.places, now)
        for fact, value in known.items():
            assert stored[fact] == value, f"{name}: {fact}: {stored[fact]} in the ledger, {value}"
