"""Roles of beanstalkd with greenstalk, which has no pipelining: one put, one answer."""

from __future__ import annotations

from typing import Any

import greenstalk

from benches.tasks import (
    Figures,
    Gate,
    Task,
    after_warming,
    ages,
    each_timed,
    pace,
    payloads,
    stamped,
    throughput,
)


def _client(task: Task) -> Any:
    host, _, port = task.where.rpartition(":")
    return greenstalk.Client((host, int(port)), encoding=None, use=task.topic, watch=task.topic)


def produce(task: Task, gate: Gate) -> Figures:
    """Publish one by one, each when the one before is answered."""
    client = _client(task)
    (value,) = payloads(1, task.size)
    began = gate.ready()
    taken = each_timed(task.count, lambda: client.put(value))
    return throughput(task, gate, began) | after_warming(task, taken)


outstanding = produce


def paced(task: Task, gate: Gate) -> Figures:
    """Publish at a rate, each with its time."""
    client, make = _client(task), stamped(task.size)
    began = gate.ready()
    pace(task.options["rate"], task.count, lambda: client.put(make()))
    return throughput(task, gate, began)


def consume(task: Task, gate: Gate) -> Figures:
    """Reserve and delete each message."""
    client = _client(task)
    began = gate.ready()
    for _ in range(task.count):
        client.delete(client.reserve())
    return throughput(task, gate, began)


def latency(task: Task, gate: Gate) -> Figures:
    """Reserve what comes, tell how old it is, and delete it."""
    client = _client(task)
    began = gate.ready()
    taken: list[float] = []
    for _ in range(task.count):
        job = client.reserve()
        taken += ages([job.body])
        client.delete(job)
    return throughput(task, gate, began) | after_warming(task, taken)
