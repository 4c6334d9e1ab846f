"""What a broker tells of its partitions to those who follow them."""

from __future__ import annotations

from pathlib import Path

import msgpack
import pytest

from tests.fakes.broker import BEGIN_MS, BrokerFixture, HeldSyncer
from tests.fakes.cluster import page, report, snapshot, topic
from tinymq.figures import reports
from tinymq.figures.reports import Reporter, Taken, boot_of, from_wire, to_wire
from tinymq.stats import Counters, Gap
from tinymq.storage.facts import Gap as LogGap


@pytest.fixture
def fixture(tmp_path: Path) -> BrokerFixture:
    """Return a broker."""
    return BrokerFixture(tmp_path / "data")


def told(taken: Taken) -> list[tuple[int, int]]:
    """Partition and end of each row, in order of partitions."""
    return sorted((row.partition, row.report.end) for row in taken.rows)


class TestTaking:
    def test_moved_only(self, fixture: BrokerFixture) -> None:
        """After everything was told once, only what moved is told."""
        fixture.topic("t", partitions=3)
        reporter = Reporter(fixture.broker)
        first = reporter.take(0)
        assert told(first) == [(0, 0), (1, 0), (2, 0)]
        assert reporter.take(first.generation).rows == []
        fixture.produce(b"a", partition=1)
        second = reporter.take(first.generation)
        assert told(second) == [(1, 1)]
        assert reporter.take(second.generation) == second._replace(rows=[])

    def test_followers_do_not_disturb_each_other(self, fixture: BrokerFixture) -> None:
        """Each hears of every move, whoever asked before."""
        fixture.topic("t", partitions=2)
        reporter = Reporter(fixture.broker)
        mine = yours = reporter.take(0).generation
        fixture.produce(b"a")
        mine = reporter.take(mine).generation
        fixture.produce(b"b", partition=1)
        assert told(reporter.take(mine)) == [(1, 1)]
        assert told(reporter.take(yours)) == [(0, 1), (1, 1)]

    def test_pages(self, fixture: BrokerFixture) -> None:
        """Pages together hold every partition once, and the last one says so."""
        fixture.topic("t", partitions=5)
        reporter = Reporter(fixture.broker)
        generation, seen, more = 0, [], True
        while more:
            taken = reporter.take(generation, 2)
            assert len(taken.rows) <= 2
            generation, more = taken.generation, taken.more
            seen += [row.partition for row in taken.rows]
        assert sorted(seen) == [0, 1, 2, 3, 4]

    def test_a_busy_broker_does_not_hold_its_follower(self, fixture: BrokerFixture) -> None:
        """What moves while pages are told stands on none of them, but in the next round."""
        fixture.topic("t", partitions=4)
        reporter = Reporter(fixture.broker)
        taken, pages = reporter.take(0, 1), 1
        while taken.more:
            fixture.produce(b"a")
            taken, pages = reporter.take(taken.generation, 1), pages + 1
        assert pages == 4
        assert told(reporter.take(taken.generation)) == [(0, 3)]

    def test_one_topic(self, fixture: BrokerFixture) -> None:
        """What moved of one topic can be had before its page, and stands there as well."""
        fixture.topic("u", partitions=2)
        made = fixture.topic("t", partitions=3)
        reporter = Reporter(fixture.broker)
        start = reporter.take(0).generation
        assert reporter.of_topic(made, start) == []
        fixture.produce(b"a", topic="u")
        fixture.produce(b"a", partition=1)
        (found,) = reporter.of_topic(made, start)
        assert (found.partition, found.report.end) == (1, 1)
        reporter.gather()
        assert reporter.of_topic(made, start) == [found]
        taken = reporter.take(start)
        assert found in taken.rows
        assert reporter.of_topic(made, taken.generation) == []

    def test_another_start(self, fixture: BrokerFixture) -> None:
        """Who knows what another start of the broker said is told everything."""
        fixture.topic("t", partitions=2)
        generation = Reporter(fixture.broker, lambda most: 1).take(0).generation
        again = Reporter(fixture.broker, lambda most: 2).take(generation)
        assert len(again.rows) == 2
        assert boot_of(again.generation) != boot_of(generation) != 0

    def test_made_and_deleted(self, fixture: BrokerFixture) -> None:
        """A new topic is told although nothing was written, and that it went, too."""
        reporter = Reporter(fixture.broker)
        start = reporter.take(0)
        assert (start.rows, start.gone) == ([], [])
        made = fixture.topic("t", partitions=2)
        taken = reporter.take(start.generation)
        assert told(taken) == [(0, 0), (1, 0)]
        fixture.produce(b"a")
        fixture.meta.delete_topic("t")
        last = reporter.take(taken.generation)
        assert (last.rows, sorted(last.gone)) == ([], [(made.id, 0), (made.id, 1)])
        assert reporter.take(last.generation).gone == []

    def test_deleted_while_it_is_synced(self, tmp_path: Path) -> None:
        """A sync that ends after its topic was deleted brings nothing back."""
        syncer = HeldSyncer()
        fixture = BrokerFixture(tmp_path / "held", syncer=syncer)
        fixture.topic("t")
        reporter = Reporter(fixture.broker)
        fixture.produce(b"a")
        fixture.meta.delete_topic("t")
        generation = reporter.take(0).generation
        syncer.release()
        assert fixture.broker.moved == set()
        assert reporter.take(generation).gone == []

    def test_memory_stays_bounded(
        self, fixture: BrokerFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Neither moves nor deleted topics are kept for ever, and followers start anew then."""
        monkeypatch.setattr(reports, "MOST_GONE", 3)
        tokens = iter(range(100))
        reporter = Reporter(fixture.broker, lambda most: next(tokens))
        fixture.topic("kept", storage="memory")
        for _ in range(50):
            fixture.produce(b"a", topic="kept")
            reporter.gather()
        assert len(reporter._at) == 1
        generation = reporter.take(0).generation
        for place in range(5):
            made = fixture.topic(f"t{place}", storage="memory")
            fixture.meta.delete_topic(made.name)
        assert len(reporter._at) <= 4
        assert told(reporter.take(generation)) == [(0, 50)]


class TestReport:
    def test_figures(self, fixture: BrokerFixture) -> None:
        """A report has what the log holds and what went through."""
        fixture.topic("t")
        fixture.produce(b"a", b"b")
        fixture.wall.now_ms += 1000
        fixture.produce(b"c")
        (row,) = Reporter(fixture.broker).take(0).rows
        found = row.report
        assert (found.start, found.end, found.messages) == (0, 3, 3)
        assert (found.oldest_ms, found.newest_ms) == (BEGIN_MS, BEGIN_MS + 1000)
        assert (found.counters.messages_in, found.failure, found.gaps) == (3, "", ())
        assert found.bytes == found.counters.bytes_in

    def test_purge(self, fixture: BrokerFixture) -> None:
        """A purge is told with what can be taken back, and the oldest record is the new one."""
        fixture.topic("t")
        for _ in range(3):
            fixture.produce(b"a")
            fixture.wall.now_ms += 1000
        reporter = Reporter(fixture.broker)
        before = reporter.take(0)
        assert before.rows[0].report.oldest_ms == BEGIN_MS
        fixture.partition().purge(2, fixture.wall())
        (row,) = reporter.take(before.generation).rows
        assert (row.report.start, row.report.oldest_ms) == (2, BEGIN_MS + 2000)
        assert (row.report.undo_records, row.report.undo_until_ms) == (2, BEGIN_MS + 603_000)

    def test_dropped(self, fixture: BrokerFixture) -> None:
        """A topic in memory tells what it dropped."""
        fixture.topic("t", storage="memory", memory_bytes=65_536)
        for _ in range(5):
            fixture.produce(b"x" * 20_000)
        (row,) = Reporter(fixture.broker).take(0).rows
        assert row.report.dropped == row.report.start > 0

    def test_trouble(self, fixture: BrokerFixture) -> None:
        """A partition that is offline says why, and damage is told with its range."""
        fixture.topic("t")
        partition = fixture.partition()
        partition.log.report.add_gap(LogGap(3, 5, 100, "damaged"))
        partition.close()
        (row,) = Reporter(fixture.broker).take(0).rows
        assert "closed" in row.report.failure
        assert row.report.gaps == (Gap(first=3, end=5, reason="damaged"),)


class TestWire:
    TAKEN = page(
        7,
        (
            topic("t", 1, 1),
            1,
            report(9, 4, oldest_ms=5, failure="broken", gaps=(Gap(first=1, end=2, reason="r"),)),
        ),
        more=True,
        gone=((topic("u", 1), 0),),
    )

    def test_there_and_back(self) -> None:
        """What is told arrives as it was."""
        wire = msgpack.unpackb(msgpack.packb(to_wire(self.TAKEN, snapshot(1))))
        assert from_wire(wire) == (self.TAKEN, snapshot(1))

    def test_a_newer_broker(self) -> None:
        """Fields that are not known yet are passed over, wherever they stand."""
        wire = to_wire(self.TAKEN, snapshot(1))
        wire["new"] = 1
        wire["broker"]["new"] = 1
        wire["rows"][0][-1].append(99)
        wire["rows"][0][-2].append(99)
        wire["rows"][0][-3][0].append("more")
        wire["rows"][0].append("more")
        assert from_wire(wire) == (self.TAKEN, snapshot(1))

    def test_an_older_broker(self) -> None:
        """It does not tell of messages that are not due yet: then there are none."""
        wire = to_wire(self.TAKEN, snapshot(1))
        del wire["rows"][0][-1]
        assert from_wire(wire) == (self.TAKEN, snapshot(1))

    @pytest.mark.parametrize(
        "damage",
        [
            {"rows": 1},
            {"rows": [[]]},
            {"rows": [[b"t", 0, "0", 0, 0, None, None, 0, "", None, 0, [], [0, 0, 0, 0]]]},
            {"rows": [[b"t", 0, 0, 0, 0, None, None, 0, "", None, 0, [], [0, 0, 0, "0"]]]},
            {"gone": [[1]]},
            {"broker": {"name": "b"}},
            {"broker": None},
        ],
    )
    def test_nonsense(self, damage: dict[str, object]) -> None:
        """What is no report is refused as a whole."""
        with pytest.raises(ValueError):  # noqa: PT011 - whatever it says
            from_wire({**to_wire(self.TAKEN, snapshot(1)), **damage})


def test_counters_have_the_order_of_the_snapshots(fixture: BrokerFixture) -> None:
    """Records and bytes, in and out, are not mixed up."""
    fixture.topic("t")
    fixture.produce(b"a", b"b")
    fixture.fetch(("t", 0, 0))
    (row,) = Reporter(fixture.broker).take(0).rows
    live = fixture.partition().counters
    assert row.report.counters == Counters(2, 2, live.bytes_in, live.bytes_out)
