"""How long an endpoint wants to be left alone, and how long one is that fails."""

from __future__ import annotations

from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

#: Longest time that an endpoint can ask for.
MOST_WAIT_S: Final = 86_400.0
#: Pause after the second failure in a row; each further one doubles it, up to the last.
FIRST_PAUSE_S: Final = 0.25
MOST_PAUSE_S: Final = 60.0


def retry_after(value: str, now_ms: int) -> float | None:
    """
    Read a header ``Retry-After``.

    Args:
        value: Seconds, or a date.
        now_ms: The wall clock.

    Returns:
        Seconds, at most a day; None where it says nothing that helps.
    """
    value = value.strip()
    if value.isascii() and value.isdigit():
        return min(float(value[:12]), MOST_WAIT_S) or None
    try:
        moment = parsedate_to_datetime(value[:100])
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        seconds = moment.timestamp() - now_ms / 1000
    except (ValueError, OverflowError, TypeError, IndexError):
        return None
    return min(seconds, MOST_WAIT_S) if seconds > 0 else None


def pause_after(failures: int) -> float:
    """
    Say how long nothing is sent after failures in a row: one alone says nothing of the endpoint.

    Args:
        failures: How many.
    """
    return min(FIRST_PAUSE_S * 2.0 ** min(failures - 2, 20), MOST_PAUSE_S) if failures > 1 else 0.0
