"""What waits for its next attempt in a channel: listed, counted, and given another time."""

from __future__ import annotations

from heapq import heappush
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.broker import BEGIN_MS, BrokerFixture, batch
from tests.fakes.taking import Taken, Taker
from tinymq.broker.channel.history import NEW
from tinymq.broker.channel.places import Places
from tinymq.errors import InvalidRequest, UnknownChannel, WireError
from tinymq.node.retries import _chosen, _first, _rows

CHANNEL = {"topic": "t", "channel": "c"}
PLACE = {"topic": "t", "name": "c", "partition": 0}


def ask(broker: BrokerFixture, operation: str, /, **arguments: Any) -> dict[str, Any]:
    """Carry out an operation that may wait for the disk."""
    return broker.carry_out(operation, **arguments)


class Stage:
    """A channel in which some messages wait."""

    def __init__(self, path: Path, **policy: Any) -> None:
        self.broker = BrokerFixture(path)
        self.broker.topic(partitions=2)
        self.broker.meta.create_channel("t", "c", {"jitter.percent": 0, **policy})
        self.taker = Taker(self.broker)
        self.taker.subscribe()
        for index, keys in ((0, [b"a", b"b", b"a"]), (1, [b"a"])):
            data = batch(*(b"%d" % each for each in range(len(keys))), keys=keys)
            topic = self.broker.meta.describe("t").id
            self.broker.broker.produce(topic, index, data, lambda answer: None)
        self.taker.run()
        for number, each in reversed([*enumerate(sorted(self.taker.take()))]):
            self.requeue(each, 60_000 * (number + 1))

    def requeue(self, taken: Taken, delay: int) -> None:
        """Let a message come again later."""
        assert self.taker.requeue(taken, d=delay).done == 1

    def waiting(self, **choice: Any) -> list[tuple[int, int, int]]:
        """What waits: partitions, offsets, and in how many milliseconds."""
        page = ask(self.broker, "delayed.list", **CHANNEL, **choice)
        return [
            (row["partition"], row["offset"], row["due_ms"] - BEGIN_MS) for row in page["messages"]
        ]


@pytest.fixture(name="stage")
def fixture_stage(tmp_path: Path) -> Stage:
    """Three messages wait on one partition, one on another."""
    return Stage(tmp_path)


ALL = [(0, 0, 60_000), (0, 1, 120_000), (0, 2, 180_000), (1, 0, 240_000)]


@given(
    waiting=st.dictionaries(st.integers(0, 60), st.integers(1, 3), max_size=40),
    limit=st.integers(1, 5),
)
@settings(max_examples=60, deadline=None)
def test_pages_have_all_in_order(waiting: dict[int, int], limit: int) -> None:
    """Whatever waits together with what: each message once, in order of time and offset."""
    places, left = Places(), dict(waiting)
    while left:
        base = min(left)
        due = left[base]
        # Of what comes together, a part: groups lie between one another.
        together = [
            offset
            for offset in left
            if left[offset] == due and offset - base < 16 and not (offset - base) % 2
        ]
        bits = sum(1 << offset - base for offset in together)
        heappush(places.waiting, (due, base, bits, NEW))
        for offset in together:
            del left[offset]
    after: tuple[int, int, int] | None = None
    found: list[tuple[int, int, int]] = []
    while True:
        groups = _chosen(places, None, None)
        rows = [place for place, _ in _rows(_first(groups, 0, limit, after), 0)]
        page = sorted(place for place in rows if after is None or place > after)[:limit]
        if not page:
            break
        found += page
        after = page[-1]

    assert found == sorted((due, 0, offset) for offset, due in waiting.items())


