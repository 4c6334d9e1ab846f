"""What several lookup servers say of nodes, put together without I/O."""

from __future__ import annotations

from math import inf

import pytest

from tinymq.client.core.address import Address
from tinymq.client.core.config import LookupConfig
from tinymq.client.core.directory import Directory, Node, read_nodes
from tinymq.errors import ClosedError, ConnectionLost, TinyMQError, UnreachableError

A, B, C = (Node(name, name, Address(name, 1)) for name in "abc")


class Desk:
    """A directory, its questions, and what was found."""

    def __init__(self, servers: int = 2) -> None:
        self.now = 100.0
        self.asked: list[tuple[int, str]] = []
        self.heard: list[str] = []
        self.found: list[list[Node]] = []
        self.errors: list[TinyMQError] = []
        self.directory = Directory(
            servers,
            LookupConfig(refresh_s=10, patience_s=1),
            lambda server, topic: self.asked.append((server, topic)),
            self.heard.append,
        )

    def find(self) -> None:
        """Ask for the nodes of t."""

        def done(nodes: list[Node] | None, error: TinyMQError | None) -> None:
            if nodes is not None:
                self.found.append(nodes)
            if error is not None:
                self.errors.append(error)

        self.directory.find("t", done, self.now)

    def say(self, server: int, *nodes: Node) -> None:
        """Let a server answer."""
        self.directory.answered(server, "t", nodes, self.now)

    def fail(self, server: int) -> None:
        """Let a server fail."""
        self.directory.failed(server, "t", ConnectionLost("gone"), self.now)

    def advance(self, seconds: float) -> None:
        """Let time pass, tick by tick as the directory wants it."""
        until = self.now + seconds
        while self.directory.wake_at <= until:
            self.now = max(self.now, self.directory.wake_at)
            self.directory.tick(self.now)
        self.now = until


def test_answers_are_put_together() -> None:
    """A node that several servers name counts once, and all are waited for."""
    desk = Desk()
    desk.find()
    desk.find()
    assert desk.asked == [(0, "t"), (1, "t")]
    desk.say(0, A, B)
    assert desk.found == []
    desk.say(1, B, C)

    assert desk.found == [[A, B, C], [A, B, C]]
    desk.find()
    assert [len(desk.found), len(desk.asked)] == [3, 2]


@pytest.mark.parametrize("silent", [True, False])
def test_one_answer_is_enough(silent: bool) -> None:
    """A server that fails is passed over at once, and a silent one after some patience."""
    desk = Desk()
    desk.find()
    desk.say(0, A)
    if silent:
        desk.advance(0.9)
        desk.find()
        assert desk.found == []
        desk.advance(0.2)
    else:
        desk.fail(1)

    assert desk.found[0] == [A]
    desk.fail(1)
    assert desk.errors == []


def test_what_is_named_no_more_is_dropped_by_those_who_answer() -> None:
    """A node goes when all who answered leave it out, and not by silence."""
    desk = Desk()
    desk.directory.watch("t", desk.now)
    desk.say(0, A, B)
    desk.say(1, B, C)
    desk.advance(10)
    desk.say(0, B)
    assert desk.directory.known("t") == [A, B, C]
    desk.fail(1)
    assert desk.directory.known("t") == [B]
    desk.advance(10)
    desk.fail(0)
    desk.fail(1)
    assert desk.directory.known("t") == [B]
    desk.find()
    desk.fail(0)
    desk.fail(1)
    assert [desk.found, desk.errors] == [[[B]], []]
    desk.directory.unwatch("t")
    assert desk.directory.wake_at == inf


def test_nobody_answers_and_nothing_is_known() -> None:
    """The error says why the last server did not answer."""
    desk = Desk()
    desk.find()
    desk.fail(0)
    desk.fail(1)
    (error,) = desk.errors

    assert isinstance(error, UnreachableError)
    assert "gone" in str(error)


def test_refreshes_are_not_a_storm() -> None:
    """However often a node fails, a topic is asked for once in a second at most."""
    desk = Desk(servers=1)
    desk.directory.watch("t", desk.now)
    desk.directory.refresh("t", desk.now)
    desk.say(0, A)
    for _ in range(50):
        desk.directory.refresh("t", desk.now)
        desk.advance(0.1)
        desk.say(0, A)

    assert 4 <= len(desk.asked) <= 7


def test_strange_answers() -> None:
    """Rows that make no sense, late answers and those of a closed directory change nothing."""
    good = {"node": "a", "name": "a", "host": "a", "port": 1}
    bad = [{**good, "port": "x"}, {**good, "port": 0}, {**good, "host": "a\nb"}]
    assert read_nodes({"nodes": [good, {}, 7, *bad]}) == [A]
    assert read_nodes({}) == []
    desk = Desk(servers=1)
    desk.say(0, A)
    desk.fail(0)
    assert desk.directory.known("t") == []
    desk.find()
    desk.directory.close()
    desk.say(0, A)
    desk.find()

    assert [ClosedError, ClosedError] == [type(error) for error in desk.errors]
