"""Delays on Redis, against a real server."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

import tinymq
from tests.fakes.redis import RedisServer, needs_redis
from tinymq.aio import Client
from tinymq.errors import InvalidDelay, StateError, UnknownTopic, UsageError
from tinymq.patterns.redis_delay import DELAY_DUE, DELAY_ID, RedisDelay
from tinymq.patterns.redis_shards import Item, run, shard_of
from tinymq.patterns.redis_worker import RedisDelayWorker, WorkerConfig
from tinymq.verify.process import BrokerProcess

pytestmark = [pytest.mark.process, needs_redis()]

ROOT = Path(tinymq.__file__).parent.parent
QUICK = WorkerConfig(lease_s=1.0, poll_s=0.05, retry_s=0.1)
PATIENCE = 20.0

#: A worker that dies at a point of its work.
DYING = """
import asyncio, os, signal, sys
from redis.asyncio import Redis
from tinymq.patterns.redis_delay import RedisDelay
from tinymq.patterns.redis_worker import RedisDelayWorker, WorkerConfig

url, point = sys.argv[1:]

async def main():
    redis = Redis.from_url(url)

    class Producer:
        async def send(self, topic, value, key=None, headers=None):
            if point == "published":
                await redis.rpush("came", dict(headers)["delay-id"])
            os.kill(os.getpid(), signal.SIGKILL)

    worker = RedisDelayWorker(RedisDelay(redis, "d", 2), Producer(), WorkerConfig(lease_s=1.0))
    await worker.run()

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """Return a running server."""
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.kill()


class FakeProducer:
    """Takes what workers publish."""

    def __init__(self) -> None:
        self.came: list[tuple[str, bytes | None, dict[str, bytes]]] = []
        self.refuse: Callable[[bytes | None], Exception | None] = lambda value: None
        self.hold: asyncio.Event | None = None

    async def send(
        self, topic: str, value: bytes | None, key: object = None, headers: Any = None
    ) -> None:
        """Take a message, or refuse it."""
        if self.hold is not None:
            await self.hold.wait()
        error = self.refuse(value)
        if error is not None:
            raise error
        self.came.append((topic, value, dict(headers)))

    @property
    def ids(self) -> list[str]:
        """The ids of what came."""
        return [headers[DELAY_ID].decode() for _, _, headers in self.came]


class Stage:
    """A name on Redis that nothing is under, and workers that end with the test."""

    def __init__(self, server: RedisServer, shards: int) -> None:
        self.redis: Any = Redis.from_url(server.url)
        self.producer = FakeProducer()
        self.delays = RedisDelay(self.redis, "d", shards)
        self.tasks: list[asyncio.Task[None]] = []

    def worker(self, config: WorkerConfig = QUICK, producer: Any = None) -> RedisDelayWorker:
        """Start a worker."""
        publishes: Any = producer or self.producer
        worker = RedisDelayWorker(self.delays, publishes, config)
        self.tasks.append(asyncio.create_task(worker.run()))
        return worker

    async def until(self, true: Callable[[], object]) -> None:
        """Wait for something."""
        end = time.monotonic() + PATIENCE
        while not true():
            assert time.monotonic() < end, self.producer.came[-3:]
            await asyncio.sleep(0.01)

    async def in_hand(self) -> None:
        """Wait until the first message is in somebody's hand."""
        while True:
            if (await self.delays.list())[0].in_hand:
                return
            await asyncio.sleep(0.01)

    async def close(self) -> None:
        """End all workers."""
        if self.producer.hold is not None:
            self.producer.hold.set()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.redis.aclose()


def play(server: RedisServer, scene: Callable[[Stage], Awaitable[None]], shards: int = 2) -> None:
    """Play a scene on an empty server."""

    async def whole() -> None:
        stage = Stage(server, shards)
        await stage.redis.flushall()
        try:
            async with asyncio.timeout(2 * PATIENCE):
                await scene(stage)
        finally:
            await stage.close()

    asyncio.run(whole())


