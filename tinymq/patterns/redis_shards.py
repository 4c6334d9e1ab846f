"""
Where delayed messages lie on Redis, and the steps that must not be torn.

Of each shard, four keys with one hash tag, so that a cluster keeps them together::

    {tinymq:NAME:0}:due     sorted set: id -> when it is due, in milliseconds since 1970
    {tinymq:NAME:0}:hand    sorted set: those that a worker is handing over just now
    {tinymq:NAME:0}:items   hash: id -> when it was to be due, a space, the message in msgpack
    {tinymq:NAME:0}:lease   who works on the shard, and with which token; goes by itself
    {tinymq:NAME:0}:token   how often it changed hands

and of all of them ``{tinymq:NAME}:shards``, how many there are, and ``{tinymq:NAME}:workers``.

A message is never taken out before its topic has it: it goes from *due* to *hand*, is
published, and is removed when the broker said that it is stored. Every step of a worker
looks first whether the shard is still its own, in the same script: that is the fence.
All times are those of Redis, so that clocks of clients do not matter.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple
from zlib import crc32

import msgpack

_NOW: Final = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
"""

#: due, hand, items; id, due or "", delay or "", message, only if new.
ADD: Final = (
    _NOW
    + """
if redis.call('ZSCORE', KEYS[2], ARGV[1]) then return -1 end
if ARGV[5] == '1' and redis.call('ZSCORE', KEYS[1], ARGV[1]) then return -2 end
local due = ARGV[2] ~= '' and tonumber(ARGV[2]) or now + tonumber(ARGV[3])
redis.call('HSET', KEYS[3], ARGV[1], string.format('%.0f ', due) .. ARGV[4])
redis.call('ZADD', KEYS[1], due, ARGV[1])
return due
"""
)

#: due, items; id. What is in a worker's hand comes.
CANCEL: Final = """
if redis.call('ZREM', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('HDEL', KEYS[2], ARGV[1])
return 1
"""

#: due, hand, items; how many at most. Gives ids, due times, messages, and whether in hand.
LIST: Final = """
local rows = {}
for place = 1, 2 do
    local found = redis.call('ZRANGE', KEYS[place], 0, ARGV[1] - 1, 'WITHSCORES')
    for at = 1, #found, 2 do
        local item = redis.call('HGET', KEYS[3], found[at])
        if item then table.insert(rows, {found[at], found[at + 1], item, place - 1}) end
    end
end
return rows
"""

#: due, hand, items; id. Gives the due time, the message, and whether in hand; or nothing.
GET: Final = """
for place = 1, 2 do
    local due = redis.call('ZSCORE', KEYS[place], ARGV[1])
    local item = redis.call('HGET', KEYS[3], ARGV[1])
    if due and item then return {ARGV[1], due, item, place - 1} end
end
return {}
"""

#: lease, token; worker, milliseconds. Gives the lease, or nothing.
ACQUIRE: Final = """
if redis.call('EXISTS', KEYS[1]) == 1 then return '' end
local lease = ARGV[1] .. '/' .. redis.call('INCR', KEYS[2])
redis.call('SET', KEYS[1], lease, 'PX', ARGV[2])
return lease
"""

#: lease; the lease, milliseconds.
RENEW: Final = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
"""

#: lease; the lease.
LEAVE: Final = """
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1
"""

#: lease, due, hand, items; the lease, how many at most.
#: Gives -1 if it is lost; else how long until the next one, and ids and messages.
#: What is in hand was left there: by a worker that died, or whose answer got lost.
TAKE: Final = (
    _NOW
    + """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {-1} end
local left = redis.call('ZRANGE', KEYS[3], 0, -1, 'WITHSCORES')
for place = 1, #left, 2 do redis.call('ZADD', KEYS[2], left[place + 1], left[place]) end
redis.call('DEL', KEYS[3])
local found = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'WITHSCORES', 'LIMIT', 0, ARGV[2])
local taken = {0}
for place = 1, #found, 2 do
    local id, due = found[place], found[place + 1]
    local item = redis.call('HGET', KEYS[4], id)
    redis.call('ZREM', KEYS[2], id)
    if item then
        redis.call('ZADD', KEYS[3], due, id)
        table.insert(taken, id)
        table.insert(taken, item)
    end
end
local first = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
taken[1] = #first == 0 and 1000 or math.max(0, math.min(1000, math.ceil(first[2] - now)))
return taken
"""
)

#: lease, hand, items; the lease, ids.
DONE: Final = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
for place = 2, #ARGV do
    if redis.call('ZREM', KEYS[2], ARGV[place]) == 1 then
        redis.call('HDEL', KEYS[3], ARGV[place])
    end
end
return 1
"""

#: lease, due, hand; the lease, milliseconds, ids. They are due again after a while.
BACK: Final = (
    _NOW
    + """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
for place = 3, #ARGV do
    if redis.call('ZREM', KEYS[3], ARGV[place]) == 1 then
        redis.call('ZADD', KEYS[2], now + ARGV[2], ARGV[place])
    end
end
return 1
"""
)

#: workers; worker, milliseconds after which one that says nothing is gone. Gives how many.
HERE: Final = (
    _NOW
    + """
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
return redis.call('ZCARD', KEYS[1])
"""
)


class Item(NamedTuple):
    """
    A message on Redis.

    Attributes:
        due: When it was to be due, in milliseconds since 1970; a script writes it.
        topic: Where to it goes.
        value: Its value.
        key: Its key.
        headers: Its headers.
    """

    due: int
    topic: str
    value: bytes | None
    key: bytes | None
    headers: tuple[tuple[str, bytes], ...]

    def pack(self) -> bytes:
        """Return it as a script is given it."""
        packed: bytes = msgpack.packb([1, *self[1:]])
        return packed

    @classmethod
    def unpack(cls, stored: bytes) -> Item:
        """
        Read what is stored.

        Raises:
            ValueError: It is none.
        """
        try:
            due, _, packed = stored.partition(b" ")
            version, topic, value, key, headers = msgpack.unpackb(packed)
            if version != 1:
                raise ValueError(f"it is of version {version}")  # noqa: TRY301
            return cls(int(due), topic, value, key, tuple((name, each) for name, each in headers))
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise ValueError(f"a message on Redis cannot be read: {error}") from error


class Shard(NamedTuple):
    """
    The keys of one shard.

    Attributes:
        name: Whose.
        number: Its number, from 0.
    """

    name: str
    number: int

    def key(self, what: str) -> str:
        """Name one of its keys."""
        return f"{{tinymq:{self.name}:{self.number}}}:{what}"

    def keys(self, *what: str) -> list[str]:
        """Name some of its keys."""
        return [self.key(each) for each in what]


def shard_of(delay_id: str, shards: int) -> int:
    """
    Say which shard a message is in.

    Args:
        delay_id: Its id.
        shards: How many there are.
    """
    return crc32(delay_id.encode()) % shards


async def run(redis: Any, script: str, keys: list[str], *arguments: Any) -> Any:
    """
    Run a script as one step.

    Args:
        redis: The client; that of a cluster as well, for all keys are in one slot.
        script: The script.
        keys: Its keys.
        *arguments: Its arguments.
    """
    return await redis.eval(script, len(keys), *keys, *arguments)
