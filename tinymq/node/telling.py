"""What a broker tells of itself and its partitions to those who follow it."""

from __future__ import annotations

from typing import Final

from tinymq.figures.reports import MOST_ROWS, Reporter, to_wire
from tinymq.figures.vitals import Vitals
from tinymq.operation import Operation, Parameter, Result, table
from tinymq.wire.fields import I64, integer


class Telling:
    """Reports, in pages."""

    reporter: Reporter
    vitals: Vitals

    def report(self, since: int, limit: int) -> Result:
        """Tell what moved since the generation of the last page."""
        return to_wire(self.reporter.take(since, limit), self.vitals.snapshot())


TELLING_OPERATIONS: Final[dict[str, Operation]] = table(
    Operation(
        "node.report",
        "cluster",
        False,
        (
            Parameter("since", integer(0, I64), default=0),
            Parameter("limit", integer(1, MOST_ROWS), default=MOST_ROWS),
        ),
        Telling.report,
    ),
)
