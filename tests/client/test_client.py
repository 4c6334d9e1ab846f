"""The Deferred face, over transports in memory and a fake clock."""

from __future__ import annotations

import gc
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import ILogObserver, LogLevel, formatEvent, globalLogPublisher
from twisted.python.failure import Failure

from tests.client.puppet import APPENDED_MS
from tests.client.stage import Stage
from tinymq.catalog import PUBLIC
from tinymq.client import (
    LATEST,
    Account,
    Client,
    ClientConfig,
    ConsumerBatch,
    ConsumerConfig,
    Delayed,
    Position,
    ProducerConfig,
    Sent,
)
from tinymq.client.core.fork import Home, Process
from tinymq.client.network import TwistedNetwork
from tinymq.errors import (
    BufferFull,
    ClientError,
    ClosedError,
    ConfigError,
    ConnectionLost,
    DeadlineExceeded,
    ForkedError,
    InvalidDelay,
    InvalidRequest,
    MalformedFrame,
    TinyMQError,
    UnknownTopic,
    UnreachableError,
    Unroutable,
    UsageError,
    ValueTooLarge,
)
from tinymq.operations import OPERATIONS
from tinymq.wire.header import MessageType


class Results:
    """Notes how Deferreds end."""

    def __init__(self, *waiting: Deferred[Any]) -> None:
        self.values: list[Any] = []
        self.errors: list[BaseException] = []
        for one in waiting:
            one.addCallbacks(self.values.append, self._failed)

    def _failed(self, failure: Failure) -> None:
        assert failure.value is not None
        self.errors.append(failure.value)


# --- producing -----------------------------------------------------------------


def test_send() -> None:
    """Each record's Deferred fires with its position; one turn is one batch."""
    stage = Stage()
    producer = stage.client.producer()
    sends = [producer.send("t", b"%d" % number, key="k") for number in range(3)]
    assert producer.pending == 3
    results = Results(*sends)
    stage.pump()

    assert [position.offset for position in results.values] == [0, 1, 2]
    assert isinstance(results.values[0], Position)
    assert results.values[0][:3] == ("t", 0, 0)
    assert stage.puppet.kinds().count("PRODUCE") == 1
    assert stage.joins[0][1].nodelay
    assert stage.joins[0][1].bufferSize == 256 * 1024
    stage.end()


def test_send_batch_and_oneway() -> None:
    """Many records share one Deferred; oneway records are in the account."""
    stage = Stage()
    producer = stage.client.producer()
    sent = stage.done(producer.send_batch("t", [b"a", b"b"]))
    producer.send_oneway("t", b"c")
    account = stage.done(producer.flush())

    assert Sent(2, [(0, 0, 2)]) == sent
    assert Account(3, 0, 0, (), 0) == account == producer.account
    assert stage.puppet.values("t") == [b"a", b"b", b"c"]
    stage.end()


def test_send_later() -> None:
    """A record that waits until it is due has an id instead of an offset; wrong times fail."""
    stage = Stage()
    producer = stage.client.producer()
    delayed = stage.done(producer.send("t", b"a", delay=5))
    at = stage.done(producer.send("t", b"b", at=1_900_000_000_000, ttl=3))
    sent = stage.done(producer.send_batch("t", [b"c", b"d"], delay=[0, 1]))
    producer.send_oneway("t", b"e", delay=1)
    wrong = Results(producer.send("t", b"x", delay=-1), producer.send_batch("t", [b"x"], ttl=0))
    with pytest.raises(InvalidDelay):
        producer.send_oneway("t", b"x", at=-1)
    stage.done(producer.flush())

    assert delayed == Delayed("t", 0, 0, APPENDED_MS + 5000)
    assert at == Delayed("t", 0, 1, 1_900_000_000_000)
    assert sent == Sent(2, [(0, 0, 1)], delayed=[(0, 2, 1)])
    assert [type(error) for error in wrong.errors] == [InvalidDelay, InvalidDelay]
    assert producer.account.sent == 5
    stage.end()


def test_send_to_nowhere() -> None:
    """A record that no binding of an exchange takes fails with its place."""
    stage = Stage()
    stage.puppet.unroutable = b"\x02"
    producer = stage.client.producer()
    results = Results(producer.send("t", b"a"), producer.send("t", b"b"))
    stage.pump()

    assert [position.offset for position in results.values] == [0]
    assert [type(error) for error in results.errors] == [Unroutable]
    stage.end()


def test_failures_of_single_records() -> None:
    """What is wrong with a record fails its Deferred and nothing else."""
    stage = Stage()
    producer = stage.client.producer(ProducerConfig(create_topics=False))
    results = Results(
        producer.send("t", "text"),  # type: ignore[call-overload]
        producer.send("t", bytes(17 << 20)),
        producer.send_batch("t", []),
        producer.send("t", b"x"),
        producer.send_batch("t", [b"y"]),
    )
    stage.pump()

    assert [UsageError, ValueTooLarge, UsageError, UnknownTopic, UnknownTopic] == [
        type(error) for error in results.errors
    ]
    stage.end()


