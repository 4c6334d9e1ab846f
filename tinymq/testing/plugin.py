"""The plugin of pytest: the fixture ``tinymq_broker``. It loads nothing until that is used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tinymq.testing import InProcessBroker


@pytest.fixture
def tinymq_broker() -> Iterator[InProcessBroker]:
    """Return a tinymq broker in this process, on a clock that the test moves."""
    from tinymq.testing import InProcessBroker  # noqa: PLC0415 - costs nothing when unused

    with InProcessBroker() as broker:
        yield broker
