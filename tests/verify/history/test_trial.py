"""A history with real processes, struck for a few seconds."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.conftest import LONG
from tinymq.verify.history.trial import HistoryTrial, Plan

pytestmark = pytest.mark.process


def test_history(tmp_path: Path) -> None:
    """While clients, brokers and links are struck, groups, channels and transactions keep all."""
    seed = random.SystemRandom().randrange(1 << 31)
    told: list[str] = []
    plan = Plan(seconds=60.0 if LONG else 6.0, seed=seed)

    report = HistoryTrial(plan, tmp_path, told.append).run()

    figures = report.findings.figures
    assert report.problems == [], f"seed {seed}"
    assert report.held
    assert sum(report.strikes.values()) == len(told) - 1 > 0
    assert figures["published"] >= figures["acknowledged"] > 0
    assert figures["copies"] == figures["audit"] >= figures["acknowledged"]
    assert figures["handled"] == figures["copies"]
    assert dict(report.lines())["promises broken"] == "0"
    assert report.document()["held"]