def test_sending_from_a_callback() -> None:
    """A callback may send; nothing is lost or told twice."""
    stage = Stage()
    producer = stage.client.producer()
    offsets: list[int] = []

    def again(position: Position) -> None:
        offsets.append(position.offset)
        if len(offsets) < 50:
            producer.send("t", b"x").addCallback(again)

    producer.send("t", b"x").addCallback(again)
    stage.pump()

    assert list(range(50)) == offsets
    stage.end()


def test_cancelled_send() -> None:
    """Cancelling gives up the answer, not the record."""
    stage = Stage()
    producer = stage.client.producer()
    sends = [producer.send("t", b"a"), producer.send("t", b"b")]
    results = Results(*sends)
    sends[0].cancel()
    batch = producer.send_batch("t", [b"c"])
    other = Results(batch)
    batch.cancel()
    stage.pump()

    assert [CancelledError] == [type(error) for error in results.errors]
    assert [CancelledError] == [type(error) for error in other.errors]
    assert [position.offset for position in results.values] == [1]
    assert stage.puppet.values("t") == [b"a", b"b", b"c"]
    stage.end()


def test_buffer_full() -> None:
    """When too much waits, the Deferred says so at once."""
    stage = Stage()
    producer = stage.client.producer(ProducerConfig(buffer_bytes=10))
    first = Results(producer.send("t", bytes(100)))
    second = Results(producer.send("t", b"x"), producer.send_batch("t", [b"x"]))
    assert [BufferFull] * 2 == [type(error) for error in second.errors]
    with pytest.raises(BufferFull):
        producer.send_oneway("t", b"x")
    stage.pump()

    assert len(first.values) == 1
    stage.end()


def test_back_pressure() -> None:
    """While the transport is full nothing is written to it."""
    stage = Stage()
    producer = stage.client.producer()
    stage.done(producer.send("t", b"a"))
    protocol: Any = stage.joins[0][0]
    protocol.pauseProducing()
    results = Results(producer.send("t", b"b"))
    stage.pump()
    assert stage.puppet.values("t") == [b"a"]
    protocol.resumeProducing()
    stage.pump()

    assert len(results.values) == 1
    protocol.stopProducing()
    stage.end()


def test_close_accounts_for_all() -> None:
    """Closing a producer settles all its records; later ones are refused."""
    stage = Stage()
    producer = stage.client.producer(ProducerConfig(linger_ms=1000))
    results = Results(*[producer.send("t", b"%d" % number) for number in range(100)])
    account = stage.done(producer.close())
    late = Results(producer.send("t", b"late"))

    assert [len(results.values), account.sent, account.pending] == [100, 100, 0]
    assert [ClosedError] == [type(error) for error in late.errors]
    assert account == stage.done(producer.close())
    stage.end()


# --- consuming -----------------------------------------------------------------


def test_consume() -> None:
    """Batches come through Deferreds, in order, also when asked for before they are there."""
    stage = Stage()
    producer, consumer = stage.client.producer(), stage.client.consumer()
    stage.done(producer.send("t", b"a"))
    stage.done(consumer.assign("t"))
    first = stage.done(consumer.next_batch())
    results = Results(consumer.next_batch(), consumer.next_batch())
    stage.done(producer.send("t", b"b"))
    stage.done(producer.send("t", b"c"))

    assert first is not None
    assert [first.values, *[batch.values for batch in results.values]] == [[b"a"], [b"b"], [b"c"]]
    assert consumer.assigned == [("t", 0)]
    assert [
        consumer.position("t", 0),
        consumer.gaps,
        stage.done(consumer.end_offsets("t")),
    ] == [3, 0, {0: 3}]
    stage.end()


def test_async_for() -> None:
    """`async for` reads until the consumer is closed."""
    stage = Stage()
    producer, consumer = stage.client.producer(), stage.client.consumer()
    found: list[bytes | None] = []

    async def read() -> str:
        await consumer.assign("t", start=LATEST)
        async for batch in consumer:
            found.extend(batch.values)
        return "ended"

    stage.puppet.make("t")
    reading = Deferred.fromCoroutine(read())
    stage.pump()
    stage.done(producer.send_batch("t", [b"a", b"b"]))
    consumer.close()

    assert stage.done(reading) == "ended"
    assert found == [b"a", b"b"]
    stage.end()


def test_next_batch_timeout() -> None:
    """With a time-out an empty topic is always None."""
    stage = Stage()
    stage.puppet.make("t")
    consumer = stage.client.consumer()
    stage.done(consumer.assign("t"))
    results = Results(*[consumer.next_batch(1.0) for _ in range(10)])
    stage.advance(1.5)

    assert results.values == [None] * 10
    stage.end()


