"""Random lives of groups: nobody is robbed, everything is read in the end, nothing moves twice."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.endless import LONG_SECONDS, aloud, endless, long_form
from tests.groups.lives import live


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=6)
def test_everything_is_read_by_one(seed: int) -> None:
    """Whatever happens: no right is given twice, and in the end each partition has a reader."""
    live(seed)


@pytest.mark.long
@long_form
def test_lives_without_end(capsys: pytest.CaptureFixture[str]) -> None:
    """For minutes, with longer lives."""
    endless("group", LONG_SECONDS, lambda seed: live(seed, 150), aloud(capsys))
