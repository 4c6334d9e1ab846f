"""
Delay messages on Redis, and hand them over into a topic when they are due.

For programs that have their delays on Redis already; tinymq's own delays need no Redis.
It wants ``pip install 'tinymq[redis]'`` and a Redis that runs::

    python examples/redis_delay.py redis://127.0.0.1               # with a broker of its own
    python examples/redis_delay.py redis://127.0.0.1 tinymq://HOST # with one that runs

One process does everything here. In earnest those that call `add` and `cancel`, the workers
and the consumers are different ones, as many of each as you like.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import uuid
from pathlib import Path

from redis.asyncio import Redis
from redis.exceptions import RedisError

from tinymq.aio import Client
from tinymq.errors import TinyMQError
from tinymq.patterns.redis_delay import DELAY_ID, RedisDelay
from tinymq.patterns.redis_worker import RedisDelayWorker
from tinymq.testing import BrokerProcess

TOPIC = "orders.unpaid"


async def main(redis_url: str, url: str) -> None:
    """Let three orders wait, one of which is paid in time."""
    async with Redis.from_url(redis_url) as redis, Client(url) as client:
        delays = RedisDelay(redis, f"example-{uuid.uuid4().hex[:8]}", shards=4)
        producer = client.producer()
        await client.metadata([TOPIC], create=True)
        consumer = client.consumer()
        await consumer.assign(TOPIC)

        await delays.add(TOPIC, b"order 1", delay_s=1.0)
        paid = await delays.add(TOPIC, b"order 2", delay_s=1.5)
        await delays.add(TOPIC, b"order 3", delay_s=2.0)
        print("order 2 is paid:", await delays.cancel(paid))

        worker = asyncio.create_task(RedisDelayWorker(delays, producer).run())
        seen: set[bytes] = set()
        async for batch in consumer:
            for record in batch:
                # A worker that died may have published it before: the id tells.
                which = dict(record.headers)[DELAY_ID]
                if which not in seen:
                    seen.add(which)
                    print("nobody paid", (record.value or b"").decode())
            if len(seen) == 2:
                break
        worker.cancel()
        await asyncio.wait([worker])
        print("left on Redis:", await delays.count())
        await producer.close()
        for key in await redis.keys(f"{{tinymq:{delays.name}*"):
            await redis.delete(key)


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 3:
        sys.exit("say where Redis is: redis_delay.py redis://HOST:PORT [tinymq://HOST:PORT]")
    try:
        if len(sys.argv) == 3:
            asyncio.run(main(sys.argv[1], sys.argv[2]))
        else:
            with (
                tempfile.TemporaryDirectory() as folder,
                BrokerProcess(Path(folder, "data")) as broker,
            ):
                asyncio.run(main(sys.argv[1], broker.url))
    except (TinyMQError, RedisError) as error:
        sys.exit(f"error: {error}")
