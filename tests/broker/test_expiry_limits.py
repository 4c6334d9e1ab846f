"""What is known of messages that expire: how much of it, from where, and when the disk is slow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.broker.test_cold import ColdDisk
from tests.broker.test_expiry import (
    HOUR,
    ask,
    hosted_of,
    info,
    publish,
    send,
    settle,
    takes,
    values,
    wait,
)
from tests.fakes.broker import BrokerDisk, BrokerFixture, HeldBackground, LogKeeper, batch, only
from tests.fakes.taking import Taker
from tinymq.broker import blocks, expiry, stragglers
from tinymq.broker import window as windows
from tinymq.broker.mortal import Mortal, Steps
from tinymq.wire.batch import read_header


def make(path: Path, policy: dict[str, Any] | None = None, **given: Any) -> BrokerFixture:
    """A broker with one topic of one partition, and a channel that nobody consumes."""
    fixture = {key: given.pop(key) for key in ("disk", "background") if key in given}
    broker = BrokerFixture(path, **fixture)
    broker.topic(**given)
    broker.meta.create_channel("t", "c", policy or {})
    return broker


class TestMemory:
    def test_topics_in_memory(self, tmp_path: Path) -> None:
        """They expire like others."""
        broker = make(tmp_path, storage="memory", ttl_ms=2000)
        publish(broker, b"1", b"2", ttls=[1000, None])
        wait(broker, 1)
        first = values(broker)
        wait(broker, 1)

        assert first == [b"1"]
        assert values(broker) == [b"1", b"2"]

    def test_what_is_settled_is_forgotten(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """However long messages would live, memory holds what is not settled; a seek reads it."""
        monkeypatch.setattr(blocks, "STALE", 5)
        monkeypatch.setattr(blocks, "TOGETHER", 1)
        broker = make(tmp_path)
        taker = takes(broker)
        for number in range(40):
            publish(broker, b"%d" % number, ttl=HOUR + number)
            taker.run()
            taker.finish(*taker.take())
        held = len(hosted_of(broker).expiry._blocks)
        ask(broker, "channel.seek", topic="t", name="c", to="earliest")
        taker.unsubscribe()
        again = info(broker)["lag"]
        wait(broker, HOUR / 1000 + 0.02)
        half = len(values(broker))
        wait(broker, 0.02)

        assert held <= 20
        assert again == 40
        assert half == 21
        assert values(broker) == [b"%d" % number for number in range(40)]

    def test_without_a_channel(self, tmp_path: Path) -> None:
        """Nothing is noted for channels that are not there; one that comes gets the rest."""
        broker = make(tmp_path)
        publish(broker, b"1", ttl=2000)
        broker.meta.delete_channel("t", "c")
        publish(broker, b"2", ttl=2000)
        noted = len(hosted_of(broker).expiry._blocks)
        wait(broker, 1)
        broker.meta.create_channel("t", "d", {})
        wait(broker, 1)

        assert noted == 0
        assert values(broker, "t.d.dead") == [b"1", b"2"]

    def test_no_time_to_live(self, tmp_path: Path) -> None:
        """Nothing is done for a partition whose messages live for ever."""
        broker = make(tmp_path)
        publish(broker, b"1", b"2")
        found = hosted_of(broker).expiry

        assert not broker.partition().mortal
        assert found.next_time() is None
        assert (len(found._blocks), found._done, found._scans) == (0, {}, {})

    def test_for_nearly_ever(self, tmp_path: Path) -> None:
        """A time to live may be longer than there are times."""
        broker = make(tmp_path, ttl_ms=315_360_000_000_000)
        publish(broker, b"1", ttl=200_000_000_000_000)
        wait(broker, 86_400)

        assert values(broker) == []
        assert info(broker)["lag"] == 1


class TestSlices:
    @pytest.fixture(autouse=True)
    def _short(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let each slice be over at once."""
        monkeypatch.setattr(expiry, "_SLICE_SECONDS", -1)
        monkeypatch.setattr(blocks, "TOGETHER", 1)

    def test_much_at_once(self, tmp_path: Path) -> None:
        """Others have their turns, and nobody gets what is not given up yet."""
        broker = make(tmp_path)
        for number in range(10):
            publish(broker, b"%d" % number, b"x", ttls=[1000, None])
        taker = Taker(broker)
        broker.wall.now_ms += 1000
        broker.clock.advance(1)
        taker.subscribe()
        first = taker.values
        for _ in range(20):
            taker.run()
        found = first + taker.values

        assert found == [b"x"] * 10
        assert values(broker) == [b"%d" % number for number in range(10)]

    def test_after_a_start(self, tmp_path: Path) -> None:
        """The log is looked through in pieces, and given out as far as it was looked at."""
        broker = make(tmp_path)
        for number in range(10):
            publish(broker, b"%d" % number, b"x", ttls=[1000, HOUR])
        broker.kill()
        broker.wall.now_ms += 1000
        broker = broker.again()
        taker = Taker(broker)
        taker.subscribe_soon()
        found = []
        for _ in range(40):
            broker.turn()
            taker.read()
            found += taker.values
        settle(broker)

        assert found == [b"x"] * 10
        assert values(broker) == [b"%d" % number for number in range(10)]


