"""Roles on bare sockets: frames in small pieces, pings, readers that never read, browser tabs."""

from __future__ import annotations

import heapq
import http.client
import os
import socket
import statistics
import time
from typing import Any
from urllib.parse import urlsplit

from benches.tasks import Figures, Gate, Task, percentiles
from tinymq.limits import KIB, MIB
from tinymq.wire.frames import FrameDecoder, encode_frame
from tinymq.wire.header import REPLY, MessageType
from tinymq.wire.messages import (
    EARLIEST,
    Fetch,
    Hello,
    Message,
    Metadata,
    Offsets,
    Ping,
    Produce,
)
from tinymq.wire.records import encode_batch

_LONGEST = 64 * MIB


class Connection:
    """A connection that has said HELLO and waits for each answer."""

    def __init__(self, url: str) -> None:
        where = urlsplit(url)
        self.socket = socket.create_connection((where.hostname or "", where.port or 0), 10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._decoder = FrameDecoder(_LONGEST)
        self._last_id = 0
        self.ask(Hello(client_id="bench"))

    def encode(self, message: Message, payload: bytes = b"") -> bytes:
        """Encode a request with the next id."""
        self._last_id += 1
        pieces = [payload] if payload else []
        return b"".join(encode_frame(message.type, self._last_id, message.to_meta(), pieces))

    def answer(self) -> dict[str, Any]:
        """Wait for the answer to the last request."""
        while data := self.socket.recv(256 * KIB):
            for frame in self._decoder.feed(data):
                if frame.type == MessageType.ERROR:
                    raise ConnectionError(str(frame.split()[0]))
                if frame.type & REPLY and frame.message_id == self._last_id:
                    return frame.split()[0]
        raise ConnectionError("the broker closed the connection")

    def ask(self, message: Message) -> dict[str, Any]:
        """Send a request and wait for its answer."""
        self.socket.sendall(self.encode(message))
        return self.answer()

    def topic_id(self, name: str) -> bytes:
        """Ask for the id of a topic."""
        row = self.ask(Metadata(names=[name]))["t"][0]
        found: bytes = row[1]
        return found


def pieces(task: Task, gate: Gate) -> Figures:
    """Publish one long value several times, in pieces of 1 KiB."""
    connection = Connection(task.where)
    produce = Produce(topic_id=connection.topic_id(task.topic), partition=0)
    batch = encode_batch([os.urandom(task.size)])
    gate.ready()
    taken = []
    for _ in range(task.count):
        frame = memoryview(connection.encode(produce, batch))
        began = time.perf_counter()
        for place in range(0, len(frame), KIB):
            connection.socket.sendall(frame[place : place + KIB])
        connection.answer()
        taken.append(time.perf_counter() - began)
    return {"median_s": statistics.median(taken)}


def pings(task: Task, gate: Gate) -> Figures:
    """Ask for signs of life every millisecond until told to stop: what a turn takes."""
    connection = Connection(task.where)
    gate.ready()
    taken: list[float] = []
    while len(taken) < task.count:
        began = time.perf_counter()
        connection.ask(Ping())
        taken.append(time.perf_counter() - began)
        if gate.stopped():
            break
        time.sleep(0.001)
    return percentiles(taken)


def deaf(task: Task, gate: Gate) -> Figures:
    """Ask for much data on several connections, and read nothing until told to stop."""
    first = Connection(task.where)
    topic = first.topic_id(task.topic)
    offsets = first.ask(Offsets(topic_id=topic, queries=[(0, EARLIEST)]))
    start = offsets["q"][0][1]
    fetch = Fetch(topics=[(topic, [(0, start, -1)])], max_bytes=MIB)
    connections = [first]
    connections += [Connection(task.where) for _ in range(task.options["connections"] - 1)]
    gate.ready()
    for connection in connections:
        for _ in range(task.count):
            connection.socket.sendall(connection.encode(fetch))
    while not gate.stopped():
        time.sleep(0.02)
    return {"asked_bytes": float(len(connections) * task.count * MIB)}


def tabs(task: Task, gate: Gate) -> Figures:
    """Refresh dashboard pages, as open browser tabs do, until told to stop."""
    where = urlsplit(task.where)
    every, pages = task.options["every_s"], ["/", "/topics", f"/topics/{task.topic}"]
    opened = [
        http.client.HTTPConnection(where.hostname or "", where.port, timeout=20)
        for _ in range(task.count)
    ]
    for number, tab in enumerate(opened):
        _load(tab, pages[number % len(pages)])
    began = gate.ready()
    due = [(began + every * number / task.count, number) for number in range(task.count)]
    taken = []
    while not gate.stopped():
        at, number = heapq.heappop(due)
        time.sleep(max(0.0, min(at - time.monotonic(), every)))
        asked = time.perf_counter()
        _load(opened[number], pages[number % len(pages)], {"HX-Request": "true"})
        taken.append(time.perf_counter() - asked)
        heapq.heappush(due, (at + every, number))
    return percentiles(taken or [0.0])


def _load(
    tab: http.client.HTTPConnection, page: str, headers: dict[str, str] | None = None
) -> None:
    """Ask for a page and read it."""
    tab.request("GET", page, headers=headers or {})
    answer = tab.getresponse()
    answer.read()
    if answer.status != http.client.OK:
        raise ConnectionError(f"{page}: {answer.status} {answer.reason}")
