"""Tables on a terminal, progress bars, and the little things of output."""

from __future__ import annotations

import io

import pytest
from typing_extensions import override

from tests.cli.conftest import Run
from tests.fakes.memory_broker import MemoryBroker
from tinymq.cli import output
from tinymq.cli.output import flat, printable, with_times
from tinymq.cli.progress import progress


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    @override
    def isatty(self) -> bool:
        """Claim to be one."""
        return True


def test_a_table_for_people(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal lists have a line below their heading."""
    monkeypatch.setattr(output, "on_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    lines = run("topic", "ls").output.splitlines()
    assert lines[1].split() == ["NAME", "PARTITIONS", "MESSAGES", "BYTES"]
    assert set(lines[2].strip()) == {"─"}
    assert lines[3].split() == ["audit", "1", "0", "0", "B"]


def test_long_names_are_folded_and_not_cut(
    broker: MemoryBroker, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A narrow terminal shows all of a long name, and every column."""
    name = "".join(chr(ord("a") + place % 26) for place in range(150))
    broker.make(name)
    monkeypatch.setattr(output, "on_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    text = run("topic", "ls", "--filter", "abc*").output
    assert name in "".join(line.split()[0] for line in text.splitlines() if line.strip()).replace(
        "NAME", ""
    )
    assert "BYTES" in text


def test_a_progress_bar_is_for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal sees a bar, anything else nothing at all."""
    for stream, seen in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr("sys.stderr", stream)
        with progress("working", 2) as advance:
            advance(1, "half of it")
        assert bool(stream.getvalue()) is seen


def test_cursor_movements_are_escaped() -> None:
    """What a terminal would obey is shown instead."""
    assert printable("a\x1b[2J\nö") == "a\\x1b[2J\\nö"


def test_times_get_twins() -> None:
    """Times are added in ISO-8601; durations and ids are left alone."""
    assert with_times([{"a_ms": 1_750_000_000_000, "b_ms": 5, "id": b"\x01"}]) == [
        {"a_ms": 1_750_000_000_000, "a": "2025-06-15T15:06:40.000Z", "b_ms": 5, "id": "01"}
    ]


def test_nested_facts() -> None:
    """Facts within facts are named with dots and written for people."""
    assert flat(
        {
            "disk": {"free_bytes": 2048},
            "started_ms": 1_750_000_000_000,
            "listen": ["a", "b"],
            "none": None,
        }
    ) == {
        "disk.free_bytes": "2.0 KiB",
        "started": "2025-06-15T15:06:40.000Z",
        "listen": "a, b",
        "none": "none",
    }


def test_figures_of_a_broker() -> None:
    """Bytes have a unit, whatever they count; a lag has one decimal."""
    told = flat({"memory": 61665280, "disk_free": 80247013376, "reactor_lag_ms": 39.92545, "id": 7})
    assert told == {
        "memory": "58.8 MiB",
        "disk_free": "74.7 GiB",
        "reactor_lag_ms": "39.9",
        "id": "7",
    }
