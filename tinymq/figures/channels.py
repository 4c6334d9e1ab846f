"""
What a channel does as a whole, from what is known of its partitions; and why it does not do more.

Rows of partitions are summed by their brokers, and those sums by whoever is asked,
with the same function. What explains a stuck channel travels along as *signs*, a
few facts of fixed size, of which sentences are made at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

from tinymq.broker.channel.core import LOOK_AHEAD
from tinymq.catalog.figures import RATED, TOTALLED

#: What is summed over partitions.
SUMMED: Final = ("ready", "in_flight", "waiting", "parked", "given_up", "lag")
#: Most partitions, reasons and consumers that are named.
_NAMED: Final = 3
#: A partition holds most of the lag from this percentage on, and this many messages.
_SKEWED_PERCENT: Final = 50
_SKEWED: Final = 100
#: Slow consumers that are told of, each of which may have connections to several brokers.
SLOW_TOLD: Final = 12
#: Messages that expire in a second from which on it is told.
_EXPIRING_S: Final = 1.5
#: A consumer is slow that takes so long for a message.
_SLOW_S: Final = 1.0
#: A channel falls behind when its lag grows by more than this share of what is published,
#: its oldest message is so old, and what waits is as much as it settles in that time.
_GROWS: Final = 0.02
_BEHIND_MS: Final = 30_000
#: Failures of one message that are worth a word.
_POISON: Final = 3

#: Facts about a channel, as they travel.
Facts = dict[str, Any]
Cause = dict[str, str]


def no_signs() -> Facts:
    """Return signs of nothing."""
    return {
        "most": [0, -1],
        "partitions": 0,
        "full": [],
        "worst": None,
        "kept": [],
        "next_due": None,
        "members": 0,
        "no_credit": 0,
        "at_limit": 0,
        "slow": [],
        "alone": 0,
    }


def sum_up(rows: Iterable[Mapping[str, Any]]) -> Facts:
    """
    Sum up rows of one channel.

    Args:
        rows: Of partitions, or sums of brokers.
    """
    found: Facts = {
        **dict.fromkeys(SUMMED, 0),
        "consumers": 0,
        "rates": dict.fromkeys(RATED),
        "totals": dict.fromkeys(TOTALLED, 0),
        "lag_ms": None,
        "trend_s": None,
        "undo_until_ms": None,
        "signs": no_signs(),
    }
    for row in rows:
        for key in SUMMED:
            found[key] += row[key]
        # A consumer subscribes to all partitions of a broker, or nearly so.
        found["consumers"] = max(found["consumers"], row["consumers"])
        for key in RATED:  # brokers of an older version may know fewer
            found["rates"][key] = _added(found["rates"][key], row["rates"].get(key))
        for key in TOTALLED:
            found["totals"][key] += row["totals"].get(key, 0)
        found["trend_s"] = _added(found["trend_s"], row["trend_s"])
        for key in ("lag_ms", "undo_until_ms"):
            found[key] = _most(found[key], row[key])
        merge(found["signs"], row["signs"])
    return found


def _added(one: float | None, other: float | None) -> float | None:
    return one if other is None else other if one is None else one + other


def _most(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else max(one, other)


def merge(signs: Facts, more: Mapping[str, Any]) -> None:
    """
    Add signs to signs.

    Args:
        signs: Become those of both.
        more: Of other partitions, or of members.
    """
    signs["most"] = max(list(signs["most"]), list(more["most"]))
    for key in ("partitions", "members", "no_credit", "at_limit"):
        signs[key] += more[key]
    signs["alone"] += more.get("alone", 0)  # older brokers tell of none
    signs["slow"] = [*signs["slow"], *more["slow"]][:SLOW_TOLD]
    for key in ("full", "kept"):
        if more[key]:
            signs[key] = [*dict.fromkeys([*signs[key], *more[key]])][:_NAMED]
    if more["worst"] is not None:
        signs["worst"] = max(list(signs["worst"] or more["worst"]), list(more["worst"]))
    due = [each for each in (signs["next_due"], more["next_due"]) if each is not None]
    signs["next_due"] = min(due, default=None)


#: A lag that shrinks by less in a second stands still.
_STILL: Final = 1e-6


def clear_ms(lag: int, trend: float | None) -> int | None:
    """
    Say when nothing will be left.

    Args:
        lag: Messages that are not settled.
        trend: By how many a second that grows.
    """
    if not lag:
        return 0
    # What rates of several partitions leave of nothing is no trend, and its inverse no time.
    return round(lag * 1000 / -trend) if trend is not None and trend < -_STILL else None


def standing(
    facts: Mapping[str, Any],
    paused: Mapping[str, Any] | None,
    offline: Mapping[str, str],
    now: int,
) -> Facts:
    """
    Say how a channel stands, and why it does not do more.

    Args:
        facts: What `sum_up` gave.
        paused: Since when, until when and why nothing is given out; None while it is not.
        offline: Brokers that lead partitions of it and do not answer, and why.
        now: The time.

    Returns:
        ``clear_ms``, ``state`` and ``why``.
    """
    return {
        "clear_ms": clear_ms(facts["lag"], facts["trend_s"]),
        "state": _state(facts, paused),
        "why": list(_causes(facts, paused, offline, now)),
    }


def _state(facts: Mapping[str, Any], paused: object) -> str:
    if paused:
        return "paused"
    if not facts["signs"]["partitions"]:
        return "stuck"  # nobody who knows of it answers
    if not facts["consumers"]:
        return "no_consumers"
    moves = any(facts["rates"][key] for key in ("delivered_s", "finished_s"))
    left = facts["ready"] + facts["parked"]
    if left and not moves and facts["rates"]["delivered_s"] is not None:
        return "stuck"
    if not (moves or left or facts["in_flight"]):
        return "idle"
    return "falling_behind" if _falls_behind(facts) else "consuming"


def _falls_behind(facts: Mapping[str, Any]) -> bool:
    """Say whether consumers settle less than comes in, and that is more than a moment's burst."""
    rates, trend = facts["rates"], facts["trend_s"]
    grows = trend is not None and trend > _GROWS * (rates["published_s"] or 0)
    late = facts["lag_ms"] is not None and facts["lag_ms"] >= _BEHIND_MS
    return grows and late and facts["lag"] * 1000 >= _BEHIND_MS * (rates["finished_s"] or 0)


