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
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from tinymq.sync import Client, ClientConfig, Subscription
from tinymq.verify.process import BrokerProcess

#: Seconds after the last subscription in which what it stirs comes to rest.
_SETTLE = 3.0
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
        subscriptions: list[Subscription] = []
        for topic in range(topics):
            client = stack.enter_context(Client(broker.url, ClientConfig(client_id="idler")))
            client.admin.create_topic(f"t{topic}")
            for number in range(channels // topics):
                client.admin.create_channel(f"t{topic}", f"c{number}")
                subscriptions.append(client.subscription(f"t{topic}", f"c{number}"))
        for subscription in subscriptions:
            subscription.ready()
        took = time.monotonic() - began
        grown = _memory(broker.pid) - memory
        time.sleep(_SETTLE)
        before, since = _busy(broker.pid), time.monotonic()
        time.sleep(seconds)
        core = (_busy(broker.pid) - before) / (time.monotonic() - since)
        return Idle(len(subscriptions), took, core, grown / len(subscriptions))


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
