"""
Finding offsets by time, a little in each turn of the reactor.

One query may read a whole batch, and one request may have a thousand of them:
answered in one go they would keep everybody else waiting for seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from tinymq.broker.broker import Broker
from tinymq.wire.messages import Offsets, OffsetsReply

#: Seconds of searching before others have their turn.
TURN_SECONDS: Final = 0.01


class _Search(NamedTuple):
    request: Offsets
    wanted: Callable[[], bool]
    answer: Callable[[OffsetsReply], None]
    results: list[tuple[int, int, int, int, object]]


class Searches:
    """
    Answers OFFSETS requests of all connections, each for a turn.

    Args:
        broker: Has the partitions.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._waiting: deque[_Search] = deque()

    def add(
        self, request: Offsets, wanted: Callable[[], bool], answer: Callable[[OffsetsReply], None]
    ) -> None:
        """
        Answer a request, at once if it is short and nothing else is under way.

        Args:
            request: What is asked.
            wanted: Whether the peer is still there.
            answer: Called once with the reply, unless the peer went.
        """
        self._waiting.append(_Search(request, wanted, answer, []))
        if len(self._waiting) == 1:
            self._turn()

    def _turn(self) -> None:
        scheduler = self._broker.scheduler
        until = scheduler.seconds() + TURN_SECONDS
        while self._waiting:
            search = self._waiting[0]
            if not search.wanted():
                self._waiting.popleft()
                continue
            queries, results = search.request.queries, search.results
            while len(results) < len(queries):
                if scheduler.seconds() > until:
                    self._waiting.rotate(-1)
                    scheduler.callLater(0, self._turn)
                    return
                one = [queries[len(results)]]
                part = Offsets(topic_id=search.request.topic_id, queries=one)
                results.extend(self._broker.offsets(part).results)
            self._waiting.popleft()
            search.answer(OffsetsReply(results=results))
