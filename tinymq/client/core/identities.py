"""Producer ids for lanes: one for all at first, one of its own for a lane that recovers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinymq.client.core.cluster import Cluster
from tinymq.client.core.lane import Lane
from tinymq.errors import TinyMQError
from tinymq.wire.frames import Bytes
from tinymq.wire.messages import InitProducer, InitProducerReply


class Identities:
    """
    The producer ids of one producer.

    Args:
        cluster: Whom to ask.
        deadline_s: For how long.
        after: Called after lanes were given an id.
    """

    def __init__(self, cluster: Cluster, deadline_s: float, after: Callable[[], None]) -> None:
        self._cluster = cluster
        self._deadline_s = deadline_s
        self._after = after
        self._shared: tuple[tuple[int, int], int] | None = None
        self._waiting: list[Lane] | None = None

    def give(self, lane: Lane, now: float) -> None:
        """
        Give a lane an id that it never had.

        Args:
            lane: The lane.
            now: The time.
        """
        if lane.renewed:
            self._ask([lane], now, shared=False)
        elif self._shared is not None:
            lane.identified(*self._shared, None, now)
        elif self._waiting is not None:
            self._waiting.append(lane)
        else:
            self._waiting = [lane]
            self._ask(self._waiting, now, shared=True)

    def _ask(self, lanes: list[Lane], now: float, *, shared: bool) -> None:
        def told(reply: Any, _payload: Bytes, error: TinyMQError | None, now: float) -> None:
            if shared:
                self._waiting = None
            identity, window = None, 0
            if isinstance(reply, InitProducerReply):
                identity, window = (reply.producer_id, reply.epoch), reply.window
                if shared:
                    self._shared = identity, window
            for lane in lanes:
                lane.identified(identity, window, error, now)
            self._after()

        deadline = now + self._deadline_s
        self._cluster.ask(InitProducer(), deadline, told, now)
