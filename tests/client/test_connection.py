"""One connection, as bytes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.client.puppet import Line, Puppet
from tinymq.client.core.config import ClientConfig
from tinymq.client.core.connection import Connection
from tinymq.errors import (
    BadMagic,
    ConnectionLost,
    DeadlineExceeded,
    MalformedFrame,
    ShuttingDown,
    TinyMQError,
    UnknownType,
    UnsupportedVersion,
    WireError,
)
from tinymq.wire.frames import FrameDecoder, encode_frame
from tinymq.wire.header import MAX_MESSAGE_ID, REPLY, MessageType
from tinymq.wire.messages import Goodbye, HelloReply, Metadata, error_from_meta, error_meta

Ended = list[tuple[Any, TinyMQError | None]]


class Talk:
    """A connection and the puppet that it talks to."""

    def __init__(self, *, greet: bool = True, **config: Any) -> None:
        self.puppet = Puppet()
        self.line = Line(self.puppet)
        self.now = 0.0
        self.connection = Connection(ClientConfig(**config), self.now)
        self.ended: Ended = []
        if greet:
            self.exchange()

    def ask(self, kind: int = MessageType.METADATA, deadline: float = 10.0) -> int:
        """Encode a request whose end is noted."""

        def done(reply: Any, payload: Any, error: TinyMQError | None, now: float) -> None:
            self.ended.append((reply, error))

        return self.connection.request(kind, Metadata().to_meta(), (), deadline, done)

    def exchange(self) -> None:
        """Move bytes both ways once."""
        self.line.feed(b"".join(map(bytes, self.connection.data_to_send())))
        self.hear(self.line.take())

    def hear(self, data: bytes) -> None:
        """Give the client bytes."""
        self.connection.receive(data, self.now)
        self.connection.check_invariants()


def test_hello_first() -> None:
    """HELLO is the first frame, tells who we are, and brings the limits."""
    talk = Talk(greet=False, client_id="me", heartbeat_s=7)
    talk.connection.check_invariants()
    talk.puppet.limits = talk.puppet.limits.__class__(batch=12345)
    talk.exchange()

    assert talk.connection.ready
    (hello,) = talk.puppet.hellos
    assert (hello.client_id, hello.heartbeat, hello.versions) == ("me", 7, [1])
    assert talk.connection.limits.batch == 12345


def test_reply_and_error() -> None:
    """A reply and an error frame each end their own request."""
    talk = Talk()
    talk.ask()
    talk.ask(0x55)
    talk.exchange()

    assert [error is None for _, error in talk.ended] == [True, False]
    assert isinstance(talk.ended[1][1], UnknownType)
    assert talk.connection.pending == 0


def test_replies_in_any_order() -> None:
    """Replies are told apart by their message id."""
    talk = Talk()
    first, second = talk.ask(), talk.ask(MessageType.INIT_PRODUCER)
    answers = {first: b"", second: b""}
    for number, kind, meta in (
        (first, MessageType.METADATA, {"r": 1, "b": [], "t": []}),
        (second, MessageType.INIT_PRODUCER, {"p": 7, "e": 0, "w": 64}),
    ):
        answers[number] = b"".join(encode_frame(kind | REPLY, number, meta))
    talk.hear(answers[second] + answers[first])

    assert [talk.ended[0][0].producer_id, talk.ended[1][0].revision] == [7, 1]


def test_ids_wrap_and_skip_open_ones() -> None:
    """Ids wrap to 1 and never meet an open request."""
    talk = Talk()
    talk.connection._last_id = MAX_MESSAGE_ID - 1
    assert [talk.ask(), talk.ask()] == [MAX_MESSAGE_ID, 1]
    talk.connection._last_id = MAX_MESSAGE_ID - 1

    assert talk.ask() == 2


def test_deadline() -> None:
    """A request without an answer ends at its deadline; the late answer is counted."""
    talk = Talk()
    talk.ask(deadline=5.0)
    talk.ask(deadline=9.0)
    assert talk.connection.wake_at == 5.0
    talk.connection.tick(4.9)
    assert not talk.ended
    talk.connection.tick(5.0)
    assert isinstance(talk.ended[0][1], DeadlineExceeded)
    assert talk.connection.wake_at == 9.0
    talk.exchange()

    assert [talk.connection.late, len(talk.ended)] == [1, 2]


def test_forget() -> None:
    """A forgotten request is not ended."""
    talk = Talk()
    talk.connection.forget(talk.ask())
    talk.exchange()

    assert not talk.ended


def test_loss_ends_everything_once() -> None:
    """On loss each pending request ends, and one that asks again meets no old table."""
    talk = Talk()
    lost = ConnectionLost("gone")

    def again(reply: Any, payload: Any, error: TinyMQError | None, now: float) -> None:
        talk.ended.append((reply, error))
        assert talk.connection.pending == 0

    talk.connection.request(MessageType.PING, {}, (), 9.0, again)
    talk.ask()
    talk.connection.lost(lost, talk.now)
    talk.connection.lost(ConnectionLost("again"), talk.now)
    talk.connection.check_invariants()

    assert [lost, lost] == [error for _, error in talk.ended]


def test_heartbeats() -> None:
    """Silence brings a PING after one interval and the end after three."""
    talk = Talk()
    assert talk.connection.wake_at == 15.0
    talk.connection.tick(15.0)
    (frame,) = FrameDecoder(99).feed(b"".join(map(bytes, talk.connection.data_to_send())))
    assert frame.type == MessageType.PING
    talk.connection.tick(30.0)
    assert talk.connection.data_to_send()

    with pytest.raises(ConnectionLost, match="the other side was silent for 45 s"):
        talk.connection.tick(45.0)


def test_a_broker_that_pings_hears_from_us() -> None:
    """A broker whose own PING always comes first hears from an idle client all the same."""
    talk = Talk()
    heard = 0
    for second in range(1, 100):
        talk.now = float(second)
        if second % 15 == 0:
            talk.hear(b"".join(map(bytes, encode_frame(MessageType.PING, 0))))
        if talk.connection.wake_at <= second:
            talk.connection.tick(talk.now)
        heard += len(
            list(FrameDecoder(99).feed(b"".join(map(bytes, talk.connection.data_to_send()))))
        )

    assert heard == 6


def test_any_byte_is_life() -> None:
    """Half a frame is a sign of life."""
    talk = Talk()
    talk.now = 44.0
    talk.hear(b"T")
    talk.connection.tick(46.0)


def test_broker_pings() -> None:
    """A PING of the broker is answered; unknown requests are refused politely."""
    talk = Talk()
    talk.hear(b"".join(encode_frame(MessageType.PING, 9) + encode_frame(0x44, 10)))
    talk.hear(b"".join(encode_frame(MessageType.PING, 0) + encode_frame(0x44, 0)))
    answers = list(FrameDecoder(9999).feed(b"".join(map(bytes, talk.connection.data_to_send()))))

    assert [(frame.type, frame.message_id) for frame in answers] == [
        (MessageType.PING | REPLY, 9),
        (0xFF, 10),
    ]
    assert isinstance(error_from_meta(answers[1].split()[0]), UnknownType)


def test_goodbyes() -> None:
    """Both sides may say goodbye; answers on the way still count."""
    talk = Talk()
    talk.ask()
    talk.hear(b"".join(encode_frame(MessageType.GOODBYE, 0, Goodbye(reason="bye").to_meta())))
    assert talk.connection.draining
    talk.exchange()
    assert talk.ended[0][1] is None
    talk.connection.goodbye("done")

    assert talk.connection.data_to_send()


def test_wrong_reply_type() -> None:
    """A reply of another type, or one that cannot be read, ends request and connection."""
    for kind, meta in (
        (MessageType.INIT_PRODUCER, {}),
        (MessageType.INIT_PRODUCER, {"p": "x"}),
        (MessageType.PRODUCE, {"o": 1, "d": 1}),
    ):
        talk = Talk()
        number = talk.ask(MessageType.INIT_PRODUCER)
        with pytest.raises(MalformedFrame):
            talk.hear(b"".join(encode_frame(kind | REPLY, number, meta)))

        assert [MalformedFrame] == [type(error) for _, error in talk.ended]


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"HTTP/1.1 400", BadMagic),
        (b"TM\x09\x01" + bytes(8), UnsupportedVersion),
        (b"".join(encode_frame(0xFF, 0, error_meta(ShuttingDown()))), ShuttingDown),
    ],
)
def test_fatal_bytes(data: bytes, error: type[WireError]) -> None:
    """Bytes that are not ours, or an error for the whole connection, are raised."""
    talk = Talk()

    with pytest.raises(error):
        talk.hear(data)


def test_an_http_port_is_recognized() -> None:
    """Whoever takes the dashboard's port for the broker's is told which one is meant."""
    talk = Talk(greet=False)
    with pytest.raises(BadMagic, match="this is an HTTP port; clients connect to 7800"):
        talk.connection.receive(b"HTTP/1.1 400 Bad Request", talk.now)
    with pytest.raises(
        ConnectionLost, match="its process hangs, or it is something else, such as an HTTP"
    ):
        talk.connection.tick(talk.now + 60)


def test_refused_hello() -> None:
    """An error in answer to HELLO is raised, as is silence."""
    talk = Talk(greet=False)
    with pytest.raises(UnsupportedVersion):
        talk.hear(b"".join(encode_frame(0xFF, 1, error_meta(UnsupportedVersion()))))
    talk = Talk(greet=False)
    with pytest.raises(ConnectionLost, match="takes connections but does not answer"):
        talk.connection.tick(5.0)


def test_wrong_limits() -> None:
    """Limits that make no sense are refused."""
    talk = Talk(greet=False)
    reply = talk.puppet._hello(talk.puppet.hellos[0] if talk.puppet.hellos else _hello())
    meta = {**reply.to_meta(), "l": {"batch": -1}}

    with pytest.raises(MalformedFrame, match="limits"):
        talk.hear(b"".join(encode_frame(MessageType.HELLO | REPLY, 1, meta)))


def _hello() -> Any:
    return type("H", (), {"session": None})()


@given(st.lists(st.integers(1, 7), max_size=30))
def test_any_split(sizes: list[int]) -> None:
    """However the bytes are cut, the answers are the same."""
    talk = Talk(greet=False)
    talk.line.feed(b"".join(map(bytes, talk.connection.data_to_send())))
    data = talk.line.take()
    for size in sizes:
        talk.hear(data[:size])
        data = data[size:]
    talk.hear(data)

    assert isinstance(talk.connection.hello, HelloReply)
