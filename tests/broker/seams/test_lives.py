"""All that a topic can have at once: nothing that was promised is broken."""

from __future__ import annotations

import pytest

from tests.broker.seams.lives import play
from tests.conftest import LONG


@pytest.mark.parametrize("seed", range(40) if LONG else (1, 9))
def test_lives(seed: int) -> None:
    """Whatever is published, decided, cleaned, purged and cut when, each feature keeps its word."""
    play(seed, 90 if LONG else 25)