def _causes(
    facts: Mapping[str, Any],
    paused: Mapping[str, Any] | None,
    offline: Mapping[str, str],
    now: int,
) -> Iterator[Cause]:
    for name, why in offline.items():
        yield _cause("offline", f"{name}, which leads partitions of it, does not answer: {why}")
    if paused is not None:
        yield _cause("paused", _paused(paused, now))
    if facts["lag"]:
        for text in islice(_slow(facts["signs"]["slow"]), _NAMED):
            yield _cause("slow_consumer", text)
        yield from _waiting_for_consumers(facts)
        yield from _troubles(facts, now)
    signs, expired = facts["signs"], facts["rates"]["expired_s"]
    if expired and expired >= _EXPIRING_S:
        yield _cause(
            "expiring", f"{number(round(expired))} messages a second expire before they are settled"
        )
    if facts["given_up"] and signs["kept"]:
        kept = counted(facts["given_up"], "message")
        why = "; ".join(signs["kept"])
        yield _cause(
            "dead_letters_kept", f"{kept} that {_were(kept)} given up {_wait(kept)} here: {why}"
        )


def _waiting_for_consumers(facts: Mapping[str, Any]) -> Iterator[Cause]:
    """Yield why what is ready is not given out."""
    signs, ready = facts["signs"], counted(facts["ready"], "message")
    members = signs["members"]
    if not facts["consumers"]:
        left = counted(facts["lag"], "message")
        yield _cause("no_consumers", f"nobody is subscribed, and {left} {_wait(left)}")
    if facts["ready"] and members and members == signs["no_credit"] + signs["at_limit"]:
        # Each may be subscribed at several brokers, and is one all the same.
        one = facts["consumers"] == 1
        count = facts["consumers"]
        who = (
            "the only consumer"
            if one
            else "both consumers"
            if count == 2
            else f"all {count} consumers"
        )
        if signs["at_limit"] == members:
            verb = "has" if one else "have"
            yield _cause(
                "in_flight_limit",
                f"{who} {verb} as many messages in flight as asked for, "
                f"{number(facts['in_flight'])} in all, and {ready} {_wait(ready)}",
            )
        else:
            verb = "takes" if one else "take"
            yield _cause("no_credit", f"{who} {verb} no more just now, and {ready} {_wait(ready)}")
    if signs["full"]:
        where = ", ".join(map(str, signs["full"]))
        yield _cause(
            "full",
            f"{number(LOOK_AHEAD)} messages of partition {where} were given out and are not "
            "settled, which is the most allowed",
        )


