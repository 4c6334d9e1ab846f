"""`tinymq verify-crash`: what it says and how it ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tinymq.cli import crash
from tinymq.verify.report import Report
from tinymq.verify.trial import Plan

Judge = Callable[[Report], None]


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """Let no broker be started; return the plans that were to be carried out."""
    plans: list[Plan] = []

    def carry_out(plan: Plan, place: Path) -> Report:
        plans.append(plan)
        report = Report(plan.seed)
        report.figures["kills"] = plan.kills
        if plan.producers == 13:
            report.figures["lost"] = 1
            report.problem("lost: a record is gone")
        return report

    monkeypatch.setattr(crash, "run", carry_out)
    return plans


def test_promises_kept(run: Run, plans: list[Plan], tmp_path: Path) -> None:
    """The seed is printed first; the report follows; the status is 0."""
    result = run(
        "verify-crash",
        "--kills",
        "7",
        "--seconds",
        "250ms",
        "--seed",
        "5",
        "--folder",
        str(tmp_path),
    )
    assert result.exit_code == 0
    assert result.stderr == "seed 5\nevery promise was kept\n"
    assert result.stdout.splitlines()[0].split() == ["seed", "5"]
    assert plans == [Plan(kills=7, power_losses=5, seconds=0.25, producers=3, seed=5)]


def test_a_promise_broken(run: Run, plans: list[Plan], tmp_path: Path) -> None:
    """The problems are named, the data stays, and the status is 1."""
    place = tmp_path / "work"
    result = run("verify-crash", "--producers", "13", "--folder", str(place), "-o", "json")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert (document["held"], document["lost"]) == (False, 1)
    assert "problem: lost: a record is gone" in result.stderr
    assert f"hint: the data is in {place}" in result.stderr


def test_a_seed_is_chosen(run: Run, plans: list[Plan]) -> None:
    """Without a seed each run has its own, and leaves no folder behind."""
    first, second = (run("verify-crash").stderr.splitlines()[0] for _ in range(2))
    assert first.startswith("seed ")
    assert first != second
