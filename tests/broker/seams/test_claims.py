"""What one member claims harms no other."""

from __future__ import annotations

from pathlib import Path

from tests.fakes.broker import BrokerFixture
from tinymq.limits import LATEST_MS
from tinymq.wire.header import REPLY
from tinymq.wire.messages import Committed, CommittedReply, Member, MemberReply


def test_the_latest_generation_of_all(tmp_path: Path) -> None:
    """Who claims the highest generation that can be named throws nobody else out."""
    broker = BrokerFixture(tmp_path / "data")
    topic_id = broker.topic("t", 4).id
    connection = broker.connect()

    def say(name: str, known: int, owned: object = ()) -> MemberReply:
        number = connection.post(
            Member(group="g", member=name, topics=["t"], generation=known, owned=owned)  # type: ignore[arg-type]
        )
        broker.clock.advance(2)
        (frame,) = (each for each in connection.frames() if each.message_id == number)
        assert frame.type == Member.type | REPLY, frame.split()
        return MemberReply.from_meta(frame.split()[0])

    say("m1", 0)
    told = say("m1", 0)
    say("m2", LATEST_MS, [(topic_id, [(0, LATEST_MS)])])
    for _ in range(4):
        told = say("m1", told.generation, told.assigned)
        assert told.assigned
        ((_, shares),) = told.assigned
        number = connection.post(Committed(group="g", member="m1", topics=[(topic_id, shares)]))
        broker.clock.advance(0)
        (frame,) = (each for each in connection.frames() if each.message_id == number)
        ((_, rows),) = CommittedReply.from_meta(frame.split()[0]).topics
        assert {row[-1] for row in rows} == {None}
