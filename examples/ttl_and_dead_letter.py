"""
Delay by time to live and dead letter, as it is done where a broker knows no delays.

The way of a message: producer, waiting topic, dead-letter topic, consumer. Nobody
consumes the waiting topic. Its channel gives up what expires, and the consumer takes
the dead letters::

    python examples/ttl_and_dead_letter.py                      # with a broker of its own
    python examples/ttl_and_dead_letter.py --url tinymq://HOST  # with one that runs

`tinymq` has real delays (``send(..., delay=30)``): they need none of this.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tinymq.aio import Client, Message
from tinymq.errors import TinyMQError
from tinymq.testing import BrokerProcess

WAITING, CHANNEL, DUE = "orders.waiting", "wait", "orders.due"


async def prepare(client: Client, wait_s: float) -> None:
    """Make the waiting topic with its time to live, its channel, and the topic behind it."""
    await client.admin.create_topic(WAITING, config={"ttl.ms": round(wait_s * 1000)})
    await client.admin.create_topic(DUE)
    # What expires goes where this says; nobody ever subscribes to this channel.
    await client.admin.create_channel(WAITING, CHANNEL, config={"dead.letter": DUE})


async def order(client: Client, number: int, wait_s: float | None = None) -> None:
    """Let an order wait for as long as all do, or less."""
    await client.producer().send(WAITING, b"order %d" % number, ttl=wait_s)


async def cancel_unpaid(client: Client, count: int) -> list[str]:
    """Take orders when their time is over, and return them as they came."""
    found: list[str] = []
    enough = asyncio.Event()

    async def cancel(message: Message) -> None:
        told = dict(message.headers)
        found.append((message.value or b"").decode())
        print(f"{found[-1]} was not paid in time ({told['tinymq-reason'].decode()})")
        message.finish()
        if len(found) == count:
            enough.set()

    subscription = client.subscription(DUE, "cancel")
    running = asyncio.create_task(subscription.run(cancel))
    await enough.wait()
    await subscription.close(within_s=5)
    await running
    return found


async def main(url: str, second: float) -> None:
    """Let three orders wait, the second one for a shorter time than the first."""
    async with Client(url) as client:
        await prepare(client, 3 * second)
        await order(client, 1)
        await order(client, 2, wait_s=second)
        await order(client, 3, wait_s=60 * second)  # the topic's time counts: it is shorter
        await cancel_unpaid(client, 3)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Delay by time to live and dead letter.")
    parser.add_argument("--url", help="a running broker; without it one is started")
    parser.add_argument("--fast", action="store_true", help="wait for a fraction of a second")
    options = parser.parse_args()
    length = 0.1 if options.fast else 1.0
    if options.url:
        try:
            asyncio.run(main(options.url, length))
        except TinyMQError as error:
            sys.exit(f"error: {error}")
    else:
        with tempfile.TemporaryDirectory() as folder, BrokerProcess(Path(folder, "data")) as broker:
            asyncio.run(main(broker.url, length))