def _troubles(facts: Mapping[str, Any], now: int) -> Iterator[Cause]:
    """Yield what is wrong with consumers, messages and partitions."""
    signs = facts["signs"]
    if signs["alone"]:
        left = counted(signs["alone"], "message")
        verb, them = ("was", "it") if signs["alone"] == 1 else ("were", "each")
        yield _cause(
            "set_apart",
            f"{left} {verb} lost with a consumer or not settled in time, so that {them} waits "
            "for a consumer that holds nothing else",
        )
    if _falls_behind(facts):
        out, come = facts["rates"]["finished_s"] or 0.0, facts["rates"]["published_s"]
        coming = "" if come is None else f", and {come:,.1f} come in"
        yield _cause("falling_behind", f"{out:,.1f} messages a second are finished{coming}")
    if signs["worst"] is not None and signs["worst"][0] >= _POISON:
        failures, partition, offset = signs["worst"]
        yield _cause("poison", f"message {partition}@{offset} has failed {number(failures)} times")
    due = "" if signs["next_due"] is None else f", the first at {moment(signs['next_due'], now)}"
    if facts["waiting"] and not facts["ready"] and not facts["in_flight"]:
        left = counted(facts["waiting"], "message")
        text = f"all that is left, {left}, waits for its next attempt{due}"
        yield _cause("waiting", text)
    if facts["parked"]:
        left = counted(facts["parked"], "message")
        stand = "stands" if facts["parked"] == 1 else "stand"
        yield _cause(
            "parked",
            f"{left} {stand} aside behind one of the same key that waits for its next attempt{due}",
        )
    most, partition = signs["most"]
    share = most * 100 // facts["lag"]
    even = 100 / max(1, signs["partitions"])
    if signs["partitions"] > 1 and most >= _SKEWED and share >= max(_SKEWED_PERCENT, 1.5 * even):
        yield _cause(
            "partition_skew",
            f"partition {partition} holds {share} % of the lag "
            f"({number(most)} of {number(facts['lag'])})",
        )


def _slow(told: Iterable[Any]) -> Iterator[str]:
    """Yield who is slow, and in what; a client with links to several brokers is one."""
    clients: dict[tuple[str, str], list[Any]] = {}
    for index, row in enumerate(told):
        if isinstance(row, str):  # as older brokers tell it
            yield row
            continue
        client_id, address, _, done_s, *_ = row
        alone = not client_id or done_s is None
        key = (client_id, str(index) if alone else address.rpartition(":")[0])
        clients.setdefault(key, []).append(row)
    for (client_id, _), rows in clients.items():
        _, address, text, *_ = rows[0]
        if len(rows) == 1:
            yield f"{client_id or 'a consumer'} ({address}) {text}"
            continue
        done_s, held = sum(row[3] for row in rows), sum(row[4] for row in rows)
        if done_s * _SLOW_S <= 1:
            text = how_slow(done_s, held, max(row[5] for row in rows))
            yield f"{client_id} {text}, over {len(rows)} connections"


def how_slow(done_s: float, held: int, age_ms: int) -> str:
    """
    Say in what a consumer is slow.

    Args:
        done_s: Messages that it is done with, a second.
        held: What it holds.
        age_ms: For how long it has held the oldest of that.
    """
    if done_s:
        return f"takes {1 / done_s:.1f} s a message and holds {number(held)}"
    seconds = counted(age_ms // 1000, "second")
    return f"has settled nothing lately and holds {number(held)}, the oldest for {seconds}"


def _paused(paused: Mapping[str, Any], now: int) -> str:
    until = paused["until_ms"]
    text = f"paused since {moment(paused['since_ms'], now)}"
    text += "" if until is None else f" until {moment(until, now)}"
    return text + (f": {paused['reason']}" if paused["reason"] else "")


def _cause(cause: str, text: str) -> Cause:
    return {"cause": cause, "text": text}


def _wait(many: str) -> str:
    return "waits" if many.startswith("1 ") and many.endswith("message") else "wait"


def _were(many: str) -> str:
    return "was" if _wait(many) == "waits" else "were"


def number(value: int) -> str:
    """
    Write a number for people.

    Args:
        value: Any number.
    """
    return f"{value:,}"


def counted(value: int, what: str) -> str:
    """
    Write how many there are of something.

    Args:
        value: How many.
        what: The word for one of them.
    """
    return f"{number(value)} {what}{'' if value == 1 else 's'}"


def moment(ms: int, now: int) -> str:
    """
    Write a time for people: the date only if it is another day.

    Args:
        ms: Milliseconds since the epoch.
        now: The time.
    """
    then, today = (datetime.fromtimestamp(each / 1000, UTC) for each in (ms, now))
    same = then.date() == today.date()
    return f"{then:%H:%M:%S} UTC" if same else f"{then:%Y-%m-%d %H:%M:%S} UTC"
