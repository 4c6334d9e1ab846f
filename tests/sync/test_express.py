"""The short way of single records, and every way out of it."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Timer

import pytest

from tests.sync.server import Server
from tinymq.errors import DeadlineExceeded, InvalidRequest, NotLeader, WireError
from tinymq.sync import Client, ClientConfig, Producer, ProducerConfig
from tinymq.sync.express import _position
from tinymq.wire.frames import encode_frame
from tinymq.wire.header import REPLY, MessageType
from tinymq.wire.messages import Message, Produce


@pytest.fixture
def server() -> Iterator[Server]:
    """Return a running puppet broker."""
    with Server() as server:
        yield server


@pytest.fixture
def producer(server: Server) -> Iterator[Producer]:
    """Return a producer that took the common way once."""
    with Client(server.url, ClientConfig(deadline_s=2)) as client:
        producer = client.producer(ProducerConfig(deadline_s=2))
        producer.send("t", b"first")
        yield producer


def test_many(server: Server, producer: Producer) -> None:
    """Records with keys of all kinds follow one another and are accounted for."""
    keys = [None, "a", b"b", bytearray(b"c"), b""]
    offsets = [producer.send("t", b"%d" % n, key=key).offset for n, key in enumerate(keys)]

    assert offsets == [1, 2, 3, 4, 5]
    assert [producer.account.sent, producer.pending] == [6, 0]
    log = server.puppet.topics["t"].logs[0]
    assert list(range(6)) == [header.base_sequence for header in log.headers]


def test_long_records_and_tombstones(server: Server, producer: Producer) -> None:
    """What is large or no bytes takes the common way, in order with the rest."""
    values = [bytes(20_000), None, b"x"]
    for value in values:
        producer.send("t", value)
    producer.send("t", b"y", key=bytes(20_000))

    assert [b"first", *values, b"y"] == server.puppet.values("t")


def test_refused_once(server: Server, producer: Producer) -> None:
    """A passing error is waited out by the common way."""
    refused: list[Message] = []

    def refuse(request: Message) -> WireError | None:
        if isinstance(request, Produce) and not refused:
            refused.append(request)
            return NotLeader()
        return None

    server.puppet.refuse = refuse

    assert producer.send("t", b"a").offset == 1
    assert producer.send("t", b"b").offset == 2
    assert producer.account.sent == 3


def test_refused_for_good(server: Server, producer: Producer) -> None:
    """Another error is raised, and the next record is stored."""
    server.puppet.refuse = lambda request: InvalidRequest("no")
    with pytest.raises(InvalidRequest):
        producer.send("t", b"a")
    server.puppet.refuse = lambda request: None
    producer.send("t", b"b")

    assert server.puppet.values("t") == [b"first", b"b"]
    assert [
        producer.account.sent,
        producer.account.failed_count,
        producer.account.pending,
    ] == [2, 1, 0]


def test_link_lost(server: Server, producer: Producer) -> None:
    """A record whose answer was lost with the link is stored once."""
    server.cut_after = 1
    server.reads = 0
    timer = Timer(0.05, lambda: setattr(server, "cut_after", 0))
    timer.start()
    position = producer.send("t", b"a")
    timer.join()

    assert position.offset == 1
    assert server.puppet.values("t") == [b"first", b"a"]


def test_late_answer(server: Server, producer: Producer) -> None:
    """An answer that takes longer than a glance comes by the common way; none, in time."""
    server.puppet.deaf = {MessageType.PRODUCE}
    timer = Timer(0.05, server.cut)
    timer.start()
    quick = Timer(0.04, server.puppet.deaf.clear)
    quick.start()

    assert producer.send("t", b"a").offset == 1
    timer.join()
    quick.join()
    server.puppet.mute = {MessageType.PRODUCE}
    with Client(server.url) as client:
        hasty = client.producer(ProducerConfig(deadline_s=0.1))
        with pytest.raises(DeadlineExceeded):
            hasty.send("t", b"b")
    server.puppet.mute = set()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (None, None),
        (b"", None),
        (b"".join(encode_frame(MessageType.PRODUCE | REPLY, 7, {"o": 5, "d": 6})), (5, 6, False)),
        (
            b"".join(encode_frame(MessageType.PRODUCE | REPLY, 7, {"o": 5, "d": 6, "v": True})),
            (5, 6, True),
        ),
        (b"".join(encode_frame(MessageType.PRODUCE | REPLY, 8, {"o": 5, "d": 6})), None),
        (b"".join(encode_frame(MessageType.PING | REPLY, 7)), None),
        (b"".join(encode_frame(MessageType.PRODUCE | REPLY, 7, {"o": "x", "d": 6})), None),
        (b"".join(encode_frame(MessageType.PRODUCE | REPLY, 7, {"o": 5, "d": 6})) + b"T", None),
        (b"".join(encode_frame(MessageType.PRODUCE | REPLY, 7, {"o": 5}, [b"x"])), None),
        (b"TM\x01\x90\0\0\0\x07\0\0\0\x05\0\0\0\x01\xc1", None),
    ],
)
def test_only_the_expected_answer(
    data: bytes | None, expected: tuple[int, int, bool] | None
) -> None:
    """Anything but exactly the expected answer is left to the common way."""
    assert expected == _position(data, 7)


def test_after_a_late_answer(server: Server, producer: Producer) -> None:
    """A record that cannot go the short way is sent after one whose answer came late."""
    server.puppet.deaf = {MessageType.PRODUCE}
    cut = Timer(0.05, server.cut)
    hear = Timer(0.04, server.puppet.deaf.clear)
    cut.start()
    hear.start()
    producer.send("t", b"late")
    cut.join()
    hear.join()

    assert producer.send("t", b"a", headers={"h": b"v"}).offset == 2
    assert producer.send("t", b"b", partition=0).offset == 3
    assert server.puppet.values("t") == [b"first", b"late", b"a", b"b"]
