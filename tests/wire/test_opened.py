"""Shorter batches made of stored ones."""

from __future__ import annotations

import pytest

from tinymq.wire.batch import Codec, checked_header, read_header, stamp
from tinymq.wire.records import Opened, RecordBatch, encode_batch


def stored(codec: Codec) -> bytes:
    """A batch as a broker stores it, with all columns that a producer may send."""
    batch = encode_batch(
        [b"a", None, b"c"],
        keys=[b"k", b"l", None],
        headers=[[("h", b"1")], [], [("h", b"3")]],
        times=[1, 2, 3],
        ids=[bytes([each] * 16) for each in range(3)],
        codec=codec,
        producer_id=7,
        producer_epoch=1,
        base_sequence=5,
    )
    return b"".join(stamp(batch, checked_header(batch), 40, 3, 1000))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.ZSTD])
def test_picked_records_are_as_they_were(codec: Codec) -> None:
    """Offsets, times, keys, values, headers and ids stay, and so does where the batch lay."""
    whole = RecordBatch(stored(codec))
    part = b"".join(Opened(whole).pick([0, 2]))
    found = RecordBatch(part)
    header = read_header(part)

    assert [*found] == [record for record in whole if record.offset != 41]
    assert found.ids == [whole.ids[0], whole.ids[2]]
    assert (header.base_offset, header.last_offset_delta, header.records) == (40, 2, 2)
    assert (header.leader_epoch, header.max_timestamp, header.codec) == (3, 1000, Codec.NONE)


def test_one_time_for_all_stays_so() -> None:
    """A batch may have one producer's time for all of its records."""
    batch = encode_batch([b"a", b"b"], times=9)
    part = b"".join(Opened(RecordBatch(batch)).pick([1]))

    assert [(record.offset, record.created) for record in RecordBatch(part)] == [(1, 9)]


def test_picked_records_can_be_picked_from_again() -> None:
    """The offsets of a shorter batch have gaps, and stay."""
    part = b"".join(Opened(RecordBatch(stored(Codec.NONE))).pick([0, 2]))
    again = b"".join(Opened(RecordBatch(part)).pick([1]))

    assert [record.offset for record in RecordBatch(again)] == [42]
