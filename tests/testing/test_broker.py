"""What a test can do with the broker that it holds in its hands."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.task import LoopingCall, deferLater

from tinymq.client import (
    At,
    Client,
    ClientConfig,
    Consumer,
    ConsumerConfig,
    Mark,
    Position,
    ProducerConfig,
)
from tinymq.errors import (
    ConfigError,
    ConnectionLost,
    DeadlineExceeded,
    LogTruncated,
    OffsetOutOfRange,
    PartitionOffline,
    StateError,
    TinyMQError,
    UnknownTopic,
    UnreachableError,
)
from tinymq.testing import Acknowledgement, InProcessBroker
from tinymq.testing.clock import BEGIN_MS

DAY = 24 * 3600


def values(broker: InProcessBroker, topic: str = "t") -> list[bytes | None]:
    """What the topic holds."""
    return [record.value for record in broker.records(topic)]


def send(broker: InProcessBroker, value: bytes, client: Client | None = None) -> Position:
    """Publish from a client of its own."""
    return broker.run((client or broker.client()).producer().send("t", value))


def reading(broker: InProcessBroker, client: Client) -> Consumer:
    """Start to read the topic."""
    consumer = client.consumer()
    broker.run(consumer.assign("t"))
    return consumer


# --- running ---------------------------------------------------------------------


def test_publish_and_read(tinymq_broker: InProcessBroker) -> None:
    """The real clients meet the real broker, without reactor and sockets."""
    position = send(tinymq_broker, b"tea")
    consumer = reading(tinymq_broker, tinymq_broker.client())

    batch = tinymq_broker.run(consumer.next_batch())

    assert (position.offset, position.timestamp) == (0, BEGIN_MS)
    assert batch is not None
    assert batch.values == [b"tea"]
    assert values(tinymq_broker) == [b"tea"]


def test_large_values_go_through(tinymq_broker: InProcessBroker) -> None:
    """Back-pressure on both sides lets go again: many megabytes come and go."""
    client = tinymq_broker.client()
    sent = [bytes([number]) * 900_000 for number in range(20)]
    tinymq_broker.run(client.producer().send_batch("t", sent))
    consumer = reading(tinymq_broker, client)

    found: list[bytes | None] = []
    while len(found) < len(sent):
        batch = tinymq_broker.run(consumer.next_batch())
        assert batch is not None
        found += batch.values

    assert found == sent == values(tinymq_broker)


def test_run_takes_whatever_can_be_awaited(tinymq_broker: InProcessBroker) -> None:
    """A Deferred, a coroutine and another awaitable give their results or errors."""

    async def wait() -> int:
        await deferLater(tinymq_broker.clock, 100)
        return 3

    class Other:
        __await__ = succeed(4).__await__

    assert tinymq_broker.run(succeed(2)) == 2
    assert tinymq_broker.run(wait()) == 3
    assert tinymq_broker.run(Other()) == 4
    assert tinymq_broker.clock.seconds() == 100
    with pytest.raises(UnknownTopic):
        tinymq_broker.run(tinymq_broker.client().admin.topic("nothing"))


def test_run_does_not_wait_for_ever(tinymq_broker: InProcessBroker) -> None:
    """What never has an outcome is told after some minutes of the fake clock."""
    with pytest.raises(TimeoutError, match="no outcome within 600 s"):
        tinymq_broker.run(Deferred())

    assert tinymq_broker.clock.seconds() <= 600


def test_what_goes_in_circles_is_told(tinymq_broker: InProcessBroker) -> None:
    """A call that schedules itself without a delay cannot hang a test."""
    calls: list[IDelayedCall] = []

    def again() -> None:
        calls.append(tinymq_broker.clock.callLater(0, again))

    again()
    with pytest.raises(RuntimeError, match="never settles"):
        tinymq_broker.settle()
    calls[-1].cancel()


def test_runs_are_alike() -> None:
    """The same seed gives the same run, ids and times included."""

    def story() -> list[object]:
        with InProcessBroker(seed=7) as broker:
            client = broker.client()
            broker.drop_acknowledgements(3)
            stored = [broker.run(client.producer().send(f"t{n}", b"v")) for n in range(5)]
            facts = broker.run(client.admin.topic("t0"))
            return [*stored, facts, broker.clock.seconds()]

    assert story() == story()


# --- time ------------------------------------------------------------------------


def test_advance_fires_every_timer_at_its_time(tinymq_broker: InProcessBroker) -> None:
    """Calls come in order, each at its moment, those that they make included."""
    clock = tinymq_broker.clock
    seen: list[float] = []
    loop = LoopingCall(lambda: seen.append(clock.seconds()))
    loop.clock = clock
    loop.start(2.5, now=False)

    tinymq_broker.advance(timedelta(seconds=10))
    loop.stop()

    assert seen == [2.5, 5.0, 7.5, 10.0]
    assert clock.seconds() == 10
    assert tinymq_broker.wall_ms == BEGIN_MS + 10_000


def test_thirty_days_pass_in_a_jump(tinymq_broker: InProcessBroker) -> None:
    """Retention runs, the test's timers are exact, links and readers live on."""
    client = tinymq_broker.client()
    send(tinymq_broker, b"old", client)
    consumer = reading(tinymq_broker, client)
    tinymq_broker.run(consumer.next_batch())
    waiting = consumer.next_batch()
    seen: list[float] = []
    tinymq_broker.clock.callLater(10 * DAY + 1, lambda: seen.append(tinymq_broker.clock.seconds()))
    before = tinymq_broker.clock.seconds()

    tinymq_broker.jump(days=30)

    assert tinymq_broker.clock.seconds() == before + 30 * DAY
    assert seen == [before + 10 * DAY + 1]
    assert values(tinymq_broker) == []
    assert not waiting.called
    assert tinymq_broker.links() == 1
    send(tinymq_broker, b"new", client)
    batch = tinymq_broker.run(waiting)
    assert batch is not None
    assert batch.values == [b"new"]


