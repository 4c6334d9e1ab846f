"""The cases of verify-cluster."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tinymq.verify.fleet import META
from tinymq.verify.matrix import CASES, SHORT_CASES, STILL, matrix, rounds

BROKERS = ("b1", "b2", "b3")


@pytest.mark.parametrize("seed", range(5))
def test_every_kind_of_case(seed: int) -> None:
    """Whatever the seed: everybody is killed, some stop, one stands still, some die together."""
    cases = matrix(BROKERS, random.Random(seed))
    assert len(cases) == CASES
    alone = {case.victims[0] for case in cases if len(case.victims) == 1 and case.how == "kill"}
    assert alone == {META, *BROKERS}
    assert Counter(case.how for case in cases) == {"kill": 7, "stop": 2, "pause": 1}
    assert [case.seconds for case in cases if case.how == "pause"] == [STILL]
    pairs = [case for case in cases if len(case.victims) == 2]
    assert sorted(case.strikes_meta for case in pairs) == [False, True, True]
    assert [case for case in pairs if case.revived[-1] == META]
    assert len({case.name for case in cases}) == len(cases)
    for case in cases:
        assert set(case.revived) == set(case.victims)
        assert len(set(case.victims)) == len(case.victims)


def test_seeded() -> None:
    """A seed repeats the order; every round has another one."""
    first, again = (list(rounds(BROKERS, 2, random.Random(3))) for _ in range(2))
    assert first == again
    assert len(first) == 2 * CASES
    assert first[:CASES] != first[CASES:]


def test_short_form() -> None:
    """The short form has a broker killed, and one that comes back without the MetaServer."""
    cases = list(rounds(BROKERS, 0, random.Random(1)))
    assert len(cases) == SHORT_CASES
    assert [case.strikes_meta for case in cases] == [False, True]
