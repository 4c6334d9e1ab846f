"""Rates come of looks at counters, of which few are kept."""

from __future__ import annotations

import pytest

from tinymq.broker.channel.pace import Pace


def test_first_second() -> None:
    """Before a second is over there is no rate; then that of the time that passed."""
    pace = Pace()
    assert pace.rates(0, (0,)) is None
    pace.note(0, (0,))
    assert pace.rates(999, (10,)) is None
    assert pace.rates(2000, (10,)) == (5.0,)
    assert pace.rates(2000, (10,), least=5000) is None


def test_last_ten_seconds() -> None:
    """The rate is the mean of the last ten seconds."""
    pace = Pace()
    for second in range(31):
        pace.note(second * 1000, (second * 7, second))
    assert pace.rates(30_500, (213, 30)) == pytest.approx((7.0, 1.0), abs=0.5)


def test_what_rests_is_at_zero() -> None:
    """What stands still needs no look to come to rest."""
    pace = Pace()
    pace.note(0, (0,))
    pace.note(5000, (50,))
    assert pace.rates(6000, (50,)) == (50 / 6,)
    assert pace.rates(100_000, (50,)) == (0.0,)
    assert pace.rates(200_000, (60,)) == (1.0,)


def test_few_looks_are_kept() -> None:
    """However long it runs, the looks of some seconds are kept."""
    pace = Pace()
    for second in range(10_000):
        pace.note(second * 1000, (second,))
    assert len(pace._looks) <= 12
    pace.note(10_000_000, (9999,))
    assert pace.rates(10_000_000, (9999,)) == (0.9,)
