"""Kills and power cuts at any moment: each record comes to its targets exactly once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broker.routing.lives import play
from tests.endless import LONG_SECONDS, aloud, endless, long_form
from tinymq.broker.routing import carrying, planning


@pytest.fixture(autouse=True, scope="module")
def short() -> Iterator[None]:
    """Let plans and batches be short, so that they end anywhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(carrying, "MOST_TOGETHER", 3)
        patch.setattr(planning, "MOST_RECORDS", 12)
        yield


@pytest.mark.parametrize("sync", ["always", "os"])
@pytest.mark.parametrize("power", [False, True])
@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=3)
def test_each_record_comes_once_to_the_targets_of_its_time(
    power: bool, sync: str, seed: int
) -> None:
    """Three crashes, with bindings that change and targets that go, come and take nothing."""
    play(seed, power=power, sync=sync)


@pytest.mark.long
@long_form
def test_lives_without_end(capsys: pytest.CaptureFixture[str]) -> None:
    """For minutes, with longer lives and more crashes."""
    endless(
        "broker with an exchange",
        LONG_SECONDS,
        lambda seed: play(
            seed,
            power=seed % 2 == 0,
            sync=("always", "os")[seed % 4 < 2],
            crashes=5,
            most=200,
        ),
        aloud(capsys),
    )