class TestLooking:
    def test_rows(self, stage: Stage) -> None:
        """They are in the list in order of their time, with what is known of them."""
        page = ask(stage.broker, "delayed.list", **CHANNEL)

        assert stage.waiting() == ALL
        assert (page["total"], page["more"], page["after"]) == (4, False, None)
        assert page["messages"][1] == {
            "topic": "t",
            "channel": "c",
            "partition": 0,
            "offset": 1,
            "id": None,
            "due_ms": BEGIN_MS + 120_000,
            "why": "retry",
            "attempt": 1,
            "schedule": None,
            "key": "b",
            "encoding": "string",
            "size": 1,
            "taken_ms": BEGIN_MS,
        }

    def test_filters_and_pages(self, stage: Stage) -> None:
        """By key, time and partition, and page by page."""
        page = ask(stage.broker, "delayed.list", **CHANNEL, limit=3)

        assert stage.waiting(key="a") == [ALL[0], ALL[2], ALL[3]]
        assert stage.waiting(since_ms=BEGIN_MS + 120_000, until_ms=BEGIN_MS + 180_000) == [ALL[1]]
        assert stage.waiting(partition=1) == [ALL[3]]
        assert page["more"]
        assert stage.waiting(after=page["after"], limit=3) == [ALL[3]]

    def test_histogram(self, stage: Stage) -> None:
        """They are counted by when they come."""
        found = ask(stage.broker, "delayed.histogram", **CHANNEL)

        counts = [each["messages"] for each in found["buckets"]]
        assert (found["total"], found["overdue"], sum(counts)) == (4, 0, 4)
        assert found["next_ms"] == BEGIN_MS + 60_000

    @pytest.mark.parametrize(
        ("given", "error"),
        [
            ({"channel": "c"}, InvalidRequest),
            ({"topic": "t", "channel": "other"}, UnknownChannel),
            ({**CHANNEL, "schedule": "s"}, InvalidRequest),
            ({**CHANNEL, "after": "1/2"}, InvalidRequest),
        ],
    )
    def test_what_cannot_be_asked(
        self, stage: Stage, given: dict[str, Any], error: type[WireError]
    ) -> None:
        """A channel goes with its topic, and has no messages of schedules."""
        with pytest.raises(error):
            ask(stage.broker, "delayed.list", **given)


class TestAnotherTime:
    def test_wake(self, stage: Stage) -> None:
        """They are given out at once; what does not wait is named."""
        plan = ask(stage.broker, "channel.wake", **PLACE, offsets=[1, 9], dry_run=True)
        done = ask(stage.broker, "channel.wake", **PLACE, offsets=[1, 2, 9])
        stage.taker.run()

        assert plan == {"done": [1], "missing": [9], "dry_run": True}
        assert done == {"done": [1, 2], "missing": [9], "dry_run": False}
        assert [each.offset for each in stage.taker.take()] == [1, 2]
        assert stage.waiting() == [ALL[0], ALL[3]]

    @pytest.mark.parametrize("kill", [False, True])
    def test_delay(self, stage: Stage, kill: bool) -> None:
        """They come at their new time, also after a kill."""
        one = ask(stage.broker, "channel.delay", **PLACE, offsets=[0], delay_ms=5_000)
        two = ask(stage.broker, "channel.delay", **PLACE, offsets=[1], due_ms=BEGIN_MS + 500_000)
        if kill:
            stage.broker.kill()
            stage.broker = stage.broker.again()
            stage.taker = Taker(stage.broker)
            stage.taker.subscribe()
        there = stage.waiting(partition=0)
        stage.taker.run(5)

        assert (one["due_ms"], two["due_ms"]) == (BEGIN_MS + 5_000, BEGIN_MS + 500_000)
        assert there == [(0, 0, 5_000), (0, 2, 180_000), (0, 1, 500_000)]
        assert [each.offset for each in stage.taker.take()] == [0]
        story = ask(stage.broker, "message.life", topic="t", partition=0, offset=0)
        happened = [each["what"] for each in story["events"]]
        assert happened == ["delivered", "requeued", "rescheduled", "delivered"]

    @pytest.mark.parametrize("order", ["key", "strict"])
    def test_in_order(self, tmp_path: Path, order: str) -> None:
        """The order is kept: what comes before goes first."""
        stage = Stage(tmp_path, order=order)
        ask(stage.broker, "channel.wake", **PLACE, offsets=[2])
        stage.taker.run()
        before = stage.taker.take()
        ask(stage.broker, "channel.wake", **PLACE, offsets=[0, 1])
        stage.taker.run()

        assert before == []
        assert [each.offset for each in stage.taker.take()] == [0, 1, 2]

    @pytest.mark.parametrize("when", [{}, {"due_ms": 5, "delay_ms": 5}])
    def test_no_time(self, stage: Stage, when: dict[str, Any]) -> None:
        """Another time has to be said, and once."""
        with pytest.raises(InvalidRequest):
            ask(stage.broker, "channel.delay", **PLACE, offsets=[0], **when)

    def test_no_messages(self, stage: Stage) -> None:
        """Messages have to be named."""
        with pytest.raises(InvalidRequest):
            ask(stage.broker, "channel.wake", **PLACE, offsets=[])
