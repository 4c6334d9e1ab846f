"""Rows about limits: many partitions, many topics, long frames, readers that do not read."""

from __future__ import annotations

import json
import shutil
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from benches.bench import DEFERRED, Bench, Outcome, Run, Runs, Subject
from benches.servers import TinyMQ
from benches.tasks import Figures, Task
from benches.workers import Failed
from tinymq.limits import DEFAULT_LIMITS, KIB, MIB
from tinymq.sync import Client

_ALWAYS, _OS = DEFERRED

#: Dashboard tabs, and seconds between two refreshes of one.
_TABS, _EVERY_S = 20, 2.0
#: Connections that never read; the broker takes no more requests of one.
_DEAF, _REQUESTS = 10, 100


@contextmanager
def own_broker(bench: Bench) -> Iterator[TinyMQ]:
    """Start a broker for one run, with data that go with it."""
    folder = bench.folder / bench.unused("broker")
    server = TinyMQ(folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _raw(server: TinyMQ, role: str, count: int, topic: str = "", size: int = 0) -> Task:
    return Task(client="raw", role=role, where=server.where, topic=topic, count=count, size=size)


# --- partitions ------------------------------------------------------------------


def partitions(bench: Bench) -> Runs:
    """Publish to few and to many partitions that all promise the disk."""
    for number in (1, 64, 1000):
        measure = partial(_partitions, bench, number)
        name = f"{number} partitions" if number > 1 else "1 partition"
        yield Run(name, 100, measure, _ALWAYS.meaning)


def _partitions(bench: Bench, number: int) -> Figures:
    began = time.perf_counter()
    with bench.topic(_ALWAYS, number) as topic:
        created = time.perf_counter() - began
        count = bench.amount(_ALWAYS, 100)
        fast = bench.publish(_ALWAYS, bench.task(_ALWAYS, "produce", topic, count, 100))
        turns = bench.scaled(50 if number < 100 else 10, 3)
        task = bench.task(_ALWAYS, "spread", topic, turns, 100, partitions=number)
        (slow,) = bench.run(bench.server(_ALWAYS), task).figures
    return {
        "per_s": fast["per_s"],
        "sync_p50_us": slow["p50_us"],
        "sync_p99_us": slow["p99_us"],
        "create_ms": created * 1000,
    }


# --- one long frame ----------------------------------------------------------------


def frame(bench: Bench) -> Runs:
    """Publish a long value in small pieces."""
    yield Run("tinymq os", 16 * MIB, partial(_frame, bench), _OS.meaning)


def _frame(bench: Bench) -> Figures:
    server = bench.servers["tinymq"]
    assert isinstance(server, TinyMQ)
    with bench.topic(_OS) as topic, bench.worker(_raw(server, "pings", 100_000)) as pinging:
        short, long = (
            bench.run(server, _raw(server, "pieces", times, topic, size - KIB))
            for size, times in ((MIB, 9), (16 * MIB, 3))
        )
        pinging.go()
        again = bench.run(server, _raw(server, "pieces", 3, topic, 16 * MIB - KIB))
        pings = pinging.stop()
    seconds = _median(short), min(_median(long), _median(again))
    return {
        "short_ms": seconds[0] * 1000,
        "long_ms": seconds[1] * 1000,
        "linear": seconds[1] / seconds[0] / 16,
        "ping_p99_us": pings["p99_us"],
        "ping_max_us": pings["max_us"],
    }


def _median(outcome: Outcome) -> float:
    return outcome.figures[0]["median_s"]


# --- turns of the reactor ------------------------------------------------------------


def turns(bench: Bench) -> Runs:
    """Publish, read, and look at the dashboard."""
    for subject in DEFERRED:
        yield Run(subject.name, 100, partial(_turns, bench, subject), subject.meaning)


def _turns(bench: Bench, subject: Subject) -> Figures:
    with own_broker(bench) as server:
        loaded = Bench(bench.folder, {"tinymq": server}, bench.environment, bench.scale)
        count = loaded.scaled(4 * subject.amount)
        with loaded.topic(subject) as topic:
            tabs = Task(
                client="raw",
                role="tabs",
                where=server.broker.dashboard,
                topic=topic,
                count=_TABS,
                options={"every_s": _EVERY_S},
            )
            reading = loaded.task(subject, "consume", topic, count, 100)
            writing = loaded.task(subject, "produce", topic, count, 100)
            with (
                loaded.worker(_raw(server, "pings", 100_000)) as pinging,
                loaded.worker(tabs) as looking,
            ):
                pinging.go()
                looking.go()
                read, written = loaded.run(server, reading, writing).figures
                pings, pages = pinging.stop(), looking.stop()
            late = lateness(server.broker.dashboard)
    return {
        "per_s": count / (read["ended"] - written["began"]),
        "late_ms": late,
        "ping_p50_us": pings["p50_us"],
        "ping_p99_us": pings["p99_us"],
        "page_p99_us": pages["p99_us"],
    }


def lateness(http: str) -> float:
    """Ask the broker how late its timers run."""
    with urllib.request.urlopen(f"{http}/api/v1/cluster", timeout=10) as answer:
        found = json.load(answer)
    return float(found["brokers"][0]["reactor_lag_ms"] or 0.0)


# --- readers that never read ------------------------------------------------------------


def deaf(bench: Bench) -> Runs:
    """Ask for much and read nothing, while another reads on."""
    yield Run(f"{_DEAF} connections", 1024, partial(_deaf, bench))


def _deaf(bench: Bench) -> Figures:
    with own_broker(bench) as server:
        alone = Bench(bench.folder, {"tinymq": server}, bench.environment, bench.scale)
        count = alone.scaled(300_000)
        with alone.topic(_OS) as topic:
            alone.publish(_OS, alone.task(_OS, "produce", topic, count, 1024))
            reading = alone.task(_OS, "consume", topic, count, 1024)
            (before,) = alone.run(server, reading).figures
            memory = server.memory
            task = Task(
                client="raw",
                role="deaf",
                where=server.where,
                topic=topic,
                count=_REQUESTS,
                options={"connections": _DEAF},
            )
            with alone.worker(task) as unread:
                unread.go()
                grown = _most_grown(server, memory, 1.5)
                (meanwhile,) = alone.run(server, reading).figures
                grown = max(grown, server.memory - memory)
                unread.stop()
    return {
        "grown_mib": grown / MIB,
        "bound_mib": _DEAF * DEFAULT_LIMITS.outgoing / MIB,
        "before_per_s": before["per_s"],
        "meanwhile_per_s": meanwhile["per_s"],
    }


def _most_grown(server: TinyMQ, memory: int, seconds: float) -> int:
    """Watch a broker's memory for a while."""
    until = time.monotonic() + seconds
    grown = 0
    while time.monotonic() < until:
        grown = max(grown, server.memory - memory)
        time.sleep(0.02)
    return grown


# --- many topics ------------------------------------------------------------------------


def topics(bench: Bench) -> Runs:
    """Make many topics, and start again with them."""
    yield Run(f"{bench.scaled(10_000)} topics", 3, partial(_topics, bench), _ALWAYS.meaning)


def _topics(bench: Bench) -> Figures:
    count = bench.scaled(10_000)
    with own_broker(bench) as server:
        task = Task(
            client="deferred",
            role="topics",
            where=server.where,
            count=count,
            options={"window": 100},
        )
        with bench.worker(task, 120.0) as making:
            making.go()
            made = making.figures()
        found = {
            "create_s": made["ended"] - made["began"],
            "files": float(server.open_files),
            "rss_mib": server.memory / MIB,
        }
        server.stop()
        found["start_s"] = _start(server, count)
        found["started_rss_mib"] = server.memory / MIB
        server.broker.kill()
        found["killed_start_s"] = _start(server, count)
        found["files"] = max(found["files"], float(server.open_files))
    return found


def _start(server: TinyMQ, count: int) -> float:
    """Start a broker, check that it has all topics, and tell how long it took."""
    began = time.perf_counter()
    server.start()
    seconds = time.perf_counter() - began
    with Client(server.where) as client:
        there = client.admin.operate("topic.list", limit=1)["total"]
        last = client.admin.topic(f"many-{count - 1}")["topic"]["messages"]
    if (there, last) != (count, 1):
        raise Failed(f"{there} of {count} topics are there, the last with {last} messages")
    return seconds
