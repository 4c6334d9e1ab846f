"""`tinymq message`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.fakes.memory_broker import MemoryBroker

LIFE: dict[str, Any] = {
    "events": [
        {
            "channel": "mail",
            "time_ms": 1,
            "what": "delivered",
            "attempt": 1,
            "client_id": "mailer",
            "text": "",
        },
        {
            "channel": "mail",
            "time_ms": 2,
            "what": "skipped",
            "attempt": 0,
            "client_id": None,
            "text": "the channel was sent to offset 9",
        },
    ],
    "channels": [{"channel": "mail", "state": "settled"}],
    "since_ms": 5,
    "more": True,
}


def test_life(broker: MemoryBroker, run: Run) -> None:
    """What happened is listed in order; what is not known is said beside it."""
    broker.answers["message.life"] = [LIFE, LIFE]
    result = run("message", "life", "orders", "2", "7")
    lines = result.stdout.splitlines()

    assert broker.calls[0][1] == {"topic": "orders", "partition": 2, "offset": 7}
    assert lines[1].split()[1:] == ["mail", "delivered", "1", "mailer", "-"]
    assert lines[2].endswith("the channel was sent to offset 9")
    assert "mail: settled" in result.stderr
    assert "forgotten" in result.stderr
    assert "more" in result.stderr
    assert json.loads(run("message", "life", "orders", "2", "7", "-o", "json").stdout) == LIFE


@pytest.mark.parametrize("place", ["orders/2@7", "orders/mail/2@7", "orders/w@rk/2@7"])
def test_place_is_taken_as_it_is_shown(broker: MemoryBroker, run: Run, place: str) -> None:
    """What `peek`, `dlq show` and `inflight ls` write can be copied."""
    broker.answers["message.life"] = [LIFE]
    run("message", "life", place)

    assert broker.calls[0][1] == {"topic": "orders", "partition": 2, "offset": 7}


@pytest.mark.parametrize(
    "words", [("orders",), ("orders", "2"), ("orders/2",), ("orders", "2", "x"), ("a/b/c/2@7",)]
)
def test_what_is_no_place_is_refused(run: Run, words: tuple[str, ...]) -> None:
    """The error shows the form that is meant."""
    result = run("message", "life", *words)

    assert result.exit_code == 2
    assert "write TOPIC/PARTITION@OFFSET, such as orders/0@4711" in result.stderr