class TestDisk:
    def test_it_is_fetched_elsewhere(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The reactor does not wait for the disk; meanwhile nothing is given out."""
        monkeypatch.setattr(windows, "PIECE_BYTES", 3000)
        disk, background = ColdDisk(), HeldBackground()
        broker = make(tmp_path, disk=disk, background=background)
        for number in range(3):
            publish(broker, b"%d" % number + bytes(3000), b"x", ttls=[1000, None])
        disk.cold = True
        broker.partition().log.forget_files()
        wait(broker, 1)
        taker = takes(broker)
        early = taker.values
        for _ in range(20):
            disk.elsewhere = True
            if background.waiting:
                background.release()
            disk.elsewhere = False
            taker.run()

        assert early == []
        assert taker.values == [b"x"] * 3
        assert [value[:1] for value in values(broker) if value] == [b"0", b"1", b"2"]
        assert disk.waited == 0

    def test_it_cannot_be_read(self, tmp_path: Path, logged: LogKeeper) -> None:
        """It is told once a second, and done when the disk is well."""
        disk = BrokerDisk()
        broker = make(tmp_path, disk=disk)
        publish(broker, b"1", b"2", ttl=1000)
        hosted_of(broker).window._pieces.clear()
        disk.failing |= {"pread_cached": 5, "pread": 5}
        wait(broker, 1)
        before = hosted_of(broker).queue.channels["c"].channel.counters.expired
        disk.failing.clear()
        wait(broker, 1)

        assert before == 0
        assert values(broker) == [b"1", b"2"]
        assert len([text for text in logged.texts if "what expires cannot be read" in text]) == 1

    def test_a_batch_that_says_nonsense(self, tmp_path: Path, logged: LogKeeper) -> None:
        """Its messages do not expire, and the log says so."""
        broker = make(tmp_path)
        publish(broker, b"1", ttl=1000)
        data = batch(b"1", ttls=[5])
        broken = memoryview(data[:-3] + b"\xc1" * 3)

        assert hosted_of(broker).expiry._lives_of((read_header(data), broken)) == []
        assert any("expire cannot be read" in text for text in logged.texts)


class TestLedger:
    @pytest.fixture(autouse=True)
    def _small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let it be worth it for little."""
        monkeypatch.setattr(stragglers, "_LEAST_FREED", 10_000)

    def scene(self, path: Path, **settings: Any) -> BrokerFixture:
        """One message of many waits, and is in the ledger; the log begins behind it."""
        broker = make(path, retention_ms=1, segment_bytes=4096, **settings)
        taker = takes(broker, credit=100)
        publish(broker, b"short", b"long", b"other", ttls=[20_000, None, None])
        for number in range(40):
            publish(broker, b"%d" % number + bytes(3000))
        taker.run()
        first, second, *others = taker.take()
        while others:
            taker.finish(*others)
            taker.run()
            others = taker.take()
        taker.requeue(first, second, d=HOUR)
        taker.unsubscribe()
        for _ in range(3):
            broker.wall.now_ms += 3000
            broker.clock.advance(3)
            broker.housekeeping.apply_retention()
            settle(broker)
        return broker

    @pytest.mark.parametrize("kill", [False, True])
    def test_what_is_kept_in_the_ledger(self, tmp_path: Path, kill: bool) -> None:
        """It expires in its time, also after a start."""
        broker = self.scene(tmp_path)
        kept = hosted_of(broker).stragglers.offsets
        if kill:
            broker.kill()
            broker = broker.again()
            settle(broker)
        before = values(broker)
        wait(broker, 12)

        assert kept == [0, 1]
        assert broker.partition().log.start_offset > 2
        assert before == []
        assert values(broker) == [b"short"]
        assert info(broker)["waiting"] == 1

    @pytest.mark.parametrize("kill", [False, True])
    def test_by_the_topic(self, tmp_path: Path, kill: bool) -> None:
        """So it does by the topic's time to live, which does not act before."""
        broker = self.scene(tmp_path, ttl_ms=30_000)
        if kill:
            broker.kill()
            broker = broker.again()
            settle(broker)
        before = values(broker)
        wait(broker, 12)
        first = values(broker)
        wait(broker, 10)

        assert before == []
        assert first == [b"short"]
        assert values(broker) == [b"short", b"long"]
        assert (info(broker)["lag"], info(broker)["given_up"]) == (0, 0)


class TestClocks:
    def test_steps(self) -> None:
        """What the wall clock did is known from the offset on where it did it."""
        times = [0]
        steps = Steps(lambda: times[0])
        rows = ((0, 100, 100), (5, 200, 10_200), (9, 300, 10_300), (12, 400, 400))
        for offset, now, wall in rows:
            times[0] = now
            steps.note(offset, wall)
        found = [steps.delta(offset) for offset in (0, 4, 5, 11, 12, 99)]

        assert found == [0, 0, -10_000, -10_000, 0, 0]
        assert steps.find(5)[1] == 12
        assert steps.find(12)[1] is None

    def test_offsets_that_are_given_again(self) -> None:
        """What could not be written leaves no trace."""
        steps = Steps(lambda: 0)
        steps.note(5, 5_000)
        steps.note(5, 9_000)

        assert steps.delta(5) == -9_000
        assert steps.find(4) == ((0, 0, 0), 5)

    def test_where_messages_have_a_time(self) -> None:
        """The part of the log is as small as can be."""
        mortal = Mortal()
        assert not mortal
        mortal.add(7, 9)
        mortal.add(20, 22)
        again = Mortal()
        again.restore(mortal.to_list())

        assert (again.first, again.end) == (7, 22)


def test_a_restart_knows_where_to_look(tmp_path: Path) -> None:
    """The snapshot says where there are times to live, and the headers behind it say the rest."""
    broker = make(tmp_path)
    publish(broker, b"1")
    publish(broker, b"2", ttl=HOUR)
    broker.stop()
    broker = broker.again()
    snapshot = (broker.partition().mortal.first, broker.partition().mortal.end)
    only(send(broker, batch(b"3", ttls=[HOUR])))
    broker.kill()
    broker = broker.again()

    assert snapshot == (1, 2)
    assert (broker.partition().mortal.first, broker.partition().mortal.end) == (1, 3)
