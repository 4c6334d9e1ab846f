"""What goes through one connection, counted, and how fast it goes."""

from __future__ import annotations

from typing import Final, NamedTuple

from tinymq.stats import IDLE, NOTHING, Counters, Rates

#: Seconds between two marks. A rate is the mean since the mark before the last
#: one, so of 6 to 12 seconds: about ten, for two values a connection and not ten.
MARK_SECONDS: Final = 6.0


class _Mark(NamedTuple):
    """The counters at a moment of the scheduler."""

    at: float
    counters: Counters


class Traffic:
    """
    Counts what goes through one connection.

    Args:
        now: The scheduler's time.

    Attributes:
        messages_in: Records published.
        messages_out: Records handed out.
        bytes_in: Bytes received.
        bytes_out: Bytes written.
        rates: As of the last sample.
    """

    __slots__ = (
        "_moving",
        "_newer",
        "_older",
        "bytes_in",
        "bytes_out",
        "messages_in",
        "messages_out",
        "rates",
    )

    def __init__(self, now: float) -> None:
        self.messages_in = 0
        self.messages_out = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.rates = IDLE
        self._older = self._newer = _Mark(now, NOTHING)
        self._moving = True

    @property
    def counters(self) -> Counters:
        """All counters."""
        return Counters(self.messages_in, self.messages_out, self.bytes_in, self.bytes_out)

    def sample(self, now: float, before: float) -> bool:
        """
        Compute the rates.

        Args:
            now: The scheduler's time.
            before: When the last sample was due; whoever was left out then had not moved.

        Returns:
            Whether there is anything left to be seen: sample it again next time.
        """
        counted = self.counters
        if not self._moving:
            self._older = self._newer = _Mark(before, self._newer.counters)
        if now - self._newer.at >= MARK_SECONDS:
            self._older, self._newer = self._newer, _Mark(now, counted)
        span, old = now - self._older.at, self._older.counters
        self._moving = counted != old
        if not self._moving:
            # The marks are alike; nothing is counted until it moves again.
            self._newer = self._older
            self.rates = IDLE
        elif span > 0:
            self.rates = Rates(
                (counted.messages_in - old.messages_in) / span,
                (counted.messages_out - old.messages_out) / span,
                (counted.bytes_in - old.bytes_in) / span,
                (counted.bytes_out - old.bytes_out) / span,
            )
        return self._moving
