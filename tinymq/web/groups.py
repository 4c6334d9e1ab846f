"""
Lists of consumer groups, and what pages say of them: state, trend, time to clear.

Groups are the maps that the operations give, as `tinymq.catalog.groups` describes them;
`shown` gives them the words that lists of channels use, so that both read alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, Literal, get_args
from urllib.parse import quote

from attrs import field, frozen

from tinymq.web import channels
from tinymq.web.channels import Word
from tinymq.web.format import duration, plural
from tinymq.web.lists import cut
from tinymq.web.verdict import Problem

GroupRow = Mapping[str, Any]
GroupSort = Literal[
    "group",
    "state",
    "members",
    "partitions",
    "lag",
    "behind",
    "trend",
    "clear",
    "coordinator",
    "committed",
]
GROUP_SORTS: Final[tuple[GroupSort, ...]] = get_args(GroupSort)
#: The worst first.
GROUP_STATES: Final = ("stuck", "unknown", "empty", "moving", "stable")
#: In these, what waits is somebody's trouble.
TROUBLED: Final = frozenset({"stuck", "empty"})
_NEVER: Final = 1 << 62
#: Groups in trouble that the overview names.
_NAMED: Final = 3
#: What waits no longer than this is no lag.
_PROMPT_MS: Final = 1_000

_WORDS: Final = {
    "stable": Word("run", "Stable", "ok"),
    "moving": Word("warn", "Rebalancing", "warn"),
    "empty": Word("bad", "No members", "bad"),
    "unknown": Word("warn", "Unknown", "warn"),
    "stuck": Word("bad", "Stuck", "bad"),
}


def shown(row: GroupRow) -> dict[str, Any]:
    """
    Write a group in the words of lists: times in milliseconds, and one state.

    Args:
        row: As operations describe it.
    """
    stuck = row["stuck"] and row["state"] in {"stable", "moving"}
    return {
        **row,
        "state": "stuck" if stuck else row["state"],
        "lag_ms": _ms(row["lag_s"]),
        "trend_s": row["trend"],
        "clear_ms": _ms(row["clear_s"]),
    }


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


@frozen(kw_only=True)
class GroupQuery:
    """
    Which groups to list.

    Attributes:
        name: Part of the name, in any case; empty for all.
        topic: Only those that read this topic; None for all.
        state: Only those in this state; empty for all.
        sort: The field to sort by; ties are sorted by name.
        reverse: Whether the largest comes first.
        page: Counted from 1. A page behind the last one is the last one.
        page_size: At most `tinymq.web.lists.MAX_PAGE_SIZE`.
    """

    name: str = ""
    topic: str | None = None
    state: str = ""
    sort: GroupSort = "group"
    reverse: bool = False
    page: int = 1
    page_size: int = 50

    def takes(self, row: GroupRow) -> bool:
        """Whether a group is wanted, whatever its state."""
        if self.topic is not None and self.topic not in row["topics"]:
            return False
        return self.name.lower() in row["name"].lower()


@frozen(kw_only=True)
class GroupPage:
    """
    One page of groups.

    Attributes:
        items: The rows, as `shown` writes them.
        page: Which page this is, from 1.
        page_count: How many there are, at least 1.
        filtered_count: Groups that match.
        total_count: All groups, or all of the topic.
        states: How many are in each state, of all that match the name.
        silent: Brokers that did not answer in time, so that figures are partial.
    """

    items: tuple[GroupRow, ...]
    page: int
    page_count: int
    filtered_count: int
    total_count: int
    states: Mapping[str, int] = field(factory=dict)
    silent: tuple[str, ...] = ()


def _maybe(value: float | None, missing: float = -_NEVER) -> float:
    return missing if value is None else value


_KEYS: Final[dict[GroupSort, Callable[[GroupRow], Any]]] = {
    "state": lambda row: GROUP_STATES.index(row["state"]),
    "members": itemgetter("members"),
    "partitions": itemgetter("partitions"),
    "lag": lambda row: _maybe(row["lag"]),
    "behind": lambda row: _maybe(row["lag_ms"]),
    "trend": lambda row: _maybe(row["trend_s"]),
    "clear": lambda row: _maybe(row["clear_ms"], _NEVER if row["lag"] else -_NEVER),
    "coordinator": itemgetter("coordinator"),
    "committed": lambda row: _maybe(row["committed_ms"]),
}


def select_groups(
    rows: Iterable[GroupRow], query: GroupQuery, silent: Sequence[str] = ()
) -> GroupPage:
    """
    Filter, sort and cut groups.

    Args:
        rows: All groups in order of their names, as `shown` writes them.
        query: Which of them are wanted.
        silent: Names of the brokers that did not answer.
    """
    known = [row for row in rows if query.topic is None or query.topic in row["topics"]]
    named = [row for row in known if query.takes(row)]
    found = [row for row in named if query.state in ("", row["state"])]
    if query.sort == "group":
        found = found[::-1] if query.reverse else found
    else:
        found = sorted(found, key=_KEYS[query.sort], reverse=query.reverse)
    items, page, count = cut(found, query.page, query.page_size)
    return GroupPage(
        items=tuple(items),
        page=page,
        page_count=count,
        filtered_count=len(found),
        total_count=len(known),
        states=Counter(map(itemgetter("state"), named)),
        silent=tuple(silent),
    )


# --- words ---------------------------------------------------------------------


def word_of(row: GroupRow) -> Word:
    """
    Say the state of a group in a word. Nobody who reads is no trouble while nothing waits.

    Args:
        row: The group.
    """
    if row["state"] == "empty" and not row["lag"]:
        return Word("idle", "No members", "s")
    return state_word(row["state"])


def state_word(state: str) -> Word:
    """
    Say a state in a word, with its icon and colour.

    Args:
        state: As lists call it.
    """
    return _WORDS.get(state) or Word("warn", state.replace("_", " ").capitalize(), "warn")


def troubled(row: GroupRow) -> bool:
    """
    Say whether what waits is somebody's trouble.

    Args:
        row: The group.
    """
    return bool(row["lag"]) and row["state"] in TROUBLED


def trend(row: GroupRow) -> tuple[str, str, str]:
    """
    Say where the lag goes.

    Args:
        row: The group.

    Returns:
        An arrow with the signed rate, a colour, and a sentence for the hover.
    """
    return channels.trend({**row, "state": "stuck" if troubled(row) else "stable"})


def clears(row: GroupRow) -> tuple[str, str]:
    """
    Say when the lag will be gone.

    Args:
        row: The group.

    Returns:
        The time, and a sentence for the hover.
    """
    keeps_up = row["state"] == "stable" and _maybe(row["lag_ms"], _NEVER) < _PROMPT_MS
    return channels.clears({**row, "state": "consuming" if keeps_up else row["state"]})


def worst_of(
    queues: Iterable[Mapping[str, Any]], groups: Iterable[GroupRow], most: int = 5
) -> list[tuple[str, Mapping[str, Any]]]:
    """
    Find those with the largest lag among channels and groups.

    Args:
        queues: Rows of channels.
        groups: Rows of groups.
        most: How many.

    Returns:
        What each is, and its row.
    """
    found = [*(("channel", row) for row in queues), *(("group", row) for row in groups)]
    return sorted(found, key=lambda one: -(one[1]["lag"] or 0))[:most]


def latest_of(
    queue: Mapping[str, Any] | None, groups: Iterable[GroupRow]
) -> tuple[str, Mapping[str, Any]] | None:
    """
    Find what is furthest behind in time.

    Args:
        queue: The channel that is.
        groups: Rows of groups.

    Returns:
        What it is, and its row; None if nothing waits.
    """
    found = [("channel", queue)] if queue is not None else []
    found += [("group", row) for row in groups if row["lag_ms"] is not None]
    return max(found, key=lambda one: one[1]["lag_ms"], default=None)


def group_problems(rows: Sequence[GroupRow]) -> list[Problem]:
    """
    Say which groups get no further.

    Args:
        rows: Groups that have lag, the largest first.
    """
    bad = [row for row in rows if troubled(row)]
    found = []
    for row in bad[:_NAMED]:
        why = row["stuck"] or "nobody reads for it"
        wait = f"{plural(row['lag'], 'message')} behind"
        if row["lag_ms"] is not None:
            wait = f"Its oldest message waits for {duration(row['lag_ms'])}"
        what = "has no members" if row["state"] == "empty" else "is stuck"
        found.append(
            Problem(
                "bad" if row["state"] == "stuck" else "warn",
                f"Group {row['name']} {what}",
                f"{wait}: {why}{'' if why.endswith('.') else '.'}",
                f"/groups/{quote(row['name'], safe='')}",
                "See why",
            )
        )
    if len(bad) > _NAMED:
        title = f"{plural(len(bad) - _NAMED, 'more group')} get no further"
        found.append(
            Problem("bad", title, "Messages wait.", "/groups?sort=lag&reverse=true", "See all")
        )
    return found


class GroupWords:
    """What templates ask about groups."""

    states = GROUP_STATES
    word_of = staticmethod(word_of)
    state_word = staticmethod(state_word)
    troubled = staticmethod(troubled)
    trend = staticmethod(trend)
    clears = staticmethod(clears)


GROUP_WORDS: Final = GroupWords()
