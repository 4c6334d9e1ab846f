"""What a turn wrote goes to the socket at once, and the rest as ever."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from twisted.internet.tcp import Connection
from twisted.internet.testing import StringTransport
from typing_extensions import override

from tinymq.broker.outgoing import Outgoing
from tinymq.transports import MOST_SENT, send, unsent


class Reactor:
    """A reactor that only counts who wants to write."""

    def __init__(self) -> None:
        self.writers: list[object] = []

    def addWriter(self, writer: object) -> None:  # noqa: N802 - Twisted's name
        """Note it."""
        self.writers.append(writer)


class Plain(Connection):
    """A socket that takes so many bytes at once, or fails."""

    def __init__(self, takes: int | Exception) -> None:
        self.reactor: Any = Reactor()
        self.near, self.far = socket.socketpair()
        super().__init__(self.near, None, self.reactor)
        self.connected = 1
        self.sent = b""
        self.takes = takes

    @override
    def writeSomeData(self, data: bytes) -> Any:
        if isinstance(self.takes, Exception):
            return self.takes
        self.sent += data[: self.takes]
        return min(len(data), self.takes)

    def close(self) -> None:
        """Close both ends."""
        self.near.close()
        self.far.close()


@pytest.mark.parametrize("takes", [100, 4, 0, OSError("broken")])
def test_rest(takes: int | Exception) -> None:
    """What the system does not take, or refuses, is kept by the transport."""
    plain = Plain(takes)
    send(plain, [b"abc", b"def"])
    taken = 0 if isinstance(takes, Exception) else min(6, takes)
    assert (plain.sent, unsent(plain)) == (b"abcdef"[:taken], 6 - taken)
    assert len(plain.reactor.writers) == (taken < 6)
    plain.close()


@pytest.mark.parametrize("case", ["kept", "long", "gone", "leaving"])
def test_as_ever(case: str) -> None:
    """Nothing overtakes what is kept, and the end of a connection is the transport's."""
    plain = Plain(100)
    if case == "kept":
        plain.write(b"before")
    elif case == "gone":
        plain.connected = 0
    elif case == "leaving":
        plain.disconnecting = True
    send(plain, [b"x" * (MOST_SENT + 1 if case == "long" else 1)])
    assert plain.sent == b""
    plain.close()


def test_foreign() -> None:
    """A transport that is no socket is given piece by piece."""
    transport = StringTransport()
    send(transport, [b"a", b"b"])
    assert transport.value() == b"ab"


class Speaker:
    """Notes its turn."""

    def __init__(self, name: str, said: list[str]) -> None:
        self.name, self.said = name, said

    def send(self) -> None:
        """Note it."""
        self.said.append(self.name)


def test_who_was_spoken_to_last_comes_first() -> None:
    """Readers have a message before its publisher hears that it is stored; each sends once."""
    said: list[str] = []
    outgoing = Outgoing()
    outgoing.hold()
    publisher, reader = Speaker("publisher", said), Speaker("reader", said)
    for each in (publisher, reader, publisher):
        outgoing.add(each)
    outgoing.send()
    outgoing.send()
    assert (said, outgoing.held) == (["reader", "publisher"], False)
