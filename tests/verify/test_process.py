"""Starting, killing and stopping real brokers."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tinymq.errors import UnreachableError
from tinymq.sync import Client
from tinymq.verify.checker import Checker
from tinymq.verify.numbered import Place
from tinymq.verify.process import BrokerProcess
from tinymq.verify.reading import feed

pytestmark = pytest.mark.process


def test_life_of_a_broker(tmp_path: Path) -> None:
    """A broker comes back at the same place with what it had, after a kill and after a stop."""
    broker = BrokerProcess(tmp_path / "data")
    broker.start()
    url, first = broker.url, broker.pid
    with Client(url) as client:
        client.producer().send("kept", b"value")
    broker.kill()
    broker.start()
    assert (broker.url, broker.pid != first) == (url, True)
    assert broker.stop() in {0, -signal.SIGTERM}
    broker.start()
    with Client(url) as client:
        (row,) = client.admin.topic("kept")["topic"]["partitions"]
        assert (row["start"], row["end"]) == (0, 1)
    broker.kill()
    assert broker.pid == 0
    assert broker.stop() == 0


def test_a_broker_that_cannot_start(tmp_path: Path) -> None:
    """X9: where the data folder cannot be made, the broker's last words say why."""
    (tmp_path / "data").write_text("a file")
    broker = BrokerProcess(tmp_path / "data" / "below")
    broker.log = tmp_path / "log"
    with pytest.raises(UnreachableError, match="is a file, or lies below one"):
        broker.start()


def test_a_damaged_end_is_a_finding(tmp_path: Path) -> None:
    """The judge reads to the end of a damaged log, and says what is missing."""
    broker = BrokerProcess(tmp_path / "data")
    broker.start()
    try:
        with Client(broker.url) as client:
            for _ in range(2):
                client.producer().send("torn", b"foreign")
        broker.stop()
        (segment,) = tmp_path.glob("data/topics/*/0/data/*.log")
        content = bytearray(segment.read_bytes())
        content[-1] ^= 1
        segment.write_bytes(content)
        broker.start()
        checker = Checker(Place("torn", 0), lambda place, producer: 0)
        with Client(broker.url) as client:
            problems = feed(client, "torn", {0: checker}, patience=0.5)
    finally:
        broker.stop()
    assert problems == ["torn/0 is damaged from 1 to its end"]
