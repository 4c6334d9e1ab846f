"""A cluster for each test, which is stopped in order at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.whole_cluster import WholeCluster

Make = Callable[..., WholeCluster]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Return what makes a cluster, which is stopped at the end of the test."""
    made: list[WholeCluster] = []

    def make(brokers: int = 2, **settings: Any) -> WholeCluster:
        made.append(WholeCluster(tmp_path / f"cluster{len(made)}", brokers, **settings))
        return made[-1]

    try:
        yield make
        for cluster in made:
            cluster.close()
    finally:
        for cluster in made:
            cluster.abandon()


@pytest.fixture
def cluster(make: Make) -> WholeCluster:
    """Return a MetaServer and two brokers that run."""
    return make().start()
