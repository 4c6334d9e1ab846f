"""Producing through the asyncio face, over transports in memory."""

from __future__ import annotations

import asyncio

import pytest

from tests.aio.stage import Stage, ending, in_loop, turns
from tests.client.puppet import APPENDED_MS
from tinymq.aio import (
    Account,
    Delayed,
    PartlySent,
    Position,
    ProducerConfig,
    Sent,
)
from tinymq.errors import (
    BufferFull,
    ClientError,
    ClosedError,
    InvalidDelay,
    InvalidRequest,
    StorageFull,
    UnknownTopic,
    Unroutable,
    UsageError,
    ValueTooLarge,
)
from tinymq.wire.header import MessageType
from tinymq.wire.messages import Produce


@in_loop
async def test_send() -> None:
    """Each record's future has its position; one turn is one batch and one write."""
    async with Stage() as stage:
        producer = stage.client.producer()
        await producer.send("t", b"first")
        writes = stage.transports[0].writes
        sends = [producer.send("t", b"%d" % number, key="k") for number in range(3)]
        assert producer.pending == 3
        positions = await asyncio.gather(*sends)

        assert [position.offset for position in positions] == [1, 2, 3]
        assert isinstance(positions[0], Position)
        assert positions[0][:3] == ("t", 0, 1)
        assert stage.puppet.kinds().count("PRODUCE") == 2
        assert stage.transports[0].writes == writes + 1


@in_loop
async def test_send_later() -> None:
    """A record that waits until it is due has an id instead of an offset; wrong times fail."""
    async with Stage() as stage, stage.client.producer() as producer:
        delayed = await producer.send("t", b"a", delay=5)
        at = await producer.send("t", b"b", at=1_900_000_000_000, ttl=3)
        sent = await producer.send_batch("t", [b"c", b"d"], delay=[0, 1])
        producer.send_oneway("t", b"e", delay=1)
        with pytest.raises(InvalidDelay):
            await producer.send("t", b"x", delay=-1)
        with pytest.raises(InvalidDelay):
            await producer.send_batch("t", [b"x"], ttl=0)
        await producer.flush()

        assert delayed == Delayed("t", 0, 0, APPENDED_MS + 5000)
        assert at == Delayed("t", 0, 1, 1_900_000_000_000)
        assert sent == Sent(2, [(0, 0, 1)], delayed=[(0, 2, 1)])
        assert producer.account.sent == 5


@in_loop
async def test_send_to_nowhere() -> None:
    """A record that no binding of an exchange takes fails with its place."""
    async with Stage() as stage, stage.client.producer() as producer:
        stage.puppet.unroutable = b"\x02"
        good, bad = producer.send("t", b"a"), producer.send("t", b"b")
        with pytest.raises(Unroutable):
            await bad

        assert (await good).offset == 0


@in_loop
async def test_send_batch_and_oneway() -> None:
    """Many records share one future; oneway records are in the account."""
    async with Stage() as stage, stage.client.producer() as producer:
        sent = await producer.send_batch("t", [b"a", b"b"])
        producer.send_oneway("t", b"c")
        account = await producer.flush()

        assert Sent(2, [(0, 0, 2)]) == sent
        assert Account(3, 0, 0, (), 0) == account == producer.account
        assert stage.puppet.values("t") == [b"a", b"b", b"c"]


@in_loop
async def test_partly_sent() -> None:
    """A batch of which a part is refused says which part."""
    async with Stage() as stage:
        stage.puppet.make("t", 2)
        stage.puppet.refuse = lambda request: (
            InvalidRequest() if isinstance(request, Produce) and request.partition else None
        )
        config = ProducerConfig(partitioner="round_robin")
        (error,) = await ending(stage.client.producer(config).send_batch("t", [b"a", b"b"]))

        assert isinstance(error, PartlySent)
        assert [error.sent.count, len(error.failed)] == [1, 1]


