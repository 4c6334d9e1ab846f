"""What one client process does, as it is handed over on its command line."""

from __future__ import annotations

import json
import os
import resource
import select
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Self

from attrs import asdict, field, frozen

#: What a role gives back: figures by name.
Figures = dict[str, float]

#: The sending time at the beginning of a value, in nanoseconds of the monotonic clock.
STAMP: Final = struct.Struct(">q")

#: Values that differ from each other; then they repeat.
_DISTINCT: Final = 1000


@frozen(kw_only=True)
class Task:
    """
    The work of one client process.

    Attributes:
        client: Whose code does it: the name of a module of roles.
        role: What it does: a function there.
        where: A URL, or host and port.
        topic: The topic, stream or tube.
        count: How many messages.
        size: Bytes of a value.
        options: What only this role wants to know.
    """

    client: str
    role: str
    where: str
    topic: str = ""
    count: int = 0
    size: int = 100
    options: dict[str, Any] = field(factory=dict)

    def to_json(self) -> str:
        """Write it for a command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, written: str) -> Self:
        """Read what `to_json` wrote."""
        return cls(**json.loads(written))


class Gate:
    """Where a client process waits until all of its run are ready."""

    def __init__(self) -> None:
        self._cpu = 0.0

    def ready(self) -> float:
        """Say that everything is set up, wait for the start, and return the time."""
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        self._cpu = _cpu()
        return time.monotonic()

    def stopped(self) -> bool:
        """Whether the one who started it wants it to end."""
        return bool(select.select([sys.stdin], [], [], 0)[0])

    @property
    def cpu(self) -> float:
        """Seconds of processor time since the start."""
        return _cpu() - self._cpu


#: What does the work of a task.
Role = Callable[[Task, Gate], Figures]


def throughput(task: Task, gate: Gate, began: float) -> Figures:
    """Sum up a role that has just handled all messages of its task."""
    ended = time.monotonic()
    return {
        "began": began,
        "ended": ended,
        "per_s": task.count / (ended - began),
        "client_us": gate.cpu / task.count * 1e6,
    }


def percentiles(seconds: Sequence[float]) -> Figures:
    """Sum up latencies, in microseconds."""
    ordered = sorted(seconds)
    last = len(ordered) - 1
    return {
        "p50_us": ordered[min(last, len(ordered) // 2)] * 1e6,
        "p99_us": ordered[min(last, int(len(ordered) * 0.99))] * 1e6,
        "max_us": ordered[last] * 1e6,
    }


def payloads(count: int, size: int) -> list[bytes]:
    """Make values that do not compress."""
    data = os.urandom(min(count, _DISTINCT) * size)
    distinct = [data[place : place + size] for place in range(0, len(data), size)]
    return [distinct[number % len(distinct)] for number in range(count)]


def portions(count: int, most: int) -> Iterator[int]:
    """Cut a number of messages into calls."""
    while count > 0:
        yield min(count, most)
        count -= most


def stamped(size: int) -> Callable[[], bytes]:
    """Return what makes values with the time of their making."""
    tail = os.urandom(size - STAMP.size)
    return lambda: STAMP.pack(time.monotonic_ns()) + tail


def ages(values: Sequence[bytes | None]) -> list[float]:
    """Tell how many seconds ago values were made."""
    now = time.monotonic_ns()
    return [(now - STAMP.unpack_from(value or b"")[0]) / 1e9 for value in values]


def pace(rate: float, count: int, send: Callable[[], object]) -> None:
    """Send one by one at a rate; whoever is late catches up."""
    began = time.monotonic()
    for number in range(count):
        wait = began + number / rate - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        send()


def each_timed(count: int, send: Callable[[], object]) -> list[float]:
    """Send one by one and time each call."""
    clock = time.perf_counter
    taken = []
    for _ in range(count):
        began = clock()
        send()
        taken.append(clock() - began)
    return taken


def after_warming(task: Task, taken: Sequence[float]) -> Figures:
    """Sum up latencies without the first tenth, in which caches fill."""
    return percentiles(taken[task.count // 10 :])


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
