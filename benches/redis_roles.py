"""Roles of Redis Streams with redis-py and hiredis, as a user gets them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import redis

from benches.tasks import (
    Figures,
    Gate,
    Task,
    after_warming,
    ages,
    each_timed,
    pace,
    payloads,
    portions,
    stamped,
    throughput,
)

#: Messages of one pipeline, and of one XREAD.
WINDOW = 500


def _client(task: Task) -> Any:
    host, _, port = task.where.rpartition(":")
    found = redis.Redis(host=host, port=int(port))
    found.ping()
    return found


def produce(task: Task, gate: Gate) -> Figures:
    """Publish with XADD in pipelines."""
    client = _client(task)
    values = payloads(WINDOW, task.size)
    began = gate.ready()
    for count in portions(task.count, WINDOW):
        pipeline = client.pipeline(transaction=False)
        for value in values[:count]:
            pipeline.xadd(task.topic, {"d": value})
        pipeline.execute()
    return throughput(task, gate, began)


def outstanding(task: Task, gate: Gate) -> Figures:
    """Publish one by one, each when the one before is answered."""
    client = _client(task)
    (value,) = payloads(1, task.size)
    began = gate.ready()
    taken = each_timed(task.count, lambda: client.xadd(task.topic, {"d": value}))
    return throughput(task, gate, began) | after_warming(task, taken)


def paced(task: Task, gate: Gate) -> Figures:
    """Publish at a rate, each with its time."""
    client, make = _client(task), stamped(task.size)
    began = gate.ready()
    pace(task.options["rate"], task.count, lambda: client.xadd(task.topic, {"d": make()}))
    return throughput(task, gate, began)


def _read(client: Any, topic: str, after: str) -> tuple[list[bytes], str]:
    """Wait for entries behind an id."""
    values, ids = _entries(client.xread({topic: after}, count=WINDOW, block=2000))
    return values, ids[-1] if ids else after


def _entries(answer: Any) -> tuple[list[bytes], list[str]]:
    """Read an answer of one stream: values and ids; redis-py answers in one of two forms."""
    if not answer:
        return [], []
    entries = answer[0][1] if isinstance(answer, list) else next(iter(answer.values()))
    if entries and isinstance(entries[0], list):
        (entries,) = entries
    return [fields[b"d"] for _, fields in entries], [each for each, _ in entries]


def consume(task: Task, gate: Gate) -> Figures:
    """Read everything from the start with XREAD."""
    client = _client(task)
    began = gate.ready()
    seen, last = 0, "0"
    while seen < task.count:
        values, last = _read(client, task.topic, last)
        seen += len(values)
    return throughput(task, gate, began)


def latency(task: Task, gate: Gate) -> Figures:
    """Wait with XREAD for what comes, and tell how old it is."""
    client = _client(task)
    began = gate.ready()
    taken: list[float] = []
    last = "0"
    while len(taken) < task.count:
        values, last = _read(client, task.topic, last)
        taken += ages(values)
    return throughput(task, gate, began) | after_warming(task, taken)


def _grouped(task: Task, gate: Gate, seen: Callable[[list[bytes]], None]) -> Figures:
    """Take everything as a member of a group, and acknowledge what came together."""
    client, group = _client(task), task.options["channel"]
    client.xgroup_create(task.topic, group, id="0", mkstream=True)
    began = gate.ready()
    count = 0
    while count < task.count:
        values, ids = _entries(
            client.xreadgroup(
                group, "bench", {task.topic: ">"}, count=task.options["window"], block=2000
            )
        )
        if ids:
            seen(values)
            client.xack(task.topic, group, *ids)
            count += len(ids)
    return throughput(task, gate, began)


def grouped(task: Task, gate: Gate) -> Figures:
    """Take and acknowledge everything."""
    return _grouped(task, gate, lambda values: None)


def group_latency(task: Task, gate: Gate) -> Figures:
    """Take what comes, tell how old it is, and acknowledge it at once."""
    taken: list[float] = []
    found = _grouped(task, gate, lambda values: taken.extend(ages(values)))
    return found | after_warming(task, taken)
