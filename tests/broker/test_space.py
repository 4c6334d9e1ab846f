"""A disk that fills faster than the clock ticks, and a folder that goes away."""

from __future__ import annotations

import errno

from tests.fakes.broker import BrokerDisk, BrokerFixture, LogKeeper, only, refused
from tinymq.errors import StorageError, StorageFull
from tinymq.limits import MIB
from tinymq.storage.disk import Space

RESERVE = 256 * MIB


def start(fixture: BrokerFixture, spare: int) -> BrokerDisk:
    """Begin with so much more than the reserve."""
    disk = fixture.disk
    assert isinstance(disk, BrokerDisk)
    disk.free = Space(free=RESERVE + spare, total=1 << 40)
    fixture.topic()
    fixture.housekeeping.start()
    return disk


def test_between_ticks(fixture: BrokerFixture) -> None:
    """The reserve stays free, however much is published in one second."""
    disk = start(fixture, 2 * MIB)
    stored = 0
    for _ in range(40):
        answer = fixture.produce(b"x" * 200_000)
        if isinstance(answer[0], StorageFull):
            break
        stored += 200_000
        disk.free = Space(free=RESERVE + 2 * MIB - stored, total=1 << 40)
    assert isinstance(refused(fixture.produce(b"a")), StorageFull)
    assert MIB < stored < 2 * MIB + 300_000
    disk.free = Space(free=2 * RESERVE, total=1 << 40)
    fixture.clock.advance(1)
    only(fixture.produce(b"b"))


def test_not_for_each_batch(fixture: BrokerFixture) -> None:
    """As long as there is room, publishing looks at the disk now and then only."""
    disk = start(fixture, 1 << 30)
    seen = disk.calls["space"]
    for _ in range(50):
        only(fixture.produce(b"x" * 1000))
    assert disk.calls["space"] == seen


def test_unknown(fixture: BrokerFixture, logged: LogKeeper) -> None:
    """A disk that does not tell its space does not keep a batch out."""
    disk = start(fixture, MIB)
    disk.failing["space"] = errno.EIO
    for _ in range(3):
        only(fixture.produce(b"x" * 400_000))
    assert [text for text in logged.texts if text.startswith("space failed")]


def test_folder_gone(fixture: BrokerFixture, logged: LogKeeper) -> None:
    """Nothing is acknowledged into files that have no name any more; it is told once."""
    start(fixture, 1 << 30)
    only(fixture.produce(b"a"))
    aside = fixture.path.with_name("aside")
    fixture.path.rename(aside)
    fixture.clock.advance(1)
    fixture.clock.advance(1)
    error = refused(fixture.produce(b"b"))
    assert type(error) is StorageError
    assert "taken away" in str(fixture.broker.ready)
    assert len([text for text in logged.texts if "taken away" in text]) == 1
    aside.rename(fixture.path)
    fixture.clock.advance(1)
    assert only(fixture.produce(b"c")).base_offset == 1
