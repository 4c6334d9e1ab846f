"""Fixtures of the broker's tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.broker import BrokerFixture, HeldSyncer

#: Makes a broker on the test's folder.
MakeBroker = Callable[..., BrokerFixture]


@pytest.fixture
def make(tmp_path: Path) -> MakeBroker:
    """Return what makes a broker with changes."""

    def start(**changes: Any) -> BrokerFixture:
        return BrokerFixture(tmp_path / "data", **changes)

    return start


@pytest.fixture
def fixture(make: MakeBroker) -> BrokerFixture:
    """Return a broker whose disk answers at once."""
    return make()


@pytest.fixture
def syncer() -> HeldSyncer:
    """Return a syncer that waits to be told."""
    return HeldSyncer()


@pytest.fixture
def held(make: MakeBroker, syncer: HeldSyncer) -> BrokerFixture:
    """Return a broker whose syncs wait to be told."""
    return make(syncer=syncer)
