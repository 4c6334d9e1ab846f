"""Roles of clients whose messages come later, `tinymq.client`."""

from __future__ import annotations

import time
from collections import deque
from random import Random
from typing import Any

from twisted.internet.defer import Deferred

from benches.deferred import CALL, CALLS, run_client
from benches.tasks import STAMP, Figures, Gate, Task, payloads, percentiles, portions, throughput
from tinymq.client import EARLIEST, Client

#: Messages of one call where each has a time of its own.
_TOGETHER = 1000


def produce(task: Task, gate: Gate) -> Figures:
    """Publish with `send_batch`; all have one delay, or each has its own within two."""

    async def body(client: Client) -> Figures:
        low, high = task.options["delay_s"]
        rng = Random(1)
        values = payloads(min(task.count, _TOGETHER, max(1, CALL // task.size)), task.size)
        delays: Any = low
        if high > low:
            delays = [rng.uniform(low, high) for _ in values]
        producer = client.producer()
        waiting: deque[Deferred[Any]] = deque()
        began = gate.ready()
        for count in portions(task.count, len(values)):
            if len(waiting) >= CALLS:
                await waiting.popleft()
            some = delays if type(delays) is not list else delays[:count]
            waiting.append(producer.send_batch(task.topic, values[:count], delay=some))
        for each in waiting:
            await each
        return throughput(task, gate, began)

    return run_client(body, task)


def lateness(task: Task, gate: Gate) -> Figures:
    """Publish messages for moments of the next seconds, and see how late each comes."""

    async def body(client: Client) -> Figures:
        rng = Random(2)
        producer, consumer = client.producer(), client.consumer()
        await consumer.assign(task.topic, start=EARLIEST)
        began = gate.ready()
        first = time.time_ns() // 1_000_000 + 2000
        filling = bytes(max(0, task.size - STAMP.size))
        for count in portions(task.count, _TOGETHER):
            dues = [
                first + rng.randrange(int(task.options["seconds"] * 1000)) for _ in range(count)
            ]
            await producer.send_batch(
                task.topic,
                [STAMP.pack(due * 1_000_000) + filling for due in dues],
                at=dues,
            )
        late: list[float] = []
        async for batch in consumer:
            now = time.time_ns()
            late += ((now - STAMP.unpack_from(value or b"")[0]) / 1e9 for value in batch.values)
            if len(late) >= task.count:
                break
        found = percentiles(late)
        return throughput(task, gate, began) | found | {"early": float(min(late) < 0)}

    return run_client(body, task)
