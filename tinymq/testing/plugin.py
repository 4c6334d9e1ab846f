"""
The plugin of pytest: the fixtures ``tinymq_broker`` and ``tinymq_server``.

It loads nothing until one of them is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tinymq.testing import BrokerProcess, InProcessBroker


@pytest.fixture
def tinymq_broker() -> Iterator[InProcessBroker]:
    """Return a tinymq broker in this process, on a clock that the test moves."""
    from tinymq.testing import InProcessBroker  # noqa: PLC0415 - costs nothing when unused

    with InProcessBroker() as broker:
        yield broker


@pytest.fixture
def tinymq_server(tmp_path: Path) -> Iterator[BrokerProcess]:
    """Return a tinymq broker in a process of its own, which listens at its `url`."""
    from tinymq.testing import BrokerProcess  # noqa: PLC0415 - costs nothing when unused

    with BrokerProcess(tmp_path / "tinymq") as broker:
        yield broker
