"""The administrative calls on messages that are not due yet."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from typing_extensions import override

from tinymq.catalog import PUBLIC
from tinymq.client.core.admin import HARMLESS, AdminCalls
from tinymq.client.core.results import Delayed, Position
from tinymq.errors import InvalidDelay, UsageError

Told = tuple[str, dict[str, Any]]
ONE = {"topic": "orders", "partition": 0, "ids": [17]}


class Calls(AdminCalls[Told]):
    """Gives back what would be asked, as far as it is said."""

    @override
    def operate(self, operation: str, /, **arguments: Any) -> Told:
        return operation, {name: one for name, one in arguments.items() if one is not None}


@pytest.mark.parametrize(
    ("call", "name", "arguments"),
    [
        (
            lambda admin: admin.list_delayed("orders", since_ms=5, key="k"),
            "delayed.list",
            {"topic": "orders", "after": "", "limit": 100, "since_ms": 5, "key": "k"},
        ),
        (lambda admin: admin.delayed_histogram(), "delayed.histogram", {}),
        (
            lambda admin: admin.delayed("orders/0~17"),
            "delayed.get",
            {"topic": "orders", "partition": 0, "id": 17},
        ),
        (
            lambda admin: admin.cancel_delayed(Delayed("orders", 0, 17)),
            "delayed.cancel",
            {**ONE, "dry_run": False},
        ),
        (
            lambda admin: admin.delayed_now("orders/0~17", "orders/0~18", dry_run=True),
            "delayed.now",
            {**ONE, "ids": [17, 18], "dry_run": True},
        ),
        (
            lambda admin: admin.move_delayed("orders/0~17", delay=1.5),
            "delayed.move",
            {**ONE, "delay_ms": 1500, "dry_run": False},
        ),
        (
            lambda admin: admin.move_delayed("orders/0~17", at=datetime(2027, 1, 1, 8, tzinfo=UTC)),
            "delayed.move",
            {**ONE, "due_ms": 1_798_790_400_000, "dry_run": False},
        ),
        (
            lambda admin: admin.apply_delayed("move", "orders", at=9, key="k"),
            "delayed.apply",
            {
                "act": "move",
                "topic": "orders",
                "due_ms": 9,
                "key": "k",
                "after": "",
                "limit": 100,
                "dry_run": False,
            },
        ),
        (
            lambda admin: admin.apply_delayed("cancel", "orders"),
            "delayed.apply",
            {"act": "cancel", "topic": "orders", "after": "", "limit": 100, "dry_run": False},
        ),
    ],
)
def test_calls(call: Callable[[Calls], Told], name: str, arguments: dict[str, Any]) -> None:
    """Each call asks for an operation with arguments that its table takes."""
    told = call(Calls())

    assert told == (name, arguments)
    PUBLIC[name].arguments(arguments)
    assert (name in HARMLESS) is not PUBLIC[name].changes


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda admin: admin.cancel_delayed(), "one or more"),
        (lambda admin: admin.cancel_delayed("orders/0~1", "orders/1~1"), "of one partition"),
        (lambda admin: admin.cancel_delayed("orders"), "orders/0~17"),
        (lambda admin: admin.cancel_delayed(Position("t", 0, 1, 2, False)), "sent at once"),
        (lambda admin: admin.move_delayed("orders/0~1"), "one of delay and at"),
        (lambda admin: admin.move_delayed("orders/0~1", delay=1, at=1), "one of delay and at"),
        (lambda admin: admin.apply_delayed("move", "orders"), "one of delay and at"),
    ],
)
def test_wrong_calls(call: Callable[[Calls], Told], words: str) -> None:
    """What means nothing is refused before anything is asked."""
    with pytest.raises(UsageError, match=words):
        call(Calls())
    with pytest.raises(InvalidDelay):
        Calls().move_delayed("orders/0~1", delay=-1)
