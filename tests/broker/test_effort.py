"""Looking at compressed records keeps nobody waiting."""

from __future__ import annotations

from tests.fakes.broker import BrokerFixture, batch
from tinymq.broker.peek import MOST_INFLATED, Effort, look
from tinymq.limits import DEFAULT_LIMITS, MIB
from tinymq.wire.batch import NATIVE, Codec, build
from tinymq.wire.codec import pack
from tinymq.wire.records import compress


def publish(fixture: BrokerFixture, *batches: bytes) -> None:
    """Store batches as they are."""
    topic = fixture.meta.describe("t")
    for each in batches:
        fixture.broker.produce(topic.id, 0, each, lambda answer: None)
        fixture.turn()


def test_stops(fixture: BrokerFixture) -> None:
    """A look ends when enough was decompressed, and the next one goes on there."""
    fixture.topic()
    large = batch(bytes(MOST_INFLATED // 2), codec=Codec.GZIP)
    publish(fixture, large, large, large, batch(b"end"))
    seen = look(fixture.partition(), 0, 10, MIB)
    assert (len(seen.records), seen.end, seen.complete) == (2, 2, False)
    rest = look(fixture.partition(), seen.end, 10, MIB)
    assert ([record.offset for record, _ in rest.records], rest.complete) == ([2, 3], True)


def test_shared(fixture: BrokerFixture) -> None:
    """Several looks share one effort; what is not compressed is shown all the same."""
    fixture.topic()
    publish(fixture, batch(b"plain"), batch(bytes(MIB), codec=Codec.GZIP))
    effort = Effort(MIB // 2)
    assert len(look(fixture.partition(), 0, 10, MIB, effort).records) == 2
    seen = look(fixture.partition(), 0, 10, MIB, effort)
    assert ([record.value for record, _ in seen.records], seen.end) == ([b"plain"], 1)


def test_bombs_count(fixture: BrokerFixture) -> None:
    """A batch that grows over the limit is passed over, and counts as if it had been read."""
    fixture.topic()
    bomb = compress(bytes(DEFAULT_LIMITS.inflated + 1), Codec.GZIP)
    column = pack((None, None, None, bomb, None, None, None))
    publish(fixture, *[build(column, 1, NATIVE | Codec.GZIP) for _ in range(3)])
    seen = look(fixture.partition(), 0, 10, MIB)
    assert (seen.skipped, seen.end, seen.complete) == (1, 1, False)


def test_no_more_than_asked(fixture: BrokerFixture) -> None:
    """Nothing behind the records that were asked for is decoded."""
    fixture.topic()
    nonsense = build(pack((None, None, None, b"\xc1", None, None, None)), 1, NATIVE)
    publish(fixture, batch(b"a"), nonsense)
    seen = look(fixture.partition(), 0, 1, MIB)
    assert (len(seen.records), seen.skipped, seen.end) == (1, 0, 1)
