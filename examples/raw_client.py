"""
A client written from docs/protocol.md alone, as one in another language would be.

It needs a socket, struct and msgpack, and knows nothing of the package tinymq::

    python examples/raw_client.py [HOST [PORT [TOPIC]]]

It makes a topic, publishes three records as an idempotent producer, sends them
again as if the answer had been lost, and reads them back.
"""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Iterator
from typing import Any

import msgpack

HELLO, PING, GOODBYE, PRODUCE, FETCH, OFFSETS = 0x01, 0x03, 0x04, 0x10, 0x11, 0x12
INIT_PRODUCER, METADATA, OPERATE, ERROR = 0x13, 0x20, 0x21, 0xFF
REPLY = 0x80
NATIVE = -0x8000  # attribute bit 15 of a signed 16-bit field

FRAME = struct.Struct(">HBBII")
BATCH = struct.Struct(">qiibIhiqqqhii")
CHECKED = struct.Struct(">hiqqqhii")


def crc32c(data: bytes, crc: int = 0xFFFFFFFF) -> int:
    """Compute CRC-32C bit by bit; a real client takes a library."""
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def encode(values: list[bytes | None], producer: tuple[int, int, int]) -> bytes:
    """Encode values as one batch; the producer is its id, its epoch and the first sequence."""
    count = len(values)
    payload: bytes = msgpack.packb([None, None, None, msgpack.packb(values), None, None, None])
    checked = CHECKED.pack(NATIVE, count - 1, 0, 0, *producer, count) + payload
    head = struct.pack(">qiibI", 0, len(checked) + 9, -1, 2, crc32c(checked))
    return head + checked


def decode(run: bytes) -> Iterator[tuple[int, bytes | None]]:
    """Cut a run of batches into offsets and values."""
    while run:
        base, length, _, _, crc, attributes, *_, count = BATCH.unpack_from(run)
        batch, run = run[: length + 12], run[length + 12 :]
        if crc32c(batch[21:]) != crc:
            raise ValueError("a batch is corrupt")
        if attributes >= 0 or attributes & 7:
            raise ValueError("only native batches without a codec are read here")
        deltas, _, _, values, *_ = msgpack.unpackb(batch[61:])
        places = msgpack.unpackb(deltas) if deltas else range(count)
        found = msgpack.unpackb(values) if values else [None] * count
        for place, value in zip(places, found, strict=True):
            yield base + place, value


class Connection:
    """One connection that waits for each answer."""

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port), timeout=10)
        self.last_id = 0

    def send(self, kind: int, message_id: int, meta: dict[str, Any], payload: bytes = b"") -> None:
        """Send one frame."""
        packed = msgpack.packb(meta)
        body = struct.pack(">I", len(packed)) + packed + payload
        self.socket.sendall(FRAME.pack(0x544D, 1, kind, message_id, len(body)) + body)

    def read(self, size: int) -> bytes:
        """Read exactly so many bytes."""
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise ConnectionError("the broker closed the connection")
            data += piece
        return data

    def ask(self, kind: int, meta: dict[str, Any], payload: bytes = b"") -> tuple[Any, bytes]:
        """Send a request and return its reply's meta and payload."""
        self.last_id += 1
        self.send(kind, self.last_id, meta, payload)
        while True:
            _, _, reply, message_id, size = FRAME.unpack(self.read(FRAME.size))
            body = self.read(size)
            end = 4 + struct.unpack_from(">I", body)[0] if body else 0
            found = msgpack.unpackb(body[4:end]) if end > 4 else {}
            if reply == ERROR:
                raise RuntimeError(f"error {found['e']}: {found.get('x')} {found.get('d', '')}")
            if reply == GOODBYE:
                raise ConnectionError(found.get("x"))
            if message_id == self.last_id and reply == kind | REPLY:
                return found, body[end:]


def main(host: str = "127.0.0.1", port: str = "7800", topic: str = "raw-example") -> None:
    """Do a little of everything."""
    broker = Connection(host, int(port))
    hello, _ = broker.ask(HELLO, {"c": "raw-client", "s": "raw/1.0", "v": [1]})
    print(f"connected to {hello['c']}, {hello['s']}; a batch may have {hello['l']['batch']} bytes")

    metadata, _ = broker.ask(METADATA, {"n": [topic], "c": True})
    name, topic_id, leaders, _, error = metadata["t"][0]
    if error:
        raise RuntimeError(error["x"])
    print(f"topic {name} has {len(leaders)} partitions and the id {topic_id.hex()}")

    producer, _ = broker.ask(INIT_PRODUCER, {})
    batch = encode([b"one", b"two", None], (producer["p"], producer["e"], 0))
    stored, _ = broker.ask(PRODUCE, {"t": topic_id, "p": 0}, batch)
    again, _ = broker.ask(PRODUCE, {"t": topic_id, "p": 0}, batch)
    print(f"stored at {stored['o']}; again: {again['o']}, there before: {again.get('r', False)}")

    found, _ = broker.ask(OFFSETS, {"t": topic_id, "q": [[0, -2], [0, -1]]})
    (_, earliest, *_), (_, latest, *_) = found["q"]
    print(f"partition 0 holds offsets {earliest} to {latest}")

    wanted = stored["o"]
    while wanted < latest:
        fetched, run = broker.ask(FETCH, {"q": [[topic_id, [[0, wanted, -1]]]]})
        ((_, ((_, _, _, following, _, error),)),) = fetched["q"]
        if error:
            raise RuntimeError(error["x"])
        for offset, value in decode(run):
            if offset >= wanted:
                print(f"  {offset}: {value!r}")
        wanted = following

    info = msgpack.unpackb(broker.ask(OPERATE, {"o": "broker.info"})[1])
    print(f"the broker is {'ready' if info['ready'] else info['reason']}")
    broker.ask(PING, {})
    broker.send(GOODBYE, 0, {"x": "done"})
    print(f"closed in order: {broker.socket.recv(1) == b''}")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except OSError as error:
        sys.exit(f"error: no broker answers: {error}; name another: raw_client.py HOST PORT")
