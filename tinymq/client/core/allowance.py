"""How much one broker may deliver: a window of messages, also bounded by their bytes."""

from __future__ import annotations

from math import inf


class Allowance:
    """
    The client's side of credit at one broker.

    Both sides only count up, from SUBSCRIBE on, so nothing can be counted twice.

    Attributes:
        share: How many messages may be in the caller's hands at most.
        received: How many were delivered.
        granted: How many may have been delivered.
    """

    def __init__(self) -> None:
        self.share = 0
        self.received = 0
        self.granted = 0
        self._bytes = inf

    def allow(self, share: int, size: float) -> None:
        """
        Say how much may be here.

        Args:
            share: How many messages.
            size: How many bytes, about.
        """
        self.share = share
        self._bytes = size

    def begin(self, held: int, each: float) -> int:
        """
        Count anew.

        Args:
            held: Messages that are here.
            each: Bytes of a message, about.

        Returns:
            How many may be delivered at first.
        """
        self.received = 0
        self.granted = max(0, self._window(each) - held)
        return self.granted

    def grant(self, held: int, each: float) -> bool:
        """
        Let more be delivered, when it is worth a frame.

        Args:
            held: Messages that are here.
            each: Bytes of a message, about.

        Returns:
            Whether the broker is to be told.
        """
        window = self._window(each)
        left = self.granted - self.received
        more = window - held - left
        # A broker that has less than a quarter left waits for more, unless nothing is here.
        useful = more * 4 >= window or left * 4 < window <= (left + more) * 4
        if more <= 0 or not (useful or not held + left):
            return False
        self.granted += more
        return True

    def _window(self, each: float) -> int:
        """How many messages may be here, by number and by bytes."""
        if not each or not self.share:
            return self.share
        return min(self.share, max(1, int(self._bytes / each)))
