"""The ledger of a partition: snapshots, full disks, and what they mean to those who wait."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tests.fakes.broker import BrokerDisk, BrokerFixture
from tests.fakes.taking import Taker
from tinymq.broker import ledger as ledgers
from tinymq.broker.hosted import Hosted
from tinymq.errors import PartitionOffline, StorageFull
from tinymq.wire.messages import FINISH, REJECT, REQUEUE


def hosted_of(broker: BrokerFixture) -> Hosted:
    """The channels of the only partition."""
    found = broker.broker.channels.hosted(broker.meta.describe("t").id, 0)
    assert found is not None
    return found


def settled(broker: BrokerFixture, rounds: int) -> Taker:
    """A consumer that finished all but the last message, one at a time."""
    broker.produce(*(b"%d" % number for number in range(rounds)))
    taker = Taker(broker)
    taker.subscribe(credit=rounds)
    messages = taker.take()
    for message in messages[:-1]:
        taker.finish(message)
    return taker


def test_a_snapshot_takes_the_place_of_what_lies_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger stays short, and the next start knows as much as ever."""
    monkeypatch.setattr(ledgers, "_GROWN_BYTES", 2000)
    broker = BrokerFixture(tmp_path)
    broker.topic()
    settled(broker, 100)
    log = hosted_of(broker).ledger.log
    kept = log.end_offset - log.start_offset
    broker.kill()

    again = broker.again()
    taker = Taker(again)
    taker.subscribe()
    taker.run(11)

    assert log.start_offset > 0
    assert kept < 60
    assert taker.values == [b"99"]


def test_a_full_disk_confirms_nothing_and_loses_nothing(tmp_path: Path) -> None:
    """The settle is refused and sent again; then it is confirmed, and on disk."""
    disk = BrokerDisk()
    broker = BrokerFixture(tmp_path, disk=disk)
    broker.topic()
    broker.produce(b"a", b"b")
    taker = Taker(broker)
    taker.subscribe()
    first, _ = taker.take()

    disk.room = 0
    number = taker.post(FINISH, first)
    taker.run()
    refused = taker.error(number)
    disk.room = None
    reply = taker.finish(first)
    broker.kill()
    again = broker.again()
    other = Taker(again)
    other.subscribe()
    other.run(11)

    assert isinstance(refused, StorageFull)
    assert reply.late == []
    assert other.values == [b"b"]


def test_a_full_disk_ends_by_itself(tmp_path: Path) -> None:
    """Whatever is settled meanwhile is refused with the reason; then all goes on as it was."""
    disk = BrokerDisk()
    broker = BrokerFixture(tmp_path, disk=disk)
    broker.topic()
    broker.produce(*(b"%d" % number for number in range(6)))
    taker = Taker(broker)
    taker.subscribe(credit=3)
    messages = taker.take()
    taker.finish(messages[0])

    disk.room = 0
    refusals = []
    for verb in (FINISH, REQUEUE, REJECT):
        number = taker.post(verb, messages[1])
        taker.run()
        refusals.append(taker.error(number))
    taker.run(120)
    disk.room = None
    taker.credit(100)
    left: set[int] = set()
    for _ in range(10):
        taker.run(1)
        messages = taker.take()
        left |= {message.offset for message in messages}
        if messages:
            taker.finish(*messages)
    counts = hosted_of(broker).queue.channels["c"].counts(6)
    broker.kill()
    other = Taker(broker.again())
    other.subscribe()
    other.run(60)

    assert [type(error) for error in refusals] == [StorageFull] * 3
    assert all(error.retriable for error in refusals)
    assert {2, 3, 4, 5} <= left <= {1, 2, 3, 4, 5}
    assert counts.backlog == 0
    assert other.values == []


def test_a_failed_sync_confirms_nothing(tmp_path: Path) -> None:
    """The ledger is offline, and says so to all who settle."""
    disk = BrokerDisk()
    broker = BrokerFixture(tmp_path, disk=disk)
    broker.topic()
    broker.produce(b"a")
    taker = Taker(broker)
    taker.subscribe()
    (first,) = taker.take()

    disk.failing["fdatasync"] = errno.EIO
    number = taker.post(FINISH, first)
    taker.run()

    assert isinstance(taker.error(number), PartitionOffline)
    number = taker.post(FINISH, first)
    taker.run()
    assert isinstance(taker.error(number), PartitionOffline)


def test_records_that_do_not_fit_are_left_out(tmp_path: Path) -> None:
    """A ledger that is damaged lets messages come again, and keeps no broker from starting."""
    broker = BrokerFixture(tmp_path)
    broker.topic()
    settled(broker, 3)
    hosted = hosted_of(broker)
    key = next(iter(hosted.infos.values()))
    name = f"{key.name}@{key.created_ms}".encode()
    hosted.ledger._append(hosted.ledger.log, [(name, b"\xc1")])  # type: ignore[arg-type]
    hosted.ledger.log.write()
    broker.kill()

    again = broker.again()
    taker = Taker(again)
    taker.subscribe()
    taker.run(11)

    assert taker.values == [b"2"]


@pytest.mark.parametrize("sync", ["os", "interval"])
def test_other_policies_confirm_what_is_written(tmp_path: Path, sync: str) -> None:
    """A kill loses nothing that was confirmed."""
    broker = BrokerFixture(tmp_path)
    broker.topic(sync=sync)
    settled(broker, 3)
    synced = hosted_of(broker).ledger.unsynced
    broker.kill()

    again = broker.again()
    taker = Taker(again)
    taker.subscribe()
    taker.run(11)

    assert synced
    assert taker.values == [b"2"]


def test_checkpoints_bring_the_ledger_to_the_disk(tmp_path: Path) -> None:
    """What no policy synced is synced now and then."""
    broker = BrokerFixture(tmp_path)
    broker.topic(sync="os")
    settled(broker, 3)
    broker.housekeeping.checkpoint()
    broker.clock.advance(1)

    assert not hosted_of(broker).ledger.unsynced


def test_retention_settles_what_it_takes_away(tmp_path: Path) -> None:
    """A channel that may hold nothing back goes on with what is there."""
    broker = BrokerFixture(tmp_path)
    broker.topic(retention_ms=1000, hold_max_ms=0, hold_then="drop")
    broker.produce(b"old")
    taker = Taker(broker)
    taker.subscribe(credit=0)
    broker.wall.now_ms += 10_000
    broker.housekeeping.apply_retention()
    broker.produce(b"new")
    taker.run()
    taker.credit(10)

    assert taker.values == [b"new"]
