"""Counters of one connection, and their growth."""

from __future__ import annotations

import pytest

from tinymq.stats import Counters, Rates
from tinymq.traffic import MARK_SECONDS, Traffic


def run(traffic: Traffic, begin: int, seconds: int, each: int) -> None:
    """Let some seconds pass, in each of which some bytes come."""
    for second in range(begin, begin + seconds):
        traffic.bytes_in += each
        traffic.sample(second + 1.0, float(second))


def test_counters() -> None:
    """What was counted is shown as it is."""
    traffic = Traffic(5.0)
    assert traffic.counters == Counters()
    traffic.messages_in, traffic.messages_out = 1, 2
    traffic.bytes_in, traffic.bytes_out = 3, 4
    assert traffic.counters == Counters(1, 2, 3, 4)
    assert traffic.rates == Rates()
    assert traffic.sample(7.0, 6.0)
    assert traffic.rates == Rates(0.5, 1.0, 1.5, 2.0)


def test_steady() -> None:
    """What is steady is shown as such from the first second on."""
    traffic = Traffic(0.0)
    for second in range(40):
        run(traffic, second, 1, 50)
        assert traffic.rates.bytes_in == pytest.approx(50)


def test_mean() -> None:
    """A burst is spread over about ten seconds, then it is forgotten."""
    traffic = Traffic(0.0)
    run(traffic, 0, 30, 0)
    run(traffic, 30, 1, 1000)
    seen = []
    for second in range(31, 50):
        run(traffic, second, 1, 0)
        seen.append(traffic.rates.bytes_in)
    assert seen == sorted(seen, reverse=True)
    mark = int(MARK_SECONDS)
    assert seen[mark] <= 1000 / mark
    assert set(seen[2 * mark :]) == {0.0}


def test_left_out_while_still() -> None:
    """It says when it need not be looked at; after a rest it starts from the last look."""
    traffic = Traffic(0.0)
    assert not traffic.sample(1.0, 0.0)
    traffic.bytes_in += 100
    assert traffic.sample(501.0, 500.0)
    assert traffic.rates.bytes_in == pytest.approx(100)
    looks = [traffic.sample(501.0 + n, 500.0 + n) for n in range(1, 20)]
    assert looks == sorted(looks, reverse=True)
    assert not looks[-1]
    assert traffic.rates == Rates()


def test_at_the_same_moment() -> None:
    """A look at the moment of the start claims nothing."""
    traffic = Traffic(3.0)
    traffic.bytes_in += 1
    assert traffic.sample(3.0, 2.0)
    assert traffic.rates == Rates()
