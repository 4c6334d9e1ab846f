"""Programs that use asyncio, tested on the broker's clock."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import time
from typing import Any

import pytest

from tinymq.aio import Client, ClientConfig, ConsumerConfig, ProducerConfig
from tinymq.errors import LogTruncated, StateError, TinyMQError, UsageError
from tinymq.testing import InProcessBroker


def values(broker: InProcessBroker) -> list[bytes | None]:
    """What the topic holds."""
    return [record.value for record in broker.records("t")]


async def publish(client: Client, *values: bytes) -> None:
    """Publish with a producer of its own."""
    async with client.producer() as producer:
        await producer.send_batch("t", values)


async def read(client: Client, count: int) -> list[bytes | None]:
    """Read the first so many records."""
    found: list[bytes | None] = []
    async with client.consumer() as consumer:
        await consumer.assign("t")
        async for batch in consumer:
            found += batch.values
            if len(found) >= count:
                break
    return found


def test_publish_and_read(tinymq_broker: InProcessBroker) -> None:
    """The asyncio client meets the real broker, without sockets, and leaves nothing."""

    async def body() -> list[bytes | None]:
        async with tinymq_broker.asyncio_client() as client:
            await publish(client, b"tea", b"milk")
            assert tinymq_broker.links(client) == 1
            return await read(client, 2)

    assert tinymq_broker.run_asyncio(body()) == [b"tea", b"milk"]
    assert tinymq_broker.links() == 0
    assert tinymq_broker.clock.seconds() < 1


def test_both_kinds_of_clients(tinymq_broker: InProcessBroker) -> None:
    """What a client with Deferreds publishes is read with asyncio, in one test."""
    tinymq_broker.run(tinymq_broker.client().producer().send("t", b"tea"))

    assert tinymq_broker.run_asyncio(read(tinymq_broker.asyncio_client(), 1)) == [b"tea"]


def test_time_passes_in_sleeps(tinymq_broker: InProcessBroker) -> None:
    """A program that works every few minutes does ten minutes' work at once, on live links."""
    began = time.monotonic()

    async def body() -> None:
        client = tinymq_broker.asyncio_client()
        for number in range(3):
            await publish(client, b"%d" % number)
            await asyncio.sleep(200)
        assert tinymq_broker.links(client) == 1

    tinymq_broker.run_asyncio(body(), timeout=700)

    assert values(tinymq_broker) == [b"0", b"1", b"2"]
    assert tinymq_broker.clock.seconds() == pytest.approx(600, abs=1)
    assert time.monotonic() - began < 5


def test_jump(tinymq_broker: InProcessBroker) -> None:
    """A month may pass between two lines of a coroutine; its links and readers live on."""
    tinymq_broker.create_topic("t", retention_ms=7 * 24 * 3600 * 1000)

    async def body() -> None:
        client = tinymq_broker.asyncio_client()
        consumer = client.consumer()
        await consumer.assign("t")
        await publish(client, b"old")
        await anext(consumer)
        reading = asyncio.create_task(consumer.next_batch())
        await asyncio.sleep(0)
        await tinymq_broker.jump_asyncio(days=30)
        assert values(tinymq_broker) == []
        await publish(client, b"new")
        batch = await reading
        assert batch is not None
        assert batch.values == [b"new"]
        assert tinymq_broker.links(client) == 1

    tinymq_broker.run_asyncio(body())
    assert tinymq_broker.clock.seconds() == pytest.approx(30 * 24 * 3600, abs=1)


def test_jump_over_timers(tinymq_broker: InProcessBroker) -> None:
    """A short jump is a sleep; a long one brings a program's timers at the end of a stretch."""
    told: list[float] = []

    async def every_hour() -> None:
        while True:
            await asyncio.sleep(3600)
            told.append(tinymq_broker.clock.seconds())

    async def body() -> None:
        task = asyncio.create_task(every_hour())
        await tinymq_broker.jump_asyncio(seconds=30)
        assert tinymq_broker.clock.seconds() == pytest.approx(30)
        await tinymq_broker.jump_asyncio(hours=12)
        task.cancel()

    tinymq_broker.run_asyncio(body())

    assert 10 <= len(told) <= 12
    assert told == sorted(told)


def test_time_of_the_other_kind(tinymq_broker: InProcessBroker) -> None:
    """Calls that would move time without the loop are refused within it."""

    async def body() -> None:
        with pytest.raises(UsageError, match="jump_asyncio"):
            tinymq_broker.jump(days=1)
        with pytest.raises(UsageError, match=r"asyncio\.sleep"):
            tinymq_broker.advance(1)

    tinymq_broker.run_asyncio(body())
    tinymq_broker.jump(days=1)


def test_cut_and_lost_answers(tinymq_broker: InProcessBroker) -> None:
    """Cut links and lost answers are mended by the client; records are stored once."""

    async def body() -> None:
        client = tinymq_broker.asyncio_client()
        await publish(client, b"0")
        for number in range(1, 6):
            tinymq_broker.drop_acknowledgements(1)
            await publish(client, b"%d" % number)
            tinymq_broker.cut(client)
        assert len(tinymq_broker.dropped) == 5

    tinymq_broker.run_asyncio(body())

    assert values(tinymq_broker) == [b"%d" % number for number in range(6)]


def test_nobody_listens(tinymq_broker: InProcessBroker) -> None:
    """Without a broker a call ends at its deadline on the fake clock, and goes on later."""
    tinymq_broker.refuse_connections()
    client = tinymq_broker.asyncio_client(ClientConfig(deadline_s=20))

    async def body() -> None:
        with pytest.raises(TinyMQError):
            await client.metadata(["t"])

    tinymq_broker.run_asyncio(body())
    assert tinymq_broker.clock.seconds() == pytest.approx(20, abs=0.1)
    tinymq_broker.accept_connections()
    tinymq_broker.run_asyncio(publish(client, b"tea"))

    assert values(tinymq_broker) == [b"tea"]


