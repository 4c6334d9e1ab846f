"""The asyncio face and a peer that is no broker, or a broken one."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from tests.aio.stage import Stage, ending, in_loop, run, turns
from tinymq.aio import ConsumerBatch
from tinymq.errors import CorruptBatch, DeadlineExceeded, TinyMQError, WireError
from tinymq.limits import DEFAULT_LIMITS
from tinymq.wire.batch import NATIVE, Codec, build
from tinymq.wire.codec import pack
from tinymq.wire.frames import encode_frame
from tinymq.wire.header import HEADER, MAGIC, REPLY, VERSION, MessageType
from tinymq.wire.messages import error_meta
from tinymq.wire.records import compress, encode_batch

TLS = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(200))
OTHERS = {
    "tls": TLS,
    "http": b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
    "ssh": b"SSH-2.0-OpenSSH_9.6\r\n",
    "zeros": bytes(12),
    "endless": HEADER.pack(MAGIC, VERSION, 0x81, 1, 0xFFFFFFFF),
    "long": HEADER.pack(MAGIC, VERSION, 0x81, 1, 0x80000000),
    "version": HEADER.pack(MAGIC, 99, 0x81, 1, 0),
}


@pytest.mark.parametrize("answer", OTHERS.values(), ids=OTHERS)
def test_another_service_answers(answer: bytes) -> None:
    """Whoever answers HELLO with something else ends the call, with the reason, in no time."""

    async def body() -> None:
        async with Stage() as stage:
            stage.puppet.mute = {MessageType.HELLO}
            call = asyncio.create_task(stage.client.admin.broker_info())
            await turns(4)
            began = stage.loop.time()
            stage.transports[0].push(answer)
            (error,) = await ending(call)

            assert isinstance(error, WireError)
            assert stage.loop.time() - began < 1
            assert stage.transports == []

    run(body())


@pytest.mark.parametrize("answer", OTHERS.values(), ids=OTHERS)
def test_garbage_in_the_middle(answer: bytes) -> None:
    """A link that goes mad is cut at its first bytes; what was under way is done on another."""

    async def body() -> None:
        async with Stage() as stage, stage.client.consumer() as consumer:
            producer = stage.client.producer()
            await producer.send("t", b"0")
            await consumer.assign("t")
            stage.puppet.deaf = {MessageType.PRODUCE}
            waiting = [producer.send("t", b"%d" % number) for number in range(1, 4)]
            await turns()
            stage.puppet.deaf = set()
            mad = stage.transports[0]
            mad.push(answer)
            found: list[bytes | None] = []
            while len(found) < 4:
                batch = await consumer.next_batch()
                assert batch is not None
                found += batch.values

            assert not mad.open
            assert [one.offset for one in await asyncio.gather(*waiting)] == [1, 2, 3]
            assert found == [b"0", b"1", b"2", b"3"] == stage.puppet.values("t")

    run(body())


@pytest.mark.parametrize("seed", range(20))
def test_random_bytes(seed: int) -> None:
    """Random bytes behind any header end no call but by an error of ours, and none unseen."""
    rng = random.Random(seed)

    async def body() -> None:
        async with Stage(deadline_s=2) as stage:
            stage.puppet.make("t")
            await stage.client.metadata(["t"])
            kinds = [one | REPLY for one in MessageType] + [int(MessageType.ERROR)]
            stage.puppet.mute = {*MessageType} - {MessageType.HELLO}
            for _ in range(20):
                calls = [
                    asyncio.ensure_future(stage.client.metadata(["t"])),
                    asyncio.ensure_future(stage.client.admin.operate("topic.create", name="t")),
                    asyncio.ensure_future(stage.client.consumer().end_offsets("t")),
                ]
                await turns(6)
                body = rng.randbytes(rng.randrange(40))
                if rng.random() < 0.5:
                    body = len(body).to_bytes(4, "big") + body
                for transport in tuple(stage.transports):
                    connection = transport.protocol._link.connection  # type: ignore[attr-defined]
                    for number in tuple(connection._pending):
                        kind = rng.choice(kinds)
                        header = HEADER.pack(MAGIC, VERSION, kind, number, len(body))
                        transport.push(header + body)
                errors = await ending(*calls)
                assert all(isinstance(error, TinyMQError) for error in errors), errors

    run(body())


@in_loop
async def test_half_a_frame_then_silence() -> None:
    """A frame that never ends is silence: the call ends at its deadline, the link is given up."""
    async with Stage(deadline_s=5, heartbeat_s=15) as stage:
        stage.puppet.operations["broker.info"] = lambda: {"ready": True}
        await stage.client.admin.broker_info()
        stage.puppet.mute = set(MessageType)
        call = asyncio.create_task(stage.client.admin.broker_info())
        await turns()
        first = stage.transports[0]
        first.push(bytes(encode_frame(MessageType.OPERATE | REPLY, 2, {"a": 1}, [bytes(99)])[0]))
        began = stage.loop.time()
        (error,) = await ending(call)
        assert isinstance(error, DeadlineExceeded)
        assert stage.loop.time() == pytest.approx(began + 5)
        await asyncio.sleep(60)
        assert not first.open
        stage.puppet.mute = set()

        assert await stage.client.admin.broker_info() == {"ready": True}


@in_loop
async def test_half_a_frame_then_the_end() -> None:
    """A connection that ends within a frame is a lost one, and harmless calls are repeated."""
    async with Stage() as stage:
        stage.puppet.make("t")
        stage.puppet.mute = {MessageType.METADATA}
        call = asyncio.create_task(stage.client.metadata(["t"]))
        await turns()
        stage.puppet.mute = set()
        stage.transports[0].push(HEADER.pack(MAGIC, VERSION, 0x82, 2, 1000) + b"half")
        stage.cut()

        assert list(await call) == ["t"]


@pytest.mark.parametrize("greeted", [False, True])
def test_a_trickle_is_no_answer(greeted: bool) -> None:
    """A peer that sends a byte of its answer now and then delays no call beyond its deadline."""

    async def body() -> None:
        async with Stage(deadline_s=12) as stage:
            stage.puppet.make("t")
            if greeted:
                await stage.client.metadata(["t"])
            stage.puppet.mute = set(MessageType)
            began = stage.loop.time()
            call = asyncio.create_task(stage.client.metadata(["t"]))

            async def trickle() -> None:
                kind = 0xA0 if greeted else 0x81
                for byte in HEADER.pack(MAGIC, VERSION, kind, 1, 60_000) + bytes(20):
                    await asyncio.sleep(1)
                    for transport in tuple(stage.transports):
                        transport.push(bytes([byte]))

            trickling = asyncio.create_task(trickle())
            (error,) = await ending(call)
            trickling.cancel()
            assert isinstance(error, TinyMQError)
            assert stage.loop.time() - began <= 12
            stage.puppet.mute = set()
            stage.cut()

            assert list(await stage.client.metadata(["t"])) == ["t"]

    run(body())


@in_loop
async def test_byte_by_byte() -> None:
    """Answers that come in single bytes are the same answers."""
    async with Stage() as stage, stage.client.consumer() as consumer:
        producer = stage.client.producer()
        await stage.client.metadata(["t"], create=True)
        transport = stage.transports[0]
        whole = transport.push
        transport.push = lambda data, most=1: whole(data, 1)  # type: ignore[method-assign]
        await producer.send_batch("t", [b"%d" % number for number in range(50)])
        await consumer.assign("t")
        batch = await consumer.next_batch()

        assert batch is not None
        assert batch.values == [b"%d" % number for number in range(50)]


@in_loop
async def test_unknown_types() -> None:
    """Requests of the future are refused one by one, answers to nobody are dropped."""
    async with Stage() as stage:
        stage.puppet.make("t")
        await stage.client.metadata(["t"])
        transport = stage.transports[0]
        sent: list[bytes] = []
        transport.line.feed = sent.append  # type: ignore[method-assign, assignment]
        for frame in (
            encode_frame(0x7E, 7, {"of": "the future"}),
            encode_frame(0x7E, 0),
            encode_frame(0x7E | REPLY, 9999),
            encode_frame(MessageType.PRODUCE | REPLY, 9999, {"o": 1}),
            encode_frame(MessageType.ERROR, 9999, {"c": 12345}),
        ):
            transport.push(b"".join(map(bytes, frame)))
        await turns()
        del transport.line.feed

        assert [data[3] for data in sent] == [MessageType.ERROR]
        assert list(await stage.client.metadata(["t"])) == ["t"]
        assert [transport] == stage.transports


class Later(WireError):
    """A newer broker's error."""

    code = 60_000


