"""Kills and power cuts at any moment: what was settled with confirmation never comes back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broker.lives import play
from tests.endless import LONG_SECONDS, aloud, endless, long_form
from tinymq.broker.channel.places import Places
from tinymq.broker.channel.runs import Runs
from tinymq.broker.channel.surviving import cut_back

ORDERS = ("none", "key", "strict")


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("order", ORDERS)
@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=5)
def test_what_was_confirmed_stays_and_all_else_comes(order: str, power: bool, seed: int) -> None:
    """Two crashes; then nobody gets what was settled, and somebody all the rest."""
    play(seed, order=order, power=power)


@pytest.mark.long
@long_form
def test_lives_without_end(capsys: pytest.CaptureFixture[str]) -> None:
    """For minutes, with longer lives and more crashes."""
    endless(
        "broker with channels",
        LONG_SECONDS,
        lambda seed: play(seed, order=ORDERS[seed % 3], power=seed % 2 == 0, crashes=4, most=200),
        aloud(capsys),
    )


def test_what_is_beyond_the_end_of_a_cut_log_is_forgotten() -> None:
    """The offsets will be those of other messages, which nobody has settled."""
    places = Places(20)
    places.ahead = Runs([(25, 30)])

    changed = cut_back(places, 10)

    assert changed
    assert (places.cursor, list(places.ahead)) == (10, [])
    assert not cut_back(places, 10)
