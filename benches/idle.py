"""Rows about what a work queue costs that does nothing, or waits."""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import partial

from benches.bench import DEFERRED, Bench, Run, Runs
from benches.idlers import subscribe
from benches.tasks import Figures, Task
from benches.trials import own_broker

#: Channels with a consumer each, and the topics that they are of, with a connection each.
CHANNELS, TOPICS = 10_000, 100
#: Seconds for which nothing is done: a look of retention at all, and a checkpoint, are among them.
SECONDS = 60.0


def idle(bench: Bench) -> Runs:
    """Have many channels with a consumer each, and do nothing."""
    yield Run(f"{bench.scaled(CHANNELS)} channels", 3, partial(_idle, bench))


def _idle(bench: Bench) -> Figures:
    count = bench.scaled(CHANNELS)
    with own_broker(bench) as server, ExitStack() as stack:
        memory, began = server.memory, time.monotonic()
        made = subscribe(server.where, count, min(TOPICS, count), stack)
        took = time.monotonic() - began
        grown = server.memory - memory
        time.sleep(2.0)  # what joining brought with it is over
        cpu, since = server.cpu, time.monotonic()
        time.sleep(SECONDS)
        busy = (server.cpu - cpu) / (time.monotonic() - since)
    return {
        "create_s": took,
        "core_percent": busy * 100,
        "channel_kib": grown / made / 1024,
    }


def memory(bench: Bench) -> Runs:
    """Deliver many messages, and settle none."""
    yield Run("tinymq, Deferred", 100, partial(_memory, bench))


def _memory(bench: Bench) -> Figures:
    (subject,) = (each for each in DEFERRED if each.sync == "os")
    count = bench.scaled(60_000)
    with own_broker(bench) as server:
        alone = Bench(bench.folder, {"tinymq": server}, bench.environment, bench.scale)
        with alone.topic(subject) as topic:
            alone.publish(subject, alone.task(subject, "produce", topic, count, 100))
            before = server.memory
            options = {"window": count * 3 // 2, "channel": "held"}
            task = Task(
                client="queue_roles",
                role="hold",
                where=server.where,
                topic=topic,
                count=count,
                options=options,
            )
            with bench.worker(task) as holding:
                holding.go()
                time.sleep(3.0)
                found = holding.stop()
                grown = (server.memory - before) / count
    return {
        "broker_bytes": max(0.0, grown),
        "client_waiting_bytes": found["waiting_bytes"],
        "client_held_bytes": found["held_bytes"],
    }
