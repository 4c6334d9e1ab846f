"""What was measured, one line of JSON each."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from attrs import asdict, field, frozen

from benches.tasks import Figures


@frozen(kw_only=True)
class Sample:
    """
    One measurement.

    Attributes:
        run: When its run of the benchmarks began, as text.
        row: The row's name; ``machine`` and ``disk`` describe where it was.
        case: The case in the row.
        size: Bytes of a value.
        round: The number of the round.
        meaning: What an acknowledgement tells.
        figures: What was measured.
        error: Why nothing was.
    """

    run: str
    row: str
    case: str
    size: int = 0
    round: int = 0
    meaning: str = ""
    figures: Figures = field(factory=dict)
    error: str = ""

    def to_line(self) -> str:
        """Write it as a line."""
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def from_line(cls, line: str) -> Self:
        """Read what `to_line` wrote."""
        return cls(**json.loads(line))


def load(path: Path) -> list[Sample]:
    """Read a file of samples."""
    with path.open(encoding="utf-8") as lines:
        return [Sample.from_line(line) for line in lines]


def newest(samples: Iterable[Sample]) -> list[Sample]:
    """Keep of each row what its last run measured."""
    everything = list(samples)
    last = {each.row: each.run for each in everything}
    return [each for each in everything if each.run == last[each.row]]
