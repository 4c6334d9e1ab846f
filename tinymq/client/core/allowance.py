"""How much brokers may deliver: a window of messages for each, and a bound for all of them."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final

from tinymq.client.core.hands import Hands

#: In a window as small as this each message is asked for as soon as there is room for it:
#: a worker may be idle while the others are busy for long.
_SMALL: Final = 32


class Pool:
    """
    What all brokers together may have delivered, whatever their shares are just now.

    Args:
        most: How many messages may be delivered and not settled.

    Attributes:
        most: The same.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._members: dict[Allowance, None] = {}

    @property
    def room(self) -> int:
        """How many messages more may be promised."""
        return self.most - sum(member.exposed for member in self._members)

    def add(self, member: Allowance) -> None:
        """
        Count what a broker has in from now on.

        Args:
            member: What it may deliver.
        """
        self._members[member] = None

    def remove(self, member: Allowance) -> None:
        """
        Count it no more.

        Args:
            member: It ended.
        """
        self._members.pop(member, None)

    def share_out(self, now: float) -> None:
        """
        Let those have what became free who have less than their share.

        Args:
            now: The time.
        """
        if len(self._members) > 1:
            for member in tuple(self._members):
                if member.wanting:
                    member.more(now)


class Allowance:
    """
    The client's side of credit at one broker.

    Both sides only count up, from SUBSCRIBE on, so nothing can be counted twice. What was
    granted cannot be taken back but by leaving.

    Args:
        hands: What the broker has put into the caller's hands.
        pool: The bound for all brokers.
        more: Asks for more when there is room again.

    Attributes:
        share: How many messages may be in the caller's hands at most.
        received: How many were delivered.
        granted: How many may have been delivered.
        more: Asks for more.
    """

    def __init__(self, hands: Hands, pool: Pool, more: Callable[[float], None]) -> None:
        self.share = 0
        self.received = 0
        self.granted = 0
        self.more = more
        self._hands = hands
        self._pool = pool
        self._bytes = inf
        pool.add(self)

    @property
    def left(self) -> int:
        """How many messages may still come."""
        return max(0, self.granted - self.received)

    @property
    def exposed(self) -> int:
        """How many messages are here, or may still come."""
        return self._hands.held + self.left

    @property
    def wanting(self) -> bool:
        """Whether it has less than its share."""
        return self.exposed < self.share

    @property
    def over(self) -> bool:
        """Whether more may still come than its share is by now."""
        return self.left > self.share

    def allow(self, share: int, size: float) -> None:
        """
        Say how much may be here.

        Args:
            share: How many messages.
            size: How many bytes, about.
        """
        self.share = share
        self._bytes = size

    def begin(self) -> int:
        """
        Count anew.

        Returns:
            How many may be delivered at first.
        """
        self.end()
        more = min(self._window - self._hands.held, self._pool.room)
        self.granted = max(0, more)
        return self.granted

    def end(self) -> None:
        """Note that nothing can be delivered any more: the link was lost, or it was left."""
        self.received = self.granted = 0

    def close(self) -> None:
        """Note that nothing ever will be."""
        self.end()
        self._pool.remove(self)

    def grant(self) -> bool:
        """
        Let more be delivered, when it is worth a frame.

        Returns:
            Whether the broker is to be told.
        """
        window, left = self._window, self.left
        exposed = self._hands.held + left
        more = window - exposed
        # A broker that has less than a quarter left waits for more, unless nothing is here.
        if more <= 0 or not self._worth(more, window, left, exposed):
            return False
        room = self._pool.room
        if room < more and (room <= 0 or not self._worth(room, window, left, exposed)):
            return False
        self.granted += min(more, room)
        return True

    @staticmethod
    def _worth(more: int, window: int, left: int, exposed: int) -> bool:
        useful = more * 4 >= window or left * 4 < window <= (left + more) * 4
        return useful or window <= _SMALL or not exposed

    @property
    def _window(self) -> int:
        """How many messages may be here, by number and by bytes."""
        each = self._hands.each
        if not each or not self.share:
            return self.share
        return min(self.share, max(1, int(self._bytes / each)))
