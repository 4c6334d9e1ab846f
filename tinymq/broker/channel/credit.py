"""
Credit: how many messages a consumer takes from one broker, for all partitions together.

The consumer says how many messages may have been delivered to it up to now, in
all; the broker counts what it delivered. Both only rise, so a message that says
it twice, or too late, changes nothing, and nothing can be miscounted.
"""

from __future__ import annotations

from typing import Final

#: In a window as small as this every message counts more than its frame: it may be what
#: an idle worker waits for while the others are busy for long.
_SMALL: Final = 32


class Credit:
    """
    The window of one subscription.

    Args:
        window: How many messages its consumer wants in flight at most.

    Attributes:
        granted: How many messages may have been delivered, in all.
        delivered: How many were.
    """

    __slots__ = ("delivered", "granted", "window")

    def __init__(self, window: int) -> None:
        self.window = window
        self.granted = window
        self.delivered = 0

    @property
    def left(self) -> int:
        """How many messages may be delivered now."""
        return self.granted - self.delivered

    def grant(self, granted: int) -> bool:
        """
        Let more be delivered.

        Args:
            granted: How many in all; what was granted before is not taken back.

        Returns:
            Whether that is more than before.
        """
        more = granted > self.granted
        if more:
            self.granted = granted
        return more

    def usable(self, in_flight: int) -> int:
        """
        Return how many messages are worth sending now.

        A few would be a frame of their own, and so would the next few: under a
        quarter of the window it is better to wait, unless nothing is in flight
        that would bring more credit, or the window is small.

        Args:
            in_flight: Messages that the consumer has not settled.
        """
        left = self.left
        worth = left * 4 >= self.window or self.window <= _SMALL
        return left if worth or not in_flight else 0

    def use(self, count: int) -> None:
        """
        Count a delivery.

        Args:
            count: How many messages.
        """
        self.delivered += count
