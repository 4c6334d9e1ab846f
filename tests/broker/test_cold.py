"""Messages that come again from the disk: nobody waits for it, and nothing is overtaken."""

from __future__ import annotations

from pathlib import Path

import pytest
from typing_extensions import override

from tests.fakes.broker import BrokerDisk, BrokerFixture, HeldBackground
from tests.fakes.taking import Taken, Taker
from tinymq.broker import window as windows


class ColdDisk(BrokerDisk):
    """A disk of which nothing is in memory before it was read; it counts who waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.cold = False
        #: What was read since it is cold.
        self.hot: set[int] = set()
        self.elsewhere = False
        self.waited = 0

    @override
    def pread(self, descriptor: int, size: int, position: int) -> bytes:
        self.waited += self.cold and not self.elsewhere and position not in self.hot
        self.hot.add(position)
        return super().pread(descriptor, size, position)

    @override
    def pread_cached(self, descriptor: int, size: int, position: int) -> bytes | None:
        if self.cold and position not in self.hot:
            return None
        return super().pread(descriptor, size, position)


class Scene:
    """A consumer that failed ten messages, each in a piece of its own, on a disk that is cold."""

    def __init__(self, path: Path, **policy: str) -> None:
        self.disk, self.background = ColdDisk(), HeldBackground()
        self.broker = BrokerFixture(path, disk=self.disk, background=self.background)
        self.broker.topic()
        self.broker.meta.create_channel("t", "c", policy)
        for number in range(10):
            self.broker.produce(b"%d" % number + bytes(3000))
        self.taker = Taker(self.broker)
        self.taker.subscribe()
        self.taker.requeue(*self.take(10), d=1000)
        self.disk.cold = True
        self.broker.partition().log.forget_files()

    def take(self, count: int) -> list[Taken]:
        """Take so many, with what the background has to do for it."""
        found: list[Taken] = []
        for _ in range(100):
            self.taker.run()
            found += self.taker.take()
            if len(found) >= count:
                break
            self.fetch()
        return found

    def fetch(self) -> None:
        """Let the background do what it has."""
        self.disk.elsewhere = True
        while self.background.waiting:
            work, done = self.background.waiting.pop(0)
            work()
            self.disk.elsewhere = False
            done()
            self.disk.elsewhere = True
        self.disk.elsewhere = False


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each piece be one batch."""
    monkeypatch.setattr(windows, "PIECE_BYTES", 3000)


@pytest.mark.parametrize("order", ["none", "strict", "key"])
def test_messages_that_come_again_are_fetched_elsewhere(tmp_path: Path, order: str) -> None:
    """They come in order, with their own values, and the reactor never waits for the disk."""
    scene = Scene(tmp_path, order=order)
    scene.taker.run(1.1)
    early = scene.taker.take()
    found = scene.take(10)

    assert early == []
    assert [each.value[:1] for each in found if each.value] == [b"%d" % n for n in range(10)]
    assert found[0].attempt == 2
    assert scene.disk.waited == 0


def test_what_was_lost_meanwhile_is_not_sent(tmp_path: Path) -> None:
    """A purge takes a part, and the credit for it is there again."""
    scene = Scene(tmp_path)
    scene.taker.run(1.1)
    scene.broker.operate("topic.purge", name="t", before=6)
    scene.taker.run()
    found = scene.take(4)

    assert [each.offset for each in found] == [6, 7, 8, 9]
    assert scene.taker.finish(*found).done == 4


def test_a_consumer_that_goes_meanwhile(tmp_path: Path) -> None:
    """What was for it comes to the next one."""
    scene = Scene(tmp_path)
    scene.taker.run(1.1)
    scene.taker.connection.lose()
    scene.fetch()
    scene.taker = Taker(scene.broker)
    scene.taker.subscribe()
    scene.taker.run(10.5)
    found: list[int] = []
    for _ in range(10):
        # One by one: nobody knows which of them took its holder away.
        (one,) = scene.take(1)
        found.append(one.offset)
        scene.taker.finish(one)

    assert found == [*range(10)]


def test_a_broker_that_stops_meanwhile(tmp_path: Path) -> None:
    """What comes from the disk too late is sent to nobody, and does no harm."""
    scene = Scene(tmp_path)
    scene.taker.run(1.1)
    waiting = len(scene.background.waiting)
    scene.broker.stop()
    scene.fetch()

    assert waiting
    assert scene.taker.take() == []


def test_a_memory_that_keeps_nothing_is_no_end(tmp_path: Path) -> None:
    """What is gone from memory as fast as it comes is waited for in the end."""
    scene = Scene(tmp_path)
    scene.taker.run(1.1)
    for _ in range(20):
        scene.disk.hot.clear()
        scene.fetch()
        scene.disk.hot.clear()
    found = scene.take(10)

    assert sorted(each.offset for each in found) == [*range(10)]


@pytest.mark.parametrize("forgetful", [False, True])
def test_what_is_given_up_is_fetched_elsewhere_too(tmp_path: Path, forgetful: bool) -> None:
    """All dead letters arrive once and in order, and the reactor waits only if it must."""
    scene = Scene(tmp_path)
    hosted = scene.broker.broker.channels.hosted(scene.broker.meta.describe("t").id, 0)
    assert hosted is not None
    hosted.queue.channels["c"].steering.discard(0, 10, "expired", hosted.now)
    hosted.mark()
    scene.taker.run()
    early = "t.c.dead" in scene.broker.meta.registry.by_name
    for _ in range(20):
        scene.fetch()
        if forgetful:
            scene.disk.hot.clear()
        scene.taker.run()
    waited, scene.disk.cold = scene.disk.waited, False
    letters = scene.broker.values("t.c.dead")

    assert not early
    assert [each[:1] for each in letters if each] == [b"%d" % number for number in range(10)]
    assert forgetful or waited == 0
    assert hosted.queue.channels["c"].channel.places.dooming == 0
