"""Damage that no start looks at."""

from __future__ import annotations

from tests.fakes.broker import BrokerFixture, LogKeeper


def test_told_when_read(fixture: BrokerFixture, logged: LogKeeper) -> None:
    """After a clean stop nothing is checked; who reads into damage is served, and it is logged."""
    fixture.topic(segment_bytes=4096)
    for place in range(20):
        fixture.produce(b"%03d" % place * 200, producer=(1, 0, place))
    fixture.stop()
    first = min(fixture.path.glob("topics/*/0/data/*.log"))
    content = bytearray(first.read_bytes())
    content[len(content) // 2] ^= 8
    first.write_bytes(content)
    after = fixture.again()
    assert not [text for text in logged.texts if "damaged" in text]
    for _ in range(2):
        assert len(after.values()) == 19
    (told,) = [text for text in logged.texts if "damaged" in text]
    assert "later records are readable" in told
