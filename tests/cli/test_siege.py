"""`tinymq verify-cluster`: what it says and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tinymq.cli import siege
from tinymq.verify.clusterreport import ClusterReport, Entry
from tinymq.verify.siege import Siege


@pytest.fixture
def sieges(monkeypatch: pytest.MonkeyPatch) -> list[Siege]:
    """Let no process be started; return what was to be carried out."""
    sieges: list[Siege] = []

    def carry_out(plan: Siege, place: Path) -> ClusterReport:
        sieges.append(plan)
        report = ClusterReport(plan.seed)
        report.figures["cases"] = 1
        report.entries.append(Entry("SIGKILL b1", away=6.0))
        report.notes.append("a copy is refused")
        if plan.rounds == 13:
            report.problem("a gap of 9.0 s")
        return report

    monkeypatch.setattr(siege, "run", carry_out)
    return sieges


def test_promises_kept(run: Run, sieges: list[Siege], tmp_path: Path) -> None:
    """The seed is printed first; the report and the table follow; the status is 0."""
    result = run("verify-cluster", "--rounds", "2", "--seed", "5", "--folder", str(tmp_path))
    assert result.exit_code == 0
    assert result.stderr == "seed 5\nevery promise was kept\n"
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["seed", "5"]
    (row,) = (line for line in lines if line.startswith("SIGKILL b1"))
    assert row.split()[2] == "6.0"
    assert lines[-1] == "a copy is refused"
    assert sieges == [Siege(rounds=2, seed=5)]


def test_a_promise_broken(run: Run, sieges: list[Siege], tmp_path: Path) -> None:
    """The problems are named, the data stays, and the status is 1."""
    place = tmp_path / "work"
    result = run("verify-cluster", "--rounds", "13", "--folder", str(place), "-o", "json")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert (document["held"], document["cases"]) == (False, 1)
    assert "problem: a gap of 9.0 s" in result.stderr
    assert f"hint: the data is in {place}" in result.stderr


def test_a_seed_is_chosen(run: Run, sieges: list[Siege]) -> None:
    """Without a seed each run has its own, and leaves no folder behind."""
    first, second = (run("verify-cluster").stderr.splitlines()[0] for _ in range(2))
    assert first.startswith("seed ")
    assert first != second
