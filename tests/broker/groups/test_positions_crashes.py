"""Kills and power cuts at any moment: what was told of positions stays so."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broker.groups.lives import play
from tests.endless import LONG_SECONDS, aloud, endless, long_form


@pytest.mark.parametrize("power", [False, True])
@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=10)
def test_what_was_told_stays(power: bool, seed: int) -> None:
    """After crashes the positions are those of a simple model, at or after what was told."""
    play(seed, power=power)


@pytest.mark.long
@long_form
def test_lives_without_end(capsys: pytest.CaptureFixture[str]) -> None:
    """For minutes, with longer lives and more crashes."""
    endless(
        "broker with groups",
        LONG_SECONDS,
        lambda seed: play(seed, power=seed % 2 == 0, crashes=4, most=200),
        aloud(capsys),
    )
