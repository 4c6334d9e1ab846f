"""Looking at records without touching anything."""

from __future__ import annotations

from tests.fakes.broker import BrokerFixture, HeldSyncer
from tinymq.broker.peek import look
from tinymq.limits import DEFAULT_LIMITS
from tinymq.wire.batch import NATIVE, Codec, build
from tinymq.wire.codec import pack
from tinymq.wire.records import encode_batch


def numbers(fixture: BrokerFixture, count: int, per_batch: int = 3) -> None:
    """Publish numbered records, some to a batch."""
    fixture.topic()
    for first in range(0, count, per_batch):
        fixture.produce(*[b"%d" % place for place in range(first, first + per_batch)])


def test_window(fixture: BrokerFixture) -> None:
    """Records come from the offset on, at most so many, also from within a batch."""
    numbers(fixture, 12)
    seen = look(fixture.partition(), 4, 5, 1 << 20)
    assert [record.value for record, _ in seen.records] == [b"4", b"5", b"6", b"7", b"8"]
    assert (seen.first, seen.end, seen.complete) == (4, 9, False)
    rest = look(fixture.partition(), seen.end, 50, 1 << 20)
    assert [record.value for record, _ in rest.records] == [b"9", b"10", b"11"]
    assert (rest.end, rest.complete) == (12, True)


def test_nothing_moves(fixture: BrokerFixture) -> None:
    """No counter moves, whatever is looked at."""
    numbers(fixture, 6)
    before = fixture.partition().counters.records_out, fixture.partition().counters.bytes_out
    look(fixture.partition(), 0, 10, 1 << 20)
    after = fixture.partition().counters.records_out, fixture.partition().counters.bytes_out
    assert before == after == (0, 0)


def test_bounds(fixture: BrokerFixture) -> None:
    """Below the start it begins there, behind the end there is nothing; bytes are bounded."""
    numbers(fixture, 9)
    fixture.operate("topic.purge", name="t", before=4)
    partition = fixture.partition()
    assert look(partition, 0, 1, 1 << 20).records[0][0].offset == 4
    beyond = look(partition, 100, 10, 1 << 20)
    assert (beyond.records, beyond.complete, beyond.first) == ([], True, 9)
    assert len(look(partition, 4, 100, 1).records) == 2  # one batch, from the start on
    assert look(partition, 4, 0, 1 << 20).records == []
    assert look(partition, 4, 10, 0).records == []


def test_visible(held: BrokerFixture, syncer: HeldSyncer) -> None:
    """What is not on disk yet is not shown."""
    held.topic()
    held.produce(b"a")
    assert look(held.partition(), 0, 10, 1 << 20).records == []
    syncer.release()
    assert len(look(held.partition(), 0, 10, 1 << 20).records) == 1


def test_not_decodable(fixture: BrokerFixture) -> None:
    """A batch whose columns hold nonsense is counted and passed over."""
    topic = fixture.topic()
    fixture.produce(b"a")
    nonsense = build(pack((None, None, None, b"\xc1\xc1", None, None, None)), 1, NATIVE)
    fixture.broker.produce(topic.id, 0, nonsense, lambda answer: None)
    fixture.turn()
    fixture.produce(b"b")
    seen = look(fixture.partition(), 0, 10, 1 << 20)
    assert [record.value for record, _ in seen.records] == [b"a", b"b"]
    assert (seen.skipped, seen.complete) == (1, True)


def test_bomb(fixture: BrokerFixture) -> None:
    """A look inflates no more than one batch may, however many bombs lie there."""
    fixture.topic()
    zeros = bytes(8 * 1024 * 1024)
    for _ in range(12):
        data = encode_batch([zeros], codec=Codec.ZSTD)
        fixture.broker.produce(fixture.meta.describe("t").id, 0, data, lambda _: None)
    fixture.turn()
    shown, offset, looks, complete = 0, 0, 0, False
    while not complete:
        seen = look(fixture.partition(), offset, 100, 1 << 20)
        inflated = sum(len(record.value or b"") for record, _ in seen.records)
        assert 0 < inflated <= DEFAULT_LIMITS.inflated
        assert seen.skipped == 0
        shown, offset, looks = shown + len(seen.records), seen.end, looks + 1
        complete = seen.complete
    assert shown == 12
    assert looks > 1