@in_loop
async def test_failures_of_single_records() -> None:
    """What is wrong with a record fails its future and nothing else."""
    async with Stage() as stage:
        producer = stage.client.producer(ProducerConfig(create_topics=False))
        errors = await ending(
            producer.send("t", "text"),  # type: ignore[call-overload]
            producer.send("t", bytes(17 << 20)),
            producer.send_batch("t", []),
            producer.send("t", b"x"),
            producer.send_batch("t", [b"y"]),
        )

        kinds = [UsageError, ValueTooLarge, UsageError, UnknownTopic, UnknownTopic]
        assert kinds == [type(error) for error in errors]


@in_loop
async def test_cancelled_send() -> None:
    """Cancelling gives up the answer, not the record."""
    async with Stage() as stage:
        producer = stage.client.producer()
        sends = [producer.send("t", b"a"), producer.send("t", b"b")]
        batch = producer.send_batch("t", [b"c"])
        sends[0].cancel()
        batch.cancel()
        account = await producer.flush()

        assert sends[1].result().offset == 1
        assert account.sent == 3
        assert stage.puppet.values("t") == [b"a", b"b", b"c"]


@in_loop
async def test_buffer_full() -> None:
    """When too much waits, the future says so at once."""
    async with Stage() as stage:
        producer = stage.client.producer(ProducerConfig(buffer_bytes=10))
        first = producer.send("t", bytes(100))
        errors = await ending(producer.send("t", b"x"), producer.send_batch("t", [b"x"]))
        assert [BufferFull] * 2 == [type(error) for error in errors]
        with pytest.raises(BufferFull):
            producer.send_oneway("t", b"x")

        assert (await first).offset == 0


@in_loop
async def test_refused_until_the_deadline() -> None:
    """An error that may pass is tried again, and told at the deadline."""
    async with Stage() as stage:
        stage.puppet.refuse = lambda request: (
            StorageFull() if isinstance(request, Produce) else None
        )
        producer = stage.client.producer(ProducerConfig(deadline_s=5))
        errors = await ending(producer.send("t", b"x"), producer.send_batch("t", [b"x"]))

        assert [StorageFull] * 2 == [type(error) for error in errors]
        assert producer.account.failed_count == 2


@in_loop
async def test_back_pressure() -> None:
    """While the transport is full nothing is written to it."""
    async with Stage() as stage:
        producer = stage.client.producer()
        await producer.send("t", b"a")
        protocol = stage.transports[0].protocol
        protocol.pause_writing()
        waiting = producer.send("t", b"b")
        await turns()
        assert stage.puppet.values("t") == [b"a"]
        protocol.resume_writing()

        assert (await waiting).offset == 1


@in_loop
async def test_linger() -> None:
    """An open batch goes when its time has come, by the timer of the loop."""
    async with Stage() as stage:
        producer = stage.client.producer(ProducerConfig(linger_ms=1000))
        await stage.client.metadata(["t"], create=True)
        before = stage.loop.time()
        waiting = producer.send("t", b"a")
        await asyncio.sleep(0.5)
        producer.send_oneway("t", b"b")

        assert (await waiting).offset == 0
        assert stage.loop.time() == pytest.approx(before + 1)
        assert stage.puppet.kinds().count("PRODUCE") == 1


@in_loop
async def test_close_accounts_for_all() -> None:
    """Closing a producer settles all its records; later ones are refused."""
    async with Stage() as stage:
        producer = stage.client.producer(ProducerConfig(linger_ms=1000))
        sends = [producer.send("t", b"%d" % number) for number in range(100)]
        account = await producer.close()
        (late,) = await ending(producer.send("t", b"late"))

        assert [one.result().offset for one in sends] == list(range(100))
        assert [account.sent, account.pending] == [100, 0]
        assert isinstance(late, ClosedError)
        assert account == await producer.close()


@in_loop
async def test_cancelled_close_goes_on() -> None:
    """Closing goes on when who waited for it is cancelled."""
    stage = Stage()
    stage.puppet.deaf = {MessageType.PRODUCE}
    producer = stage.client.producer(ProducerConfig(deadline_s=5))
    send = producer.send("t", b"x")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await producer.close()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await stage.client.close()
    assert not send.done()
    await stage.client.close()

    assert isinstance(send.exception(), ClientError)
    assert stage.transports == []
