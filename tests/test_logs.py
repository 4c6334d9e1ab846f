"""Log lines: one event, one line, whatever is in it."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.logger import LogEvent, LogLevel
from twisted.python.failure import Failure
from twisted.python.logfile import LogFile

from tinymq.config import LOG_LEVELS
from tinymq.logs import Logs


def written(form: str, level: str = "info", **event: Any) -> str:
    """What is written for an event."""
    output = io.StringIO()
    entry: LogEvent = {"log_level": LogLevel.info, "log_time": 0.0, "log_namespace": "tinymq.x"}
    Logs(output, form, level).observer({**entry, **event})
    return output.getvalue()


def failure(text: str) -> Failure:
    """A failure with a text, and a traceback."""
    try:
        int(text)
    except ValueError as error:
        error.args = (text,)
        return Failure()
    raise AssertionError(text)


def test_text() -> None:
    """A line has the time in UTC, the level and the text."""
    assert (
        written("text", log_format="{peer} closed", peer="p")
        == "1970-01-01T00:00:00.000Z info     p closed\n"
    )


def test_json() -> None:
    """A line of JSON has text and facts of their own."""
    line = json.loads(written("json", log_format="{peer} has {n}", peer="p", n=3, ok=True))
    assert line == {
        "time": "1970-01-01T00:00:00.000Z",
        "level": "info",
        "source": "tinymq.x",
        "message": "p has 3",
        "facts": {"peer": "p", "n": 3, "ok": True},
    }


def test_not_finite() -> None:
    """Numbers that JSON does not have are texts."""
    line = written("json", log_format="x", a=float("nan"), b=float("inf"), c=0.5)
    assert json.loads(line, parse_constant=pytest.fail)["facts"] == {
        "a": "nan",
        "b": "inf",
        "c": 0.5,
    }


def test_failure() -> None:
    """A traceback follows its line, and no message in it can pass for a line of its own."""
    forged = "x\n2026-01-01T00:00:00.000Z info     all is well\x1b[2J"
    text = written("text", log_format="it failed", log_failure=failure(forged))
    first, *rest = text.splitlines()
    assert first.endswith("it failed")
    assert all(line.startswith("    ") and line.isprintable() for line in rest)
    assert "ValueError: x" in text
    line = json.loads(written("json", log_format="it failed", log_failure=failure(forged)))
    assert forged in line["traceback"]


def test_failure_without_text() -> None:
    """A failure of which nothing else is said is written all the same."""
    for form in ("text", "json"):
        assert "ValueError: x" in written(form, log_failure=failure("x"))


@given(st.text(st.characters(codec=None), max_size=60))
def test_hostile(value: str) -> None:
    """No value breaks a line, obeys a terminal, or cannot be encoded."""
    for form in ("text", "json"):
        line = written(form, log_format="client {client} came", client=value)
        assert line.encode("utf-8").count(b"\n") == 1
        assert line.endswith("\n")
        assert line[:-1].isprintable()
    facts = json.loads(written("json", log_format="x", client=value))["facts"]
    assert facts["client"] == value


def test_braces() -> None:
    """A value with braces is a value, not a format."""
    assert "{peer.__class__}" in written("text", log_format="{a}", a="{peer.__class__}")


def test_unusable_format() -> None:
    """An event whose format is wrong is told as such, in one line."""
    assert written("text", log_format="{missing}").count("\n") == 1


def test_silent() -> None:
    """Events without a text, and what Twisted says of ports, are left out."""
    for form in ("text", "json"):
        assert written(form) == ""
        assert written(form, log_namespace="log_legacy", log_format="Site starting") == ""
        legacy = written(form, log_namespace="log_legacy", log_format="bad", isError=1)
        assert "bad" in legacy
        answers = {"log_namespace": "twisted.web._newclient.HTTPClientParser"}
        ignored = written(form, log_format="Ignoring unexpected 100 response", **answers)
        assert ignored == ""
        assert "bad" in written(form, log_format="bad", log_level=LogLevel.error, **answers)


def test_levels() -> None:
    """Only what is important enough is written, and that may be changed while running."""
    output = io.StringIO()
    logs = Logs(output, "text", "warn")
    event: LogEvent = {"log_format": "x", "log_time": 0.0, "log_namespace": "n"}
    for level in LOG_LEVELS:
        logs.observer({**event, "log_level": LogLevel.levelWithName(level)})
    assert output.getvalue().count("\n") == 3
    logs.level = "debug"
    assert logs.level == "debug"
    logs.observer({**event, "log_level": LogLevel.debug})
    assert output.getvalue().count("\n") == 4


def test_console() -> None:
    """Whether people see the lines is known."""
    assert Logs(sys.stderr, "text", "info").on_console
    assert not Logs(io.StringIO(), "text", "info").on_console


def test_file(tmp_path: Path) -> None:
    """A log file takes every line."""
    path = tmp_path / "log"
    log = LogFile.fromFullPath(str(path))
    Logs(log, "text", "info").observer(
        {
            "log_format": "{x}",
            "x": "\ud800ä",
            "log_level": LogLevel.info,
            "log_namespace": "n",
            "log_time": 0.0,
        }
    )
    log.close()
    assert path.read_text(encoding="utf-8").endswith("\\ud800ä\n")
