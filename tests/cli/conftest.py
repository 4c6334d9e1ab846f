"""The command, run against a broker in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from click.testing import CliRunner, Result

from tests.fakes.memory_broker import MemoryBroker, MemoryClient
from tinymq.cli.app import root
from tinymq.cli.session import Session

Run = Callable[..., Result]


@pytest.fixture
def broker() -> MemoryBroker:
    """Return a broker with two topics."""
    broker = MemoryBroker()
    broker.make("orders", 2)
    broker.make("audit")
    return broker


@pytest.fixture
def run(broker: MemoryBroker) -> Run:
    """Return what runs the command and gives its result."""

    def run(*arguments: str, stdin: bytes | str | None = None, **more: Any) -> Result:
        session = Session(
            lambda url, timeout: cast("Any", MemoryClient(broker)),
            broker.pause,
            lambda url: broker.stranger,
        )
        return CliRunner().invoke(
            root, list(arguments), input=stdin, obj=session, prog_name="tinymq", **more
        )

    return run