def test_next_batch_without_assignment() -> None:
    """Nothing assigned is an error, not a wait without end."""
    stage = Stage()
    consumer = stage.client.consumer()
    results = Results(consumer.next_batch(), consumer.assign("t", start=-7))
    stage.pump()

    assert [UsageError] * 2 == [type(error) for error in results.errors]
    stage.end()


def test_next_batch_cancelled() -> None:
    """A cancelled call takes nothing."""
    stage = Stage()
    stage.puppet.make("t")
    consumer, producer = stage.client.consumer(), stage.client.producer()
    stage.done(consumer.assign("t"))
    waiting = consumer.next_batch()
    cancelled, other = Results(waiting), Results(consumer.next_batch(5))
    waiting.cancel()
    stage.done(producer.send("t", b"a"))

    assert [CancelledError] == [type(error) for error in cancelled.errors]
    assert [batch.values for batch in other.values] == [[b"a"]]
    stage.end()


def test_error_reaches_the_caller() -> None:
    """An error of a partition is told to one waiting call; moving goes on."""
    stage = Stage()
    topic = stage.puppet.make("t")
    producer, consumer = stage.client.producer(), stage.client.consumer()
    stage.done(producer.send("t", b"a"))
    stage.done(producer.send("t", b"b"))
    topic.logs[0].start = 1
    stage.done(consumer.assign("t", start=0))
    failed = Results(consumer.next_batch())
    stage.pump()
    assert failed.errors[0].data["start"] == 1  # type: ignore[attr-defined]
    again = Results(consumer.next_batch())
    assert again.errors == failed.errors
    consumer.seek("t", 0, 1)
    batch = stage.done(consumer.next_batch())
    assert batch is not None
    consumer.pause("t")
    consumer.resume("t")
    consumer.unassign("t")

    assert isinstance(batch, ConsumerBatch)
    stage.end()


def test_nothing_left_to_wait_for() -> None:
    """Who waits while the last partition is taken away is told at once, as who comes later."""
    stage = Stage()
    stage.puppet.make("t", 2)
    consumer = stage.client.consumer()
    stage.done(consumer.assign("t"))
    waiting = [Results(consumer.next_batch()) for _ in range(2)]
    consumer.unassign("t", [0])
    assert [each.errors for each in waiting] == [[], []]
    consumer.unassign("t")
    assert [type(error) for each in waiting for error in each.errors] == [UsageError] * 2
    stage.end()


def test_silent_broker_ends_the_wait() -> None:
    """When no broker answers for too long, a waiting call says so; the next goes on."""
    stage = Stage()
    stage.puppet.make("t")
    consumer = stage.client.consumer(ConsumerConfig(give_up_s=20))
    stage.done(consumer.assign("t"))
    results = Results(consumer.next_batch())
    stage.advance(15)
    stage.puppet.wake(empty=True)
    stage.pump()
    stage.up = False
    stage.cut()
    stage.advance(19)
    assert not results.errors
    stage.advance(2)
    assert isinstance(results.errors[0], ClientError)
    results = Results(consumer.next_batch())
    stage.up = True
    stage.advance(10)
    stage.done(stage.client.producer().send("t", b"a"))

    assert [batch.values for batch in results.values] == [[b"a"]]
    stage.end()


@contextmanager
def said() -> Iterator[list[str]]:
    """The lines for people that the client logs."""
    lines: list[str] = []

    def note(event: Mapping[str, Any]) -> None:
        if event["log_level"] is LogLevel.warn:
            lines.append(formatEvent(dict(event)))

    observer = cast(ILogObserver, note)
    globalLogPublisher.addObserver(observer)
    try:
        yield lines
    finally:
        globalLogPublisher.removeObserver(observer)


# --- administration ------------------------------------------------------------


