"""Roles of the blocking client, `tinymq.sync`."""

from __future__ import annotations

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
from tinymq.limits import MIB
from tinymq.sync import EARLIEST, Client

#: Bytes of one `send_batch`, which returns when all of it is stored.
CALL = 4 * MIB


def produce(task: Task, gate: Gate) -> Figures:
    """Publish with `send_batch`, call after call."""
    values = payloads(min(task.count, max(1, CALL // task.size)), task.size)
    with Client(task.where) as client, client.producer() as producer:
        client.metadata([task.topic])
        began = gate.ready()
        for count in portions(task.count, len(values)):
            producer.send_batch(task.topic, values if count == len(values) else values[:count])
        return throughput(task, gate, began)


def outstanding(task: Task, gate: Gate) -> Figures:
    """Publish one by one, each when the one before is stored."""
    (value,) = payloads(1, task.size)
    with Client(task.where) as client, client.producer() as producer:
        client.metadata([task.topic])
        began = gate.ready()
        taken = each_timed(task.count, lambda: producer.send(task.topic, value))
        return throughput(task, gate, began) | after_warming(task, taken)


def paced(task: Task, gate: Gate) -> Figures:
    """Publish at a rate, each with its time."""
    make = stamped(task.size)
    with Client(task.where) as client, client.producer() as producer:
        client.metadata([task.topic])
        began = gate.ready()
        pace(task.options["rate"], task.count, lambda: producer.send(task.topic, make()))
        return throughput(task, gate, began)


def consume(task: Task, gate: Gate) -> Figures:
    """Read everything from the start, as columns or as record objects."""
    with Client(task.where) as client, client.consumer() as consumer:
        client.metadata([task.topic])
        began = gate.ready()
        consumer.assign(task.topic, start=EARLIEST)
        seen = 0
        if task.options.get("records"):
            for batch in consumer:
                for record in batch:
                    seen += record.value is not None
                if seen >= task.count:
                    break
        else:
            for batch in consumer:
                seen += len(batch.values)
                if seen >= task.count:
                    break
        return throughput(task, gate, began)


def latency(task: Task, gate: Gate) -> Figures:
    """Read what comes, and tell how old it is."""
    with Client(task.where) as client, client.consumer() as consumer:
        consumer.assign(task.topic, start=EARLIEST)
        began = gate.ready()
        taken: list[float] = []
        for batch in consumer:
            taken += ages(batch.values)
            if len(taken) >= task.count:
                break
        return throughput(task, gate, began) | after_warming(task, taken)
