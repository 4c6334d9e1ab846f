"""
Publish three records and read them back, with the client for Twisted.

Start a broker first (``make run``), then::

    python examples/quickstart_twisted.py [tinymq://HOST:PORT]
"""

from __future__ import annotations

import sys
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import react
from twisted.python.failure import Failure

from tinymq.client import Client
from tinymq.errors import TinyMQError


async def run(reactor: Any, url: str | None) -> None:
    """Publish, then read."""
    client = Client(reactor, url)
    producer = client.producer()
    # A Deferred each; they travel together.
    sending = [producer.send("greetings-twisted", text) for text in (b"un", b"deux", b"trois")]
    positions = [await each for each in sending]
    first = positions[0]
    print(f"published, the first one at {first.partition}@{first.offset}")

    consumer = client.consumer()
    await consumer.assign("greetings-twisted", [first.partition], start=first.offset)
    left = len(positions)
    async for batch in consumer:
        for record in batch:
            print(f"{batch.partition}@{record.offset}  {record.value!r}")
        left -= len(batch)
        if left <= 0:
            break
    await client.close()


def main(reactor: Any, url: str | None = None) -> Deferred[None]:
    """Run on Twisted's reactor."""
    return Deferred.fromCoroutine(run(reactor, url)).addErrback(give_up)


def give_up(failure: Failure) -> Failure:
    """End with one line when no broker is there."""
    if isinstance(failure.value, TinyMQError):
        sys.exit(f"error: {failure.value}")
    return failure


if __name__ == "__main__":
    react(main, sys.argv[1:2])
