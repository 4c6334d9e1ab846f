"""What a trial found."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from attrs import define, field

from tinymq.verify.checker import Checker

#: Problems that are told in words.
MOST_PROBLEMS: Final = 50

#: Words for the figures of channels: how much there was,
WORK_FIGURES: Final = (
    ("delivered", "messages handed to consumers of channels"),
    ("confirmed", "settles confirmed"),
    ("letters", "dead letters"),
    ("missed", "lost on their way, at most once (allowed)"),
)
#: and what was wrong.
WORK_FORBIDDEN: Final = (
    ("abandoned", "never settled nor delivered again"),
    ("returned", "delivered again though settled"),
    ("twice", "delivered twice, at most once"),
    ("forgotten", "attempts or failures forgotten"),
    ("disordered", "first deliveries out of order"),
    ("misburied", "dead letters lost, doubled or wrong"),
)

#: Words for the figures, in the order of the report.
FIGURES: Final = (
    ("kills", "kills"),
    ("power_losses", "power losses"),
    ("acknowledged", "records acknowledged"),
    ("recovered", "found again, each at its offset"),
    ("surplus", "found without a receipt (allowed)"),
    ("cut", "ends lost in power cuts where not synced (allowed)"),
    ("truncations_told", "readers behind a cut end, told so"),
    ("torn_tails", "torn tails cut"),
    ("unsynced_ends", "ends cut where an unsynced write was lost"),
    ("topics", "topics acknowledged"),
    ("refused", "calls that failed (allowed)"),
    *WORK_FIGURES,
    ("lost", "lost"),
    ("duplicated", "duplicated"),
    ("reordered", "reordered"),
    ("moved", "at another offset"),
    ("foreign", "never sent, or changed"),
    ("gap", "gaps in the offsets"),
    ("hole", "holes left by a power cut"),
    ("topics_lost", "topics lost"),
    *WORK_FORBIDDEN,
)

#: Each of these must be 0.
FORBIDDEN: Final = (
    "lost",
    "duplicated",
    "reordered",
    "moved",
    "foreign",
    "gap",
    "hole",
    "topics_lost",
    *(name for name, _ in WORK_FORBIDDEN),
)


@define
class Report:
    """
    Figures and problems of a trial.

    Attributes:
        seed: Repeats the trial, as far as processes can be repeated.
        figures: By name, see `FIGURES`.
        problems: Sentences; none when everything held.
        seconds: How long it took.
    """

    seed: int
    figures: Counter[str] = field(factory=Counter)
    problems: list[str] = field(factory=list)
    seconds: float = 0.0

    @property
    def held(self) -> bool:
        """Whether every promise was kept."""
        return not self.problems and not any(self.figures[name] for name in FORBIDDEN)

    def add(self, checker: Checker) -> None:
        """Take over what was found of one partition."""
        self.figures.update(checker.counts)
        self.figures["recovered"] += checker.recovered
        self.figures["surplus"] += checker.surplus
        self.figures["cut"] += checker.cut
        self.tell(checker)

    def tell(self, checker: Checker) -> None:
        """Take over the findings of one partition as sentences only."""
        for finding in checker.findings:
            if finding.kind in FORBIDDEN:
                self.problem(f"{finding.kind}: {finding.text}")

    def problem(self, text: str) -> None:
        """Take note of something that must not be, once."""
        if len(self.problems) < MOST_PROBLEMS and text not in self.problems:
            self.problems.append(text)

    def document(self) -> dict[str, Any]:
        """Give everything for JSON."""
        figures = {name: self.figures[name] for name, _ in FIGURES}
        return {
            "held": self.held,
            "seed": self.seed,
            "seconds": round(self.seconds, 1),
            **figures,
            "problems": self.problems,
        }

    def lines(self) -> list[tuple[str, str]]:
        """Give everything for people."""
        told = [(words, str(self.figures[name])) for name, words in FIGURES]
        return [("seed", str(self.seed)), ("seconds", f"{self.seconds:.1f}"), *told]
