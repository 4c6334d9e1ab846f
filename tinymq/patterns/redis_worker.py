"""
Hands delayed messages that are due over from Redis into topics.

Any number of workers share the shards: each shard has one at a time, by a lease on Redis
that is renewed; when a worker dies, others take its shards when the lease ends. When
workers come or go, each lets go of what is more than its share.

At least once: a worker that dies, or loses its lease, between the broker's answer and the
removal from Redis has its messages published again, with the same header ``delay-id``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from attrs import frozen
from redis.exceptions import RedisError

from tinymq.aio import Producer
from tinymq.patterns.redis_delay import DELAY_DUE, DELAY_ID, RedisDelay
from tinymq.patterns.redis_shards import (
    ACQUIRE,
    BACK,
    DONE,
    HERE,
    LEAVE,
    RENEW,
    TAKE,
    Item,
    Shard,
    run,
)

_log: Final = logging.getLogger(__name__)


@frozen(kw_only=True)
class WorkerConfig:
    """
    How a worker works.

    Attributes:
        lease_s: After so long without a word of its worker, others take a shard.
        poll_s: It looks at least so often; a message that is due earlier is waited for.
        most: Messages that are handed over at a time, for each shard.
        retry_s: After so long a message that a topic refused is tried again.
    """

    lease_s: float = 10.0
    poll_s: float = 1.0
    most: int = 500
    retry_s: float = 5.0


class Taken(NamedTuple):
    """
    A message in hand.

    Attributes:
        id: Its id.
        stored: The message, as Redis has it.
    """

    id: str
    stored: bytes


@frozen
class Holding:
    """
    A shard that this worker has.

    Attributes:
        shard: The shard.
        lease: Who has it, with the token that rises with each owner.
        task: Works on it.
    """

    shard: Shard
    lease: str
    task: asyncio.Task[None]


class RedisDelayWorker:
    """
    A worker.

    Args:
        delays: The messages.
        producer: Publishes them.
        config: How.

    Attributes:
        name: What it is called on Redis.
        handed_over: Messages that it published and removed.
    """

    def __init__(
        self, delays: RedisDelay, producer: Producer, config: WorkerConfig | None = None
    ) -> None:
        self.delays = delays
        self.producer = producer
        self.config = config or WorkerConfig()
        self.name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self.handed_over = 0
        self._held: dict[int, Holding] = {}
        #: Until when each lease surely holds, by the loop's clock.
        self._until: dict[str, float] = {}
        #: Leases of shards that it lets go of when what is in hand is handed over.
        self._leaving: set[str] = set()

    @property
    def shards(self) -> list[int]:
        """The shards that it has."""
        return sorted(self._held)

    async def run(self) -> None:
        """
        Work until this is cancelled; then what is in hand is handed over, and leases are left.

        Raises:
            StateError: Others use another number of shards.
        """
        checked = False
        try:
            while True:
                try:
                    if not checked:
                        await self.delays.check()
                        checked = True
                    await self._tend()
                except RedisError as error:
                    _log.warning("Redis does not answer: %s", error)
                await asyncio.sleep(self.config.lease_s / 5)
        finally:
            await self._stop()

    async def _stop(self) -> None:
        """Hand over what is in hand, and let go of everything."""
        self._leaving.update(each.lease for each in self._held.values())
        while self._held:
            tasks = [each.task for each in self._held.values()]
            await asyncio.wait(tasks, timeout=self.config.lease_s / 5)
            await self._keep()
        with contextlib.suppress(RedisError):
            await self._redis.zrem(self._workers, self.name)

    # --- leases -------------------------------------------------------------------

    async def _tend(self) -> None:
        """Renew leases, and take or leave some shards, so that each worker has its share."""
        config, shards = self.config, self.delays.shards
        workers = await run(self._redis, HERE, [self._workers], self.name, self._lease_ms)
        await self._keep()
        share = -(-shards // max(1, int(workers)))
        for number in self.shards[share:]:
            self._leaving.add(self._held[number].lease)
        first = secrets.randbelow(shards)
        for number in (*range(first, shards), *range(first)):
            if len(self._held) >= share:
                break
            if number not in self._held:
                await self._acquire(number, config.lease_s)

    async def _acquire(self, number: int, lease_s: float) -> None:
        shard, began = self.delays.shard(number), self._now()
        keys = shard.keys("lease", "token")
        found = await run(self._redis, ACQUIRE, keys, self.name, self._lease_ms)
        if found:
            lease = found.decode()
            self._until[lease] = began + lease_s
            task = asyncio.create_task(self._work(shard, lease))
            self._held[number] = Holding(shard, lease, task)

    async def _keep(self) -> None:
        """Renew what it has, and let go of what nobody works on any more."""
        held = tuple(self._held.values())
        await asyncio.gather(*(self._renew(each) for each in held if not each.task.done()))
        for each in held:
            if each.task.done():
                del self._held[each.shard.number]
                self._until.pop(each.lease, None)
                self._leaving.discard(each.lease)
                with contextlib.suppress(RedisError):
                    await run(self._redis, LEAVE, each.shard.keys("lease"), each.lease)

    async def _renew(self, held: Holding) -> None:
        began = self._now()
        with contextlib.suppress(RedisError):
            keys = held.shard.keys("lease")
            if await run(self._redis, RENEW, keys, held.lease, self._lease_ms):
                self._until[held.lease] = began + self.config.lease_s
            else:
                self._until[held.lease] = 0.0

    def _holds(self, lease: str) -> bool:
        return self._now() < self._until.get(lease, 0.0)

    # --- work ---------------------------------------------------------------------

    async def _work(self, shard: Shard, lease: str) -> None:
        """Look at a shard again and again, as long as the lease holds."""
        while self._holds(lease) and lease not in self._leaving:
            try:
                wait = await self._turn(shard, lease)
            except RedisError as error:
                _log.warning("%s: Redis does not answer: %s", shard.key("due"), error)
                wait = self.config.poll_s
            if wait is None:
                self._until[lease] = 0.0
                _log.warning("the lease of %s is lost", shard.key("due"))
            elif wait > 0:
                await asyncio.sleep(wait)

    async def _turn(self, shard: Shard, lease: str) -> float | None:
        """Hand over what is due; return how long to wait, None when the lease is lost."""
        keys = shard.keys("lease", "due", "hand", "items")
        wait, *found = await run(self._redis, TAKE, keys, lease, self.config.most)
        if wait < 0:
            return None
        taken = [
            Taken(found[place].decode(), found[place + 1]) for place in range(0, len(found), 2)
        ]
        if taken and not await self._hand_over(shard, lease, taken):
            return None
        return float(min(wait / 1000, self.config.poll_s))

    async def _hand_over(self, shard: Shard, lease: str, taken: Sequence[Taken]) -> bool:
        """Publish messages, and remove those that the broker has; say whether the shard is ours."""
        if not self._holds(lease):  # it slept: another one has them by now
            return False
        results = await asyncio.gather(*map(self._publish, taken), return_exceptions=True)
        stored = [each.id for each, error in zip(taken, results, strict=True) if error is None]
        refused = [each.id for each, error in zip(taken, results, strict=True) if error is not None]
        if refused:
            error = next(each for each in results if each is not None)
            _log.warning("%d messages are not in their topics yet: %s", len(refused), error)
        ours = True
        if stored:
            ours = await self._step(DONE, shard.keys("lease", "hand", "items"), lease, stored)
            self.handed_over += len(stored) if ours else 0
        if refused and ours:
            wait = int(self.config.retry_s * 1000)
            keys = shard.keys("lease", "due", "hand")
            ours = await self._step(BACK, keys, lease, [str(wait), *refused])
        return ours

    async def _step(self, script: str, keys: list[str], lease: str, more: Iterable[str]) -> bool:
        """Carry out a step that must not be left out; Redis may be away for a moment."""
        while True:
            try:
                return bool(await run(self._redis, script, keys, lease, *more))
            except RedisError:
                # Without an answer it may be done: to do it again does no harm.
                if not self._holds(lease):
                    return False
                await asyncio.sleep(min(self.config.poll_s, self.config.lease_s / 10))

    async def _publish(self, taken: Taken) -> None:
        item = Item.unpack(taken.stored)
        headers = [
            *(each for each in item.headers if each[0] not in (DELAY_ID, DELAY_DUE)),
            (DELAY_ID, taken.id.encode()),
            (DELAY_DUE, b"%d" % item.due),
        ]
        await self.producer.send(item.topic, item.value, item.key, headers)

    # --- what it stands on ----------------------------------------------------------

    @property
    def _redis(self) -> Any:
        return self.delays.redis

    @property
    def _workers(self) -> str:
        return f"{{tinymq:{self.delays.name}}}:workers"

    @property
    def _lease_ms(self) -> int:
        return int(self.config.lease_s * 1000)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
