"""Kills and power cuts at any moment: every message comes once, and never early."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broker.delays.lives import play
from tests.endless import LONG_SECONDS, aloud, endless, long_form


@pytest.mark.parametrize("power", [False, True])
@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=3)
def test_everything_comes_once(power: bool, seed: int) -> None:
    """Two crashes; whatever was confirmed comes, and what was cancelled does not."""
    play(seed, power=power)


@pytest.mark.long
@long_form
def test_lives_without_end(capsys: pytest.CaptureFixture[str]) -> None:
    """For minutes, with longer lives and more crashes."""
    endless(
        "broker with delays",
        LONG_SECONDS,
        lambda seed: play(seed, power=seed % 2 == 0, crashes=4, most=150),
        aloud(capsys),
    )
