"""What the broker said of messages that were settled together."""

from __future__ import annotations

from collections.abc import Callable

from tinymq.errors import TinyMQError

#: Told that what became of a message is written down, or why it is not.
Confirmed = Callable[[TinyMQError | None], None]


class Fate:
    """
    The answer to a settle of messages of one lease.

    Messages know their fate, and not the other way round, so that one that nobody
    holds any more is gone before the broker has answered.

    Attributes:
        bits: The messages that share it.
        done: Whether there is an answer.
    """

    __slots__ = ("_error", "_gone", "_waiting", "bits", "done")

    def __init__(self, bits: int = 0) -> None:
        self.bits = bits
        self.done = False
        self._gone = 0
        self._error: TinyMQError | None = None
        self._waiting: list[tuple[int, Confirmed]] = []

    def error_of(self, bits: int) -> TinyMQError | None:
        """
        Say why the broker did not take what became of messages.

        Args:
            bits: The messages.

        Returns:
            Why, or None if it did.
        """
        return self._error if self._gone & bits else None

    def when_done(self, bits: int, call: Confirmed) -> None:
        """
        Call when there is an answer.

        Args:
            bits: The messages that it is about.
            call: Told why the broker did not take what became of them, or None.
        """
        if self.done:
            call(self.error_of(bits))
        else:
            self._waiting.append((bits, call))

    def tell(self, gone: int, error: TinyMQError | None) -> int:
        """
        Take the answer.

        Args:
            gone: Messages of the lease of which the broker did not take it.
            error: Why.

        Returns:
            How many of these messages that concerns.
        """
        self.done = True
        self._gone, self._error = gone & self.bits, error
        waiting, self._waiting = self._waiting, []
        for bits, call in waiting:
            call(self.error_of(bits))
        return self._gone.bit_count()
