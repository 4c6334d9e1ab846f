"""
Log lines: text for people or JSON for machines, from a level on that can be changed.
"""

from __future__ import annotations

import json
import math
import sys
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from twisted.logger import (
    FileLogObserver,
    FilteringLogObserver,
    ILogObserver,
    LogEvent,
    LogLevel,
    LogLevelFilterPredicate,
    formatEvent,
)

#: Fields of an event that are its frame and not its facts.
_FRAME: Final = frozenset({"message", "time", "isError", "system", "format"})
#: Twisted's reader of answers to what the broker asks for by HTTP.
_ANSWERS: Final = "twisted.web._newclient"


class Logs:
    """
    Where log lines go, how they look, and which are written.

    Args:
        output: An open text file.
        form: ``text`` or ``json``.
        level: The least important level that is written.
    """

    def __init__(self, output: TextIO, form: str, level: str) -> None:
        #: Whether people see the lines where they see errors.
        self.on_console = output in (sys.stdout, sys.stderr)
        self._predicate = LogLevelFilterPredicate()
        self.level = level
        form_event = _json_line if form == "json" else _text_line
        self.observer: ILogObserver = FilteringLogObserver(
            FileLogObserver(output, form_event), [self._predicate]
        )

    @property
    def level(self) -> str:
        """The least important level that is written; may be changed at any time."""
        return self._level

    @level.setter
    def level(self, level: str) -> None:
        self._level = level
        self._predicate.setLogLevelForNamespace("", LogLevel.levelWithName(level))


def _when(event: LogEvent) -> str:
    moment = datetime.fromtimestamp(event.get("log_time", 0), UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _escaped(text: str) -> str:
    """The text on one line, without what a terminal obeys or UTF-8 cannot hold."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii")
        for each in text
    )


def _text(event: LogEvent) -> str:
    """
    The line itself; empty for what Twisted says of ports, which the broker says better.

    Nor is there anything of each answer of a push endpoint, which could fill the disk.
    """
    source = event.get("log_namespace", "")
    if source == "log_legacy" and not event.get("isError"):
        return ""
    if source.startswith(_ANSWERS) and event.get("log_level") == LogLevel.info:
        return ""
    return formatEvent(event)


def _text_line(event: LogEvent) -> str | None:
    text = _escaped(_text(event))
    failure = event.get("log_failure")
    if failure is not None:
        # Indented, so that no message within can pass for a line of its own.
        lines = failure.getTraceback().rstrip().splitlines()
        text = "\n    ".join([text, *map(_escaped, lines)])
    if not text:
        return None
    level = event.get("log_level", LogLevel.info).name
    return f"{_when(event)} {level:<8} {text}\n"


def _json_line(event: LogEvent) -> str | None:
    text = _text(event)
    failure = event.get("log_failure")
    if not text and failure is None:
        return None
    line: dict[str, Any] = {
        "time": _when(event),
        "level": event.get("log_level", LogLevel.info).name,
        "source": event.get("log_namespace", ""),
        "message": text,
    }
    facts = {
        name: _fact(value)
        for name, value in event.items()
        if not name.startswith("log_") and name not in _FRAME
    }
    if facts:
        line["facts"] = facts
    if failure is not None:
        line["traceback"] = failure.getTraceback()
    return json.dumps(line) + "\n"


def _fact(value: object) -> object:
    """A value as JSON holds it; it has neither infinity nor objects."""
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value)
