"""Numbers, sizes, durations and times as people read them. Pure functions."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from attrs import frozen
from typing_extensions import override

UNKNOWN: Final = "\N{EN DASH}"
_SIZES: Final = ("B", "KB", "MB", "GB", "TB", "PB")
_SECOND: Final = 1000
_MIB: Final = 1024 * 1024
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
#: A shown name of a zone is looked up, so it must be a short and plain one.
_ZONE_LENGTH: Final = 64


class Quantity(NamedTuple):
    """A figure and its unit, so that a page can show the unit in a quieter size."""

    figure: str
    unit: str

    @override
    def __str__(self) -> str:
        return f"{self.figure} {self.unit}".strip()


def number(value: float | None) -> str:
    """Write a whole number with its thousands separated; unknown is a dash."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def rate(value: float | None) -> str:
    """Write a rate with one decimal, and none from ten thousand on."""
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if value >= 10_000 else f"{value:,.1f}"


def size(value: float | None) -> Quantity:
    """
    Write bytes in the decimal unit that leaves one to four digits.

    Args:
        value: Bytes; None is unknown.
    """
    if value is None:
        return Quantity(UNKNOWN, "")
    amount = float(value)
    for unit in _SIZES:
        if abs(amount) < 999.95 or unit == _SIZES[-1]:
            break
        amount /= 1000
    return Quantity(f"{amount:,.0f}" if unit == "B" else f"{amount:,.1f}", unit)


def size_of(part: float, whole: float) -> str:
    """Write a part of a whole in one unit where both fit: ``301 of 500 GB``."""
    of = size(whole)
    scale = 1000 ** _SIZES.index(of.unit)
    if part / scale < 0.1:
        return f"{size(part)} of {of}"
    digits = 0 if whole / scale >= 100 else 1
    return f"{part / scale:,.{digits}f} of {whole / scale:,.{digits}f} {of.unit}"


def duration(ms: float | None) -> str:
    """
    Write a span of time with its two largest units.

    Args:
        ms: Milliseconds; None is unknown, less than zero counts as zero.
    """
    if ms is None:
        return UNKNOWN
    ms = max(ms, 0)
    if ms < _SECOND:
        return f"{ms:.0f} ms"
    if ms < _MINUTE:
        return f"{min(int(ms / 100), 599) / 10:.1f} s"
    if ms < _HOUR:
        minutes, seconds = int(ms // _MINUTE), int(ms % _MINUTE // _SECOND)
        return f"{minutes} m {seconds:02} s" if seconds else f"{minutes} m"
    if ms < _DAY:
        hours, minutes = int(ms // _HOUR), int(ms % _HOUR // _MINUTE)
        return f"{hours} h {minutes} m" if minutes else f"{hours} h"
    days, hours = int(ms // _DAY), int(ms % _DAY // _HOUR)
    return f"{days:,} d {hours} h" if hours and days < 10 else f"{days:,} d"


def setting_hint(name: str, value: str) -> str:
    """
    Say a setting's number as a person would; empty where that adds nothing.

    Args:
        name: Of the setting; its last part is the unit.
        value: As it is written.
    """
    if not value.isascii() or not value.isdigit() or len(value) > 18:
        return ""
    unit, amount = name.rpartition(".")[2], int(value)
    if unit == "ms" and amount >= _SECOND:
        return duration(amount)
    if unit == "bytes" and amount >= 1024:
        return str(size(amount)) if amount % _MIB else f"{amount // _MIB:,} MiB"
    return ""


def percent(part: float, whole: float) -> str:
    """Write a share of a whole without decimals."""
    return f"{100 * part / whole:.0f} %" if whole else UNKNOWN


def plural(count: int, one: str, many: str = "") -> str:
    """Write a number with its noun."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def zone(name: str | None) -> tzinfo:
    """
    Find a time zone by its IANA name.

    Args:
        name: Such as ``Europe/Berlin``. Empty or unknown names are UTC;
            ``local`` is the zone of this machine.
    """
    if name == "local":
        return datetime.now(UTC).astimezone().tzinfo or UTC
    if not name or len(name) > _ZONE_LENGTH or name.upper() == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        return UTC


@frozen
class Times:
    """
    Writes times in one zone, relative to one instant.

    Attributes:
        now_ms: The instant that ages are counted from.
        zone: The zone that clock times are written in.
    """

    now_ms: int
    zone: tzinfo = UTC

    def _at(self, ms: int) -> datetime | None:
        try:
            return datetime.fromtimestamp(ms / 1000, self.zone)
        except (ValueError, OSError, OverflowError):
            return None

    def zone_name(self, ms: int | None = None) -> str:
        """Name the zone as it is called at this instant."""
        at = self._at(self.now_ms if ms is None else ms)
        return (at and at.tzname()) or "UTC"

    def full(self, ms: int | None) -> str:
        """Write date, time to the millisecond, and zone."""
        if ms is None:
            return UNKNOWN
        at = self._at(ms)
        if at is None:
            return f"{ms} ms since 1970"
        return f"{at:%Y-%m-%d %H:%M:%S}.{ms % 1000:03d} {at.tzname()}"

    def clock(self, ms: int | None, *, millis: bool = False) -> str:
        """Write the time of day; with the date when it is not today's."""
        at = None if ms is None else self._at(ms)
        today = self._at(self.now_ms)
        if ms is None or at is None or today is None:
            return self.full(ms)
        text = f"{at:%H:%M:%S}" + (f".{ms % 1000:03d}" if millis else "")
        return text if at.date() == today.date() else f"{at:%Y-%m-%d} {text}"

    def minute(self, ms: int) -> str:
        """Write hour and minute, for the axis of a chart."""
        at = self._at(ms)
        return f"{at:%H:%M}" if at else UNKNOWN

    def date(self, ms: int | None) -> str:
        """Write the day."""
        at = None if ms is None else self._at(ms)
        return f"{at.day} {at:%B %Y}" if at else self.full(ms)

    def age(self, ms: int | None) -> str:
        """Write how long ago something was."""
        return UNKNOWN if ms is None else duration(self.now_ms - ms)

    def iso(self, ms: int | None) -> str:
        """Write ISO 8601 in UTC, for machines; empty when unknown."""
        at = None if ms is None else Times(self.now_ms)._at(ms)  # noqa: SLF001
        return f"{at:%Y-%m-%dT%H:%M:%S}.{(ms or 0) % 1000:03d}Z" if at else ""
