"""What plans about one channel have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tinymq.web.channel_pages import ChannelPages
from tinymq.web.format import number
from tinymq.web.render import segment, shell_quoted
from tinymq.web.sheet import Call, Figure, Sheet
from tinymq.web.sheets import Sheets

Json = dict[str, Any]


class ChannelPlans(ChannelPages, Sheets):
    """Begins plans about one channel."""

    def _base(self, topic: str, name: str) -> str:
        """The address of a channel."""
        return f"/topics/{segment(topic)}/channels/{segment(name)}"

    def _plain(self, topic: str, name: str, title: str, verb: str) -> Sheet:
        """The beginning of a plan about one channel."""
        base = self._base(topic, name)
        return Sheet(
            title=f"{title} {name}",
            crumbs=(
                ("Topics", "/topics"),
                (topic, f"/topics/{segment(topic)}"),
                ("channels", f"/topics/{segment(topic)}/channels"),
                (name, base),
            ),
            action=f"{base}/{verb}",
            cancel=base,
            button=title,
        )

    def _call(
        self, operation: str, topic: str, name: str, body: Mapping[str, Any] | None = None
    ) -> Call:
        """The same call of the HTTP API."""
        return Call(operation, {"topic": segment(topic), "name": segment(name)}, body or {})


def both(topic: str, name: str) -> str:
    """
    Write a channel as the command line takes it.

    Args:
        topic: Its topic.
        name: Its name.
    """
    return f"{shell_quoted(topic)} {shell_quoted(name)}"


def standing(found: Mapping[str, Any], *, goes: bool = False) -> tuple[Figure, ...]:
    """
    Say what a channel holds, in figures.

    Args:
        found: As operations describe it.
        goes: Whether the plan is to remove it.
    """
    held, taken = ("can be given out now", "can still be settled")
    if goes:
        held, taken = ("would be given out next", "are taken from their consumers")
    return (
        Figure("Ready", number(found["ready"]), held),
        Figure("In flight", number(found["in_flight"]), taken),
        Figure("Waiting", number(found["waiting"]), "for their next attempt"),
        Figure("Consumers", number(found["consumers"]), "subscribed"),
    )