def test_a_short_jump_is_an_advance(tinymq_broker: InProcessBroker) -> None:
    """A jump takes a timedelta too, and is exact where that costs little."""
    tinymq_broker.jump(timedelta(seconds=30))
    tinymq_broker.jump(minutes=0.5)

    assert tinymq_broker.clock.seconds() == 60


def test_time_does_not_go_backwards(tinymq_broker: InProcessBroker) -> None:
    """Only the wall clock does; and the clock is moved by the broker, with the links."""
    with pytest.raises(ValueError, match="set_wall"):
        tinymq_broker.advance(-1)
    with pytest.raises(TypeError, match="of the broker"):
        tinymq_broker.clock.advance(1)


def test_the_wall_clock_steps(tinymq_broker: InProcessBroker) -> None:
    """Records get the new time, never one before their forerunner's."""
    client = tinymq_broker.client()
    tinymq_broker.set_wall(datetime(2030, 1, 1, tzinfo=UTC))
    first = send(tinymq_broker, b"1", client)
    tinymq_broker.set_wall(BEGIN_MS)
    second = send(tinymq_broker, b"2", client)

    assert first.timestamp == second.timestamp == 1_893_456_000_000
    assert tinymq_broker.wall_ms == BEGIN_MS
    with pytest.raises(ValueError, match="time zone"):
        tinymq_broker.set_wall(datetime(2030, 1, 1))  # noqa: DTZ001 - the point


def test_reading_from_a_time(tinymq_broker: InProcessBroker) -> None:
    """Positions by time go by the same clock."""
    client = tinymq_broker.client()
    send(tinymq_broker, b"before", client)
    tinymq_broker.jump(hours=1)
    moment = tinymq_broker.wall_ms
    send(tinymq_broker, b"after", client)
    consumer = client.consumer()
    tinymq_broker.run(consumer.assign("t", start=At(moment)))

    batch = tinymq_broker.run(consumer.next_batch())

    assert batch is not None
    assert batch.values == [b"after"]


# --- links -----------------------------------------------------------------------


def test_a_cut_link_comes_back(tinymq_broker: InProcessBroker) -> None:
    """What was under way is sent again and stored once."""
    client = tinymq_broker.client()
    send(tinymq_broker, b"1", client)
    tinymq_broker.hold_syncs()
    waiting = client.producer().send("t", b"2")
    tinymq_broker.settle()

    tinymq_broker.cut()
    tinymq_broker.release_syncs()

    assert tinymq_broker.run(waiting).offset == 1
    assert values(tinymq_broker) == [b"1", b"2"]


