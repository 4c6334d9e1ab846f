"""Whether a process answers, asked over real sockets."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tinymq.cli.pulse import Pulse
from tinymq.wire.frames import FrameDecoder
from tinymq.wire.header import MessageType


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """Return what takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(5)
        yield listener


def test_silence_and_an_answer(server: socket.socket) -> None:
    """A connection alone is no answer; any answer is one, and then there is a pause."""
    pulse = Pulse(server.getsockname())
    assert [pulse.silent(now) for now in (0.0, 4.0, 11.0)] == [0.0, 4.0, 11.0]
    connection, _ = server.accept()
    with connection:
        connection.settimeout(5)
        (greeting,) = FrameDecoder(1000).feed(connection.recv(1000))
        assert greeting.type == MessageType.HELLO
        connection.sendall(b"anything")
        assert pulse.silent(12.0) == 0.0
        (farewell,) = FrameDecoder(1000).feed(connection.recv(1000))
        assert farewell.type == MessageType.GOODBYE
    assert pulse.silent(14.0) == 0.0
    assert [pulse.silent(now) for now in (16.0, 17.0)] == [0.0, 1.0]
    pulse.close()


def test_a_connection_that_is_cut(server: socket.socket) -> None:
    """Who hangs up without an answer, and who refuses, stays silent and is asked again."""
    pulse = Pulse(server.getsockname())
    assert pulse.silent(0.0) == 0.0
    server.accept()[0].close()
    assert [pulse.silent(now) for now in (1.0, 2.0)] == [1.0, 2.0]
    server.accept()[0].close()
    server.close()
    assert [pulse.silent(now) for now in (3.0, 4.0)] == [3.0, 4.0]
    pulse.close()
