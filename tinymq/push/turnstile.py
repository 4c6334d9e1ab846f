"""
How many requests one broker has open at once, shared out fairly.

While there is room nobody waits, and who has no request open never does: slow endpoints
cannot take the room of the others. When there is none, the next turn goes to the endpoint
that has the fewest open.
"""

from __future__ import annotations

from collections import deque

from twisted.internet.defer import Deferred, succeed


class Turnstile:
    """
    Lets so many through at once.

    Args:
        most: How many.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: dict[object, int] = {}
        self._total = 0
        self._waiting: dict[object, deque[Deferred[None]]] = {}

    @property
    def total(self) -> int:
        """How many are through."""
        return self._total

    def enter(self, who: object) -> Deferred[None]:
        """
        Wait for a turn; who cancels that gives it up.

        Args:
            who: An endpoint.
        """
        if self._total < self._most or who not in self._open:
            self._count(who)
            return succeed(None)
        turn: Deferred[None] = Deferred(lambda turn: self._forget(who, turn))
        self._waiting.setdefault(who, deque()).append(turn)
        return turn

    def leave(self, who: object) -> None:
        """
        Give a turn to the next.

        Args:
            who: Who had it.
        """
        self._total -= 1
        left = self._open[who] - 1
        if left:
            self._open[who] = left
        else:
            del self._open[who]
        if self._waiting and self._total < self._most:
            following = min(self._waiting, key=lambda each: self._open.get(each, 0))
            line = self._waiting[following]
            turn = line.popleft()
            if not line:
                del self._waiting[following]
            self._count(following)
            turn.callback(None)

    def _count(self, who: object) -> None:
        self._total += 1
        self._open[who] = self._open.get(who, 0) + 1

    def _forget(self, who: object, turn: Deferred[None]) -> None:
        line = self._waiting[who]
        line.remove(turn)
        if not line:
            del self._waiting[who]
