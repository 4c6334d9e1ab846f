"""Fixtures of the storage tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes.disk import FaultyDisk
from tests.storage.batches import SMALL
from tinymq.storage.files import FileCache
from tinymq.storage.log import Log, LogConfig

#: Makes a new log.
MakeLog = Callable[..., Log]


@pytest.fixture
def disk() -> FaultyDisk:
    """Return a disk that can be made to fail."""
    return FaultyDisk()


@pytest.fixture
def new_log(disk: FaultyDisk, tmp_path: Path) -> MakeLog:
    """Return what makes a log in small segments."""

    def make(config: LogConfig = SMALL, name: str = "data", max_open: int = 64) -> Log:
        return Log.open(FileCache(disk, max_open), str(tmp_path / name), config)

    return make


@pytest.fixture
def log(new_log: MakeLog) -> Log:
    """Return a log in small segments."""
    return new_log()
