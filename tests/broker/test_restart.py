"""What a start after an orderly stop costs."""

from __future__ import annotations

from typing_extensions import override

from tests.fakes.broker import BrokerDisk, BrokerFixture


class OpeningDisk(BrokerDisk):
    """A `BrokerDisk` that notes which segments are opened."""

    def __init__(self) -> None:
        super().__init__()
        self.segments: list[str] = []

    @override
    def open(self, path: str, *, create: bool = False) -> int:
        if path.endswith(".log"):
            self.segments.append(path)
        return super().open(path, create=create)


def test_nothing_is_read(fixture: BrokerFixture) -> None:
    """No record is read, be its producers idempotent or not."""
    fixture.topic("numbered")
    fixture.topic("plain")
    for place in range(20):
        fixture.produce(b"a", topic="numbered", producer=(1, 0, place))
        fixture.produce(b"a", topic="plain")
    fixture.stop()
    disk = OpeningDisk()
    after = fixture.again(disk=disk)
    assert not disk.segments
    assert after.values("plain") == [b"a"] * 20
