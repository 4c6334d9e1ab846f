"""What people type and what they are shown: times, durations, sizes, positions, headers."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from math import ceil
from typing import Any, Final, Literal

import click
from attrs import frozen
from typing_extensions import override

from tinymq.limits import LATEST_MS
from tinymq.settings import DURATION_TEXT, parse_duration, parse_size


def parse_time(text: str, now_ms: int) -> int:
    """
    Read a point in time.

    Args:
        text: ISO-8601 (UTC when it has no zone), milliseconds since the epoch,
            or a duration that means so long ago: ``10m``.
        now_ms: The present.

    Returns:
        Milliseconds since the epoch.

    Raises:
        ValueError: It is none of these.
    """
    if re.fullmatch(r"\d{9,}", text):
        return int(text)
    if DURATION_TEXT.match(text):
        return now_ms - round(parse_duration(text) * 1000)
    return _iso_ms(text, "2026-01-31T12:00:00Z, milliseconds, or 10m (ago)")


def _iso_ms(text: str, such_as: str) -> int:
    """
    Read a point in time that is written as ISO-8601; UTC when it has no zone, as what is told.

    What lies between two milliseconds is the later one: nothing may come early.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no time; write {such_as}") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return ceil(moment.timestamp() * 1000)


def parse_moment(text: str) -> int:
    """
    Read a point in time that may lie ahead.

    Args:
        text: ISO-8601 (UTC when it has no zone), or milliseconds since the epoch.

    Returns:
        Milliseconds since the epoch.

    Raises:
        ValueError: It is none of these, or lies beyond the year 9999.
    """
    if re.fullmatch(r"\d{9,19}", text):
        return _not_too_late(int(text), text)
    found = _iso_ms(
        text, "2027-01-01T09:00+01:00, 2027-01-01T08:00 for UTC, or milliseconds since the epoch"
    )
    if found < 0:
        raise ValueError(f"{text!r} lies before 1970")
    return _not_too_late(found, text)


def _not_too_late(ms: int, text: str) -> int:
    if ms > LATEST_MS:
        raise ValueError(f"{text} lies beyond the end of the year 9999 ({LATEST_MS} ms)")
    return ms


def parse_ahead(text: str, now_ms: int) -> int:
    """
    Read a point in time, or how far it lies ahead.

    Args:
        text: As for `parse_moment`, or a duration.
        now_ms: The present.

    Returns:
        Milliseconds since the epoch.

    Raises:
        ValueError: It is none of these.
    """
    if not re.fullmatch(r"\d{9,}", text) and DURATION_TEXT.match(text) and "-" not in text:
        return now_ms + round(parse_duration(text) * 1000)
    return parse_moment(text)


def parse_delay(text: str) -> float:
    """
    Read how long something waits; the result is in seconds.

    Args:
        text: A duration.

    Raises:
        ValueError: It is none, or ends beyond the year 9999.
    """
    if text.startswith("-"):
        raise ValueError(f"a delay cannot be negative: {text}; 0 is at once")
    seconds = parse_duration(text)
    if seconds * 1000 > LATEST_MS - now_ms():
        raise ValueError(f"{text} from now is beyond the end of the year 9999 ({LATEST_MS} ms)")
    return seconds


def parse_life(text: str) -> float:
    """
    Read how long something lives; the result is in seconds.

    Args:
        text: A duration.

    Raises:
        ValueError: It is none, zero, or too long.
    """
    seconds = 0.0 if text.startswith("-") else parse_duration(text)
    if not 0 < seconds * 1000 <= LATEST_MS:
        raise ValueError(f"a time to live is above zero and at most {LATEST_MS} ms, not {text}")
    return seconds


def host_port(host: object, port: object) -> str:
    """
    Write an address.

    Args:
        host: A name or a number; one of IPv6 is put in brackets.
        port: The port.
    """
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"


