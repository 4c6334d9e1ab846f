"""What the tests of the MetaServer share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.meta.fakes import FakeTime
from tinymq.meta.server import Clocks, MetaServer
from tinymq.meta.store import Store


@pytest.fixture
def clock() -> FakeTime:
    """Return a clock that moves when told."""
    return FakeTime()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return where the database is."""
    return tmp_path / "meta.db"


@pytest.fixture
def store(file: Path, clock: FakeTime) -> Iterator[Store]:
    """Return an empty store."""
    store = Store(file, monotonic=clock)
    yield store
    store.close()


@pytest.fixture
def server(store: Store, clock: FakeTime) -> MetaServer:
    """Return a MetaServer with one live broker."""
    server = MetaServer(store, clocks=Clocks(wall=clock))
    server.register(server.new_broker_id(), "one", ("127.0.0.1", 7800))
    return server
