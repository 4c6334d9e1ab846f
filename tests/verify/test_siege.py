"""The kill matrix on real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import LONG
from tinymq.verify.matrix import CASES, SHORT_CASES
from tinymq.verify.siege import ClusterTrial, Siege

pytestmark = pytest.mark.process


def test_kills_of_a_cluster(tmp_path: Path) -> None:
    """While processes of a cluster die and come back, every promise is kept."""
    told: list[str] = []
    report = ClusterTrial(Siege(rounds=int(LONG), seed=1), tmp_path, told.append).run()
    assert report.problems == []
    assert report.held
    assert report.figures["cases"] == len(told) == (CASES if LONG else SHORT_CASES)
    assert report.figures["recovered"] == report.figures["acknowledged"] > 0
    assert report.figures["read_along"] == report.figures["acknowledged"]
    refused = [note for note in report.notes if "is refused with status 1" in note]
    assert len(refused) == 3