def test_admin() -> None:
    """Each operation arrives by its name with the arguments that were given."""
    stage = Stage()
    calls: list[tuple[str, dict[str, Any]]] = []

    def note(name: str, /, **more: Any) -> dict[str, Any]:
        calls.append((name, more))
        return {"is": name}

    for name in OPERATIONS:
        stage.puppet.operations[name] = partial(note, name)
    settings = {"sync": "os"}
    letters = {"target": "t.c.dead", "limit": 100}
    late = {"topic": "t", "partition": 0}
    admin = stage.client.admin
    for call in (
        admin.create_topic("t", 2, {"sync": "os"}),
        admin.alter_topic("t", {"sync": "os"}, 3),
        admin.delete_topic("t", dry_run=True),
        admin.list_topics("t*"),
        admin.topic("t"),
        admin.purge("t", before=5),
        admin.undo_purge("t"),
        admin.log_level("debug", dry_run=True),
        admin.list_brokers(),
        admin.drain_broker(2, dry_run=True),
        admin.list_clients(2, "w*", after="7"),
        admin.client_info("b", 7),
        admin.kick_client(2, 7, "too loud"),
        admin.watch(5, wait_ms=0),
        admin.list_dead_letters("t", "*.dead"),
        admin.dead_letters("t.c.dead", reason="rejected", limit=5),
        admin.redrive("t.c.dead", ["0:7"], dry_run=True),
        admin.drop_dead_letters("t.c.dead", channel="c", after="0:8"),
        admin.message_life("t", 0, 7),
        admin.create_exchange("x", "topic", partitions=2),
        admin.alter_exchange("x", "nobody"),
        admin.delete_exchange("x", force=True),
        admin.list_exchanges("x*"),
        admin.exchange("x"),
        admin.test_exchange("x", "eu.de", {"a": "b"}, "{}"),
        admin.topology(),
        admin.bind("x", "t", headers=["region=eu"]),
        admin.unbind("x", "0011aabb", dry_run=True),
        admin.list_bindings("x", "t", limit=5),
        admin.list_delayed("t", key="k"),
        admin.delayed("t/0~7"),
        admin.delayed_histogram("t"),
        admin.cancel_delayed("t/0~7", "t/0~8"),
        admin.delayed_now(Delayed("t", 0, 7), dry_run=True),
        admin.move_delayed("t/0~7", delay=5),
        admin.apply_delayed("cancel", "t", key="k", after="x"),
        admin.create_schedule("s", "t", "0 3 * * *", b"\xff", zone="Europe/Berlin", key="k"),
        admin.list_schedules("t", "s*"),
        admin.schedule("s"),
        admin.pause_schedule("s"),
        admin.pause_schedule("s", undo=True, dry_run=True),
        admin.run_schedule("s"),
        admin.delete_schedule("s"),
        admin.list_groups("t", "g*"),
        admin.group("g"),
        admin.seek_group("g", "-5", topic="t", partition=1, dry_run=True),
        admin.seek_group("g", positions=[("t", 0, 7)], force=True),
        admin.undo_group_seek("g"),
        admin.reset_group("g", "t"),
        admin.delete_group("g", force=True),
        admin.evict_member("g", "m-1", "too slow"),
        admin.compact_topic("t", partition=1),
        admin.topic_history("t", limit=5),
        admin.list_transactions("open"),
        admin.abort_transaction("bank", dry_run=True),
        admin.find_nodes("t"),
        admin.list_announced(),
    ):
        stage.done(call)
    assert stage.done(admin.broker_info()) == {"is": "broker.info"}

    assert calls == [
        (
            "topic.create",
            {"name": "t", "partitions": 2, "config": settings, "dry_run": False},
        ),
        ("topic.alter", {"name": "t", "config": settings, "partitions": 3, "dry_run": False}),
        ("topic.delete", {"name": "t", "dry_run": True}),
        ("topic.list", {"filter": "t*", "after": "", "limit": 500}),
        ("topic.info", {"name": "t"}),
        ("topic.purge", {"name": "t", "before": 5, "dry_run": False}),
        ("topic.undo_purge", {"name": "t", "dry_run": False}),
        ("broker.log_level", {"level": "debug", "dry_run": True}),
        ("broker.list", {}),
        ("broker.drain", {"broker": "2", "undo": False, "dry_run": True}),
        ("client.list", {"broker": "2", "filter": "w*", "after": "7", "limit": 100}),
        ("client.info", {"broker": "b", "id": 7}),
        ("client.kick", {"broker": "2", "id": 7, "reason": "too loud", "dry_run": False}),
        ("cluster.watch", {"revision": 5, "wait_ms": 0}),
        ("dlq.list", {"topic": "t", "filter": "*.dead", "after": "", "limit": 100}),
        (
            "dlq.messages",
            {"target": "t.c.dead", "after": "", "limit": 5, "reason": "rejected"},
        ),
        (
            "dlq.redrive",
            {**letters, "offsets": ["0:7"], "to": "origin", "after": "", "dry_run": True},
        ),
        ("dlq.drop", {**letters, "after": "0:8", "dry_run": False, "channel": "c"}),
        ("message.life", {"topic": "t", "partition": 0, "offset": 7}),
        (
            "exchange.create",
            {"name": "x", "kind": "topic", "partitions": 2, "config": {}, "dry_run": False},
        ),
        ("exchange.alter", {"name": "x", "dead_letter": "nobody", "dry_run": False}),
        ("exchange.delete", {"name": "x", "force": True, "dry_run": False}),
        ("exchange.list", {"filter": "x*", "after": "", "limit": 100}),
        ("exchange.info", {"name": "x"}),
        (
            "exchange.test",
            {
                "name": "x",
                "key": "eu.de",
                "headers": [["a", "b"]],
                "value": "{}",
                "encoding": "string",
            },
        ),
        ("exchange.topology", {}),
        (
            "binding.add",
            {"exchange": "x", "target": "t", "headers": ["region=eu"], "dry_run": False},
        ),
        ("binding.delete", {"exchange": "x", "id": "0011aabb", "dry_run": True}),
        ("binding.list", {"exchange": "x", "target": "t", "after": "", "limit": 5}),
        ("delayed.list", {"topic": "t", "after": "", "limit": 100, "key": "k"}),
        ("delayed.get", {"topic": "t", "partition": 0, "id": 7}),
        ("delayed.histogram", {"topic": "t"}),
        ("delayed.cancel", {**late, "ids": [7, 8], "dry_run": False}),
        ("delayed.now", {**late, "ids": [7], "dry_run": True}),
        ("delayed.move", {**late, "ids": [7], "dry_run": False, "delay_ms": 5000}),
        (
            "delayed.apply",
            {
                "act": "cancel",
                "topic": "t",
                "after": "x",
                "limit": 100,
                "dry_run": False,
                "key": "k",
            },
        ),
        (
            "schedule.create",
            {
                "name": "s",
                "topic": "t",
                "cron": "0 3 * * *",
                "zone": "Europe/Berlin",
                "value": "/w==",
                "encoding": "base64",
                "dry_run": False,
                "key": "k",
            },
        ),
        ("schedule.list", {"topic": "t", "filter": "s*", "after": "", "limit": 100}),
        ("schedule.info", {"name": "s"}),
        ("schedule.pause", {"name": "s", "dry_run": False}),
        ("schedule.resume", {"name": "s", "dry_run": True}),
        ("schedule.run", {"name": "s", "dry_run": False}),
        ("schedule.delete", {"name": "s", "dry_run": False}),
        ("group.list", {"topic": "t", "filter": "g*", "after": "", "limit": 100}),
        ("group.info", {"name": "g"}),
        (
            "group.seek",
            {
                "name": "g",
                "to": "-5",
                "topic": "t",
                "partition": 1,
                "force": False,
                "dry_run": True,
            },
        ),
        (
            "group.seek",
            {
                "name": "g",
                "force": True,
                "dry_run": False,
                "positions": [{"topic": "t", "partition": 0, "offset": 7}],
            },
        ),
        ("group.undo_seek", {"name": "g", "force": False, "dry_run": False}),
        ("group.reset", {"name": "g", "topic": "t", "force": False, "dry_run": False}),
        ("group.delete", {"name": "g", "force": True, "dry_run": False}),
        (
            "group.evict",
            {"name": "g", "member": "m-1", "reason": "too slow", "dry_run": False},
        ),
        ("topic.compact", {"name": "t", "partition": 1, "dry_run": False}),
        ("topic.history", {"name": "t", "after": "", "limit": 5}),
        ("transaction.list", {"state": "open", "after": "", "limit": 100}),
        ("transaction.abort", {"transactional_id": "bank", "dry_run": True}),
        ("lookup.find", {"name": "t"}),
        ("lookup.list", {"after": "", "limit": 100}),
        ("broker.info", {}),
    ]
    public = {name for name in PUBLIC if not name.startswith(("channel.", "inflight.", "push."))}
    assert public == {name for name, _ in calls}, "every operation has its method"
    for name, arguments in calls:  # as a broker reads them
        OPERATIONS[name].arguments(arguments)
    stage.end()