def test_one_client_is_cut(tinymq_broker: InProcessBroker) -> None:
    """The links of the others live on."""
    one, other = tinymq_broker.client(), tinymq_broker.client()
    for client in (one, other):
        send(tinymq_broker, b"v", client)
    tinymq_broker.refuse_connections()

    tinymq_broker.cut(one)

    assert (tinymq_broker.links(one), tinymq_broker.links(other)) == (0, 1)
    assert tinymq_broker.links() == 1


def test_refused_connections(tinymq_broker: InProcessBroker) -> None:
    """A client gives up after its deadline, and connects when it may."""
    tinymq_broker.refuse_connections()
    client = tinymq_broker.client(ClientConfig(deadline_s=5))

    with pytest.raises(UnreachableError):
        tinymq_broker.run(client.admin.list_topics())
    assert tinymq_broker.clock.seconds() == 5
    tinymq_broker.accept_connections()

    assert send(tinymq_broker, b"v", client).offset == 0


def test_a_lost_acknowledgement(tinymq_broker: InProcessBroker) -> None:
    """The producer sends again, the broker stores once and tells the first offset."""
    client = tinymq_broker.client(ClientConfig(client_id="shop"))
    tinymq_broker.drop_acknowledgements()

    position = send(tinymq_broker, b"v", client)

    assert position.offset == 0
    assert values(tinymq_broker) == [b"v"]
    assert tinymq_broker.dropped == [Acknowledgement("t", 0, 0, 1, "shop")]


def test_chosen_acknowledgements_are_lost(tinymq_broker: InProcessBroker) -> None:
    """A function chooses; without idempotence the record is stored twice."""
    client = tinymq_broker.client()
    producer = client.producer(ProducerConfig(idempotent=False))
    tinymq_broker.drop_acknowledgements(lambda told: told.offset == 1)

    for value in (b"1", b"2"):
        tinymq_broker.run(producer.send("t", value))
    tinymq_broker.keep_acknowledgements()

    assert [told.offset for told in tinymq_broker.dropped] == [1]
    assert values(tinymq_broker) == [b"1", b"2", b"2"]


def test_an_answer_that_never_comes(tinymq_broker: InProcessBroker) -> None:
    """With a link that lives on, the producer's deadline ends the wait."""
    tinymq_broker.drop_acknowledgements(cut=False)

    with pytest.raises(DeadlineExceeded):
        send(tinymq_broker, b"v")

    assert values(tinymq_broker) == [b"v"]


# --- disk ------------------------------------------------------------------------


def test_held_syncs(tinymq_broker: InProcessBroker) -> None:
    """What is not on the disk is neither acknowledged nor shown."""
    tinymq_broker.create_topic("t")
    tinymq_broker.hold_syncs()
    waiting = tinymq_broker.client().producer().send("t", b"v")
    tinymq_broker.advance(5)
    assert not waiting.called
    assert values(tinymq_broker) == []

    tinymq_broker.release_syncs()

    assert tinymq_broker.run(waiting).offset == 0
    assert values(tinymq_broker) == [b"v"]


def test_a_failed_sync(tinymq_broker: InProcessBroker) -> None:
    """The partition goes offline; a restart brings it back."""
    client = tinymq_broker.client()
    send(tinymq_broker, b"1", client)
    tinymq_broker.fail_next_sync()

    with pytest.raises(PartitionOffline):
        send(tinymq_broker, b"2", client)
    assert values(tinymq_broker) == [b"1"]
    tinymq_broker.restart()

    assert send(tinymq_broker, b"3", client)
    assert values(tinymq_broker)[0] == b"1"


@pytest.mark.parametrize("wait", [0, 3])
def test_a_full_disk(tinymq_broker: InProcessBroker, wait: int) -> None:
    """Publishing waits for space, whether the broker has noticed before or not."""
    client = tinymq_broker.client()
    send(tinymq_broker, b"1", client)
    tinymq_broker.fill_disk()
    tinymq_broker.advance(wait)
    waiting = client.producer().send("t", b"2")
    tinymq_broker.advance(5)
    assert not waiting.called
    assert values(tinymq_broker) == [b"1"]

    tinymq_broker.free_disk()

    assert tinymq_broker.run(waiting).offset == 1


