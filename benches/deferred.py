"""Roles of the client with Deferreds, `tinymq.client`."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from twisted.internet import reactor as any_reactor
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from benches.tasks import (
    Figures,
    Gate,
    Task,
    after_warming,
    ages,
    payloads,
    percentiles,
    portions,
    stamped,
    throughput,
)
from tinymq.client import EARLIEST, Client, GroupConfig, ProducerConfig, Share
from tinymq.limits import MIB

_reactor: Any = any_reactor

#: Bytes of one `send_batch`, and how many of them are on their way.
CALL = MIB
CALLS = 8
#: Transactions, and calls without one beside them, that are on their way.
TRANSACTIONS = 32


def run_client(body: Callable[[Client], Coroutine[Any, Any, Figures]], task: Task) -> Figures:
    """Run a coroutine on the reactor, with a client that knows the topic."""
    ended: list[Figures | Failure] = []

    async def whole() -> Figures:
        client = Client(_reactor, task.where)
        if task.topic:
            await client.metadata([task.topic])
        return await body(client)

    def done(result: Figures | Failure) -> None:
        ended.append(result)
        _reactor.stop()

    _reactor.callWhenRunning(lambda: Deferred.fromCoroutine(whole()).addBoth(done))
    _reactor.run()
    (result,) = ended
    if isinstance(result, Failure):
        result.raiseException()
    return result


def produce(task: Task, gate: Gate) -> Figures:
    """Publish with `send_batch`, several calls on their way; by key if there are any."""

    async def body(client: Client) -> Figures:
        values = payloads(min(task.count, max(1, CALL // task.size)), task.size)
        kinds = task.options.get("keys", 0)
        keys = [b"key-%d" % (number % kinds) for number in range(len(values))] if kinds else None
        producer = client.producer()
        waiting: deque[Deferred[Any]] = deque()
        began = gate.ready()
        for count in portions(task.count, len(values)):
            if len(waiting) >= CALLS:
                await waiting.popleft()
            part = None if keys is None else keys[:count]
            waiting.append(producer.send_batch(task.topic, values[:count], part))
        for each in waiting:
            await each
        return throughput(task, gate, began)

    return run_client(body, task)


def called(task: Task, gate: Gate) -> Figures:
    """Publish with a `send_batch` of so many records each, several on their way."""

    async def body(client: Client) -> Figures:
        values = payloads(task.options["call"], task.size)
        producer = client.producer()
        waiting: deque[Deferred[Any]] = deque()
        began = gate.ready()
        for count in portions(task.count, len(values)):
            if len(waiting) >= TRANSACTIONS:
                await waiting.popleft()
            waiting.append(producer.send_batch(task.topic, values[:count]))
        for each in waiting:
            await each
        return throughput(task, gate, began)

    return run_client(body, task)


def transacted(task: Task, gate: Gate) -> Figures:
    """Publish with a transaction of so many records each, several being committed."""

    async def body(client: Client) -> Figures:
        values = payloads(task.options["call"], task.size)
        producer = client.transactional("bench")
        waiting: deque[Deferred[Any]] = deque()
        began = gate.ready()
        for count in portions(task.count, len(values)):
            if len(waiting) >= TRANSACTIONS:
                await waiting.popleft()
            transaction = producer.begin()
            transaction.send_batch(task.topic, values[:count])
            waiting.append(transaction.commit())
        for each in waiting:
            await each
        return throughput(task, gate, began)

    return run_client(body, task)


def singles(task: Task, gate: Gate) -> Figures:
    """Publish with `send`, a Deferred for each message, up to a window on their way."""

    async def body(client: Client) -> Figures:
        window = task.options["window"]
        value = payloads(1, task.size)[0]
        producer = client.producer()
        done: Deferred[None] = Deferred()
        sent = ended = 0

        def more() -> None:
            nonlocal sent
            until = min(task.count, ended + window)
            while sent < until:
                sent += 1
                producer.send(task.topic, value).addCallbacks(stored, done.errback)

        def stored(position: object) -> None:
            nonlocal ended
            ended += 1
            if ended == task.count:
                done.callback(None)
            elif sent < task.count and sent - ended <= window // 2:
                more()

        began = gate.ready()
        more()
        await done
        return throughput(task, gate, began)

    return run_client(body, task)


def spread(task: Task, gate: Gate) -> Figures:
    """Publish one record to each partition and wait for all: what one sync of them takes."""

    async def body(client: Client) -> Figures:
        values = payloads(task.options["partitions"], task.size)
        producer = client.producer(ProducerConfig(partitioner="round_robin"))
        await producer.send_batch(task.topic, values)
        gate.ready()
        taken = []
        for _ in range(task.count):
            began = time.perf_counter()
            await producer.send_batch(task.topic, values)
            taken.append(time.perf_counter() - began)
        return percentiles(taken)

    return run_client(body, task)


def paced(task: Task, gate: Gate) -> Figures:
    """Publish at a rate, each with its time; what is due in one turn goes together."""

    async def body(client: Client) -> Figures:
        rate, make = task.options["rate"], stamped(task.size)
        producer = client.producer()
        done: Deferred[None] = Deferred()
        waiting: list[Deferred[Any]] = []
        began = gate.ready()

        def due() -> None:
            now = time.monotonic() - began
            while len(waiting) < task.count and len(waiting) <= now * rate:
                waiting.append(producer.send(task.topic, make()))
            if len(waiting) == task.count:
                done.callback(None)
            else:
                at = began + len(waiting) / rate
                _reactor.callLater(max(0.0, at - time.monotonic()), due)

        due()
        await done
        for each in waiting:
            await each
        return throughput(task, gate, began)

    return run_client(body, task)


def consume(task: Task, gate: Gate) -> Figures:
    """Read everything from the start, as columns or as record objects."""

    async def body(client: Client) -> Figures:
        consumer = client.consumer()
        began = gate.ready()
        await consumer.assign(task.topic, start=EARLIEST)
        seen = 0
        if task.options.get("records"):
            async for batch in consumer:
                for record in batch:
                    seen += record.value is not None
                if seen >= task.count:
                    break
        else:
            async for batch in consumer:
                seen += len(batch.values)
                if seen >= task.count:
                    break
        return throughput(task, gate, began)

    return run_client(body, task)


def group(task: Task, gate: Gate) -> Figures:
    """Read everything from the start, as the only member of a new group that commits."""

    async def body(client: Client) -> Figures:
        def hold(_shares: list[Share]) -> None:
            # Nothing is fetched before the clock runs. A later pause would leave a fetch on its
            # way, whose answer would be read, and dropped, while it runs.
            member.pause(task.topic)

        config = GroupConfig(on_assigned=hold)
        member = client.group(f"bench-{time.time_ns()}", [task.topic], config=config)
        await member.ready()
        began = gate.ready()
        member.resume(task.topic)
        seen = 0
        async for batch in member.batches():
            seen += len(batch.values)
            if seen >= task.count:
                batch.done()
                await member.commit()
                break
        return throughput(task, gate, began)

    return run_client(body, task)


def latency(task: Task, gate: Gate) -> Figures:
    """Read what comes, and tell how old it is."""

    async def body(client: Client) -> Figures:
        consumer = client.consumer()
        await consumer.assign(task.topic, start=EARLIEST)
        began = gate.ready()
        taken: list[float] = []
        async for batch in consumer:
            taken += ages(batch.values)
            if len(taken) >= task.count:
                break
        return throughput(task, gate, began) | after_warming(task, taken)

    return run_client(body, task)


def topics(task: Task, gate: Gate) -> Figures:
    """Make topics by publishing one message to each, up to a window on their way."""

    async def body(client: Client) -> Figures:
        producer = client.producer()
        waiting: deque[Deferred[Any]] = deque()
        began = gate.ready()
        for number in range(task.count):
            if len(waiting) >= task.options["window"]:
                await waiting.popleft()
            waiting.append(producer.send(f"many-{number}", b"one"))
        for each in waiting:
            await each
        return throughput(task, gate, began)

    return run_client(body, task)


def refresh(task: Task, gate: Gate) -> Figures:
    """Ask for the metadata of many topics, several times."""
    rounds = 3

    async def body(client: Client) -> Figures:
        names = [f"many-{number}" for number in range(task.count)]
        gate.ready()
        taken = []
        for _ in range(rounds):
            began = time.perf_counter()
            found = await client.metadata(names)
            taken.append(time.perf_counter() - began)
            assert len(found) == task.count
        return {"refresh_ms": min(taken) * 1000, "rounds": float(rounds)}

    return run_client(body, task)
