"""Channels of a broker, from the client's link down to the disk."""

from __future__ import annotations

from pathlib import Path

from tests.fakes.broker import BrokerFixture
from tests.fakes.taking import Taker


def test_finished_messages_stay_finished_after_a_kill(tmp_path: Path) -> None:
    """What was settled with confirmation never comes back; all else does."""
    broker = BrokerFixture(tmp_path)
    broker.topic()
    broker.produce(b"a", b"b", b"c")
    taker = Taker(broker)
    taker.subscribe()
    first, _, third = taker.take()
    reply = taker.finish(first, third)
    broker.kill()

    again = broker.again()
    taker = Taker(again)
    taker.subscribe()
    taker.run(11)

    assert reply.done == 2
    assert taker.values == [b"b"]