@in_loop
async def test_error_of_an_unknown_code() -> None:
    """A broker's error that this version does not know fails its call alone."""
    async with Stage() as stage:
        stage.puppet.make("t")
        await stage.client.metadata(["t"])
        stage.puppet.deaf = {MessageType.OPERATE}
        call = asyncio.create_task(stage.client.admin.operate("x"))
        await turns()
        (number,) = stage.transports[0].protocol._link.connection._pending  # type: ignore[attr-defined]
        error = encode_frame(MessageType.ERROR, number, error_meta(Later()))
        stage.transports[0].push(b"".join(map(bytes, error)))
        (raised,) = await ending(call)

        assert type(raised) is WireError
        assert "A newer broker's error" in str(raised)
        assert len(stage.transports) == 1


@in_loop
async def test_parallel_calls_get_their_own_answers() -> None:
    """Fifty calls whose answers come in another order each get their own."""
    async with Stage() as stage:
        stage.puppet.operations["echo"] = lambda number: {"number": number}
        await stage.client.metadata(["t"], create=True)
        held: list[Any] = []
        answer = stage.puppet.answer
        stage.puppet.answer = lambda *one: held.append(one)  # type: ignore[method-assign]
        admin = stage.client.admin
        calls = [asyncio.create_task(admin.operate("echo", number=n)) for n in range(50)]
        await turns()
        random.Random(1).shuffle(held)
        stage.puppet.answer = answer  # type: ignore[method-assign]
        for one in held:
            answer(*one)
            stage.answer()
            await turns(1)

        assert [one["number"] for one in await asyncio.gather(*calls)] == list(range(50))