def test_channel_admin() -> None:
    """So does each operation on channels."""
    stage = Stage()
    calls: list[tuple[str, dict[str, Any]]] = []

    def note(name: str, /, **more: Any) -> dict[str, Any]:
        calls.append((name, more))
        return {"is": name}

    for name in OPERATIONS:
        stage.puppet.operations[name] = partial(note, name)
    admin = stage.client.admin
    for call in (
        admin.create_channel("t", "w", {"attempts": 3}, "latest"),
        admin.alter_channel("t", "w", {"attempts": None}, dry_run=True),
        admin.delete_channel("t", "w"),
        admin.list_channels("t", "w*", after="t/a"),
        admin.channel("t", "w"),
        admin.pause_channel("t", "w", reason="upgrade"),
        admin.seek_channel("t", "w", 5, partition=1),
        admin.undo_seek("t", "w", dry_run=True),
        admin.empty_channel("t", "w"),
        admin.channel_members("t", "w"),
        admin.peek_channel("t", "w", "ready", partition=1),
        admin.in_flight("t", client="c", attempts=2),
        admin.settle_in_flight("t", "w", 1, [2, 3], "requeue", delay_ms=5),
        admin.wake_retries("t", "w", 1, [2], dry_run=True),
        admin.delay_retries("t", "w", 1, [2], due_ms=5),
    ):
        stage.done(call)

    one = {"topic": "t", "name": "w"}
    assert calls == [
        (
            "channel.create",
            {
                **one,
                "config": {"attempts": 3},
                "start": "latest",
                "temporary": False,
                "dry_run": False,
            },
        ),
        ("channel.alter", {**one, "config": {"attempts": None}, "dry_run": True}),
        ("channel.delete", {**one, "dry_run": False}),
        ("channel.list", {"topic": "t", "filter": "w*", "after": "t/a", "limit": 100}),
        ("channel.info", one),
        ("channel.pause", {**one, "reason": "upgrade", "undo": False, "dry_run": False}),
        ("channel.seek", {**one, "to": 5, "partition": 1, "dry_run": False}),
        ("channel.undo_seek", {**one, "dry_run": True}),
        ("channel.empty", {**one, "dry_run": False}),
        ("channel.members", one),
        ("channel.peek", {**one, "state": "ready", "partition": 1, "limit": 100}),
        ("inflight.list", {"topic": "t", "client": "c", "attempts": 2}),
        (
            "inflight.settle",
            {
                **one,
                "partition": 1,
                "offsets": [2, 3],
                "act": "requeue",
                "delay_ms": 5,
                "dry_run": False,
            },
        ),
        ("channel.wake", {**one, "partition": 1, "offsets": [2], "dry_run": True}),
        ("channel.delay", {**one, "partition": 1, "offsets": [2], "dry_run": False, "due_ms": 5}),
    ]
    public = {name for name in PUBLIC if name.startswith(("channel.", "inflight."))}
    assert public == {name for name, _ in calls}, "every operation has its method"
    for name, arguments in calls:  # as a broker reads them
        OPERATIONS[name].arguments(arguments)
    stage.end()


