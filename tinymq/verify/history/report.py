"""What a trial of histories found."""

from __future__ import annotations

from typing import Any, Final

from attrs import define, field

from tinymq.verify.history.judge import Findings

#: Words for the figures, in the order of the report.
FIGURES: Final = (
    ("published", "records published"),
    ("acknowledged", "of them acknowledged"),
    ("handled", "handled by members of the group"),
    ("again", "handled again after a strike (allowed)"),
    ("shares", "partitions taken over by members"),
    ("commits", "commits acknowledged"),
    ("delivered", "deliveries to the channel's consumers"),
    ("confirmed", "settles confirmed"),
    ("transactions", "transactions committed"),
    ("aborts", "transactions aborted"),
    ("copies", "records in copies, each once"),
    ("audit", "records in audit, each once"),
    ("looks", "records seen by a reader of what is committed"),
    ("broken", "promises broken"),
)


@define
class HistoryReport:
    """
    Figures and problems of a trial.

    Attributes:
        seed: Repeats the strikes, as far as processes can be repeated.
        seconds: How long it took.
        findings: What the judge found.
        strikes: How often what was done.
    """

    seed: int
    seconds: float = 0.0
    findings: Findings = field(factory=Findings)
    strikes: dict[str, int] = field(factory=dict)

    @property
    def held(self) -> bool:
        """Whether every promise was kept."""
        return not self.findings.problems

    @property
    def problems(self) -> list[str]:
        """What was not."""
        return self.findings.problems

    def document(self) -> dict[str, Any]:
        """Give everything for JSON."""
        figures = {name: self.findings.figures[name] for name, _ in FIGURES}
        return {
            "held": self.held,
            "seed": self.seed,
            "seconds": round(self.seconds, 1),
            **figures,
            "strikes": self.strikes,
            "problems": self.problems,
        }

    def lines(self) -> list[tuple[str, str]]:
        """Give everything for people."""
        strikes = ", ".join(f"{count} x {what}" for what, count in sorted(self.strikes.items()))
        told = [(words, str(self.findings.figures[name])) for name, words in FIGURES]
        head = [("seed", str(self.seed)), ("seconds", f"{self.seconds:.1f}")]
        return [*head, ("strikes", strikes or "none"), *told]
