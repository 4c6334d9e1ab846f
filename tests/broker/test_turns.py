"""Work that would keep everybody else waiting is spread over turns of the reactor."""

from __future__ import annotations

import pytest

from tests.broker.conftest import MakeBroker
from tests.fakes.broker import BrokerFixture, HeldSyncer, only
from tinymq.broker import searching
from tinymq.broker.searching import Searches
from tinymq.storage.log import Log
from tinymq.wire.messages import Offsets, OffsetsReply

PARTITIONS = 5


class TestWriting:
    @pytest.fixture(autouse=True)
    def slow(self, monkeypatch: pytest.MonkeyPatch) -> list[BrokerFixture]:
        """Make each write take a while; returns where the broker is to be put."""
        found: list[BrokerFixture] = []
        write = Log.write

        def slowly(log: Log) -> None:
            found[0].clock.rightNow += 0.03
            write(log)

        monkeypatch.setattr(Log, "write", slowly)
        return found

    def test_synced(self, slow: list[BrokerFixture], make: MakeBroker, syncer: HeldSyncer) -> None:
        """A group is what could be written in time; the rest follows in the next ones."""
        held = make(syncer=syncer)
        slow.append(held)
        held.topic(partitions=PARTITIONS)
        answers = [held.stage(b"v", partition=index) for index in range(PARTITIONS)]
        held.turn()
        sizes = []
        while syncer.groups:
            sizes.append(len(syncer.groups[0][0]))
            syncer.release()
        assert sizes == [2, 2, 1]
        assert [only(each).base_offset for each in answers] == [0] * PARTITIONS
        assert held.broker.committer.idle

    def test_not_synced(self, slow: list[BrokerFixture], make: MakeBroker) -> None:
        """What need not wait for the disk is written in several turns, too."""
        fixture = make()
        slow.append(fixture)
        fixture.topic(partitions=PARTITIONS, sync="os")
        answers = [fixture.stage(b"v", partition=index) for index in range(PARTITIONS)]
        done = []
        for _ in range(3):
            fixture.turn()
            done.append(sum(map(bool, answers)))
        assert done == [2, 4, 5]
        assert fixture.broker.committer.idle


class TestSearching:
    @pytest.fixture
    def searches(self, fixture: BrokerFixture, monkeypatch: pytest.MonkeyPatch) -> Searches:
        """Return searches in which each query takes half a turn."""
        offsets = fixture.broker.offsets

        def slowly(request: Offsets) -> OffsetsReply:
            fixture.clock.rightNow += searching.TURN_SECONDS / 2
            return offsets(request)

        monkeypatch.setattr(fixture.broker, "offsets", slowly)
        return Searches(fixture.broker)

    def test_in_turns(self, fixture: BrokerFixture, searches: Searches) -> None:
        """A long request takes several turns, and a short one behind it need not wait so long."""
        topic = fixture.topic()
        fixture.produce(b"a", b"b")
        replies: list[OffsetsReply] = []
        many = Offsets(topic_id=topic.id, queries=[(0, -1), (0, -2)] * 10)
        searches.add(many, lambda: True, replies.append)
        searches.add(Offsets(topic_id=topic.id, queries=[(0, -1)]), lambda: True, replies.append)
        assert not replies
        fixture.turn()
        fixture.turn()
        assert [[row[1] for row in reply.results] for reply in replies] == [[2]]
        turns = 0
        while len(replies) < 2:
            fixture.turn()
            turns += 1
        assert turns > 3
        assert [row[1] for row in replies[1].results] == [2, 0] * 10
        assert not fixture.clock.getDelayedCalls()

    def test_gone(self, fixture: BrokerFixture, searches: Searches) -> None:
        """Nothing more is looked for once the peer went, and others are answered."""
        topic = fixture.topic()
        here = [True]
        replies: list[OffsetsReply] = []
        many = Offsets(topic_id=topic.id, queries=[(0, -1)] * 100)
        searches.add(many, lambda: here[0], replies.append)
        searches.add(Offsets(topic_id=topic.id, queries=[(0, -2)]), lambda: True, replies.append)
        here.clear()
        here.append(False)
        fixture.turn()
        assert [len(reply.results) for reply in replies] == [1]
        assert not fixture.clock.getDelayedCalls()