def test_watch() -> None:
    """A watch may wait longer than other calls, and what it tells is read by the client."""
    stage = Stage()
    stage.puppet.make("t")
    stage.done(stage.client.metadata(["t"]))
    stage.puppet.make("t", 3)
    stage.puppet.deaf = {MessageType.OPERATE}
    results = Results(stage.client.admin.watch(1, wait_ms=60_000))
    stage.advance(65)
    assert stage.puppet.kinds().count("OPERATE") == 1
    stage.puppet.deaf = set()
    news = {"revision": stage.puppet.revision, "changes": []}
    stage.puppet.operations["cluster.watch"] = lambda **arguments: news
    stage.advance(20)
    asked = stage.puppet.kinds().count("METADATA")

    assert results.values == [news]
    stage.puppet.revision += 1
    news["revision"] = stage.puppet.revision
    stage.done(stage.client.admin.watch(2))
    stage.advance(2)
    assert stage.puppet.kinds().count("METADATA") == asked + 1
    stage.end()


def test_an_address_is_named_once() -> None:
    """The error of a broker that cannot be reached names its address once, and the reason."""
    stage = Stage(deadline_s=2)
    stage.up = False
    results = Results(stage.client.admin.broker_info())
    stage.advance(3)
    (error,) = results.errors

    assert str(error).count("127.0.0.1:7800") == 1
    assert "refused" in str(error)
    stage.end()


def test_a_consumer_waits_for_ever() -> None:
    """Unless told otherwise a waiting call outlives any pause of the broker, and logs it."""
    stage = Stage()
    stage.puppet.make("t")
    consumer = stage.client.consumer()
    stage.done(consumer.assign("t"))
    results = Results(consumer.next_batch())
    stage.up = False
    with said() as lines:
        stage.cut()
        stage.advance(10_000)
        assert results.values + results.errors == []
        stage.up = True
        stage.advance(10)
        stage.done(stage.client.producer().send("t", b"a"))

    assert [batch.values for batch in results.values] == [[b"a"]]
    assert [line.split(", ")[0] for line in lines] == [
        "connection to broker puppet (1) lost",
        "connection to broker puppet (1) is back",
    ]
    stage.end()


def test_admin_errors() -> None:
    """The broker's error and a result that is no map fail the call."""
    stage = Stage()
    stage.puppet.operations["odd"] = lambda: 7  # type: ignore[assignment, return-value]
    results = Results(stage.client.admin.operate("nix"), stage.client.admin.operate("odd"))
    stage.pump()

    assert [InvalidRequest, MalformedFrame] == [type(error) for error in results.errors]
    stage.end()


def test_metadata() -> None:
    """Topics are described, created where asked, and errors are the broker's."""
    stage = Stage()
    found = stage.done(stage.client.metadata(["a", "b"], create=True))
    results = Results(stage.client.metadata(["a", "nix"]))
    stage.pump()

    assert [found["a"].partitions, found["b"].partitions] == [1, 1]
    assert [UnknownTopic] == [type(error) for error in results.errors]
    stage.end()


# --- links ---------------------------------------------------------------------


