"""What a partition holds, for a test to look at."""

from __future__ import annotations

from tinymq.broker.broker import Broker
from tinymq.wire.batch import split
from tinymq.wire.messages import Fetch, FetchReply, error_from_meta
from tinymq.wire.records import Record, RecordBatch


def read_records(broker: Broker, topic_id: bytes, number: int) -> list[Record]:
    """
    Read a whole partition.

    Args:
        broker: The domain.
        topic_id: The topic's id.
        number: The partition.
    """
    partition = broker.partition(topic_id, number)
    records: list[Record] = []
    offset = partition.log.start_offset
    while offset < partition.high_watermark:
        answers: list[tuple[FetchReply, bytes]] = []
        request = Fetch(topics=[(topic_id, [(number, offset, -1)])], max_wait_ms=0)
        broker.fetch(
            request, lambda *answer: answers.append((answer[0], b"".join(answer[1]))), _never
        )
        ((reply, payload),) = answers
        error = reply.topics[0][1][0][4]
        if error is not None:
            raise error_from_meta(error)
        batches = split(payload)
        if not batches:
            break
        for header, data in batches:
            records.extend(RecordBatch(data, header))
        offset = batches[-1][0].next_offset
    return [record for record in records if record.offset >= partition.log.start_offset]


def _never() -> bool:
    """The reader always takes more."""
    return False
