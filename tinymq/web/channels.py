"""
Lists of channels, and what pages say of them: state, trend, time to clear.

Channels are the maps that the operations give, as `tinymq.catalog.channels` describes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, Literal, NamedTuple, get_args

from attrs import field, frozen

from tinymq.web.format import UNKNOWN, duration, rate
from tinymq.web.lists import cut

ChannelRow = Mapping[str, Any]
ChannelSort = Literal[
    "channel",
    "state",
    "ready",
    "in_flight",
    "waiting",
    "requeued",
    "timed_out",
    "lag",
    "behind",
    "trend",
    "clear",
    "consumers",
]
CHANNEL_SORTS: Final[tuple[ChannelSort, ...]] = get_args(ChannelSort)
#: The worst first.
STATES: Final = ("stuck", "falling_behind", "no_consumers", "paused", "consuming", "idle")
#: In these, what waits is somebody's trouble.
TROUBLED: Final = frozenset({"stuck", "falling_behind", "no_consumers"})
#: What waits no longer than this is no lag.
_PROMPT_MS: Final = 1_000
#: Where time to clear is infinite, for sorting.
_NEVER: Final = 1 << 62


class Word(NamedTuple):
    """A state as pages write it."""

    icon: str
    word: str
    colour: str


_WORDS: Final = {
    "consuming": Word("run", "Consuming", "ok"),
    "idle": Word("idle", "Idle", "s"),
    "falling_behind": Word("up", "Falling behind", "bad"),
    "paused": Word("pause", "Paused", "warn"),
    "no_consumers": Word("bad", "No consumers", "bad"),
    "stuck": Word("bad", "Stuck", "bad"),
}
#: What each cause is called, and how bad it is.
_CAUSES: Final = {
    "paused": "warn",
    "set_apart": "warn",
    "waiting": "warn",
    "parked": "warn",
    "dead_letters_kept": "warn",
    "expiring": "warn",
    "partition_skew": "warn",
}


#: Causes whose text begins with the name of a client or a broker.
_NAMED_FIRST: Final = frozenset({"slow_consumer", "offline"})


@frozen(kw_only=True)
class ChannelQuery:
    """
    Which channels to list.

    Attributes:
        name: Part of ``topic/channel``, in any case; empty for all.
        topic: Only those of this topic; None for all.
        state: Only those in this state; empty for all.
        sort: The field to sort by; ties are sorted by topic and name.
        reverse: Whether the largest comes first.
        page: Counted from 1. A page behind the last one is the last one.
        page_size: At most `MAX_PAGE_SIZE`.
    """

    name: str = ""
    topic: str | None = None
    state: str = ""
    sort: ChannelSort = "channel"
    reverse: bool = False
    page: int = 1
    page_size: int = 50

    @property
    def by_name(self) -> bool:
        """Whether names alone tell which channels the page has."""
        return self.sort == "channel" and not self.state

    @property
    def takes_all(self) -> bool:
        """Whether every name is wanted."""
        return not self.name and self.topic is None

    def takes(self, topic: str, name: str) -> bool:
        """Whether a channel is wanted, as far as its names tell."""
        if self.topic not in (None, topic):
            return False
        return not self.name or self.name.lower() in f"{topic}/{name}".lower()


@frozen(kw_only=True)
class ChannelPage:
    """
    One page of channels.

    Attributes:
        items: The rows.
        page: Which page this is, from 1.
        page_count: How many there are, at least 1.
        filtered_count: Channels that match.
        total_count: All channels, or all of the topic.
        states: How many are in each state, of all that match the names; empty if unknown.
        silent: Brokers that did not answer in time, so that figures are partial.
    """

    items: tuple[ChannelRow, ...]
    page: int
    page_count: int
    filtered_count: int
    total_count: int
    states: Mapping[str, int] = field(factory=dict)
    silent: tuple[str, ...] = ()


def _maybe(value: float | None, missing: float = -_NEVER) -> float:
    return missing if value is None else value


_KEYS: Final[dict[ChannelSort, Callable[[ChannelRow], Any]]] = {
    "state": lambda row: STATES.index(row["state"]) if row["state"] in STATES else len(STATES),
    "ready": itemgetter("ready"),
    "in_flight": itemgetter("in_flight"),
    "waiting": itemgetter("waiting"),
    "requeued": lambda row: _maybe(row["rates"]["requeued_s"]),
    "timed_out": lambda row: _maybe(row["rates"]["timed_out_s"]),
    "lag": itemgetter("lag"),
    "behind": lambda row: _maybe(row["lag_ms"]),
    "trend": lambda row: _maybe(row["trend_s"]),
    "clear": lambda row: _maybe(row["clear_ms"], _NEVER if row["lag"] else -_NEVER),
    "consumers": itemgetter("consumers"),
}


def place_of(row: ChannelRow) -> tuple[str, str]:
    """By what channels are in order when nothing else tells them apart."""
    return row["topic"], row["name"]


def ordered(rows: Iterable[ChannelRow], query: ChannelQuery) -> list[ChannelRow]:
    """
    Filter and sort rows.

    Args:
        rows: All channels, in order of topic and name.
        query: Which of them are wanted.
    """
    found = _named(rows, query)
    if query.state:
        found = [row for row in found if row["state"] == query.state]
    if query.sort == "channel":
        return found[::-1] if query.reverse else found
    return sorted(found, key=_KEYS[query.sort], reverse=query.reverse)


def select_channels(
    rows: Sequence[ChannelRow], query: ChannelQuery, silent: tuple[str, ...] = ()
) -> ChannelPage:
    """
    Filter, sort and cut channels.

    Args:
        rows: All channels, in order of topic and name.
        query: Which of them are wanted.
        silent: Names of the brokers that did not answer.
    """
    found = ordered(rows, query)
    items, page, count = cut(found, query.page, query.page_size)
    return ChannelPage(
        items=tuple(items),
        page=page,
        page_count=count,
        filtered_count=len(found),
        total_count=len(rows)
        if query.topic is None
        else sum(query.topic == row["topic"] for row in rows),
        states=states_of(rows, query),
        silent=silent,
    )


def states_of(rows: Iterable[ChannelRow], query: ChannelQuery) -> Counter[str]:
    """
    Count how many channels are in each state, whichever is asked for.

    Args:
        rows: All channels.
        query: Which names are wanted.
    """
    return Counter(map(itemgetter("state"), _named(rows, query)))


def _named(rows: Iterable[ChannelRow], query: ChannelQuery) -> list[ChannelRow]:
    if query.takes_all:
        return list(rows)
    return [row for row in rows if query.takes(row["topic"], row["name"])]


# --- words ---------------------------------------------------------------------


def word_of(state: str) -> Word:
    """
    Say a state in a word, with its icon and colour.

    Args:
        state: As operations call it.
    """
    return _WORDS.get(state) or Word("warn", state.replace("_", " ").capitalize(), "warn")


def cause_level(cause: str) -> str:
    """
    Say how bad a cause is.

    Args:
        cause: As operations call it.
    """
    return _CAUSES.get(cause, "bad")


def sentence(why: Mapping[str, str]) -> str:
    """
    Write a cause as a sentence.

    Args:
        why: The cause with its text. Where that begins with a name, the name stays as it is.
    """
    text = why["text"]
    if why["cause"] not in _NAMED_FIRST or text.startswith("a consumer ("):
        text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."


def trend(row: ChannelRow) -> tuple[str, str, str]:
    """
    Say where the lag goes.

    Returns:
        An arrow with the signed rate, a colour, and a sentence for the hover.
    """
    speed = row["trend_s"]
    if speed is None:
        return UNKNOWN, "q", "Not known yet: it takes two looks"
    if abs(speed) < 0.05:
        return "\N{RIGHTWARDS ARROW} 0", "q", "The lag stays as it is"
    arrow = "\N{NORTH EAST ARROW} +" if speed > 0 else "\N{SOUTH EAST ARROW} \N{MINUS SIGN}"
    grows = "grows" if speed > 0 else "shrinks"
    bad = speed > 0 and row["state"] in TROUBLED
    text = f"The lag {grows} by {abs(speed):,.3g} messages a second"
    return f"{arrow}{rate(abs(speed))}", "bad" if bad else "", text


def clears(row: ChannelRow) -> tuple[str, str]:
    """
    Say when the lag will be gone.

    Returns:
        The time, and a sentence for the hover.
    """
    if not row["lag"]:
        return "0 s", "Nothing waits"
    if row["clear_ms"] is not None:
        return duration(row["clear_ms"]), "At the present speed"
    if row["trend_s"] is None:
        return UNKNOWN, "Not known yet: it takes two looks"
    if row["lag_ms"] is not None and row["lag_ms"] < _PROMPT_MS and row["state"] == "consuming":
        return "0 s", "It keeps up: what waits is younger than a second"
    if row["trend_s"] >= 0:
        return "Never", "At the present speed: the lag does not shrink"
    return UNKNOWN, "Not known"


class Words:
    """What templates ask about channels."""

    troubled = TROUBLED
    word_of = staticmethod(word_of)
    cause_level = staticmethod(cause_level)
    sentence = staticmethod(sentence)
    trend = staticmethod(trend)
    clears = staticmethod(clears)


WORDS: Final = Words()
