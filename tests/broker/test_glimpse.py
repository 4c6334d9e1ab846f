"""Keys, sizes and ages of single records, for people."""

from __future__ import annotations

from tests.fakes.broker import BrokerFixture, batch
from tinymq.broker.glimpse import Aging, Glimpses
from tinymq.wire.batch import NATIVE, Codec, build
from tinymq.wire.codec import pack
from tinymq.wire.records import encode_batch


def publish(fixture: BrokerFixture, data: bytes) -> None:
    """Publish a batch as it is."""
    fixture.broker.produce(fixture.meta.describe("t").id, 0, data, lambda answer: None)
    fixture.turn()


def test_of_single_records(fixture: BrokerFixture) -> None:
    """Records are told wherever they lie, and those that are not there are not."""
    fixture.topic()
    publish(fixture, batch(b"a", b"bb", b"ccc", keys=[b"x", None, b"z"]))
    publish(fixture, batch(b"d", None))
    fixture.operate("topic.purge", name="t", before=1)
    found = Glimpses().of(fixture.partition(), [0, 1, 2, 4, 9])
    assert {offset: seen[1:] for offset, seen in found.items() if offset} == {
        1: (None, b"bb"),
        2: (b"z", b"ccc"),
        4: (None, None),
    }
    assert found[1].time == fixture.wall()


def test_not_decodable(fixture: BrokerFixture) -> None:
    """A batch whose columns hold nonsense is passed over."""
    fixture.topic()
    publish(fixture, build(pack((None, None, None, b"\xc1\xc1", None, None, None)), 1, NATIVE))
    publish(fixture, batch(b"a"))
    assert [*Glimpses().of(fixture.partition(), [0, 1])] == [1]


def test_bomb(fixture: BrokerFixture) -> None:
    """No more is decompressed than was allowed, but for one batch."""
    fixture.topic()
    for _ in range(5):
        publish(fixture, encode_batch([bytes(1 << 20)], codec=Codec.ZSTD))
    glimpses = Glimpses(1 << 20)
    assert [*glimpses.of(fixture.partition(), range(5))] == [0]
    assert glimpses.of(fixture.partition(), range(5)) == {}
    assert len(Glimpses(8 << 20).of(fixture.partition(), range(5))) == 5


def test_age(fixture: BrokerFixture) -> None:
    """The age of the same message is looked up once; cheaply told is what was known before."""
    fixture.topic()
    fixture.produce(b"a")
    fixture.wall.now_ms += 1000
    fixture.produce(b"b")
    begin = fixture.wall() - 1000
    aging = Aging(fixture.partition())
    assert aging.appended("c", 0, cheaply=True) is None
    assert aging.appended("c", 0, cheaply=False) == begin
    assert aging.appended("c", 1, cheaply=True) == begin
    assert aging.appended("c", 1, cheaply=False) == begin + 1000
    assert aging.appended("c", 2, cheaply=False) is None
    aging.forget("c")
    assert aging.appended("c", 1, cheaply=True) is None
