"""Doors in front of brokers: bytes go through, until links are held or cut."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tinymq.verify.history.proxy import Doors


class Echo:
    """Something behind a door, and a connection to it through the door."""

    def __init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.doors = Doors({self.port: self.server.getsockname()[1]})
        self.near = socket.create_connection(("127.0.0.1", self.port), 5)
        self.far, _ = self.server.accept()
        self.far.settimeout(5)
        self.near.settimeout(5)

    def close(self) -> None:
        """Let go of everything."""
        for each in (self.near, self.far, self.server):
            each.close()
        self.doors.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    """Something behind a door."""
    made = Echo()
    yield made
    made.close()


def test_bytes_go_through_both_ways(echo: Echo) -> None:
    """A door is not noticed."""
    echo.near.sendall(b"there")
    assert echo.far.recv(10) == b"there"
    echo.far.sendall(b"and back")
    assert echo.near.recv(10) == b"and back"


def test_what_is_held_comes_later(echo: Echo) -> None:
    """Nothing goes through a door that is shut, and nothing is lost at it."""
    echo.doors.hold(echo.port)
    echo.near.sendall(b"x")
    echo.far.settimeout(0.05)
    with pytest.raises(TimeoutError):
        echo.far.recv(1)
    echo.doors.let(echo.port)
    echo.far.settimeout(5)
    assert echo.far.recv(1) == b"x"


def test_links_are_cut(echo: Echo) -> None:
    """Both ends hear that their connection is gone."""
    echo.near.sendall(b"x")
    assert echo.far.recv(1) == b"x"
    echo.doors.cut(echo.port)
    for end in (echo.near, echo.far):
        with suppress(ConnectionResetError):
            assert end.recv(1) == b""