class TestMessages:
    """What waits."""

    def test_add_and_list(self, server: RedisServer) -> None:
        """What was added is listed in order of due time, with all that it has."""

        async def scene(stage: Stage) -> None:
            delays = stage.delays
            now = int((await stage.redis.time())[0]) * 1000
            first = await delays.add("t", b"one", delay_s=60, key="k", headers={"a": b"b"})
            await delays.add("t", None, at_ms=now + 30_000, delay_id="early")
            assert await delays.count() == 2
            early, other = await delays.list()
            assert (early.id, early.due_ms, early.value) == ("early", now + 30_000, None)
            assert (other.id, other.topic, other.value) == (first, "t", b"one")
            assert (other.key, other.headers, other.in_hand) == (b"k", (("a", b"b"),), False)
            assert abs(other.due_ms - now - 60_000) < 5000
            assert await delays.list(1) == [early]
            assert await delays.get("early") == early
            assert await delays.get("other") is None

        play(server, scene)

    def test_cancel(self, server: RedisServer) -> None:
        """What was taken back is gone without a trace; what is not there cannot be."""

        async def scene(stage: Stage) -> None:
            which = await stage.delays.add("t", b"x", delay_s=60)
            assert await stage.delays.cancel(which)
            assert not await stage.delays.cancel(which)
            assert await stage.delays.list() == []
            keys = await stage.redis.keys("*")
            assert keys == [b"{tinymq:d}:shards"]

        play(server, scene)

    def test_replace(self, server: RedisServer) -> None:
        """A second one of an id takes the place of the first, or is refused."""

        async def scene(stage: Stage) -> None:
            await stage.delays.add("t", b"old", delay_s=60, delay_id="x")
            await stage.delays.add("t", b"new", delay_s=90, delay_id="x")
            with pytest.raises(StateError, match="x waits already"):
                await stage.delays.add("t", b"newer", delay_s=9, delay_id="x", replace=False)
            (waiting,) = await stage.delays.list()
            assert waiting.value == b"new"

        play(server, scene)

    def test_shards_are_agreed_on(self, server: RedisServer) -> None:
        """Programs that mean another number of shards are told."""

        async def scene(stage: Stage) -> None:
            await stage.delays.count()
            with pytest.raises(StateError, match="d has 2 shards on Redis, not 3"):
                await RedisDelay(stage.redis, "d", 3).count()

        play(server, scene)

    def test_over_all_shards(self, server: RedisServer) -> None:
        """Messages lie in all shards, each in that of its id, with one slot for all its keys."""

        async def scene(stage: Stage) -> None:
            for number in range(40):
                await stage.delays.add("t", b"x", delay_s=60, delay_id=f"m{number}")
            counts = [await stage.redis.zcard(f"{{tinymq:d:{each}}}:due") for each in range(4)]
            wanted = [sum(shard_of(f"m{m}", 4) == each for m in range(40)) for each in range(4)]
            assert counts == wanted
            assert min(counts) > 0

        play(server, scene, shards=4)

    @pytest.mark.parametrize(
        ("given", "error", "told"),
        [
            ({}, UsageError, "give delay_s or at_ms"),
            ({"delay_s": 1, "at_ms": 1}, UsageError, "give delay_s or at_ms"),
            ({"delay_s": -1}, InvalidDelay, "delay_s lies between 0"),
            ({"delay_s": float("nan")}, InvalidDelay, "a number of seconds"),
            ({"delay_s": "5"}, InvalidDelay, "a number of seconds"),
            ({"at_ms": -1}, InvalidDelay, "at_ms lies between 0"),
            ({"at_ms": 1 << 60}, InvalidDelay, "the year 9999"),
            ({"delay_s": 1, "delay_id": ""}, UsageError, "an id has 1 to"),
        ],
    )
    def test_refused(
        self, server: RedisServer, given: dict[str, Any], error: type[Exception], told: str
    ) -> None:
        """What cannot be a delay is refused before anything is stored."""

        async def scene(stage: Stage) -> None:
            with pytest.raises(error, match=told):
                await stage.delays.add("t", b"x", **given)

        play(server, scene)

    def test_names(self) -> None:
        """A name that would break keys is refused, and a client that gives text."""
        for name, shards in (("", 1), ("a{b", 1), ("x" * 101, 1), ("d", 0), ("d", 10_001)):
            with pytest.raises(UsageError):
                RedisDelay(object(), name, shards)
        with pytest.raises(UsageError, match="decode_responses"):
            RedisDelay(Redis(decode_responses=True), "d")

    def test_unreadable(self) -> None:
        """What another program wrote is told apart."""
        for stored in (b"", b"1 \x91\x02", b"x y", b"5 " + b"\x95\x09\xa1t\xc0\xc0\x90"):
            with pytest.raises(ValueError, match="cannot be read"):
                Item.unpack(stored)


