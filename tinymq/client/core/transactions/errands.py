"""Requests that are made again after every failure that may pass, each where its answer leads."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

from attrs import define, field

from tinymq.client.core.cluster import Cluster
from tinymq.client.core.lookups import may_repeat
from tinymq.errors import ClosedError, DeadlineExceeded, NotCoordinator, TinyMQError

#: Told how an attempt ended: the answer or an error, and the time.
Told = Callable[[Any, "TinyMQError | None", float], None]
#: Makes one attempt, which ends at some time at the latest: who is told, that time, the time now.
Attempt = Callable[[Told, float, float], None]


@define(eq=False)
class Errand:
    """
    Something that is tried until it succeeds, or fails for good.

    Attributes:
        attempt: Tries it once.
        told: Told how it ended.
        deadline: When it is given up.
        at: When it is tried again.
        failures: How often it failed.
        why: What it failed with last.
        over: Whether nobody waits for it any more.
    """

    attempt: Attempt
    told: Told
    deadline: float = inf
    at: float = inf
    failures: int = 0
    why: TinyMQError | None = None
    over: bool = field(default=False)


class Errands:
    """
    The errands of one producer.

    Args:
        cluster: The brokers.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._waiting: set[Errand] = set()
        self._open: set[Errand] = set()

    @property
    def wake_at(self) -> float:
        """When `tick` has something to do."""
        return min((min(each.at, each.deadline) for each in self._waiting), default=inf)

    def run(self, attempt: Attempt, told: Told, deadline: float, now: float) -> Errand:
        """
        Try something until it succeeds, or fails for good.

        Args:
            attempt: Tries it once.
            told: Told how it ended.
            deadline: When it is given up.
            now: The time.
        """
        errand = Errand(attempt, told, deadline)
        self._open.add(errand)
        self._try(errand, now)
        return errand

    def drop(self, errand: Errand) -> None:
        """
        Tell nobody how an errand ends.

        Args:
            errand: From `run`.
        """
        errand.over = True
        self._open.discard(errand)
        self._waiting.discard(errand)

    def tick(self, now: float) -> None:
        """
        Try again what has waited long enough.

        Args:
            now: The time.
        """
        for errand in [one for one in self._waiting if min(one.at, one.deadline) <= now]:
            self._waiting.discard(errand)
            if errand.over:
                continue
            if errand.deadline <= now:
                self._end(errand, None, errand.why or DeadlineExceeded(), now)
            else:
                self._try(errand, now)

    def give_up(self, error: TinyMQError, now: float) -> None:
        """
        End all.

        Args:
            error: Why.
            now: The time.
        """
        for errand in tuple(self._open):
            self._end(errand, None, error, now)

    def _end(self, errand: Errand, reply: Any, error: TinyMQError | None, now: float) -> None:
        self._waiting.discard(errand)
        if not errand.over:
            errand.over = True
            self._open.discard(errand)
            errand.told(reply, error, now)

    def _try(self, errand: Errand, now: float) -> None:
        cluster = self._cluster
        if cluster.closed:
            self._end(errand, None, ClosedError("the client was closed"), now)
            return

        def told(reply: Any, error: TinyMQError | None, now: float) -> None:
            if errand.over:
                return
            if error is None or cluster.closed or not may_repeat(error):
                self._end(errand, reply, error, now)
                return
            errand.why = error
            errand.failures += 1
            elsewhere = isinstance(error, NotCoordinator) and errand.failures < 3
            delay = cluster.config.backoff.delay(errand.failures, cluster.chance())
            errand.at = now if elsewhere else now + delay
            self._waiting.add(errand)
            if elsewhere:
                self.tick(now)

        errand.at = inf
        until = min(errand.deadline, now + cluster.config.request_timeout_s)
        errand.attempt(told, until, now)
