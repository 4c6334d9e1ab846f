"""Tables in Markdown: medians, with the least and the most."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from benches.rows import ROWS, Row
from benches.samples import Sample
from benches.targets import TARGETS, Target

#: Between these lines of an existing file the report is put.
BEGIN: Final = "<!-- figures: written by python -m benches -->"
END: Final = "<!-- end of figures -->"


def rate(value: float) -> str:
    """Write a rate shortly."""
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if value >= unit:
            digits = 2 if value < 10 * unit else 1 if value < 100 * unit else 0
            return f"{value / unit:.{digits}f}{letter}"
    return f"{value:.0f}"


def number(value: float) -> str:
    """Write a number with three digits that matter."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:.{digits}f}"


#: The end of a figure's name, how its unit is written, and how the figure is.
_UNITS: Final[tuple[tuple[str, str, Callable[[float], str]], ...]] = (
    ("per_s", "msg/s", rate),
    ("_us", "µs", number),
    ("_ms", "ms", number),
    ("_s", "s", number),
    ("_mib", "MiB", number),
    ("_kib", "KiB", number),
    ("_bytes", "B", number),
    ("_percent", "%", number),
)
_HEADINGS: Final = {
    "server_us": "server CPU µs/msg",
    "client_us": "client CPU µs/msg",
    "cores": "cores, all processes",
    "files": "open files",
}


def heading(figure: str) -> str:
    """Return what stands above a column."""
    if figure in _HEADINGS:
        return _HEADINGS[figure]
    for ending, unit, _ in _UNITS:
        if figure.endswith(ending):
            return f"{figure.removesuffix(ending).strip('_').replace('_', ' ')} {unit}".strip()
    return figure


def spread(figure: str, values: Sequence[float]) -> str:
    """Write a median with the least and the most."""
    if not values:
        return "-"
    form = next((form for ending, _, form in _UNITS if figure.endswith(ending)), number)
    middle = f"**{form(statistics.median(values))}**"
    if len(values) == 1:
        return middle
    return f"{middle} ({form(min(values))}-{form(max(values))})"


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    """Write a table."""
    found = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return found + ["| " + " | ".join(line) + " |" for line in lines]


def _size(size: int) -> str:
    return "1 KiB" if size == 1024 else f"{size} B"


def row_table(row: Row, samples: Sequence[Sample]) -> list[str]:
    """Write the table of one row: a line for each case, columns for each size."""
    mine = [each for each in samples if each.row == row.name]
    sizes = sorted({each.size for each in mine if each.case})
    several = len(sizes) > 1
    meanings = {each.case: each.meaning for each in mine if each.case}
    known = any(meanings.values())
    head = ["case", *(["acknowledged"] if known else [])]
    head += [
        f"{_size(size)} {heading(name)}" if several else heading(name)
        for size in sizes
        for name in row.figures
    ]
    lines = []
    for case, meaning in meanings.items():
        cells = [
            spread(name, _values(mine, case, size, name)) for size in sizes for name in row.figures
        ]
        lines.append([case, *([meaning] if known else []), *cells])
    found = [f"### {row.title}", "", *([row.note, ""] if row.note else [])]
    found += table(head, lines) if lines else []
    failures = sorted(
        {f"- failed: {each.case or row.name}: {each.error}" for each in mine if each.error}
    )
    return [*found, *(["", *failures] if failures else []), ""]


def _values(samples: Iterable[Sample], case: str, size: int, figure: str) -> list[float]:
    return [
        each.figures[figure]
        for each in samples
        if (each.case, each.size) == (case, size) and figure in each.figures
    ]


def targets_table(samples: Sequence[Sample]) -> list[str]:
    """Write how each target was met, as far as its row was measured."""

    def line(target: Target, values: Sequence[float]) -> list[str]:
        what = f"by {target.against}" if target.against else heading(target.figure)
        figure = "ratio" if target.against else target.figure
        form = spread(figure, [target.want]).strip("*")
        return [
            target.row,
            target.case,
            _size(target.size),
            what,
            f"{'≤' if target.most else '≥'} {form}",
            spread(figure, values),
            "yes" if target.reached(values) else "**no**",
        ]

    measured = [(target, target.values(samples)) for target in TARGETS]
    lines = [line(target, values) for target, values in measured if values]
    if not lines:
        return []
    head = ("row", "case", "size", "figure", "target", "measured", "reached")
    return ["### Targets", "", *table(head, lines), ""]


def render(samples: Sequence[Sample]) -> str:
    """Write the whole report."""
    found = [f"- {each.case}" for each in samples if each.row == "machine"]
    probes = [each for each in samples if each.row == "disk"]
    for place in sorted({each.round for each in probes}):
        here = [each.figures for each in probes if each.round == place]
        found.append(
            f"- round {place}: fdatasync of 4 KiB before each row: p50 "
            + spread("_us", [each["p50_us"] for each in here])
            + " µs, p99 "
            + spread("_us", [each["p99_us"] for each in here])
            + " µs"
        )
    found += ["", *targets_table(samples)]
    for row in ROWS:
        if any(each.row == row.name for each in samples):
            found += row_table(row, samples)
    return "\n".join(found).strip() + "\n"


def write(path: Path, text: str) -> None:
    """Write a report; in a file with the marks, only what is between them changes."""
    old = path.read_text("utf-8") if path.exists() else ""
    if BEGIN in old and END in old:
        before, _, rest = old.partition(BEGIN)
        text = f"{before}{BEGIN}\n\n{text}\n{END}{rest.partition(END)[2]}"
    path.write_text(text, "utf-8")
