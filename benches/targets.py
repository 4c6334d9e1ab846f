"""What the figures are held against."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Final

from attrs import frozen

from benches.samples import Sample


@frozen
class Target:
    """
    A figure that a case should reach.

    Attributes:
        row: The row.
        case: The case.
        size: Bytes of a value.
        figure: The figure.
        want: What it should be.
        most: Whether `want` is the most allowed, rather than the least.
        against: A case of the same row: the figure is the ratio to its, pair by pair.
    """

    row: str
    case: str
    size: int
    figure: str
    want: float
    most: bool = False
    against: str = ""

    def values(self, samples: Sequence[Sample]) -> list[float]:
        """Return what was measured."""
        mine = self._figures(samples, self.case)
        if not self.against:
            return mine
        return [a / b for a, b in zip(mine, self._figures(samples, self.against), strict=False)]

    def _figures(self, samples: Sequence[Sample], case: str) -> list[float]:
        return [
            each.figures[self.figure]
            for each in samples
            if (each.row, each.case, each.size) == (self.row, case, self.size) and not each.error
        ]

    def reached(self, values: Sequence[float]) -> bool:
        """Whether the median is good enough."""
        median = statistics.median(values)
        return median <= self.want if self.most else median >= self.want


_ALWAYS: Final = "tinymq always, Deferred"
_OS: Final = "tinymq os, Deferred"
_BATCHES: Final = "tinymq always, whole batches"

TARGETS: Final = (
    Target("produce", _ALWAYS, 100, "per_s", 1.5e6),
    Target("produce", _ALWAYS, 1024, "per_s", 300e3),
    Target("produce", _OS, 100, "per_s", 2e6),
    Target("produce", _OS, 1024, "per_s", 450e3),
    Target("produce", _OS, 100, "server_us", 0.5, most=True),
    Target("pairs", _ALWAYS, 100, "ratio", 0.5),
    Target("transactions", _ALWAYS, 100, "ratio", 0.8),
    Target("transactions", _ALWAYS, 1024, "ratio", 0.8),
    Target("keyed", _ALWAYS, 100, "per_s", 700e3),
    Target("keyed", _ALWAYS, 1024, "per_s", 250e3),
    Target("singles", _OS, 100, "per_s", 200e3),
    Target("singles", _OS, 1024, "per_s", 150e3),
    *(
        Target("outstanding", f"tinymq {mine}, blocking", size, "p50_us", 1.1, True, f"Redis {its}")
        for mine, its in (("always", "always"), ("os", "everysec"))
        for size in (100, 1024)
    ),
    Target("consume", "tinymq columns, Deferred", 100, "per_s", 2e6),
    Target("consume", "tinymq columns, Deferred", 1024, "per_s", 420e3),
    Target("consume", "tinymq records, Deferred", 100, "per_s", 1e6),
    Target("consume", "tinymq records, Deferred", 1024, "per_s", 350e3),
    Target("groups", "tinymq columns, Deferred", 100, "ratio", 0.95),
    Target("groups", "tinymq columns, Deferred", 1024, "ratio", 0.95),
    Target("both", _OS, 100, "per_s", 800e3),
    Target("both", _OS, 1024, "per_s", 180e3),
    Target("latency", _OS, 100, "p50_us", 300, most=True),
    Target("latency", _OS, 100, "p99_us", 700, most=True),
    Target("latency", _ALWAYS, 100, "p50_us", 550, most=True),
    Target("latency", _ALWAYS, 100, "p99_us", 2000, most=True),
    Target("latency", "tinymq os, blocking", 100, "p50_us", 200, most=True),
    Target("latency", "tinymq os, blocking", 100, "p99_us", 430, most=True),
    Target("latency", "tinymq always, blocking", 100, "p50_us", 400, most=True),
    Target("latency", "tinymq always, blocking", 100, "p99_us", 1000, most=True),
    Target("queue", _BATCHES, 100, "per_s", 2e6),
    Target("queue", _BATCHES, 1024, "per_s", 400e3),
    Target("queue", _BATCHES, 100, "per_s", 0.7, against="tinymq log, columns"),
    Target("queue", "tinymq always, each alone, function", 100, "per_s", 250e3),
    Target("queue", "tinymq always, each alone, function", 1024, "per_s", 150e3),
    Target("queue", "tinymq always, each alone, coroutine", 100, "per_s", 120e3),
    Target("queue", "tinymq always, each alone, coroutine", 1024, "per_s", 100e3),
    Target("queue", "tinymq always, each alone, 8 a turn", 100, "per_s", 120e3),
    Target("queue-idle", "10000 channels", 3, "core_percent", 1, most=True),
    Target("delayed", "tinymq always, in 60 s", 100, "per_s", 100e3),
    Target("delayed", "tinymq always, in 60 s", 1024, "per_s", 60e3),
    Target("delayed", "tinymq always, in an hour", 100, "per_s", 100e3),
    Target("delayed", "tinymq always, in an hour", 1024, "per_s", 60e3),
    Target("delayed-late", "20000 messages", 100, "p99_us", 50e3, most=True),
    Target("delayed-late", "20000 messages", 100, "early", 0, most=True),
    Target("delayed-far", "1000000 messages", 100, "start_s", 10, most=True),
    Target("delayed-far", "1000000 messages", 100, "killed_start_s", 10, most=True),
    Target("turns", _ALWAYS, 100, "late_ms", 10, most=True),
    Target("compact", "100000 keys", 100, "worker_mib", 200, most=True),
    Target("compact", "100000 keys", 100, "late_ms", 10, most=True),
    Target("topics", "10000 topics", 3, "start_s", 10, most=True),
    Target("topics", "10000 topics", 3, "killed_start_s", 10, most=True),
)
