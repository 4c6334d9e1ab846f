"""What a window collects is what was asked for, in batches as they are stored or shorter ones."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.broker import BrokerFixture
from tinymq.broker.channel.runs import Runs
from tinymq.broker.window import Window
from tinymq.wire.batch import split
from tinymq.wire.records import RecordBatch


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), min_size=1, max_size=8),
)
@settings(max_examples=12)
def test_everything_that_was_asked_for_and_little_else(
    sizes: list[int], asked: list[tuple[int, int]]
) -> None:
    """Each batch once; of a batch of which half or less was asked nothing else comes."""
    with tempfile.TemporaryDirectory() as path:
        broker = BrokerFixture(Path(path))
        broker.topic()
        total = 0
        for size in sizes:
            broker.produce(*(b"%d" % (total + at) for at in range(size)))
            total += size
        wanted = Runs((start, start + count) for start, count in asked)

        pieces, missing = Window(broker.partition()).collect([*wanted])
        broker.kill()
    batches = [RecordBatch(data, header) for header, data in split(b"".join(pieces))]
    found = [record for batch in batches for record in batch]
    there = {offset for start, end in wanted for offset in range(start, min(end, total))}
    beyond = {offset for start, end in wanted for offset in range(max(start, total), end)}

    assert there <= {record.offset for record in found}
    assert [record.value for record in found] == [b"%d" % record.offset for record in found]
    assert sorted({batch.header.base_offset for batch in batches}) == [
        batch.header.base_offset for batch in batches
    ]
    assert {offset for start, end in missing for offset in range(start, end)} == beyond
    for batch in batches:
        offsets = {record.offset for record in batch}
        assert offsets <= there or 2 * len(offsets & there) > len(offsets)


def test_what_was_taken_away_is_missing(tmp_path: Path) -> None:
    """Retention or a purge may be faster than a channel."""
    broker = BrokerFixture(tmp_path)
    broker.topic()
    broker.produce(b"a")
    broker.produce(b"b")
    window = Window(broker.partition())
    broker.operate("topic.purge", name="t", before=1)

    pieces, missing = window.collect([(0, 2)])

    assert missing == [(0, 1)]
    assert len(pieces) == 1
