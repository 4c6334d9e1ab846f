"""Roles of RabbitMQ with pika, as a user gets them who cares for speed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pika

from benches.tasks import Figures, Gate, Task, after_warming, ages, payloads, stamped, throughput

#: Messages that wait for their confirmation, and messages of one acknowledgement.
WINDOW, ACKNOWLEDGED = 500, 100
_DURABLE = pika.BasicProperties(delivery_mode=2)


def _parameters(task: Task) -> Any:
    host, _, port = task.where.rpartition(":")
    return pika.ConnectionParameters(host, int(port), heartbeat=0)


class _Publisher:
    """
    Publishes with confirmations on pika's own loop.

    Args:
        task: What to publish.
        gate: Where to wait.
        fill: Told the publisher when more may be sent.
    """

    def __init__(self, task: Task, gate: Gate, fill: Callable[[_Publisher], None]) -> None:
        self.sent = self.confirmed = 0
        self.began = 0.0
        self.channel: Any = None
        self._task, self._gate, self._fill = task, gate, fill
        self.connection = pika.SelectConnection(
            _parameters(task),
            on_open_callback=lambda found: found.channel(on_open_callback=self._opened),
            on_close_callback=lambda found, _: found.ioloop.stop(),
        )

    def run(self) -> Figures:
        """Publish everything, and sum it up."""
        self.connection.ioloop.start()
        return throughput(self._task, self._gate, self.began)

    def publish(self, value: bytes) -> None:
        """Publish one message."""
        self.channel.basic_publish("", self._task.topic, value, _DURABLE)
        self.sent += 1

    def _opened(self, channel: Any) -> None:
        self.channel = channel
        channel.confirm_delivery(self._confirmed, callback=lambda _: self._begin())

    def _begin(self) -> None:
        self.began = self._gate.ready()
        self._fill(self)

    def _confirmed(self, frame: Any) -> None:
        method = frame.method
        if not isinstance(method, pika.spec.Basic.Ack):
            raise TypeError("a message was refused")
        self.confirmed = method.delivery_tag if method.multiple else self.confirmed + 1
        if self.confirmed == self._task.count:
            self.connection.close()
        else:
            self._fill(self)


def produce(task: Task, gate: Gate) -> Figures:
    """Publish with a window of messages that are not confirmed."""
    values = payloads(WINDOW, task.size)

    def fill(publisher: _Publisher) -> None:
        waiting = publisher.sent - publisher.confirmed
        if waiting > WINDOW // 2:
            return
        for place in range(min(WINDOW - waiting, task.count - publisher.sent)):
            publisher.publish(values[place])

    return _Publisher(task, gate, fill).run()


def paced(task: Task, gate: Gate) -> Figures:
    """Publish at a rate, each with its time; what is due together goes together."""
    rate, make = task.options["rate"], stamped(task.size)
    waiting: list[bool] = []

    def fill(publisher: _Publisher) -> None:
        if not waiting:
            waiting.append(True)
            tick(publisher)

    def tick(publisher: _Publisher) -> None:
        now = time.monotonic() - publisher.began
        while publisher.sent < task.count and publisher.sent <= now * rate:
            publisher.publish(make())
        if publisher.sent < task.count:
            after = publisher.began + publisher.sent / rate - time.monotonic()
            publisher.connection.ioloop.call_later(max(0.0, after), lambda: tick(publisher))

    return _Publisher(task, gate, fill).run()


def _take(task: Task, gate: Gate, each: int, seen: Callable[[bytes], None]) -> Figures:
    """Take all messages, and acknowledge some at a time."""
    connection = pika.BlockingConnection(_parameters(task))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=task.options["window"])
    count = unacknowledged = 0
    began = gate.ready()
    for method, _, value in channel.consume(task.topic, inactivity_timeout=0.005):
        if method is None:
            if unacknowledged:
                channel.basic_ack(unacknowledged, multiple=True)
                unacknowledged = 0
            continue
        seen(value)
        count += 1
        unacknowledged = method.delivery_tag
        if count == task.count or count % each == 0:
            channel.basic_ack(unacknowledged, multiple=True)
            unacknowledged = 0
        if count == task.count:
            break
    connection.process_data_events(0)
    return throughput(task, gate, began)


def consume(task: Task, gate: Gate) -> Figures:
    """Take everything, with one acknowledgement for a hundred messages."""
    return _take(task, gate, ACKNOWLEDGED, lambda value: None)


def alone(task: Task, gate: Gate) -> Figures:
    """Take everything, with an acknowledgement for each message."""
    return _take(task, gate, 1, lambda value: None)


def latency(task: Task, gate: Gate) -> Figures:
    """Take what comes, tell how old it is, and acknowledge it at once."""
    taken: list[float] = []
    found = _take(task, gate, 1, lambda value: taken.extend(ages([value])))
    return found | after_warming(task, taken)
