"""Times, durations, sizes and positions as people type them."""

from __future__ import annotations

import pytest

from tinymq.cli.values import (
    EARLIEST,
    LATEST,
    Position,
    human_size,
    human_span,
    iso,
    parse_position,
    parse_time,
    with_unit,
)
from tinymq.settings import parse_duration, parse_size

NOW = 1_750_000_000_000


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5", 5.0), ("0.5", 0.5), ("250ms", 0.25), ("10m", 600.0), ("1h30m", 5400.0), ("7d", 604800)],
)
def test_durations(text: str, seconds: float) -> None:
    """A duration has units, several of them, or is a number of seconds."""
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "10x", "10m!", "-5", "1 h"])
def test_no_durations(text: str) -> None:
    """What is no duration is refused as a whole."""
    with pytest.raises(ValueError, match="is no duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [("512", 512), ("64KiB", 65536), ("64k", 65536), ("1.5M", 1572864), ("2 GB", 2 << 30)],
)
def test_sizes(text: str, size: int) -> None:
    """Sizes count in powers of 1024 whatever the spelling."""
    assert parse_size(text) == size


def test_no_size() -> None:
    """What is no size is refused."""
    with pytest.raises(ValueError, match="is no size"):
        parse_size("many")


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1750000000123", 1_750_000_000_123),
        ("10m", NOW - 600_000),
        ("2025-06-15T15:06:40Z", NOW),
        ("2025-06-15T15:06:40", NOW),
        ("2025-06-15T17:06:40+02:00", NOW),
        ("2025-06-15", 1_749_945_600_000),
    ],
)
def test_times(text: str, ms: int) -> None:
    """A time is ISO-8601, milliseconds, or so long ago."""
    assert parse_time(text, NOW) == ms


@pytest.mark.parametrize("text", ["yesterday", "", "12"])
def test_no_times(text: str) -> None:
    """What is no time is refused, with examples."""
    with pytest.raises(ValueError, match="2026-01-31T12:00:00Z"):
        parse_time(text, NOW)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("earliest", EARLIEST),
        ("end", LATEST),
        ("17", Position("offset", 17)),
        ("-5", Position("last", 5)),
        ("@10m", Position("time", NOW - 600_000)),
        ("@2025-06-15T15:06:40Z", Position("time", NOW)),
    ],
)
def test_positions(text: str, position: Position) -> None:
    """Reading begins at an end of the log, an offset, the last few, or a time."""
    assert parse_position(text, NOW) == position


def test_no_position() -> None:
    """What is no position is refused."""
    with pytest.raises(ValueError, match="is no position"):
        parse_position("middle", NOW)


def test_shown_values() -> None:
    """Times are shown in UTC with milliseconds, sizes with a unit."""
    assert iso(1_750_000_000_007) == "2025-06-15T15:06:40.007Z"
    assert [human_size(n) for n in (0, 1023, 1536, 5 << 20, 3 << 30, 2 << 40)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "5.0 MiB",
        "3.0 GiB",
        "2.0 TiB",
    ]
    spans = [human_span(n) for n in (-1, 0, 59.6, 61, 3600, 90_000, 8 * 86_400)]
    assert spans == ["0s", "0s", "1m0s", "1m1s", "1h0m", "1d1h", "8d0h"]


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("retention.ms", "604800000", "604800000 (7d)"),
        ("undo.ms", "600000", "600000 (10m)"),
        ("undo.ms", "1500", "1500 (1.5s)"),
        ("retention.ms", "90061000", "90061000 (1d1h)"),
        ("sync.interval.ms", "200", "200"),
        ("retention.ms", "none", "none"),
        ("segment.bytes", "134217728", "134217728 (128.0 MiB)"),
        ("retention.bytes", "5", "5"),
        ("min.in.sync", "20000", "20000"),
    ],
)
def test_settings_with_their_unit(name: str, text: str, told: str) -> None:
    """A large number is written once more so that people can read it, and stays exact."""
    assert with_unit(name, text) == told
