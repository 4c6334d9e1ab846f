"""What happens to the MetaServer when its disk is full."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typing_extensions import override

from tests.meta.fakes import FakeTime
from tinymq.errors import StorageFull
from tinymq.meta import MetaServer, Store
from tinymq.meta.ballast import RETRY_SECONDS, SIZE, Ballast


class SmallDisk(Ballast):
    """A disk that SQLite can fill, on which giving up the ballast makes some room."""

    store: Store
    given = 0

    def resize(self, pages: int) -> None:
        """Let the database have so many pages more than it has."""
        ((count,),) = self.store._sql("PRAGMA page_count")
        self.store._sql(f"PRAGMA max_page_count = {count + pages}")

    @override
    def release(self) -> bool:
        released = super().release()
        if released:
            self.given += 1
            self.resize(4)
        return released


@pytest.fixture
def small(file: Path, clock: FakeTime) -> Iterator[SmallDisk]:
    """Return a small disk with a store on it."""
    small = SmallDisk(file.with_name("ballast"), clock)
    small.store = Store(file, monotonic=clock, ballast=small)
    small.store._sql("PRAGMA synchronous = OFF")
    yield small
    small.store.close()


def until_full(call: Callable[[int], object]) -> int:
    """Do something again and again until the disk is full, and return how often it went."""
    for number in range(10_000):
        try:
            call(number)
        except StorageFull:
            return number
    raise AssertionError("the disk was never full")


def fill(server: MetaServer, small: SmallDisk) -> None:
    """Leave the database no page, and hardly a byte in those that it has."""
    small.resize(0)
    count = len(server.registry.names)
    until_full(lambda number: server.create_topic(f"t{count + number}"))
    until_full(lambda number: server.drain(1, undo=1 in server.registry.draining))
    until_full(lambda number: server.producer_ids(1))


def test_a_full_disk(small: SmallDisk, clock: FakeTime) -> None:
    """On a full disk nothing is made or changed, but topics can be deleted; then all heals."""
    server = MetaServer(small.store)
    server.register(1, "one", ("h", 1))
    server.register(2, "two", ("h", 1))
    for name in "abcdefgh":
        server.create_topic(name)
    server.expire()
    fill(server, small)
    kept = MetaServer(small.store).registry
    assert (kept.by_name, kept.draining) == (server.registry.by_name, server.registry.draining)
    assert small.given == 0
    for name in "abcdefgh":
        server.delete_topic(name)
    assert small.given == 1
    fill(server, small)
    gone = until_full(lambda _: server.delete_topic(server.registry.names[0]))
    assert (small.given, gone < len(server.registry.names)) == (1, True)
    small.resize(1000)
    clock.advance(RETRY_SECONDS)
    for broker in tuple(server.registry.brokers.values()):
        server.register(broker.id, broker.name, ("h", 1), takeover=True)
    server.expire()
    assert small.file.stat().st_size == SIZE
    server.drain(1)
    assert server.create_topic("new").leaders == (2,)
    server.delete_topic(server.registry.names[-1])
    assert MetaServer(small.store).registry.by_name == server.registry.by_name


def test_a_start_on_a_full_disk(small: SmallDisk) -> None:
    """A MetaServer starts on a full disk, and its broker registers, to be able to make room."""
    server = MetaServer(small.store)
    server.register(1, "one", ("h", 1))
    server.register(2, "two", ("h", 1))
    server.expire()
    fill(server, small)
    server.close()
    again = MetaServer(small.store)
    for _ in range(10):
        again.register(1, "one", ("h", 1), takeover=True)
    assert small.given == 1
    again.delete_topic("t0")


def test_history_that_cannot_be_forgotten(
    small: SmallDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written counts, though a full disk keeps the old revisions from going."""
    server = MetaServer(small.store, history=1)
    server.register(1, "one", ("h", 1))

    def full(revision: int) -> None:
        raise StorageFull("full")

    monkeypatch.setattr(small.store, "compact", full)
    for name in "abc":
        server.create_topic(name)
    assert server.registry.names == ("a", "b", "c")


def test_laying_by(tmp_path: Path, clock: FakeTime) -> None:
    """The ballast is whole, is made once, and only after a while again."""
    ballast = Ballast(tmp_path / "ballast", clock)
    assert not ballast.release()
    clock.advance(RETRY_SECONDS)
    ballast.restore()
    made = ballast.file.stat()
    assert made.st_size == SIZE
    ballast.restore()
    Ballast(ballast.file, clock).restore()
    assert ballast.file.stat() == made
    assert ballast.release()
    ballast.restore()
    assert not ballast.file.exists()
    ballast.file.write_bytes(b"torn")
    clock.advance(RETRY_SECONDS)
    ballast.restore()
    assert ballast.file.stat().st_size == SIZE


def test_no_room_for_it(tmp_path: Path, clock: FakeTime, monkeypatch: pytest.MonkeyPatch) -> None:
    """With little space left none is taken; where it cannot be written, all goes on."""
    ballast = Ballast(tmp_path / "ballast", clock)
    with monkeypatch.context() as patch:
        patch.setattr(os, "statvfs", lambda _: os.statvfs_result((1, 1, *[0] * 8)))
        ballast.restore()
    assert not ballast.file.exists()
    ballast = Ballast(tmp_path / "nowhere" / "ballast", clock)
    ballast.restore()
    assert not ballast.release()