def _fetching(stage: Stage) -> Deferred[Any]:
    consumer = stage.client.consumer(ConsumerConfig(give_up_s=30))
    assigned = consumer.assign("t", start=0)
    return assigned.addCallback(lambda _: consumer.next_batch())


#: How each kind of request is begun, on a client that is connected.
BEGIN: dict[MessageType, Callable[[Stage], Deferred[Any]]] = {
    MessageType.METADATA: lambda stage: stage.client.metadata(["t"]),
    MessageType.INIT_PRODUCER: lambda stage: stage.client.producer().send("t", b"x"),
    MessageType.PRODUCE: lambda stage: stage.client.producer().send("t", b"x"),
    MessageType.OFFSETS: lambda stage: stage.client.consumer().end_offsets("t"),
    MessageType.OPERATE: lambda stage: stage.client.admin.operate("topic.create"),
    MessageType.FETCH: _fetching,
    MessageType.HELLO: lambda stage: stage.client.admin.broker_info(),
}


@pytest.mark.parametrize("kind", BEGIN)
@pytest.mark.parametrize("back", [False, True])
def test_cut_during_each_request(kind: MessageType, back: bool) -> None:
    """Whatever is under way when the link dies ends within its deadline."""
    stage = Stage()
    stage.puppet.make("t")
    stage.puppet.operations["topic.create"] = stage.puppet.operations["broker.info"] = dict
    if kind != MessageType.HELLO:
        stage.done(stage.client.metadata(["t"]))
    stage.puppet.deaf = {kind}
    if kind == MessageType.HELLO:
        stage.puppet.mute = {kind}
    results = Results(BEGIN[kind](stage))
    stage.pump()
    assert not results.values + results.errors
    stage.up = back
    stage.cut()
    if back:
        stage.puppet.deaf = set()
        stage.puppet.mute = set()
        stage.advance(1)
        if kind == MessageType.FETCH:
            stage.done(stage.client.producer().send("t", b"x"))
    else:
        stage.advance(41)

    if back and kind != MessageType.OPERATE:
        assert [len(results.values), len(results.errors)] == [1, 0]
    else:
        (error,) = results.errors
        assert isinstance(error, (DeadlineExceeded, UnreachableError, ConnectionLost))
    stage.end()


@pytest.mark.parametrize("kind", BEGIN)
def test_silence_during_each_request(kind: MessageType) -> None:
    """A broker that says nothing at all ends no call later than its deadline."""
    stage = Stage()
    stage.puppet.make("t")
    stage.puppet.mute = set(MessageType)
    results = Results(BEGIN[kind](stage))
    stage.advance(31)

    (error,) = results.errors
    assert isinstance(error, (DeadlineExceeded, UnreachableError, ConnectionLost))
    stage.end()


def test_errors_of_the_caller_are_logged() -> None:
    """What a function of the caller does wrong is in the log, with its traceback."""
    stage = Stage()
    events: list[Any] = []
    observer = cast(ILogObserver, events.append)
    globalLogPublisher.addObserver(observer)
    TwistedNetwork(stage.clock, ClientConfig(), None).report("on_gap failed", LookupError("oh"))
    globalLogPublisher.removeObserver(observer)
    (event,) = events

    assert event["what"] == "on_gap failed"
    assert event["log_failure"].check(LookupError)
    stage.end()


def test_cut_twenty_times() -> None:
    """Producer and consumer go on through twenty cuts; no failure is left unhandled."""
    rng = random.Random(7)
    stage = Stage()
    events: list[Any] = []
    observer = cast(ILogObserver, events.append)
    globalLogPublisher.addObserver(observer)
    producer, consumer = stage.client.producer(), stage.client.consumer()
    stage.puppet.make("t")
    found: list[bytes | None] = []

    async def read() -> None:
        await consumer.assign("t", start=0)
        async for batch in consumer:
            found.extend(batch.values)

    reading = Deferred.fromCoroutine(read())
    sends: list[Deferred[Position]] = []
    for cut in range(20):
        sends += [producer.send("t", b"%d.%d" % (cut, n)) for n in range(rng.randint(1, 4))]
        stage.clock.advance(0)
        if rng.random() < 0.5:
            stage.pump()
        stage.cut(deliver=rng.random() < 0.5)
        stage.advance(rng.random())
    results = Results(*sends)
    stage.advance(10)
    stage.end()
    stage.done(reading)
    gc.collect()
    globalLogPublisher.removeObserver(observer)

    assert len(sends) == len(results.values)
    assert stage.puppet.values("t") == found
    assert len(found) == len(sends)
    assert [event for event in events if event.get("log_failure")] == []


def test_connecting_hangs() -> None:
    """An endpoint that never answers is cancelled and tried again."""
    stage = Stage(connect_timeout_s=1)
    stage.hang = True
    results = Results(stage.client.metadata(["t"], create=True))
    stage.advance(2.5)
    assert len(stage.dialed) >= 2
    stage.hang = False
    stage.advance(2)

    assert len(results.values) == 1
    stage.end()


