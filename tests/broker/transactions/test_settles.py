"""Settles of channels that count with a transaction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.broker.transactions.stage import Stage
from tests.fakes.taking import Taken, Taker
from tinymq.broker.transactions.opened import Identity
from tinymq.errors import InvalidTransaction
from tinymq.wire.messages import FINISH, REQUEUE, Settle, SettleReply


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """Return a broker."""
    return Stage(tmp_path / "data", 1)


def taker(stage: Stage) -> Taker:
    """A consumer that has what there is."""
    found = Taker(stage)
    found.subscribe()
    return found


def hold(one: Taker, identity: Identity, *messages: Taken) -> SettleReply:
    """Finish messages with a transaction."""
    rows: list[Any] = [(each.partition, FINISH, [(each.lease, each.bit)], {}) for each in messages]
    number = one.connection.post(Settle(subscription=one.number, rows=rows, transaction=identity))
    one.run()
    return SettleReply.from_meta(one.reply(number).split()[0])


def places(stage: Stage):  # type: ignore[no-untyped-def]
    """Where the messages of the channel are."""
    (hosted,) = stage.broker.channels.hosted_of(stage.meta.describe("t").id)
    return hosted.queue.channels["c"].channel.places


def test_a_commit_finishes(stage: Stage) -> None:
    """What was settled with a transaction is finished when it is committed."""
    one = taker(stage)
    stage.produce(b"a", b"b", b"c")
    one.run()
    first, second, third = one.take()
    identity = stage.init()
    assert hold(one, identity, first, third).done == 2
    assert hold(one, identity, first).done == 0  # said again
    assert places(stage).in_flight == 3
    stage.end(identity)
    assert (places(stage).in_flight, places(stage).floor) == (1, 1)
    one.finish(second)
    one.run()
    assert places(stage).floor == 3


def test_an_abort_lets_them_come_again(stage: Stage) -> None:
    """They come again at once, and nobody failed."""
    one = taker(stage)
    stage.produce(b"a", b"b")
    one.run()
    messages = one.take()
    identity = stage.init()
    hold(one, identity, *messages)
    stage.end(identity, commit=False)
    one.run()
    again = one.take()
    assert [each.value for each in again] == [b"a", b"b"]
    assert [(each.attempt, each.failures) for each in again] == [(2, 0), (2, 0)]


def test_time_does_nothing_to_them(stage: Stage) -> None:
    """No time-out, no lost link and no other consumer gets at what a transaction holds."""
    one = taker(stage)
    stage.produce(b"a")
    one.run()
    identity = stage.init(timeout_ms=24 * 3_600_000)
    hold(one, identity, *one.take())
    one.connection.lose()
    two = Taker(stage)
    two.subscribe()
    two.run(3600)
    stage.wall.now_ms += 3_600_000
    two.run(3)
    assert two.take() == []
    stage.end(identity, commit=False)
    two.run()
    assert two.values == [b"a"]


@pytest.mark.parametrize("commit", [True, False])
def test_a_restart(stage: Stage, commit: bool) -> None:
    """What a transaction holds is held after a crash, too, and decided by it."""
    one = taker(stage)
    stage.produce(b"a", b"b")
    one.run()
    identity = stage.init()
    hold(one, identity, one.take()[0])
    stage.kill()
    stage = stage.again()
    two = taker(stage)
    two.run(60)
    assert two.values == [b"b"]
    stage.end(identity, commit=commit)
    two.run()
    assert two.values == ([] if commit else [b"a"])


def test_a_snapshot(stage: Stage) -> None:
    """A snapshot of the ledger tells of them, and what came before is not needed."""
    one = taker(stage)
    stage.produce(b"a")
    one.run()
    identity = stage.init()
    hold(one, identity, *one.take())
    (hosted,) = stage.broker.channels.hosted_of(stage.meta.describe("t").id)
    hosted.ledger.behind = True
    hosted.ledger.write_through()
    stage.kill()
    stage = stage.again()
    assert places(stage).held().keys() == {identity}
    stage.end(identity)
    assert places(stage).floor == 1


def test_nobody_ends_it(stage: Stage) -> None:
    """A transaction that only holds settles is asked about, and aborted in time."""
    one = taker(stage)
    stage.produce(b"a")
    one.run()
    identity = stage.init(timeout_ms=3000)
    hold(one, identity, *one.take())
    for _ in range(6):
        stage.settle(1)
    one.run()
    assert one.values == [b"a"]


@pytest.mark.parametrize("order", ["key", "strict"])
def test_the_order_is_kept(stage: Stage, order: str) -> None:
    """Its consumer goes on meanwhile, and loses what would overtake what comes again."""
    stage.carry_out("channel.create", topic="t", name="c", config={"order": order})
    one = taker(stage)
    other = Taker(stage)
    stage.produce(b"a", b"b")
    one.run()
    messages = one.take()
    other.subscribe()
    identity = stage.init()
    hold(one, identity, messages[0])
    stage.produce(b"c")
    one.run()
    other.run()
    if order == "strict":
        assert (one.values, other.values) == ([b"c"], [])
    stage.end(identity, commit=False)
    one.run()
    other.run()
    assert places(stage).floor == 0


def test_only_what_is_finished(stage: Stage) -> None:
    """Nothing else can be part of a transaction."""
    one = taker(stage)
    stage.produce(b"a")
    one.run()
    (message,) = one.take()
    rows: list[Any] = [(0, REQUEUE, [(message.lease, message.bit)], {})]
    number = one.connection.post(
        Settle(subscription=one.number, rows=rows, transaction=stage.init())
    )
    one.run()
    assert isinstance(one.error(number), InvalidTransaction)
    assert places(stage).in_flight == 1


def test_channels_see_what_is_committed(stage: Stage) -> None:
    """Open records are not given out; aborted ones and control batches are settled as passed."""
    one = taker(stage)
    identity = stage.init()
    stage.send(identity, b"a")
    stage.produce(b"b")
    one.run()
    assert one.values == []
    following = stage.end(identity, commit=False)
    one.run()
    (taken,) = one.take()
    assert taken.value == b"b"
    one.finish(taken)
    stage.send(following, b"c")
    stage.end(following)
    one.run()
    (taken,) = one.take()
    assert taken.value == b"c"
    one.finish(taken)
    one.run()
    # The last control batch is passed, too: nothing is behind.
    assert places(stage).floor == stage.partition().high_watermark == 5
