"""Who changed what about a topic, as its page shows it: beside each setting, and as a list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from tinymq.web.format import setting_hint

Row = Mapping[str, Any]
#: What was done, in a word.
ACTS: Final = {
    "created": "made",
    "altered": "changed",
    "partitions": "added",
    "purged": "purged",
    "undone": "undid",
}


def readable(name: str, text: str | None) -> str:
    """
    Write the text of a setting as a person would.

    Args:
        name: Of the setting.
        text: As it is kept; None is nothing.
    """
    if text is None:
        return ""
    return setting_hint(name, text) or text or "empty"


def last_changes(changes: Iterable[Row]) -> dict[str, tuple[Row, Row]]:
    """
    Find the last change of each setting.

    Args:
        changes: The newest first.

    Returns:
        The change, and what it says of the setting, by the setting's name.
    """
    found: dict[str, tuple[Row, Row]] = {}
    for change in changes:
        for row in change["settings"]:
            if change["act"] != "created":
                found.setdefault(row["name"], (change, row))
    return found
