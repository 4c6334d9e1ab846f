"""The row of compaction: its time and memory, and the broker's turns meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

import psutil

from benches.bench import Bench, Run, Runs
from benches.servers import TinyMQ
from benches.tasks import Figures, Task
from benches.trials import lateness, own_broker
from benches.workers import Failed
from tinymq.limits import MIB
from tinymq.sync import Client

#: Records and their keys.
RECORDS, KEYS = 5_000_000, 100_000
#: Records that are published at a time.
_BATCH = 5000
#: Bytes of a value.
_SIZE = 100
#: Seconds until all must be cleaned, and between two looks.
_PATIENCE, _LOOK = 600.0, 0.1
#: So many is coprime to the number of keys, so that each comes as often.
_STEP = 7919


def compact(bench: Bench) -> Runs:
    """Publish many records of few keys, and have them cleaned."""
    yield Run(f"{KEYS} keys", _SIZE, partial(_compact, bench))


def _compact(bench: Bench) -> Figures:
    count = bench.scaled(RECORDS)
    with own_broker(bench) as server, Client(server.where) as client:
        config = {"retention.mode": "compact", "sync": "os", "compact.min.dirty": 100}
        client.admin.create_topic("table", 1, config)
        with client.producer() as producer:
            for first in range(0, count, _BATCH):
                numbers = range(first, min(first + _BATCH, count))
                producer.send_batch(
                    "table",
                    [b"%0*d" % (_SIZE, number) for number in numbers],
                    keys=[b"key-%d" % (number * _STEP % KEYS) for number in numbers],
                )
        before = _facts(client)["bytes"]
        memory = server.memory
        loaded = Bench(bench.folder, {"tinymq": server}, bench.environment, bench.scale)
        pings = Task(
            client="raw", role="pings", where=server.where, topic="", count=100_000, size=0
        )
        with loaded.worker(pings) as pinging:
            pinging.go()
            began = time.monotonic()
            client.admin.operate("topic.compact", name="table")
            most = max(_memory(client, server))
            seconds = time.monotonic() - began
            turns = pinging.stop()
        after, late = _facts(client)["bytes"], lateness(server.broker.dashboard)
        return {
            "per_s": count / seconds,
            "clean_s": seconds,
            "before_mib": before / MIB,
            "after_mib": after / MIB,
            "worker_mib": most / MIB,
            "grown_mib": (server.memory - memory) / MIB,
            "ping_p99_us": turns["p99_us"],
            "late_ms": late,
        }


def _memory(client: Client, server: TinyMQ) -> Iterator[int]:
    """Yield the resident bytes of the process that cleans, until all is clean."""
    until = time.monotonic() + _PATIENCE
    while _facts(client)["dirty"]:
        if time.monotonic() > until:
            raise Failed("it was not cleaned in time")
        for child in server.process.children():
            try:
                yield int(child.memory_info().rss)
            except psutil.NoSuchProcess:
                continue
        time.sleep(_LOOK)
    yield 0


def _facts(client: Client) -> dict[str, int]:
    found = client.admin.operate("topic.compact", name="table", dry_run=True)
    return dict(found["compaction"])
