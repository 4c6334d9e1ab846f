"""Tests of the benchmarks' parts that can be told without a stop-watch."""

from __future__ import annotations

from pathlib import Path

import pytest

from benches import report
from benches.rows import ROWS
from benches.samples import Sample, load, newest
from benches.targets import TARGETS, Target
from benches.tasks import Task, payloads, percentiles, portions


def sample(case: str, value: float, row: str = "produce", run: str = "1") -> Sample:
    """Make a measurement of a rate."""
    return Sample(run=run, row=row, case=case, size=100, figures={"per_s": value})


def test_a_task_survives_its_command_line() -> None:
    """What a client process reads is what it was told."""
    task = Task(client="raw", role="tabs", where="h:1", count=3, options={"every_s": 2.0})

    assert task == Task.from_json(task.to_json())


def test_portions_cover_everything() -> None:
    """Calls have the wanted length, and the last one the rest."""
    assert list(portions(10, 4)) == [4, 4, 2]


def test_payloads_differ_and_have_their_size() -> None:
    """Values do not compress into one, and repeat after a thousand."""
    values = payloads(1500, 16)

    assert len(values) == 1500
    assert {16} == set(map(len, values))
    assert len(set(values)) == 1000


def test_percentiles_of_a_few() -> None:
    """The 99th percentile of few values is the last of them."""
    assert percentiles([3.0, 1.0, 2.0]) == {"p50_us": 2e6, "p99_us": 3e6, "max_us": 3e6}


def test_table_has_median_and_range() -> None:
    """A cell shows the median first, then the least and the most."""
    text = report.render([sample("a", value) for value in (1.2e6, 9e5, 2e3)])

    assert "| a | **900k** (2.00k-1.20M) | - | - |" in text


def test_failures_are_told() -> None:
    """A case without a figure is not left out silently."""
    failed = Sample(run="1", row="produce", case="a", size=100, error="it broke")

    assert "- failed: a: it broke" in report.render([failed])


def test_newer_run_replaces_its_rows_only() -> None:
    """Measuring one row again keeps the figures of the others."""
    old, kept, new = sample("a", 1), sample("a", 2, row="both"), sample("a", 3, run="2")

    assert [kept, new] == newest([old, kept, new])


def test_samples_survive_a_file(tmp_path: Path) -> None:
    """What was written can be read."""
    path = tmp_path / "samples"
    path.write_text(sample("a", 1).to_line() + sample("b", 2).to_line(), "utf-8")

    assert [sample("a", 1), sample("b", 2)] == load(path)


def test_report_goes_between_the_marks(tmp_path: Path) -> None:
    """The text around the figures stays as it is."""
    path = tmp_path / "doc.md"
    path.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n", "utf-8")

    report.write(path, "new\n")
    report.write(path, "newer\n")

    assert f"before\n{report.BEGIN}\n\nnewer\n\n{report.END}\nafter\n" == path.read_text("utf-8")


def test_the_document_has_the_marks() -> None:
    """The command fills docs/benchmarks.md, not replaces it."""
    text = (Path(__file__).parent.parent / "docs/benchmarks.md").read_text("utf-8")

    assert (text.count(report.BEGIN), text.count(report.END)) == (1, 1)
    assert [row.name for row in ROWS if f"| `{row.name}` |" not in text] == []


def test_target_as_a_ratio() -> None:
    """A case held against another is compared pair by pair."""
    target = Target("produce", "a", 100, "per_s", 2.0, most=True, against="b")
    samples = [sample("a", 6), sample("b", 4), sample("a", 9), sample("b", 3)]

    assert target.values(samples) == [1.5, 3.0]
    assert target.reached([1.5, 2.0, 3.0])
    assert not target.reached([3.0])


@pytest.mark.parametrize("target", TARGETS, ids=lambda one: f"{one.row}-{one.case}-{one.figure}")
def test_targets_name_what_is_measured(target: Target) -> None:
    """A target of a figure that no row has would never be missed."""
    row = next(row for row in ROWS if row.name == target.row)

    assert target.figure in row.figures
