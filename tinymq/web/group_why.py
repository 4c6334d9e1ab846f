"""
Why a group stands where it does: the causes, each with its figures, the worst first.

All of it is made of what ``group.info`` tells, and of the transactions that are open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from attrs import frozen

from tinymq.web.format import duration, number, percent, plural, rate

Row = Mapping[str, Any]
Level = Literal["bad", "warn"]

#: From which share of the lag one partition is named, and from how much lag on.
SKEW_SHARE: Final = 0.6
SKEW_LAG: Final = 100
#: Without a commit for so long, while records wait, commits stand still.
STILL_MS: Final = 60_000
#: A member that lets go for so long holds up the others.
DRAIN_MS: Final = 10_000
#: A transaction that is open for so long is named, and from then on it is trouble.
OPEN_MS: Final = 10_000
LONG_MS: Final = 60_000
#: Objects of one kind that are named one by one.
_NAMED: Final = 3
#: Letters of an id that tell members apart.
_SHORT: Final = 6


#: What the worst cause is called beside a state that does not say it.
_WORDS: Final = {
    "silent": "Known in part",
    "range": "Out of range",
    "error": "Out of order",
    "late": "Member silent",
    "draining": "Held up",
    "unassigned": "Not assigned",
    "skew": "Skewed",
    "transaction": "Held back",
    "still": "No commits",
}


@frozen
class Cause:
    """
    One reason why a group is behind, or may soon be.

    Attributes:
        kind: A word for it.
        level: ``bad`` when somebody should act, ``warn`` when somebody should know.
        text: A sentence with figures.
        member: The id of the member that it is about; empty if it is about none.
    """

    kind: str
    level: Level
    text: str
    member: str = ""


@frozen
class Diagnosis:
    """
    What is so, and what is not.

    Attributes:
        headline: The first sentence.
        causes: All of them; the first is the headline, if there is any.
        ruled_out: What was looked at and is well.
    """

    headline: str
    causes: tuple[Cause, ...]
    ruled_out: tuple[str, ...]

    @property
    def word(self) -> str:
        """What stands beside the state of a group that has trouble; empty if it has none."""
        if not self.causes or self.causes[0].level != "bad":
            return ""
        return _WORDS.get(self.causes[0].kind, "")

    def about(self, kind: str) -> Cause | None:
        """Find the first cause of a kind."""
        return next((each for each in self.causes if each.kind == kind), None)


def place(row: Row) -> str:
    """
    Name a partition.

    Args:
        row: Of a group.
    """
    return f"{row['topic']}/{row['partition']}"


def member_names(members: Iterable[Row]) -> dict[str, str]:
    """
    Name members as people know them: by instance or client, with the id where two are alike.

    Args:
        members: Of one group.

    Returns:
        By id.
    """
    known = {row["id"]: str(row["instance"] or row["client"]) for row in members}
    alike = Counter(known.values())
    return {
        key: name if name and alike[name] == 1 else f"{name} {key[:_SHORT]}".strip()
        for key, name in known.items()
    }


def out_of_range(row: Row) -> bool:
    """
    Say whether the position of a partition is outside its log.

    Args:
        row: The partition of a group.
    """
    at, start, end = row["committed"], row["start"], row["end"]
    return None not in (at, start, end) and not start <= at <= end


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _silence(told: Row) -> Iterator[Cause]:
    silent, group = told["silent"], told["group"]
    if silent:
        verb = "does" if len(silent) == 1 else "do"
        unknown = sum(row["end"] is None for row in told["partitions"])
        count = f"; where {plural(unknown, 'partition')} stands is not known" if unknown else ""
        yield Cause("silent", "bad", f"{_named(silent)} {verb} not answer{count}.")
    elif group["state"] == "unknown":
        who = group["coordinator"] or "its coordinator"
        yield Cause("silent", "warn", f"Who its members are is not known: {who} does not say.")


def _positions(partitions: Sequence[Row]) -> Iterator[Cause]:
    outside = [row for row in partitions if out_of_range(row)]
    for row in outside[:_NAMED]:
        side = "before" if row["committed"] < row["start"] else "behind"
        valid = f"valid is {number(row['start'])} to {number(row['end'])}"
        text = (
            f"The position {number(row['committed'])} of {place(row)} is {side} its log: {valid}."
        )
        yield Cause("range", "bad", text)
    if len(outside) > _NAMED:
        count = plural(len(outside) - _NAMED, "more position")
        yield Cause("range", "bad", f"{count} outside their logs.")
    others: dict[str, list[str]] = {}
    for row in partitions:
        if row["error"] and not out_of_range(row):
            others.setdefault(row["error"], []).append(place(row))
    for text, places in list(others.items())[:_NAMED]:
        yield Cause("error", "bad", f"{_named(places)}: {text}")


def _members(told: Row, now_ms: int) -> Iterator[Cause]:
    members, lag = told["members"], told["group"]["lag"]
    if not members:
        if told["group"]["state"] == "empty" and lag:
            count = plural(lag, "message waits", "messages wait")
            yield Cause("empty", "bad", f"It has no members, and {count}.")
        return
    for row in members:
        if row["state"] == "late":
            name = _names(told)[row["id"]]
            silent = duration(now_ms - row["heard_ms"])
            many = row["partitions"] != 1
            stand = f"{row['partitions']:,} partitions stand" if many else "partition stands"
            text = f"{name} has been silent for {silent}; its {stand} still."
            yield Cause("late", "bad", text, row["id"])
    yield from _draining(told, now_ms)
    yield from _unassigned(told)


def _draining(told: Row, now_ms: int) -> Iterator[Cause]:
    """Name the members that do not let go of what others wait for."""
    running = [each["at_ms"] for each in told["rebalances"] if each["took_ms"] is None]
    if not running:
        return
    age = now_ms - min(running)
    kept: dict[str, int] = {}
    for row in told["partitions"]:
        if row["draining"]:
            kept[row["member"]] = kept.get(row["member"], 0) + 1
    for row in told["members"]:
        if row["state"] == "draining" and age >= DRAIN_MS:
            count = plural(kept.get(row["id"], 0), "partition")
            since = f"{_names(told)[row['id']]} has been draining for {duration(age)}"
            text = f"{since} and holds up the move of {count}."
            yield Cause("draining", "bad", text, row["id"])
    if age < DRAIN_MS:
        yield Cause("moving", "warn", f"Partitions have been moving for {duration(age)}.")


def _unassigned(told: Row) -> Iterator[Cause]:
    members, partitions = told["members"], told["partitions"]
    nobody = [place(row) for row in partitions if not row["member"] and row["end"] is not None]
    if nobody and told["group"]["state"] == "stable":
        verb = "belongs" if len(nobody) == 1 else "belong"
        yield Cause("unassigned", "bad", f"{_named(nobody)} {verb} to no member.")
    idle = sum(not row["partitions"] for row in members)
    if idle and len(members) > len(partitions):
        count = plural(len(partitions), "partition")
        text = (
            f"{idle:,} of {plural(len(members), 'member')} have nothing to do: there are {count}."
        )
        yield Cause("idle", "warn", text)


def _transactions(told: Row, transactions: Iterable[Row], now_ms: int) -> Iterator[Cause]:
    """Name the open transactions that hold back what members may read."""
    own = {(row["topic"], row["partition"]) for row in told["partitions"]}
    for row in transactions:
        held = [
            f"{each['topic']}/{each['partition']}"
            for each in row["partitions"]
            if (each["topic"], each["partition"]) in own
        ]
        age = now_ms - row["since_ms"]
        if held and age >= OPEN_MS:
            text = (
                f"The transaction {row['transactional_id']} has been open for {duration(age)} "
                f"and holds back {_named(held)}: nothing behind it is handed out."
            )
            yield Cause("transaction", "bad" if age >= LONG_MS else "warn", text)


def _skew(told: Row) -> Iterator[Cause]:
    """Name the partition that holds most of the lag."""
    group, partitions = told["group"], told["partitions"]
    lag, names = group["lag"] or 0, _names(told)
    worst = max(partitions, key=lambda row: row["lag"] or 0, default=None)
    if worst is not None and len(partitions) > 1 and lag > SKEW_LAG:
        share = (worst["lag"] or 0) / lag
        if share >= SKEW_SHARE:
            reader = names.get(worst["member"], "")
            who = f"; {reader} reads it" if reader else ""
            held = f"holds {percent(worst['lag'], lag)} of the lag"
            text = f"Partition {worst['partition']} of {worst['topic']} {held}{who}."
            yield Cause("skew", "bad", text, worst["member"])


def _names(told: Row) -> dict[str, str]:
    return member_names(told["members"])


def _behind(told: Row, now_ms: int) -> Iterator[Cause]:
    """Say whether commits stand still, and whether the lag grows."""
    group, partitions = told["group"], told["partitions"]
    late = {row["id"] for row in told["members"] if row["state"] == "late"}
    still = [
        row
        for row in partitions
        if row["lag"] and row["member"] and row["member"] not in late
        if row["committed_ms"] is None or now_ms - row["committed_ms"] >= STILL_MS
        if row["lag_s"] is None or row["lag_s"] * 1000 >= STILL_MS
    ]
    if still:
        last = max((row["committed_ms"] or 0 for row in still), default=0)
        since = f"the last was {duration(now_ms - last)} ago" if last else "there was none yet"
        count = plural(len(still), "partition")
        text = f"Commits stand still while records come: {since}, on {count} with lag."
        yield Cause("still", "bad", text)
    if (
        group["trend"] is not None
        and group["trend"] >= 0.05
        and (group["lag"] or 0) > SKEW_LAG
        and told["members"]
    ):
        text = f"The lag grows by {rate(group['trend'])} a second: less is done than comes."
        yield Cause("behind", "warn", text)


def _ruled_out(told: Row, kinds: set[str], transactions: bool) -> Iterator[str]:
    members = told["members"]
    if members and not kinds & {"late", "draining"}:
        yield f"{plural(len(members), 'member')}, all heard of late"
    if not kinds & {"draining", "moving"} and told["group"]["state"] == "stable":
        yield "nothing moves"
    if told["partitions"] and not kinds & {"range", "error", "silent"}:
        yield "every position is within its log"
    if members and not kinds & {"still", "empty"}:
        yield "commits go on" if told["group"]["committed_ms"] else "nothing waits for a commit"
    if transactions and "transaction" not in kinds:
        yield "no open transaction holds records back"
    if not told["silent"]:
        yield "every broker answers"


def diagnose(told: Row, now_ms: int, transactions: Sequence[Row] | None = None) -> Diagnosis:
    """
    Say why a group stands where it does.

    Args:
        told: As ``group.info`` tells it.
        now_ms: The instant that is shown.
        transactions: Those that are open; None if that is not known.
    """
    found = [
        *_silence(told),
        *_positions(told["partitions"]),
        *_members(told, now_ms),
        *_skew(told),
        *_transactions(told, transactions or (), now_ms),
        *_behind(told, now_ms),
    ]
    causes = [each for each in found if each.level == "bad"]
    group = told["group"]
    if group["stuck"] and not causes:
        text = group["stuck"]
        text = f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"
        causes = [Cause("stuck", "bad", text)]
    causes += [each for each in found if each.level == "warn"]
    headline = "It keeps up." if group["lag"] else "Nothing waits."
    if group["lag"] is None:
        headline = "Nobody knows how far it is."
    if causes:
        headline = causes[0].text
    kinds = {each.kind for each in causes}
    ruled = _ruled_out(told, kinds, transactions is not None)
    return Diagnosis(headline, tuple(causes), tuple(ruled))
