"""`tinymq channel wake` and `tinymq channel delay`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.fakes.memory_broker import MemoryBroker

COMMON: dict[str, Any] = {"topic": "orders", "name": "mail", "dry_run": False}


def reply(done: list[int], missing: list[int] | None = None) -> dict[str, Any]:
    """What the operation answers."""
    return {"done": done, "missing": missing or [], "due_ms": 5, "dry_run": False}


@pytest.mark.parametrize(
    ("words", "more", "told"),
    [
        (["wake"], {}, "are given out now"),
        (["delay", "--for", "2m"], {"delay_ms": 120_000}, "are given out in 2m0s"),
        (
            ["delay", "--at", "2030-01-01T00:00:00Z"],
            {"due_ms": 1_893_456_000_000},
            "are given out at 2030-01-01",
        ),
        (
            ["delay", "--at", "2030-01-01T00:00:00"],
            {"due_ms": 1_893_456_000_000},
            "are given out at 2030-01-01T00:00:00.000Z",
        ),
    ],
)
def test_each_verb(
    broker: MemoryBroker, run: Run, words: list[str], more: dict[str, Any], told: str
) -> None:
    """Messages are named one by one, and asked for partition by partition."""
    operation = f"channel.{words[0]}"
    broker.answers[operation] = [reply([5, 6]), reply([7])]
    places = ["orders/mail/0@5", "orders/mail/0@6", "orders/mail/1@7"]
    result = run("channel", *words, *places, "--yes")

    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith(f"3 messages {told}")
    assert broker.calls == [
        (operation, {**COMMON, "partition": 0, "offsets": [5, 6], **more}),
        (operation, {**COMMON, "partition": 1, "offsets": [7], **more}),
    ]


def test_what_does_not_wait(broker: MemoryBroker, run: Run) -> None:
    """It is named, and the exit code says so."""
    broker.answers["channel.wake"] = [reply([], [5])]
    result = run("channel", "wake", "orders/mail/0@5", "--yes")

    assert result.exit_code == 1
    assert "do not wait for their next attempt: orders/mail/0@5" in result.stderr


def test_a_time_that_is_over(broker: MemoryBroker, run: Run) -> None:
    """It is said: seconds taken for milliseconds look like that."""
    broker.answers["channel.delay"] = [reply([5])]
    result = run("channel", "delay", "orders/mail/0@5", "--at", "1700000000", "--yes")

    assert result.exit_code == 0
    assert "1970-01-20T16:13:20.000Z has passed" in result.stderr


@pytest.mark.parametrize("at", ["10m", "1969-12-31", "+10000-01-01", "253402300800000"])
def test_times_that_are_none(run: Run, at: str) -> None:
    """What lies behind, or too far ahead, is refused here already."""
    result = run("channel", "delay", "orders/mail/0@5", "--at", at, "--yes")

    assert result.exit_code == 2
    assert "Invalid value for '--at'" in result.stderr


@pytest.mark.parametrize("words", [[], ["--for", "1s", "--at", "2030-01-01"]])
def test_one_time(run: Run, words: list[str]) -> None:
    """Another time has to be said, and once."""
    result = run("channel", "delay", "orders/mail/0@5", *words, "--yes")

    assert result.exit_code == 2
    assert "one of --for and --at" in result.stderr
