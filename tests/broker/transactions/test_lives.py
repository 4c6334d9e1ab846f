"""Kills, power cuts and cut links at any moment: all of a transaction counts, or nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broker.transactions.lives import play
from tests.endless import LONG_SECONDS, aloud, endless, long_form


@pytest.mark.parametrize("power", [False, True])
@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=4)
def test_all_or_nothing(power: bool, seed: int) -> None:
    """Three brokers, several clients of few names; every message is copied exactly once."""
    play(seed, power=power)


@pytest.mark.long
@long_form
def test_lives_without_end(capsys: pytest.CaptureFixture[str]) -> None:
    """For minutes, with longer lives."""
    endless(
        "brokers with transactions",
        LONG_SECONDS,
        lambda seed: play(seed, power=seed % 2 == 0, most=1500),
        aloud(capsys),
    )
