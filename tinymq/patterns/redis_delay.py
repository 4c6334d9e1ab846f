"""
Delayed messages in sorted sets on Redis, until `RedisDelayWorker` hands them over.

::

    delays = RedisDelay(redis.asyncio.from_url("redis://127.0.0.1"), "orders")
    delay_id = await delays.add("orders.unpaid", b"order 17", delay_s=1800)
    await delays.cancel(delay_id)

tinymq's own delays need none of this; see the guide for what each of them promises.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from tinymq.errors import InvalidDelay, StateError, UsageError
from tinymq.limits import LATEST_MS
from tinymq.patterns.redis_shards import ADD, CANCEL, GET, LIST, Item, Shard, run, shard_of

#: Headers that the worker adds: what tells a message that came twice, and when it was due.
DELAY_ID: Final = "delay-id"
DELAY_DUE: Final = "delay-due"

_MOST_SHARDS: Final = 10_000
_MOST_ID: Final = 200
_MOST_NAME: Final = 100
_MOST_LISTED: Final = 1000


class Waiting(NamedTuple):
    """
    A message that waits.

    Attributes:
        id: Its id.
        due_ms: When it is due, in milliseconds since 1970, by the clock of Redis.
        topic: Where to it goes.
        value: Its value.
        key: Its key.
        headers: Its headers.
        in_hand: Whether a worker is handing it over just now.
    """

    id: str
    due_ms: int
    topic: str
    value: bytes | None
    key: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    in_hand: bool


class RedisDelay:
    """
    Messages on Redis that are not due yet.

    Args:
        redis: A `redis.asyncio.Redis` or `RedisCluster` that gives bytes (the default); it
            is not closed here.
        name: Programs with the same name share the messages.
        shards: Over how many keys they are hashed; fixed by who is first to use the name.
    """

    def __init__(self, redis: Any, name: str, shards: int = 8) -> None:
        if not name or len(name) > _MOST_NAME or {*name} & {*"{}"}:
            raise UsageError(f"a name has 1 to {_MOST_NAME} characters, no braces among them")
        if not 1 <= shards <= _MOST_SHARDS:
            raise UsageError(f"there are 1 to {_MOST_SHARDS} shards, not {shards}")
        pool = getattr(redis, "connection_pool", None)
        if getattr(pool, "connection_kwargs", {}).get("decode_responses"):
            raise UsageError("the client of Redis must give bytes: leave decode_responses out")
        self.redis = redis
        self.name = name
        self.shards = shards
        self._checked = False

    def shard(self, number: int) -> Shard:
        """Name the keys of a shard."""
        return Shard(self.name, number)

    async def check(self) -> None:
        """
        Make sure that all programs mean the same number of shards.

        Raises:
            StateError: Another one was first, with another number.
        """
        if self._checked:
            return
        key = f"{{tinymq:{self.name}}}:shards"
        await self.redis.set(key, str(self.shards), nx=True)
        known = int(await self.redis.get(key))
        if known != self.shards:
            raise StateError(
                f"{self.name} has {known} shards on Redis, not {self.shards}; say {known}, "
                "or use another name"
            )
        self._checked = True

    async def add(  # noqa: PLR0913 - as `send`, and when
        self,
        topic: str,
        value: bytes | str | None,
        *,
        delay_s: float | None = None,
        at_ms: int | None = None,
        key: bytes | str | None = None,
        headers: Mapping[str, bytes] | Iterable[tuple[str, bytes]] = (),
        delay_id: str | None = None,
        replace: bool = True,
    ) -> str:
        """
        Let a message wait.

        Args:
            topic: Where to it goes.
            value: Its value.
            delay_s: In so many seconds, by the clock of Redis.
            at_ms: Or at a time, in milliseconds since 1970.
            key: Its key.
            headers: Its headers.
            delay_id: Its id; made if not given. One that waits already is replaced.
            replace: Whether it is; else an id that waits is refused.

        Returns:
            Its id.

        Raises:
            InvalidDelay: It is negative, no number, or too far off.
            UsageError: Neither or both of the times are given, or the id is too long.
            StateError: A message of this id is being handed over, or waits already.
        """
        if (delay_s is None) == (at_ms is None):
            raise UsageError("give delay_s or at_ms")
        which = uuid.uuid4().hex if delay_id is None else delay_id
        if not 1 <= len(which) <= _MOST_ID:
            raise UsageError(f"an id has 1 to {_MOST_ID} characters")
        due = "" if at_ms is None else str(_checked(at_ms, "at_ms"))
        wait = "" if delay_s is None else str(_checked(_milliseconds(delay_s), "delay_s"))
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        item = Item(
            0, topic, _bytes(value), _bytes(key), tuple((name, each) for name, each in pairs)
        )
        await self.check()
        keys = self.shard(shard_of(which, self.shards)).keys("due", "hand", "items")
        added = await run(
            self.redis, ADD, keys, which, due, wait, item.pack(), "0" if replace else "1"
        )
        if added == -1:
            raise StateError(f"{which} is being handed over just now")
        if added == -2:
            raise StateError(f"{which} waits already")
        return which

    async def cancel(self, delay_id: str) -> bool:
        """
        Take a message back.

        Args:
            delay_id: Its id.

        Returns:
            Whether it will not come. False when it came, is being handed over, or never was.
        """
        await self.check()
        keys = self.shard(shard_of(delay_id, self.shards)).keys("due", "items")
        return bool(await run(self.redis, CANCEL, keys, delay_id))

    async def get(self, delay_id: str) -> Waiting | None:
        """
        Look at a message, None if it does not wait.

        Args:
            delay_id: Its id.
        """
        await self.check()
        keys = self.shard(shard_of(delay_id, self.shards)).keys("due", "hand", "items")
        row = await run(self.redis, GET, keys, delay_id)
        return _waiting(row) if row else None

    async def count(self) -> int:
        """Count the messages that wait, those in the hands of workers among them."""
        await self.check()
        found = 0
        for number in range(self.shards):
            found += await self.redis.hlen(self.shard(number).key("items"))
        return found

    async def list(self, limit: int = 100) -> list[Waiting]:
        """
        Return the messages that come first.

        Args:
            limit: How many at most; up to 1000.
        """
        await self.check()
        if not 1 <= limit <= _MOST_LISTED:
            raise UsageError(f"1 to {_MOST_LISTED} messages at a time, not {limit}")
        found: list[Waiting] = []
        for number in range(self.shards):
            keys = self.shard(number).keys("due", "hand", "items")
            found += map(_waiting, await run(self.redis, LIST, keys, limit))
        return sorted(found, key=lambda each: each.due_ms)[:limit]


def _waiting(row: Sequence[Any]) -> Waiting:
    which, due, stored, hand = row
    item = Item.unpack(stored)
    return Waiting(
        id=which.decode(),
        due_ms=int(float(due)),
        topic=item.topic,
        value=item.value,
        key=item.key,
        headers=item.headers,
        in_hand=bool(hand),
    )


def _milliseconds(seconds: float) -> int:
    if type(seconds) not in (int, float) or not math.isfinite(seconds):
        raise InvalidDelay(f"delay_s is a number of seconds, not {str(seconds)[:40]!r}")
    return round(seconds * 1000)


def _checked(number: int, name: str) -> int:
    if type(number) is not int or not 0 <= number <= LATEST_MS:
        raise InvalidDelay(
            f"{name} lies between 0 and the end of the year 9999, not at {str(number)[:40]}"
        )
    return number


def _bytes(given: bytes | str | None) -> bytes | None:
    return given.encode() if isinstance(given, str) else given