def test_close_while_connecting() -> None:
    """Closing ends a call that waits for the link."""
    stage = Stage()
    stage.hang = True
    results = Results(stage.client.metadata(["t"]))
    stage.pump()
    stage.done(stage.client.close())

    assert [ClosedError] == [type(error) for error in results.errors]
    assert stage.clock.getDelayedCalls() == []


def test_closed_client() -> None:
    """After closing every call is refused, and closing again is no error."""
    stage = Stage()
    stage.end()
    stage.done(stage.client.close())
    results = Results(stage.client.metadata(["t"]), stage.client.admin.broker_info())
    for make in (stage.client.producer, stage.client.consumer):
        with pytest.raises(ClosedError):
            make()

    assert [ClosedError] * 2 == [type(error) for error in results.errors]


def test_stubborn_connection_is_cut() -> None:
    """A connection that does not close by itself is cut after a while."""
    stage = Stage()
    stage.done(stage.client.metadata(["t"], create=True))
    transport = stage.joins[0][1]
    lose = transport.loseConnection
    transport.loseConnection = lambda: None  # type: ignore[method-assign]
    transport.abortConnection = lose  # type: ignore[method-assign]
    closing = Results(stage.client.close())
    stage.advance(1.9)
    assert not closing.values
    stage.advance(0.2)

    assert closing.values == [None]


def test_forked() -> None:
    """In a child process every call is refused."""
    stage = Stage()
    producer, consumer = stage.client.producer(), stage.client.consumer()
    process = Process()
    home = Home(process)
    home.check()
    for one in (stage.client, producer, consumer):
        one._home = home
    process.pid = -1
    calls: list[Callable[[], Deferred[Any]]] = [
        lambda: producer.send("t", b"x"),
        lambda: producer.send_batch("t", [b"x"]),
        producer.flush,
        producer.close,
        lambda: consumer.assign("t"),
        consumer.next_batch,
        lambda: consumer.end_offsets("t"),
        lambda: stage.client.metadata(["t"]),
        stage.client.admin.broker_info,
    ]
    results = Results(*[call() for call in calls])
    with pytest.raises(ForkedError, match="make a new client"):
        stage.client.producer()
    process.forked()
    home.check()

    assert [ForkedError] * len(calls) == [type(error) for error in results.errors]


def test_wrong_url() -> None:
    """A wrong URL is found when the client is made."""
    with pytest.raises(ConfigError):
        Client(Stage().clock, "http://x")


# --- memory --------------------------------------------------------------------


def _objects() -> int:
    gc.collect()
    return len(gc.get_objects())


def test_no_leak_of_producers_and_consumers() -> None:
    """Opening and closing producers and consumers leaves nothing behind."""
    stage = Stage()
    stage.puppet.make("t")

    def turn() -> None:
        producer, consumer = stage.client.producer(), stage.client.consumer()
        stage.done(consumer.assign("t", start=0))
        waiting = consumer.next_batch()
        waiting.addErrback(lambda failure: failure.trap(UsageError))
        consumer.unassign("t")
        consumer.close()
        stage.done(producer.close())
        stage.puppet.wake(empty=True)  # the broker's time-out of the fetch
        stage.pump()
        stage.puppet.seen.clear()

    for _ in range(5):
        turn()
    before = _objects()
    for _ in range(50):
        turn()

    assert _objects() - before < 50
    stage.end()


def test_no_leak_of_links() -> None:
    """Losing and finding the broker again and again leaves nothing behind."""
    stage = Stage()
    producer = stage.client.producer()

    def turn() -> None:
        results = Results(producer.send("t", b"x"))
        stage.advance(1)
        assert len(results.values) == 1
        stage.cut()
        stage.puppet.seen.clear()
        stage.puppet.hellos.clear()
        stage.dialed.clear()
        log = stage.puppet.topics["t"].logs[0]
        log.batches.clear()
        log.headers.clear()

    for _ in range(70):  # until the puppet's memory of the producer is full
        turn()
    before = _objects()
    for _ in range(50):
        turn()

    assert _objects() - before < 50
    stage.end()


def test_core_and_blocking_face_load_no_twisted() -> None:
    """Neither the core nor the blocking face costs the import of Twisted."""
    code = (
        "import sys, tinymq.client.core.consumer, tinymq.client.core.producer, tinymq.sync\n"
        "assert not [name for name in sys.modules if name.split('.')[0] == 'twisted']\n"
        "import tinymq.client\n"
        "assert tinymq.client.Client and 'twisted' in sys.modules\n"
        "try: tinymq.client.Nothing\n"
        "except AttributeError: pass\n"
        "else: raise SystemExit(1)\n"
    )
    subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path)}, check=True)
    assert issubclass(UnreachableError, TinyMQError)