def iso(ms: int) -> str:
    """Write a time as ISO-8601 in UTC."""
    moment = datetime.fromtimestamp(ms / 1000, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{ms % 1000:03d}Z"


def human_size(count: int) -> str:
    """Write a size for people."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def human_span(seconds: float) -> str:
    """Write a length of time for people, with its two largest units."""
    left = max(0, round(seconds))
    parts: list[str] = []
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count or parts or unit == "s":
            parts.append(f"{count}{unit}")
    return "".join(parts[:2])


def with_unit(name: str, text: str) -> str:
    """
    Write a setting's number once more for people, if it is a large one.

    Args:
        name: The setting; its end says what it counts.
        text: The number, or whatever else it is set to.
    """
    if not text.isdecimal():
        return text
    number, told = int(text), ""
    if name.endswith(".ms") and number >= 1000:
        seconds = number / 1000
        told = human_span(seconds) if number % 1000 == 0 else f"{seconds:.1f}s"
        told = re.sub(r"(?<=[dhm])0[hms]$", "", told)
    elif name.endswith(".bytes") and number >= 1024:
        told = human_size(number)
    return f"{text} ({told})" if told else text


@frozen
class Position:
    """
    Where reading begins.

    Attributes:
        kind: The ends of the log, an offset, a time, or that many from the end.
        value: Offset, milliseconds or count; 0 for the ends of the log.
    """

    kind: Literal["earliest", "latest", "offset", "time", "last"]
    value: int = 0


EARLIEST: Final = Position("earliest")
LATEST: Final = Position("latest")


def parse_position(text: str, now_ms: int) -> Position:
    """
    Read where reading begins.

    Args:
        text: ``earliest``, ``latest``, an offset, ``-5`` for the last five of each
            partition, or ``@TIME``.
        now_ms: The present.

    Raises:
        ValueError: It is none of these.
    """
    if text in {"earliest", "start"}:
        return EARLIEST
    if text in {"latest", "end"}:
        return LATEST
    if text.startswith("@"):
        return Position("time", parse_time(text[1:], now_ms))
    if re.fullmatch(r"\d{1,19}", text):
        return Position("offset", int(text))
    if re.fullmatch(r"-\d{1,19}", text):
        return Position("last", int(text[1:]))
    raise ValueError(f"{text!r} is no position; write earliest, latest, an offset, -N or @TIME")


def now_ms() -> int:
    """Tell the present in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def parse_header(text: str) -> tuple[str, bytes]:
    """Split ``name:value`` at its first colon."""
    name, colon, content = text.partition(":")
    if not colon or not name:
        raise ValueError(f"{text!r} is no header; write name:value")
    return name, os.fsencode(content)


def parse_setting(text: str) -> tuple[str, str]:
    """
    Split ``name=value`` at its first equals sign.

    What a setting counts is the end of its name: ``retention.ms=7d`` and
    ``segment.bytes=64MB`` are numbers of milliseconds and of bytes.

    Raises:
        ValueError: There is no equals sign, or no duration or size behind it.
    """
    name, equals, content = text.partition("=")
    if not equals or not name:
        raise ValueError(f"{text!r} is no setting; write name=value")
    content = content.strip()
    if content == "none" or re.fullmatch(r"-?\d+", content):
        return name, content
    try:
        if name.endswith(".ms"):
            return name, str(round(parse_duration(content) * 1000))
        if name.endswith(".bytes"):
            return name, str(parse_size(content))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    return name, content


class Parsed(click.ParamType):  # type: ignore[type-arg] # generic in new versions of click only
    """
    The type of an option whose text one of these functions reads.

    Args:
        name: What the help calls it.
        parse: Raises `ValueError` with a sentence for people.
    """

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the option's text; a default of the right type stays as it is."""
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


DURATION: Final = Parsed("time", parse_duration)
MOMENT: Final = Parsed("time", parse_moment)
#: The help of options that take one: `They come then: ...`
MOMENT_TEXT: Final = "ISO-8601, UTC without a zone, or milliseconds since 1970."
DELAY: Final = Parsed("time", parse_delay)
LIFE: Final = Parsed("time", parse_life)
SIZE: Final = Parsed("size", parse_size)
START: Final = Parsed("position", lambda text: parse_position(text, now_ms()))
HEADER: Final = Parsed("name:value", parse_header)
SETTING: Final = Parsed("name=value", parse_setting)
