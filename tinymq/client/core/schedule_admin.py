"""The administrative calls on schedules."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, TypeVar

from tinymq.client.core.calls import Calls

#: What a call returns: a result, or what becomes one.
R = TypeVar("R")


class ScheduleCalls(Calls[R]):
    """Administrative operations on schedules; every one ends as `operate` does."""

    def create_schedule(
        self,
        name: str,
        topic: str,
        cron: str,
        value: bytes | str = b"",
        *,
        zone: str = "UTC",
        **more: Any,
    ) -> R:
        """
        Make a schedule, or give the one of this name another form.

        Args:
            name: Its name.
            topic: The topic that its messages go to.
            cron: When they come: five fields, or a word such as ``@daily``.
            value: Value of its messages.
            zone: The time zone that this is about, such as ``Europe/Berlin``.
            **more: ``key``, ``headers`` (a map of texts), ``catch_up`` (``skip``, ``once``
                or ``all``), ``paused`` and ``dry_run``.
        """
        given = {"dry_run": False, **more}
        if isinstance(given.get("headers"), Mapping):
            given["headers"] = dict(given["headers"])
        return self.operate(
            "schedule.create", name=name, topic=topic, cron=cron, zone=zone, **_text(value), **given
        )

    def list_schedules(
        self,
        topic: str | None = None,
        filter: str = "",  # noqa: A002 - the API's word
        *,
        after: str = "",
        limit: int = 100,
    ) -> R:
        """
        List schedules in order of their names.

        Args:
            topic: Only those of this topic.
            filter: A glob for names; empty means all.
            after: Where the last answer said that the next page begins.
            limit: Most schedules in the answer.
        """
        return self.operate("schedule.list", topic=topic, filter=filter, after=after, limit=limit)

    def schedule(self, name: str) -> R:
        """
        Describe a schedule with its message and its next times.

        Args:
            name: The schedule.
        """
        return self.operate("schedule.info", name=name)

    def pause_schedule(self, name: str, *, undo: bool = False, dry_run: bool = False) -> R:
        """
        Let a schedule rest, or go on with the next time that comes.

        Args:
            name: The schedule.
            undo: Go on.
            dry_run: Say what would change, and change nothing.
        """
        act = "resume" if undo else "pause"
        return self.operate(f"schedule.{act}", name=name, dry_run=dry_run)

    def run_schedule(self, name: str, *, dry_run: bool = False) -> R:
        """
        Send the message of a schedule once, now.

        Args:
            name: The schedule.
            dry_run: Say where it would go, and send nothing.
        """
        return self.operate("schedule.run", name=name, dry_run=dry_run)

    def delete_schedule(self, name: str, *, dry_run: bool = False) -> R:
        """
        Remove a schedule; messages that came are left.

        Args:
            name: The schedule.
            dry_run: Say what would go, and change nothing.
        """
        return self.operate("schedule.delete", name=name, dry_run=dry_run)


def _text(value: bytes | str) -> dict[str, str]:
    """Write a value so that every way in can carry it."""
    if isinstance(value, str):
        return {"value": value, "encoding": "string"}
    try:
        return {"value": value.decode(), "encoding": "string"}
    except UnicodeDecodeError:
        return {"value": base64.b64encode(value).decode(), "encoding": "base64"}