@in_loop
async def test_compressed_bombs() -> None:
    """A batch that inflates beyond the limit costs little, and the next one comes."""
    async with Stage() as stage, stage.client.consumer() as consumer:
        log = stage.puppet.make("t").logs[0]
        column = compress(bytes(DEFAULT_LIMITS.inflated + 1), Codec.GZIP)
        bomb = pack((None, None, None, column, None, None, None))
        log.append(build(bomb, 1, NATIVE | Codec.GZIP))
        log.append(encode_batch([b"good"]))
        await consumer.assign("t", start=0)
        batches = [await consumer.next_batch(), await consumer.next_batch()]
        assert batches[0] is not None
        assert batches[1] is not None
        with pytest.raises(CorruptBatch):
            _ = batches[0].values

        assert batches[1].values == [b"good"]


@in_loop
async def test_damage_on_the_way() -> None:
    """A batch with a wrong checksum stops its partition alone, until somebody seeks."""
    async with Stage() as stage, stage.client.consumer() as consumer:
        topic = stage.puppet.make("t", 2)
        producer = stage.client.producer()
        await producer.send("t", b"damaged", partition=0)
        await producer.send("t", b"sound", partition=1)
        whole = topic.logs[0].batches[0]
        topic.logs[0].batches[0] = whole[:-3] + b"xxx"
        await consumer.assign("t", start=0)
        results = await ending(consumer.next_batch(), consumer.next_batch())
        assert {CorruptBatch, ConsumerBatch} == {type(one) for one in results}
        topic.logs[0].batches[0] = whole
        consumer.seek("t", 0, 0)
        batch = await consumer.next_batch()

        assert batch is not None
        assert batch.values == [b"damaged"]
