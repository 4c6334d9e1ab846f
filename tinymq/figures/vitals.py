"""How the process of a broker is: against its limits, and how late its timers run."""

from __future__ import annotations

import os
import resource
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, cast

import psutil

from tinymq import __version__
from tinymq.broker.broker import Broker
from tinymq.broker.housekeeping import Housekeeping, reserve_of
from tinymq.clockwork import Clockwork
from tinymq.stats import BrokerSnapshot

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tinymq.meta.registry import Topic
    from tinymq.stats import Role

#: Seconds between two looks at the reactor's lateness.
LAG_SECONDS: Final = 0.1
#: How many looks the percentile is taken from: a minute.
LAG_LOOKS: Final = 600
#: Seconds for which what the system tells of this process is true enough: with
#: thousands of connections it takes milliseconds to count the descriptors.
MEASURE_SECONDS: Final = 1.0


class _Measured(NamedTuple):
    """What the system tells of this process, and when on the scheduler."""

    at: float
    memory: int
    descriptors: int


class Connection(Protocol):
    """A client, as far as it shows here."""

    @property
    def paused_since(self) -> float | None:
        """Since when it takes no more of what is sent to it; None while it does."""

    @property
    def own(self) -> bool:
        """Whether it is a process of the cluster itself."""


class Vitals:
    """
    Looks at the process of a broker.

    Args:
        broker: The domain.

    Attributes:
        housekeeping: Knows the disk, once it is there.
        connections: The clients, once they are listened for.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.housekeeping: Housekeeping | None = None
        self.connections: Collection[Connection] = ()
        self.started_ms = broker.wall()
        self._lateness: deque[float] = deque(maxlen=LAG_LOOKS)
        self._clockwork = Clockwork(broker.scheduler)
        self._process = psutil.Process()
        self._memory_limit = psutil.virtual_memory().total
        self._measured: _Measured | None = None
        self._topics: Mapping[bytes, Topic] | None = None
        self._led = 0

    def start(self) -> None:
        """Begin to watch how late timers run."""
        self._clockwork.every(LAG_SECONDS, self._lateness.append)

    def stop(self) -> None:
        """End."""
        self._clockwork.stop()

    @property
    def lateness_ms(self) -> float | None:
        """The 99th percentile of how late a timer ran in the last minute, in milliseconds."""
        if not self._lateness:
            return None
        ordered = sorted(self._lateness)
        return max(0.0, ordered[int(len(ordered) * 0.99)] * 1000)

    def snapshot(self) -> BrokerSnapshot:
        """Look at everything; rates are for others to know."""
        broker, house = self._broker, self.housekeeping
        space = None if house is None else house.space
        files, registry = broker.store.folder.files, broker.meta.registry
        host, port = broker.address
        info = registry.brokers.get(broker.id)
        _, memory, descriptors = self._measure()
        return BrokerSnapshot(
            id=broker.id,
            name=broker.name,
            role=cast("Role", broker.config.cluster.role),
            zone=broker.config.cluster.zone,
            version=__version__,
            pid=os.getpid(),
            started_ms=self.started_ms,
            incarnation=0 if info is None else info.incarnation,
            listen=f"tinymq://{host}:{port}",
            memory=memory,
            memory_limit=self._memory_limit,
            disk_total=space.total if space else None,
            disk_used=space.total - space.free if space else None,
            disk_free=space.free if space else None,
            disk_reserve=(
                reserve_of(space, broker.config.storage.reserve_bytes) if space else None
            ),
            descriptors=descriptors,
            descriptors_limit=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            files=len(files),
            files_limit=files.max_open,
            reactor_lag_ms=self.lateness_ms,
            connections=len(self.connections),
            slow_clients=sum(each.paused_since is not None for each in self.connections),
            own_connections=sum(each.own for each in self.connections),
            refusing=broker.ready,
            partitions=registry.led.get(broker.id, 0),
            topics=self._topics_led(),
        )

    def _measure(self) -> _Measured:
        """Ask the system, unless that was done a moment ago."""
        now, last = self._broker.scheduler.seconds(), self._measured
        if last is None or now - last.at >= MEASURE_SECONDS:
            with self._process.oneshot():
                memory, descriptors = self._process.memory_info().rss, self._process.num_fds()
            last = self._measured = _Measured(now, memory, descriptors)
        return last

    def _topics_led(self) -> int:
        """Count the topics of which a partition is here; anew only when they changed."""
        topics = self._broker.meta.registry.topics
        if topics is not self._topics:
            self._topics = topics
            self._led = sum(self._broker.id in topic.leaders for topic in topics.values())
        return self._led
