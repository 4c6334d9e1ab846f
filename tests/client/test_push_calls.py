"""The administrative calls on push endpoints."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.client.stage import Stage
from tinymq.catalog.endpoints import ENDPOINTS


def test_calls() -> None:
    """Each operation arrives by its name with the arguments that were given."""
    stage = Stage()
    calls: list[tuple[str, dict[str, Any]]] = []

    def note(name: str, /, **more: Any) -> dict[str, Any]:
        calls.append((name, more))
        return {"is": name}

    for name in ENDPOINTS:
        stage.puppet.operations[name] = partial(note, name)
    admin = stage.client.admin
    for call in (
        admin.set_push("t", "c", "http://x/", timeout_ms=5000),
        admin.list_pushes("t", "c*", after="t/b", limit=5),
        admin.push("t", "c"),
        admin.delete_push("t", "c", dry_run=True),
        admin.pause_push("t", "c", "night"),
        admin.resume_push("t", "c"),
        admin.test_push("t", "c"),
    ):
        stage.done(call)
    one = {"topic": "t", "name": "c"}
    assert calls == [
        ("push.set", {**one, "url": "http://x/", "dry_run": False, "timeout_ms": 5000}),
        ("push.list", {"topic": "t", "filter": "c*", "after": "t/b", "limit": 5}),
        ("push.info", one),
        ("push.delete", {**one, "dry_run": True}),
        ("push.pause", {**one, "reason": "night", "dry_run": False}),
        ("push.resume", {**one, "dry_run": False}),
        ("push.test", {**one, "dry_run": False}),
    ]
    assert {name for name, _ in calls} == set(ENDPOINTS)
    stage.end()
