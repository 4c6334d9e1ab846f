"""Roles of the work queue with the client with Deferreds, `tinymq.client`."""

from __future__ import annotations

from collections import deque
from typing import Any

import psutil
from twisted.internet import reactor as any_reactor
from twisted.internet.defer import Deferred

from benches.deferred import run_client
from benches.tasks import Figures, Gate, Task, after_warming, ages, throughput
from tinymq.client import Client, Message, Subscription, SubscriptionConfig

_reactor: Any = any_reactor


def _subscribe(client: Client, task: Task) -> Subscription:
    config = SubscriptionConfig(max_in_flight=task.options["window"])
    return client.subscription(task.topic, task.options["channel"], config)


async def _handled(
    subscription: Subscription, handler: Any, done: Deferred[None], *, manual: bool = False
) -> None:
    """Run a handler until it says that all is done, and until all settles are confirmed."""
    most = subscription.config.max_in_flight
    running = subscription.run(handler, concurrency=most, manual=manual)
    running.addErrback(done.errback)
    await done
    await subscription.settled()


def function(task: Task, gate: Gate) -> Figures:
    """Settle each message alone, as it comes out of a plain function."""

    async def body(client: Client) -> Figures:
        done: Deferred[None] = Deferred()
        seen = 0

        def handle(message: Message) -> None:
            nonlocal seen
            seen += message.value is not None
            if seen == task.count:
                done.callback(None)

        began = gate.ready()
        await _handled(_subscribe(client, task), handle, done)
        return throughput(task, gate, began)

    return run_client(body, task)


def coroutine(task: Task, gate: Gate) -> Figures:
    """Settle each message alone, as it comes out of a coroutine function."""

    async def body(client: Client) -> Figures:
        done: Deferred[None] = Deferred()
        seen = 0

        async def handle(message: Message) -> None:
            nonlocal seen
            seen += message.value is not None
            if seen == task.count:
                done.callback(None)

        began = gate.ready()
        await _handled(_subscribe(client, task), handle, done)
        return throughput(task, gate, began)

    return run_client(body, task)


def eights(task: Task, gate: Gate) -> Figures:
    """Settle each message alone, eight in each turn of the reactor."""

    async def body(client: Client) -> Figures:
        done: Deferred[None] = Deferred()
        waiting: deque[Message] = deque()
        settled = 0

        def turn() -> None:
            nonlocal settled
            count = min(8, len(waiting))
            for _ in range(count):
                waiting.popleft().finish()
            settled += count
            if settled == task.count:
                done.callback(None)
            elif count:
                _reactor.callLater(0, turn)

        def handle(message: Message) -> None:
            waiting.append(message)
            if len(waiting) == 1:
                _reactor.callLater(0, turn)

        began = gate.ready()
        await _handled(_subscribe(client, task), handle, done, manual=True)
        return throughput(task, gate, began)

    return run_client(body, task)


def latency(task: Task, gate: Gate) -> Figures:
    """Take what comes, tell how old it is, and finish it at once."""

    async def body(client: Client) -> Figures:
        done: Deferred[None] = Deferred()
        taken: list[float] = []

        def handle(message: Message) -> None:
            taken.extend(ages([message.value]))
            if len(taken) == task.count:
                done.callback(None)

        subscription = _subscribe(client, task)
        await subscription.ready()
        began = gate.ready()
        await _handled(subscription, handle, done)
        return throughput(task, gate, began) | after_warming(task, taken)

    return run_client(body, task)


def ranges(task: Task, gate: Gate) -> Figures:
    """Take batches, look at their values, and settle each as a whole."""

    async def body(client: Client) -> Figures:
        subscription = _subscribe(client, task)
        seen = 0
        began = gate.ready()
        while seen < task.count:
            batch = await subscription.next_batch(task.options["window"])
            assert batch is not None
            seen += len(batch.values)
            batch.finish()
        await subscription.settled()
        return throughput(task, gate, began)

    return run_client(body, task)


def hold(task: Task, gate: Gate) -> Figures:
    """Take messages with a window for all of them, and keep them until told to stop."""

    async def body(client: Client) -> Figures:
        subscription = _subscribe(client, task)
        await subscription.ready()
        gate.ready()
        before = _resident()
        while subscription.in_flight < task.count:
            await _later(0.0)
        waiting = _resident()
        held: list[Message | None] = []
        while len(held) < task.count:
            held.append(await subscription.next())
        found = {
            "waiting_bytes": (waiting - before) / task.count,
            "held_bytes": (_resident() - before) / task.count,
        }
        while not gate.stopped():
            await _later(0.05)
        return found

    return run_client(body, task)


def _resident() -> int:
    return int(psutil.Process().memory_info().rss)


def _later(seconds: float) -> Deferred[None]:
    later: Deferred[None] = Deferred()
    _reactor.callLater(seconds, later.callback, None)
    return later
