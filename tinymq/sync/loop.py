"""What the objects of one blocking client share: a lock, a clock, and waiting."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf
from threading import RLock
from typing import Final

from tinymq.client.core.cluster import Cluster
from tinymq.client.core.fork import Home
from tinymq.sync.network import GLANCE_S, SocketNetwork

#: Seconds after which somebody looks whether anything is due, however busy callers are.
_LOOK_S: Final = 1.0
#: Seconds of connecting by the way, before a call that may need nothing of it.
_BRIEF_S: Final = 0.25


class Loop:
    """
    Runs the cluster while somebody waits.

    Args:
        network: The sockets.
        clock: Seconds that never go back.

    Attributes:
        cluster: The brokers.
        lock: Held by every public call.
        network: The sockets.
        quiet_until: Before this time nothing is due in the cluster; kept by
            those who look, see `glance`.
    """

    cluster: Cluster

    def __init__(self, network: SocketNetwork, clock: Callable[[], float] = time.monotonic) -> None:
        self.lock = RLock()
        self.now = clock
        self.network = network
        self.quiet_until = -inf
        self._home = Home()

    def check(self) -> None:
        """
        Refuse to work in another process.

        Raises:
            ForkedError: This is a child of the process that made the client.
        """
        self._home.check()

    def run(self, done: Callable[[], object], deadline: float) -> bool:
        """
        Read, write and tick until something is done.

        Args:
            done: Whether it is.
            deadline: When to stop in any case.

        Returns:
            Whether it is done.
        """
        network, cluster = self.network, self.cluster
        now = self.now()
        if now >= self.quiet_until:
            # A caller whose answers are always there would never come to what is due.
            network.patience = min(max(0.0, deadline - now), _BRIEF_S)
            self._look(now)
            now = self.now()
        if not done() and len(network):
            # The common case: the answer comes before anything else is due.
            found = network.wait(min(GLANCE_S, max(0.0, deadline - now)))
            now = self.now()
            network.work(found, now)
        while not done():
            if now >= deadline:
                return False
            network.patience = deadline - now
            cluster.tick(now)
            if done():
                break
            timeout = min(deadline, cluster.wake_at) - self.now()
            found = network.wait(max(0.0, timeout))
            now = self.now()
            network.work(found, now)
        return True

    def hear(self) -> None:
        """
        Read what came since the last call, above all that a connection has ended.

        What is written to such a connection may be stored as far as anybody knows,
        so that it could not go to another broker.
        """
        found = self.network.wait(0)
        if found:
            self.network.work(found, self.now())

    def glance(self) -> None:
        """Read what is there and do what is due, without waiting."""
        network = self.network
        network.work(network.wait(0), self.now())
        self._look(self.now())

    def _look(self, now: float) -> None:
        """Do what is due, and note when to look again."""
        if self.cluster.wake_at <= now:
            self.cluster.tick(now)
        self.quiet_until = min(self.cluster.wake_at, now + _LOOK_S)