class TestHandOver:
    """What a worker does."""

    def test_when_due(self, server: RedisServer) -> None:
        """A message comes when it is due and not before, and then is gone from Redis."""

        async def scene(stage: Stage) -> None:
            stage.worker()
            which = await stage.delays.add("t", b"x", delay_s=0.4, headers={"a": b"b"})
            due = (await stage.delays.list())[0].due_ms
            await stage.until(lambda: stage.producer.came)
            seconds, micros = await stage.redis.time()
            assert 0 <= seconds * 1000 + micros // 1000 - due < 300
            ((topic, value, headers),) = stage.producer.came
            assert (topic, value, headers["a"]) == ("t", b"x", b"b")
            assert headers[DELAY_ID] == which.encode()
            assert headers[DELAY_DUE] == b"%d" % due
            await asyncio.sleep(0.05)
            assert await stage.delays.count() == 0

        play(server, scene)

    def test_many_at_once(self, server: RedisServer) -> None:
        """Ten thousand that are due at once come, each once."""

        async def scene(stage: Stage) -> None:
            ids = [f"m{number}" for number in range(10_000)]
            due = int((await stage.redis.time())[0]) * 1000
            async with stage.redis.pipeline(transaction=False) as pipe:
                for which in ids:
                    shard = stage.delays.shard(shard_of(which, 8))
                    item = b"%d " % due + Item(0, "t", b"x", None, ()).pack()
                    pipe.hset(shard.key("items"), which, item)
                    pipe.zadd(shard.key("due"), {which: due})
                await pipe.execute()
            stage.worker(WorkerConfig(lease_s=5.0))
            await stage.until(lambda: len(stage.producer.came) >= 10_000)
            assert sorted(stage.producer.ids) == sorted(ids)
            await stage.until(lambda: True)

        play(server, scene, shards=8)

    def test_two_workers(self, server: RedisServer) -> None:
        """Workers share the shards, and each message comes once."""

        async def scene(stage: Stage) -> None:
            one = stage.worker()
            await stage.until(lambda: len(one.shards) == 4)
            two = stage.worker()
            await stage.until(lambda: len(one.shards) == len(two.shards) == 2)
            assert not {*one.shards} & {*two.shards}
            for number in range(100):
                await stage.delays.add("t", b"%d" % number, delay_s=0)
            await stage.until(lambda: len(stage.producer.came) >= 100)
            await stage.until(lambda: one.handed_over + two.handed_over == 100)
            assert len({*stage.producer.ids}) == len(stage.producer.ids) == 100
            assert one.handed_over > 0
            assert two.handed_over > 0

        play(server, scene, shards=4)

    def test_end(self, server: RedisServer) -> None:
        """A worker that is ended hands over what it has in hand, and leaves its shards at once."""

        async def scene(stage: Stage) -> None:
            stage.producer.hold = asyncio.Event()
            worker = stage.worker()
            which = await stage.delays.add("t", b"x", delay_s=0)
            await stage.until(lambda: worker.shards == [0, 1])
            await stage.in_hand()
            assert not await stage.delays.cancel(which)
            with pytest.raises(StateError, match="being handed over"):
                await stage.delays.add("t", b"y", delay_s=0, delay_id=which)
            stage.tasks[0].cancel()
            await asyncio.sleep(0.05)
            stage.producer.hold.set()
            await asyncio.wait(stage.tasks)
            assert stage.producer.ids == [which]
            left = {key.rpartition(b":")[2] for key in await stage.redis.keys("*")}
            assert left == {b"shards", b"token"}

        play(server, scene)

    def test_refused(self, server: RedisServer) -> None:
        """A message that its topic refuses is tried again, and keeps no other from coming."""

        async def scene(stage: Stage) -> None:
            refused = True

            def refuse(value: bytes | None) -> Exception | None:
                return UnknownTopic("no topic") if refused and value == b"bad" else None

            stage.producer.refuse = refuse
            due = int((await stage.redis.time())[0]) * 1000
            stage.worker()
            bad = await stage.delays.add("t", b"bad", at_ms=due)
            good = await stage.delays.add("t", b"good", delay_s=0)
            await stage.until(lambda: good in stage.producer.ids)
            assert bad not in stage.producer.ids
            refused = False
            await stage.until(lambda: bad in stage.producer.ids)
            assert stage.producer.came[-1][2][DELAY_DUE] == b"%d" % due

        play(server, scene)

    def test_clocks_of_clients(self, server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
        """The clock of Redis counts, whatever a client's says."""
        monkeypatch.setattr(time, "time", lambda: 12345.0)

        async def scene(stage: Stage) -> None:
            stage.worker()
            await stage.delays.add("t", b"x", delay_s=0.2)
            (waiting,) = await stage.delays.list()
            assert waiting.due_ms > 1_600_000_000_000
            await stage.until(lambda: stage.producer.came)

        play(server, scene)


class TestTrouble:
    """What dies, and what is lost."""

    @pytest.mark.parametrize(("point", "times"), [("taken", 1), ("published", 2)])
    def test_killed(self, server: RedisServer, point: str, times: int) -> None:
        """After a worker was killed the message comes: again, with its id, if it had come."""

        async def scene(stage: Stage) -> None:
            which = await stage.delays.add("t", b"x", delay_s=0)
            dead = await asyncio.to_thread(
                subprocess.run,
                [sys.executable, "-c", DYING, server.url, point],
                env={"PYTHONPATH": str(ROOT)},
                timeout=60,
                check=False,
            )
            assert dead.returncode == -9
            assert (await stage.delays.list())[0].in_hand
            stage.worker()
            await stage.until(lambda: stage.producer.came)
            before = [each.decode() for each in await stage.redis.lrange("came", 0, -1)]
            assert [*before, *stage.producer.ids] == [which] * times

        play(server, scene)

    def test_lease_lost(self, server: RedisServer) -> None:
        """A worker that slept over the end of its lease removes nothing; another one does."""

        async def scene(stage: Stage) -> None:
            slow = FakeProducer()
            slow.hold = asyncio.Event()
            asleep = stage.worker(WorkerConfig(lease_s=10.0, poll_s=0.05), slow)
            which = await stage.delays.add("t", b"x", delay_s=0)
            shard = stage.delays.shard(shard_of(which, 2))
            await stage.until(lambda: len(asleep.shards) == 2)
            await stage.in_hand()
            # As if it had slept: the lease is over, and another one has the shard.
            await stage.redis.set(shard.key("lease"), "other/9")
            slow.hold.set()
            await stage.until(lambda: slow.came)
            await asyncio.sleep(0.1)
            assert await stage.delays.count() == 1
            assert asleep.handed_over == 0
            await stage.redis.delete(shard.key("lease"))
            await stage.until(lambda: len(slow.came) == 2)
            assert slow.ids == [which, which]

        play(server, scene)

    def test_answer_lost(self, server: RedisServer) -> None:
        """What was taken into a hand that never heard of it is taken again."""

        async def scene(stage: Stage) -> None:
            which = await stage.delays.add("t", b"x", delay_s=0)
            shard = stage.delays.shard(shard_of(which, 2))
            await stage.redis.zadd(shard.key("hand"), {which: 5})
            await stage.redis.zrem(shard.key("due"), which)
            stage.worker()
            await stage.until(lambda: stage.producer.ids == [which])

        play(server, scene)

    def test_redis_restarted(self, tmp_path: Path) -> None:
        """When Redis is killed and started again, workers go on, and nothing is lost."""
        server = RedisServer(tmp_path / "redis")
        server.start()

        async def scene(stage: Stage) -> None:
            stage.worker()
            ids = [await stage.delays.add("t", b"x", delay_s=0.3) for _ in range(20)]
            server.kill()
            await asyncio.sleep(0.5)
            await asyncio.to_thread(server.start)
            await stage.until(lambda: {*ids} <= {*stage.producer.ids})

        try:
            play(server, scene)
        finally:
            server.kill()

    def test_fence(self, server: RedisServer) -> None:
        """Each owner of a shard has a higher token than those before it."""

        async def scene(stage: Stage) -> None:
            tokens = []
            for _ in range(3):
                worker = stage.worker()
                await stage.until(lambda: worker.shards == [0, 1])  # noqa: B023 - called at once
                lease = await stage.redis.get(stage.delays.shard(0).key("lease"))
                tokens.append(int(lease.rpartition(b"/")[2]))
                stage.tasks[-1].cancel()
                await asyncio.wait(stage.tasks)
            assert tokens == sorted(set(tokens))
            assert await run(stage.redis, "return 7", []) == 7

        play(server, scene)


def test_with_a_broker(server: RedisServer, tmp_path: Path) -> None:
    """From Redis into a topic of a real broker, with everything that the message has."""
    broker = BrokerProcess(tmp_path / "data")
    broker.start()

    async def scene(stage: Stage) -> None:
        async with Client(broker.url) as client, client.producer() as producer:
            await client.metadata(["orders"], create=True)
            consumer = client.consumer()
            await consumer.assign("orders")
            stage.worker(producer=producer)
            ids = {
                await stage.delays.add("orders", b"%d" % n, delay_s=0.1, key=b"k")
                for n in range(10)
            }
            found: dict[str, bytes | None] = {}
            async for batch in consumer:
                for record in batch:
                    found[dict(record.headers)[DELAY_ID].decode()] = record.value
                if len(found) == 10:
                    break
            assert found.keys() == ids
            for task in stage.tasks:
                task.cancel()
            await asyncio.wait(stage.tasks)
            assert await stage.delays.count() == 0

    try:
        play(server, scene)
    finally:
        broker.stop()