def test_a_full_disk_stays_full_over_a_restart(tinymq_broker: InProcessBroker) -> None:
    """The producer hears of it when its deadline has passed."""
    send(tinymq_broker, b"1")
    tinymq_broker.fill_disk()
    tinymq_broker.kill()
    tinymq_broker.restart()

    with pytest.raises(TinyMQError, match="disk"):
        send(tinymq_broker, b"2")


# --- life ------------------------------------------------------------------------


def test_a_killed_broker_comes_back(tinymq_broker: InProcessBroker) -> None:
    """What was acknowledged is there; clients find the broker again."""
    client = tinymq_broker.client()
    send(tinymq_broker, b"1", client)
    tinymq_broker.kill()
    assert not tinymq_broker.running
    waiting = client.producer().send("t", b"2")
    tinymq_broker.advance(3)
    assert not waiting.called

    tinymq_broker.restart()

    assert tinymq_broker.run(waiting).offset == 1
    assert values(tinymq_broker) == [b"1", b"2"]


def test_a_kill_is_heard_by_who_asked_once(tinymq_broker: InProcessBroker) -> None:
    """An operation that was under way ends with the link."""
    client = tinymq_broker.client()
    send(tinymq_broker, b"1", client)
    waiting = client.admin.create_topic("other")

    tinymq_broker.kill()

    with pytest.raises((ConnectionLost, UnreachableError)):
        tinymq_broker.run(waiting)


def test_a_clean_stop(tinymq_broker: InProcessBroker) -> None:
    """What was taken is stored before the end; a restart goes on from there."""
    client = tinymq_broker.client()
    tinymq_broker.hold_syncs()
    waiting = client.producer().send("t", b"1")
    tinymq_broker.settle()

    tinymq_broker.restart()

    assert tinymq_broker.run(waiting).offset == 0
    assert values(tinymq_broker) == [b"1"]


@pytest.mark.parametrize("end", [InProcessBroker.kill, InProcessBroker.stop])
def test_without_a_broker(
    tinymq_broker: InProcessBroker, end: Callable[[InProcessBroker], None]
) -> None:
    """What needs a running broker says so; ending it twice is harmless."""
    end(tinymq_broker)
    end(tinymq_broker)

    with pytest.raises(StateError, match="restart"):
        tinymq_broker.records("t")


def test_a_power_cut_keeps_what_was_acknowledged(tinymq_broker: InProcessBroker) -> None:
    """Cut after cut, the synced topic loses nothing."""
    client = tinymq_broker.client()
    stored: list[bytes | None] = []
    for seed in range(8):
        value = b"%d" % seed
        send(tinymq_broker, value, client)
        stored.append(value)
        tinymq_broker.power_cut(seed)
        tinymq_broker.restart()
        assert values(tinymq_broker) == stored


def test_a_power_cut_takes_what_was_not_synced() -> None:
    """A topic with sync=os loses its end under some seeds, and readers hear of it."""
    left: dict[int, int] = {}
    for seed in range(6):
        with InProcessBroker() as broker:
            broker.create_topic("t", sync="os")
            client = broker.client()
            consumer = client.consumer()
            broker.run(consumer.assign("t"))
            for number in range(10):
                send(broker, b"%d" % number, client)
            while consumer.position("t", 0) < 10:
                broker.run(consumer.next_batch())
            broker.power_cut(seed)
            broker.restart()
            left[seed] = len(values(broker))
            if left[seed] < 10:
                with pytest.raises((LogTruncated, OffsetOutOfRange)):
                    broker.run(consumer.next_batch())

    assert min(left.values()) < 10