def test_kill_and_power_cut(tinymq_broker: InProcessBroker) -> None:
    """A producer waits for a broker that dies and comes back, and a reader hears what it lost."""
    tinymq_broker.create_topic("t", sync="os")
    client = tinymq_broker.asyncio_client()

    async def body() -> None:
        consumer = client.consumer()
        await consumer.assign("t")
        await publish(client, b"lost", b"lost")
        assert len(await anext(consumer)) == 2
        tinymq_broker.power_cut(seed=3)
        sending = asyncio.create_task(publish(client, b"kept"))
        await asyncio.sleep(5)
        assert not sending.done()
        tinymq_broker.restart()
        await sending
        if tinymq_broker.records("t")[0].value != b"lost":
            with pytest.raises(LogTruncated):
                await consumer.next_batch()

    tinymq_broker.run_asyncio(body())
    assert b"kept" in values(tinymq_broker)


def test_large_values(tinymq_broker: InProcessBroker) -> None:
    """Back-pressure lets go again: many megabytes come and go."""
    sent = [bytes([number]) * 900_000 for number in range(6)]

    async def body() -> list[bytes | None]:
        client = tinymq_broker.asyncio_client()
        await publish(client, *sent)
        return await read(client, 6)

    assert tinymq_broker.run_asyncio(body()) == sent


def test_no_outcome(tinymq_broker: InProcessBroker) -> None:
    """A coroutine that never ends is cancelled, and says where it hung."""
    seen: list[str] = []

    async def body() -> None:
        client = tinymq_broker.asyncio_client()
        consumer = client.consumer(ConsumerConfig(create_topics=True, deadline_s=3600))
        await consumer.assign("t")
        try:
            await consumer.next_batch()
        finally:
            seen.append("cancelled")

    with pytest.raises(TimeoutError, match="no outcome within 60 s"):
        tinymq_broker.run_asyncio(body(), timeout=60)
    assert seen == ["cancelled"]


def test_nothing_will_happen(tinymq_broker: InProcessBroker) -> None:
    """Waiting for what nobody will do ends at the time-out, also when the broker is stopped."""
    tinymq_broker.stop()

    async def body() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(TimeoutError):
        tinymq_broker.run_asyncio(body(), timeout=5)


def test_cannot_be_cancelled() -> None:
    """A coroutine that ignores its end hangs neither the test nor the broker's end."""

    async def body() -> None:
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(7)

    broker = InProcessBroker()
    for call in (lambda: broker.run_asyncio(body(), timeout=30), broker.close):
        with pytest.raises(TimeoutError, match="cannot be cancelled"):
            call()
    assert not broker.running
    gc.collect()


def test_cancelled_by_itself(tinymq_broker: InProcessBroker) -> None:
    """A coroutine that cancels itself ends so, and is no time-out."""

    async def body() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(1)

    with pytest.raises(asyncio.CancelledError):
        tinymq_broker.run_asyncio(body())


def test_own_time_out_and_errors(tinymq_broker: InProcessBroker) -> None:
    """Errors of the coroutine come out as they are, time-outs of its own included."""

    async def waits() -> None:
        await asyncio.wait_for(asyncio.sleep(1000), 10)

    async def fails() -> None:
        raise LookupError("mine")

    with pytest.raises(TimeoutError) as caught:
        tinymq_broker.run_asyncio(waits())
    assert "fake clock" not in str(caught.value)
    assert tinymq_broker.clock.seconds() == pytest.approx(10)
    with pytest.raises(LookupError, match="mine"):
        tinymq_broker.run_asyncio(fails())


def test_threads_stop_the_clock(tinymq_broker: InProcessBroker) -> None:
    """While a thread of the loop works, no time passes."""

    async def body() -> bool:
        ticking = asyncio.create_task(asyncio.sleep(3600))
        result = await asyncio.to_thread(lambda: threading.Event().wait(0.01))
        assert not ticking.done()
        ticking.cancel()
        return result

    assert not tinymq_broker.run_asyncio(body())
    assert tinymq_broker.clock.seconds() < 60


def test_what_is_left_is_closed() -> None:
    """Clients that are left open flush, and tasks that are left are cancelled, at the end."""
    seen: list[Any] = []

    async def body(broker: InProcessBroker) -> None:
        client = broker.asyncio_client()
        producer = client.producer(ProducerConfig(linger_ms=1000))
        seen.append(producer.send("t", b"tea"))
        seen.append(asyncio.ensure_future(asyncio.sleep(10_000)))

    with InProcessBroker() as broker:
        broker.run_asyncio(body(broker))
        assert not seen[0].done()

    assert seen[0].result().offset == 0
    assert seen[1].cancelled()


def test_left_open_on_a_dead_broker() -> None:
    """The end does not hang on a broker that was killed."""

    async def body(broker: InProcessBroker) -> None:
        client = broker.asyncio_client()
        await publish(client, b"tea")
        client.producer().send_oneway("t", b"milk")

    with InProcessBroker() as broker:
        broker.run_asyncio(body(broker))
        broker.kill()
        with pytest.raises(StateError):
            broker.records("t")


def test_only_in_the_loop(tinymq_broker: InProcessBroker) -> None:
    """Outside of the loop the client says what to do."""
    client = tinymq_broker.asyncio_client()

    with pytest.raises(UsageError, match="no asyncio loop"):
        client.producer()
