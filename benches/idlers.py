"""
What ten thousand idle channels with a consumer each cost the broker.

::

    python -m benches.idlers [CHANNELS [TOPICS [SECONDS]]]

Starts a broker of its own, makes the channels, subscribes to each of them, and measures
the processor time of the broker while nothing is published.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from tinymq.sync import Client, ClientConfig, Subscription
from tinymq.verify.process import BrokerProcess

#: Seconds after the last subscription in which what it stirs comes to rest.
_SETTLE = 3.0
#: Topics whose channels are made at the same time.
_AT_ONCE = 8
_TICKS = os.sysconf("SC_CLK_TCK")


class Idle(NamedTuple):
    """
    What was measured.

    Attributes:
        channels: How many channels there were, each with a consumer.
        seconds: How long it took to make them and to subscribe.
        core: Share of a processor core that the broker used afterwards.
        memory: Bytes of the broker's memory for each channel.
    """

    channels: int
    seconds: float
    core: float
    memory: float


def measure(folder: Path, channels: int = 10_000, topics: int = 100, seconds: float = 20.0) -> Idle:
    """
    Measure a broker with idle channels.

    Args:
        folder: Where it may keep its data.
        channels: How many, in all.
        topics: Of how many topics; each has a connection of its own.
        seconds: How long to measure.
    """
    with BrokerProcess(folder / "data") as broker, ExitStack() as stack:
        memory, began = _memory(broker.pid), time.monotonic()
        count = subscribe(broker.url, channels, topics, stack)
        took = time.monotonic() - began
        grown = _memory(broker.pid) - memory
        time.sleep(_SETTLE)
        before, since = _busy(broker.pid), time.monotonic()
        time.sleep(seconds)
        core = (_busy(broker.pid) - before) / (time.monotonic() - since)
        return Idle(count, took, core, grown / count)


def subscribe(url: str, channels: int, topics: int, stack: ExitStack) -> int:
    """
    Make channels, and take messages of each.

    Args:
        url: The broker.
        channels: How many, in all.
        topics: Of how many topics; each has a connection of its own.
        stack: Closes the clients.

    Returns:
        How many channels there are.
    """

    def one(topic: int) -> list[Subscription]:
        name = f"idle-{topic}"
        client = stack.enter_context(Client(url, ClientConfig(client_id="idler")))
        client.admin.create_topic(name)
        found = []
        for number in range(channels // topics):
            client.admin.create_channel(name, f"channel-{number}")
            found.append(client.subscription(name, f"channel-{number}"))
        for subscription in found:
            subscription.ready()
        return found

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return sum(map(len, pool.map(one, range(topics))))


def _busy(pid: int) -> float:
    """Seconds of processor time that a process has used, also within the kernel."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _memory(pid: int) -> int:
    """Bytes of a process that are in memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def main(channels: int = 10_000, topics: int = 100, seconds: float = 20.0) -> None:
    """Measure, and print it."""
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), channels, topics, seconds)
    print(
        f"{found.channels} channels with a consumer each, made in {found.seconds:.0f} s: "
        f"{found.core:.2%} of a core, {found.memory / 1024:.1f} KiB each"
    )


if __name__ == "__main__":
    main(*(int(each) for each in sys.argv[1:]))