def test_a_stored_mark_tells_of_a_power_cut() -> None:
    """A consumer that begins at a stored mark hears that records before it were lost."""
    told = 0
    for seed in range(3):
        with InProcessBroker() as broker:
            broker.create_topic("t", sync="os")
            client = broker.client()
            for number in range(10):
                send(broker, b"%d" % number, client)
            consumer = reading(broker, client)
            while consumer.position("t", 0) < 10:
                broker.run(consumer.next_batch())
            stored = consumer.marks("t")
            assert stored == {0: Mark(10, 0)}
            broker.power_cut(seed)
            broker.restart()
            left = len(values(broker))
            client = broker.client()
            for _ in range(10 - left + 3):
                send(broker, b"new", client)
            later = client.consumer()
            broker.run(later.assign("t", start=stored))
            if left == 10:
                continue
            told += 1
            with pytest.raises(LogTruncated) as caught:
                broker.run(later.next_batch())
            assert caught.value.data == {"start": 0, "end": left, "topic": "t", "partition": 0}
            later.seek("t", 0, left)
            assert broker.run(later.next_batch()) is not None

    assert told


def test_a_damaged_end_is_passed_over(tmp_path: Path) -> None:
    """When the last batch is damaged on the disk, a reader gets to the end all the same."""
    with InProcessBroker(tmp_path) as broker:
        broker.create_topic("t", sync="always")
        client = broker.client()
        for number in range(3):
            send(broker, b"value-%d" % number, client)
        broker.stop()
        (segment,) = tmp_path.glob("**/topics/*/0/data/*.log")
        content = bytearray(segment.read_bytes())
        content[-1] ^= 1
        segment.write_bytes(content)
        broker.restart()
        gaps: list[tuple[str, int, int, int]] = []
        client = broker.client()
        consumer = client.consumer(ConsumerConfig(on_gap=lambda *gap: gaps.append(gap)))
        broker.run(consumer.assign("t"))
        found: list[bytes | None] = []
        while consumer.position("t", 0) < 3:
            batch = broker.run(consumer.next_batch(timeout=1))
            found += [] if batch is None else batch.values

        assert found == [b"value-0", b"value-1"]
        assert (gaps, consumer.gaps) == ([("t", 0, 2, 3)], 1)
        ends = broker.run(consumer.end_offsets("t"))
        assert ends == {0: consumer.position("t", 0)}


def test_memory_topics_do_not_outlive_the_broker(tinymq_broker: InProcessBroker) -> None:
    """They say so, and a restart empties them."""
    tinymq_broker.create_topic("t", storage="memory")
    assert send(tinymq_broker, b"v").volatile

    tinymq_broker.restart()

    assert values(tinymq_broker) == []


# --- what is stored ----------------------------------------------------------------


def test_records_of_partitions(tinymq_broker: InProcessBroker) -> None:
    """All partitions are seen, or one, with keys and headers."""
    tinymq_broker.create_topic("t", 2, retention_ms=DAY * 1000)
    producer = tinymq_broker.client().producer()
    for partition in (1, 0):
        tinymq_broker.run(
            producer.send(
                "t", b"%d" % partition, key=b"k", headers=[("h", b"x")], partition=partition
            )
        )

    assert values(tinymq_broker) == [b"0", b"1"]
    (record,) = tinymq_broker.records("t", 1)
    assert (record.value, record.key, list(record.headers)) == (b"1", b"k", [("h", b"x")])
    with pytest.raises(UnknownTopic):
        tinymq_broker.records("nothing")


def test_a_folder_is_kept(tmp_path: Path) -> None:
    """A second broker finds what the first left, and a power cut spares it."""
    folder = tmp_path / "data"
    for value in (b"1", b"2"):
        with InProcessBroker(folder) as broker:
            send(broker, value)
    with InProcessBroker(folder) as broker:
        broker.power_cut()
        broker.restart()
        assert values(broker) == [b"1", b"2"]

    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_a_foreign_folder_is_left_alone(tmp_path: Path) -> None:
    """A folder that holds something else is refused, and nothing in it is touched."""
    (tmp_path / "precious").write_text("mine")

    with pytest.raises(ConfigError, match="something else"):
        InProcessBroker(tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


def test_the_end_mends_what_the_test_broke() -> None:
    """No fault that is still in force makes the end hang or fail; nothing is left behind."""
    with InProcessBroker() as broker:
        client = broker.client()
        send(broker, b"v", client)
        broker.hold_syncs()
        waiting = client.producer().send("t", b"w")
        broker.settle()
        broker.cut()
        broker.refuse_connections()
        broker.fill_disk()
        broker.drop_acknowledgements(100)

    assert waiting.called
    assert broker.clock.getDelayedCalls() == []
    broker.close()
