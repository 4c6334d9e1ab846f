"""
What pages say of brokers: how each stands, in which order, and who is silent.

A silent broker keeps its row, with the figures that were last heard of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal, get_args

from attrs import frozen

from tinymq.stats import BrokerSnapshot, ClusterSnapshot, SilentBroker
from tinymq.web.format import Times, plural
from tinymq.web.verdict import problems_of

BrokerSort = Literal[
    "state",
    "name",
    "version",
    "memory",
    "disk",
    "files",
    "descriptors",
    "lag",
    "partitions",
    "clients",
    "messages_in",
    "messages_out",
    "started_ms",
]
BROKER_SORTS: Final[tuple[BrokerSort, ...]] = get_args(BrokerSort)

#: What the silence of a broker means for most pages, and for lists of clients.
STALE: Final = "figures are the last known"
MISSING: Final = "clients of it are missing here"
#: Names that a banner lists before it only counts.
_NAMED: Final = 5
#: The length of a name beside the age of the page.
_SHORT: Final = 24


@frozen
class Standing:
    """
    How a broker stands, in a word.

    Attributes:
        rank: 0 is the worst.
        icon: Of the state.
        word: Of the state.
        colour: ``bad``, ``warn`` or ``ok``.
        note: Why or since when; may be empty.
    """

    rank: int
    icon: str
    word: str
    colour: str
    note: str = ""


@frozen
class Row:
    """
    A broker with how it stands.

    Attributes:
        broker: Its figures, the last known ones when it is silent.
        standing: How it stands.
        known: Whether there are figures at all.
        since_ms: Since when it is silent; None when it answers.
    """

    broker: BrokerSnapshot
    standing: Standing
    known: bool = True
    since_ms: int | None = None


def stand(broker: BrokerSnapshot, silent: SilentBroker | None, times: Times) -> Standing:
    """
    Say how a broker stands.

    Args:
        broker: Which one.
        silent: Since when it is silent; None when it answers.
        times: Writes times for who looks.
    """
    if silent is not None:
        since = f"since {times.clock(silent.since_ms)} {times.zone_name(silent.since_ms)}"
        return Standing(0, "bad", "Silent", "bad", since)
    found = next(problems_of(broker), None)
    if found is not None:
        note = broker.refusing or ("Draining too" if broker.draining else "")
        return Standing(
            1 if found.level == "bad" else 2, found.level, found.word, found.level, note
        )
    if broker.draining:
        return Standing(3, "pause", "Draining", "warn")
    return Standing(4, "run", "Ready", "ok")


def rows(cluster: ClusterSnapshot, times: Times) -> list[Row]:
    """
    Write a row for every broker that is known, by id.

    Args:
        cluster: The look that is shown.
        times: Writes times for who looks.
    """
    silent = {one.id: one for one in cluster.silent}
    found = []
    for broker in cluster.brokers:
        gone = silent.pop(broker.id, None)
        since = gone.since_ms if gone else None
        found.append(Row(broker, stand(broker, gone, times), since_ms=since))
    for one in silent.values():
        never = BrokerSnapshot(
            id=one.id,
            name=one.name,
            listen=one.listen,
            version="",
            pid=0,
            started_ms=one.since_ms,
            heard_ms=one.since_ms,
        )
        found.append(Row(never, stand(never, one, times), False, one.since_ms))
    return sorted(found, key=lambda row: (row.broker.id, row.broker.name))


def _share(used: int | None, limit: int | None) -> float:
    return (used or 0) / limit if limit else 0.0


_KEYS: Final[dict[BrokerSort, Callable[[Row], Any]]] = {
    "state": lambda row: row.standing.rank,
    "name": lambda row: row.broker.name,
    "version": lambda row: row.broker.version,
    "memory": lambda row: _share(row.broker.memory, row.broker.memory_limit),
    "disk": lambda row: _share(row.broker.disk_used, row.broker.disk_total),
    "files": lambda row: _share(row.broker.files, row.broker.files_limit),
    "descriptors": lambda row: _share(row.broker.descriptors, row.broker.descriptors_limit),
    "lag": lambda row: row.broker.reactor_lag_ms or 0.0,
    "partitions": lambda row: row.broker.partitions,
    "clients": lambda row: row.broker.clients,
    "messages_in": lambda row: row.broker.rates.messages_in,
    "messages_out": lambda row: row.broker.rates.messages_out,
    "started_ms": lambda row: row.broker.started_ms,
}


@frozen
class Order:
    """In which order brokers are listed; by default the worst first, then by id."""

    sort: BrokerSort = "state"
    reverse: bool = False

    def of(self, found: Sequence[Row]) -> list[Row]:
        """Put rows in this order; those that stand alike stay as they are."""
        return sorted(found, key=_KEYS[self.sort], reverse=self.reverse)


def versions(cluster: ClusterSnapshot) -> list[tuple[str, list[str]]]:
    """
    Find out which versions run where.

    Returns:
        Each version with the names of its brokers, the most common first.
        One entry is as it should be.
    """
    found: dict[str, list[str]] = {}
    for one in cluster.brokers:
        found.setdefault(one.version, []).append(one.name)
    return sorted(found.items(), key=lambda entry: -len(entry[1]))


@frozen
class Silence:
    """
    Why figures are partial.

    Attributes:
        sentence: For the top of the page.
        short: For beside its age.
    """

    sentence: str
    short: str


def silence(
    cluster: ClusterSnapshot,
    times: Times,
    names: Iterable[str] | None = None,
    effect: str = STALE,
) -> Silence | None:
    """
    Say who is silent, where figures are partial.

    Args:
        cluster: Knows since when.
        times: Writes times for who looks.
        names: Brokers whose figures this page needs; None for all.
        effect: What that means for the page.

    Returns:
        None when all that matter answered.
    """
    since = {one.name: one.since_ms for one in cluster.silent}
    wanted = list(since) if names is None else list(dict.fromkeys(names))
    if not wanted:
        return None
    told = [_told(name, since.get(name), times) for name in wanted[:_NAMED]]
    if len(wanted) > _NAMED:
        told.append(f"{len(wanted) - _NAMED} more")
    first = wanted[0][:_SHORT] + ("…" if len(wanted[0]) > _SHORT else "")
    short = f"{first} silent" if len(wanted) == 1 else f"{len(wanted)} brokers silent"
    if len(wanted) == 1:
        return Silence(f"{told[0]}: {effect}.", short)
    who = ", ".join(told[:-1]) + " and " + told[-1]
    return Silence(f"{plural(len(wanted), 'broker')} do not answer, {effect}: {who}.", short)


def _told(name: str, since_ms: int | None, times: Times) -> str:
    if since_ms is None:
        return f"{name} did not answer in time"
    return f"{name} does not answer since {times.clock(since_ms)} {times.zone_name(since_ms)}"
