"""The life of a message, as its channels wrote it down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from tests.fakes.broker import BrokerDisk, BrokerFixture, HeldBackground, changed
from tests.fakes.taking import Taker
from tinymq.broker import ledger as ledgers
from tinymq.broker import lives as reading
from tinymq.broker.hosted import Hosted
from tinymq.errors import OffsetOutOfRange, UnknownPartition
from tinymq.storage.disk import Space
from tinymq.storage.facts import LogConfig


@pytest.fixture(name="broker")
def fixture_broker(tmp_path: Path) -> BrokerFixture:
    """A broker with one topic of one partition."""
    broker = BrokerFixture(tmp_path)
    broker.topic()
    return broker


def taker_of(broker: BrokerFixture, client: str = "ann", **given: Any) -> Taker:
    """A client of a name that takes messages."""
    taker = Taker(broker, broker.connect(client_id=client))
    taker.subscribe(**given)
    return taker


def life(broker: BrokerFixture, offset: int = 0) -> dict[str, Any]:
    """What is told of a message."""
    broker.clock.advance(0)
    return broker.operate("message.life", topic="t", partition=0, offset=offset)


def story(broker: BrokerFixture, offset: int = 0) -> list[tuple[str, int, str | None]]:
    """What happened, which attempt, and who it was."""
    events = life(broker, offset)["events"]
    return [(each["what"], each["attempt"], each["client_id"]) for each in events]


def operated(broker: BrokerFixture, name: str, /, **arguments: Any) -> list[dict[str, Any]]:
    """Carry out an operation that waits for the disk; what it gave, or will give."""
    done: list[dict[str, Any]] = []
    Deferred.fromCoroutine(broker.operations.run(name, arguments)).addCallback(done.append)
    broker.clock.pump([0] * 6)
    return done


def hosted_of(broker: BrokerFixture) -> Hosted:
    """The channels of the only partition."""
    found = broker.broker.channels.hosted(broker.meta.describe("t").id, 0)
    assert found is not None
    return found


def test_who_has_no_name_is_known_by_the_address(broker: BrokerFixture) -> None:
    """A client need not call itself anything to be found again."""
    broker.produce(b"a")
    taker_of(broker, "").take()

    ((what, _, who),) = story(broker)
    assert (what, who) == ("delivered", broker.operate("client.list")["clients"][-1]["address"])


def test_a_message_that_was_finished(broker: BrokerFixture) -> None:
    """Who got it, who finished it, and where it is now."""
    broker.produce(b"a", b"b")
    taker = taker_of(broker)
    first, _ = taker.take()
    taker.finish(first)

    told = life(broker)

    assert story(broker) == [("delivered", 1, "ann"), ("finished", 1, "ann")]
    assert story(broker, 1) == [("delivered", 1, "ann")]
    assert told["channels"] == [{"channel": "c", "state": "settled"}]
    assert (told["since_ms"], told["more"]) == (None, False)
    assert life(broker, 1)["channels"] == [{"channel": "c", "state": "in_flight"}]


def test_a_range_is_one_event_for_each_of_its_messages(broker: BrokerFixture) -> None:
    """Many that are settled in one go each have their own story, and others are not in it."""
    broker.produce(*(b"%d" % number for number in range(100)))
    taker = taker_of(broker)
    messages = taker.take()
    taker.finish(*messages[10:60])
    taker.requeue(messages[70], d=1000, x="ValueError: no")

    for offset in (10, 35, 59):
        assert story(broker, offset) == [("delivered", 1, "ann"), ("finished", 1, "ann")]
    assert story(broker, 60) == [("delivered", 1, "ann")]
    (_, requeued) = life(broker, 70)["events"]
    assert requeued["what"] == "requeued"
    assert requeued["text"] == "ValueError: no; comes again in 1 s"


def test_a_message_that_fails_until_it_is_given_up(broker: BrokerFixture) -> None:
    """Each attempt is told, then the end of them."""
    broker.meta.create_channel("t", "c", {"attempts": 2, "backoff": ["0s"]})
    broker.produce(b"a")
    taker = taker_of(broker)
    taker.requeue(*taker.take(), x="first")
    taker.requeue(*taker.take(), x="second")
    taker.run(11)

    assert story(broker) == [
        ("delivered", 1, "ann"),
        ("requeued", 1, "ann"),
        ("delivered", 2, "ann"),
        ("given_up", 2, "ann"),
        ("dead_lettered", 2, None),
    ]
    texts = [each["text"] for each in life(broker)["events"]]
    assert texts[1] == "first"
    assert "second" in texts[3]
    assert life(broker)["channels"] == [{"channel": "c", "state": "settled"}]


def test_a_lease_that_was_over_and_one_that_was_given_back(broker: BrokerFixture) -> None:
    """What nobody said is told, too."""
    broker.meta.create_channel("t", "c", {"lease.ms": 1000, "backoff": ["0s"]})
    broker.produce(b"a")
    taker = taker_of(broker)
    taker.run(1.1)
    taker.give_back(*taker.take()[1:])

    assert story(broker) == [
        ("delivered", 1, "ann"),
        ("timed_out", 1, "ann"),
        ("delivered", 2, "ann"),
        ("given_back", 2, "ann"),
        ("delivered", 2, "ann"),
    ]


def test_another_client_takes_over(broker: BrokerFixture) -> None:
    """A holder that is lost is named, and so is the next."""
    broker.produce(b"a")
    ann = taker_of(broker)
    ann.take()
    bob = taker_of(broker, "bob")
    ann.connection.lose()
    bob.run(11)
    bob.run(11)
    bob.finish(*bob.take())

    found = story(broker)

    assert found[0] == ("delivered", 1, "ann")
    assert found[1] == ("lost", 1, "ann")
    assert found[-1] == ("finished", 2, "bob")


def test_what_people_and_retention_did(broker: BrokerFixture) -> None:
    """Emptying, taking it back, and purging appear as what they are."""
    broker.produce(b"a", b"b")
    taker_of(broker, credit=0)
    operated(broker, "channel.empty", topic="t", name="c")
    emptied = life(broker)["channels"]
    operated(broker, "channel.undo_seek", topic="t", name="c")
    broker.operate("topic.purge", name="t", before=1)
    hosted_of(broker).mark()
    broker.clock.advance(0)
    broker.clock.advance(0)

    assert emptied == [{"channel": "c", "state": "settled"}]
    assert [what for what, _, _ in story(broker)] == ["skipped", "revived", "removed"]
    assert [what for what, _, _ in story(broker, 1)] == ["skipped", "revived"]


def test_what_is_rejected_at_most_once_or_filtered(broker: BrokerFixture) -> None:
    """Each channel has its own story of the same message."""
    broker.meta.create_channel("t", "once", {"delivery": "at_most_once"})
    broker.meta.create_channel("t", "some", {"filter": ["kind=x"]})
    broker.produce(b"a")
    rejecting = taker_of(broker)
    rejecting.reject(*rejecting.take())
    taker_of(broker, channel="once").run(1)
    taker_of(broker, channel="some").run(1)

    found = {(each["channel"], each["what"]) for each in life(broker)["events"]}

    assert {("c", "rejected"), ("once", "delivered"), ("some", "skipped")} <= found
    assert {each["state"] for each in life(broker)["channels"]} <= {"settled", "given_up"}


def test_folded_segments_are_kept_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start reads from the last snapshot on; what lies before is history, until its time."""
    monkeypatch.setattr(ledgers, "_GROWN_BYTES", 2000)
    broker = BrokerFixture(tmp_path, config=changed(storage__history_seconds=3600))
    broker.topic()
    broker.produce(*(b"%d" % number for number in range(100)))
    taker = taker_of(broker, credit=200)
    hosted_of(broker).ledger.log.config = LogConfig(segment_bytes=4096)  # type: ignore[union-attr]
    for message in taker.take()[:-1]:
        taker.finish(message)
    log = hosted_of(broker).ledger.log
    begin, first = log.start_offset, log.kept_since[0]
    told = story(broker, 3)
    broker.kill()

    again = broker.again()
    other = taker_of(again, "bob")
    other.run(11)
    later = story(again, 3)
    values = other.values
    again.clock.advance(3601)
    again.housekeeping.apply_retention()
    log = hosted_of(again).ledger.log

    assert begin > first == 0
    assert told == later == [("delivered", 1, "ann"), ("finished", 1, "ann")]
    assert values == [b"99"]
    assert log.kept_since[0] > 0
    assert life(again, 3)["since_ms"] is not None


