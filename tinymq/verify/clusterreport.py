"""What a trial of a cluster found: figures, problems, and a table of its cases."""

from __future__ import annotations

from typing import Any, Final

from attrs import define, field
from typing_extensions import override

from tinymq.verify.report import FORBIDDEN, WORK_FIGURES, WORK_FORBIDDEN, Report

#: Words for the figures, in the order of the report.
CLUSTER_FIGURES: Final = (
    ("cases", "cases"),
    ("kills", "processes killed"),
    ("acknowledged", "records acknowledged"),
    ("recovered", "found again, each at its offset"),
    ("read_along", "read along while it happened"),
    ("surplus", "found without a receipt (allowed)"),
    ("topics", "topics acknowledged"),
    ("refused", "calls that failed (allowed)"),
    ("work", "messages published to channels"),
    *WORK_FIGURES,
    ("lost", "lost"),
    ("duplicated", "duplicated"),
    ("reordered", "reordered"),
    ("moved", "at another offset"),
    ("foreign", "never sent, or changed"),
    ("gap", "gaps in the offsets"),
    ("topics_lost", "topics lost"),
    *WORK_FORBIDDEN,
)

#: Titles of the table, all but the first in seconds.
TITLES: Final = {
    "case": "case",
    "away": "away",
    "named": "named",
    "refused": "refused",
    "unkeyed": "unkeyed",
    "keyed": "keyed",
    "read": "read",
    "taken": "taken",
    "start": "start",
    "writes": "writes",
    "reads": "reads",
    "takes": "takes",
    "admin": "admin",
}


@define
class Entry:
    """
    One case as it went; seconds, None where there is nothing to measure.

    Attributes:
        case: Its name.
        away: For how long something was away.
        named: Until the dead broker's partitions were named offline.
        refused: How long a call that cannot succeed took to end.
        unkeyed: The longest gap of records without key, over all senders.
        keyed: The longest gap of records with keys, on brokers that lived.
        read: The longest gap of reading, from brokers that lived.
        taken: The longest gap of messages of channels, from brokers that lived.
        start: From the start of the process until it listened.
        writes: From there until a record was acknowledged by it.
        reads: From there until a record was read from it.
        takes: From there until a message of a channel was taken from it.
        admin: From the start of the MetaServer until a topic was made.
    """

    case: str
    away: float | None = None
    named: float | None = None
    refused: float | None = None
    unkeyed: float | None = None
    keyed: float | None = None
    read: float | None = None
    taken: float | None = None
    start: float | None = None
    writes: float | None = None
    reads: float | None = None
    takes: float | None = None
    admin: float | None = None

    def worst(self, name: str, seconds: float) -> None:
        """Keep the largest of several values."""
        setattr(self, name, max(seconds, getattr(self, name) or 0.0))

    def row(self) -> list[str]:
        """Give what stands in the table."""
        values = [getattr(self, name) for name in TITLES if name != "case"]
        return [self.case, *("-" if value is None else f"{value:.1f}" for value in values)]

    def document(self) -> dict[str, Any]:
        """Give everything for JSON."""
        values = {name: getattr(self, name) for name in TITLES}
        return {
            name: round(value, 2) if isinstance(value, float) else value
            for name, value in values.items()
        }


@define
class ClusterReport(Report):
    """
    Figures, problems and cases.

    Attributes:
        entries: The cases that were tried.
        notes: What else people may want to know, such as the words of a refusal.
        calls: The longest call of each kind, in seconds.
    """

    entries: list[Entry] = field(factory=list)
    notes: list[str] = field(factory=list)
    calls: dict[str, float] = field(factory=dict)

    @override
    def document(self) -> dict[str, Any]:
        return {
            "held": self.held,
            "seed": self.seed,
            "seconds": round(self.seconds, 1),
            **{name: self.figures[name] for name, _ in CLUSTER_FIGURES},
            "cases_tried": [entry.document() for entry in self.entries],
            "longest_calls": {name: round(took, 2) for name, took in sorted(self.calls.items())},
            "notes": self.notes,
            "problems": self.problems,
        }

    @override
    def lines(self) -> list[tuple[str, str]]:
        told = [(words, str(self.figures[name])) for name, words in CLUSTER_FIGURES]
        longest = [
            (f"longest call: {name}", f"{took:.1f} s") for name, took in sorted(self.calls.items())
        ]
        return [("seed", str(self.seed)), ("seconds", f"{self.seconds:.1f}"), *told, *longest]

    def table(self) -> list[list[str]]:
        """Give the cases as rows of text, the titles first."""
        return [list(TITLES.values()), *(entry.row() for entry in self.entries)]


assert set(FORBIDDEN) - {"hole"} <= {name for name, _ in CLUSTER_FIGURES}
