"""
Publish from a broker inside this process, and read from it directly.

No broker has to run. A lookup server (any tinymq broker or MetaServer; here one
more inside this process) only tells who has a topic; no message passes it::

    python examples/embedded_broker.py [HOST:PORT of a lookup server]
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import react

from tinymq.client import EARLIEST, Client, Lookup
from tinymq.embedded import EmbeddedBroker


async def run(reactor: Any, lookup: str, folder: Path) -> None:
    """Hold the log of some measurements here, and let a reader find it."""
    broker = EmbeddedBroker(reactor, folder, lookup=[lookup], broker__name="weather")
    broker.start()
    producer_side = Client(reactor, broker.url)
    producer = producer_side.producer()
    for value in (b"21.5", b"21.7", b"22.0"):
        await producer.send("temperature", value)

    # Anywhere else: a reader that knows the lookup server only.
    directory = Lookup(reactor, f"tinymq://{lookup}")
    consumer = directory.consumer("temperature", EARLIEST)
    left = 3
    async for batch in consumer:
        for record in batch:
            print(f"{batch.node.name}: {record.value!r}")
        left -= len(batch)
        if left <= 0:
            break
    await directory.close()
    await producer_side.close()
    await broker.stop()


async def with_lookup(reactor: Any, lookup: str | None) -> None:
    """Run, with a lookup server of our own if none was named."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        own = None
        if lookup is None:
            own = EmbeddedBroker(reactor, folder / "lookup")
            own.start()
            lookup = own.url.removeprefix("tinymq://")
        await run(reactor, lookup, folder / "weather")
        if own is not None:
            await own.stop()


def main(reactor: Any, lookup: str | None = None) -> Deferred[None]:
    """Run on Twisted's reactor."""
    return Deferred.fromCoroutine(with_lookup(reactor, lookup))


if __name__ == "__main__":
    react(main, sys.argv[1:2])