def test_history_has_a_bound_in_bytes_and_gives_way_to_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more is kept than was set, and nothing beyond the need when space is short."""
    monkeypatch.setattr(ledgers, "_GROWN_BYTES", 1000)
    disk = BrokerDisk()
    broker = BrokerFixture(tmp_path, disk=disk, config=changed(storage__history_bytes=9000))
    broker.topic()
    broker.produce(*(b"%d" % number for number in range(400)))
    taker = taker_of(broker, credit=500)
    log = hosted_of(broker).ledger.log
    log.config = LogConfig(segment_bytes=2048)  # type: ignore[union-attr]
    most = 0
    for message in taker.take()[:-1]:
        taker.finish(message)
        most = max(most, log.size_bytes)
    disk.free = Space(free=0, total=1 << 40)
    broker.housekeeping.look_at_space()

    assert most < 9000 + 8000
    assert log.size_bytes < 9000
    broker.kill()
    disk.free = Space(free=1 << 40, total=1 << 41)
    other = taker_of(broker.again())
    other.run(11)
    assert other.values == [b"399"]


def test_others_have_their_turn_meanwhile(tmp_path: Path) -> None:
    """The files are read elsewhere; nothing is answered before they were."""
    background = HeldBackground()
    broker = BrokerFixture(tmp_path, background=background)
    broker.topic()
    broker.produce(b"a")
    taker = taker_of(broker)
    while background.waiting:
        background.release()
    taker.run()
    done = operated(broker, "message.life", topic="t", partition=0, offset=0)
    early = list(done)
    while background.waiting:
        background.release()

    assert early == []
    assert [each["what"] for each in done[0]["events"]] == ["delivered"]


def test_long_batches_and_lost_files(
    broker: BrokerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch longer than a piece is read whole; of a file that is gone it is said."""
    monkeypatch.setattr(reading, "_PIECE_BYTES", 100)
    broker.produce(b"a")
    taker = taker_of(broker)
    taker.finish(*taker.take())
    whole = life(broker)
    for path in broker.path.rglob("ledger/*.log"):
        path.unlink()

    assert [each["what"] for each in whole["events"]] == ["delivered", "finished"]
    assert not whole["more"]
    assert life(broker)["more"]


def test_what_is_not_there(broker: BrokerFixture) -> None:
    """A message that does not exist yet has no life; without channels there is none to tell."""
    broker.produce(b"a")
    broker.topic("m", storage="memory")
    broker.produce(b"a", topic="m")

    assert life(broker) == {"events": [], "channels": [], "since_ms": None, "more": False}
    with pytest.raises(OffsetOutOfRange):
        life(broker, 1)
    with pytest.raises(UnknownPartition):
        broker.operate("message.life", topic="t", partition=7, offset=0)
    Taker(broker).subscribe(topic="m")
    told = broker.operate("message.life", topic="m", partition=0, offset=0)
    assert told["events"] == []
    assert told["since_ms"] is not None
