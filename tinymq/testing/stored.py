"""What a partition holds, for a test to look at."""

from __future__ import annotations

from tinymq.broker.broker import Broker
from tinymq.wire.batch import split
from tinymq.wire.frames import Bytes
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
    while offset < partition.stable_offset:
        request = Fetch(topics=[(topic_id, [(number, offset, -1)])], max_wait_ms=0)
        reply, payload = _fetch(broker, request)
        error = reply.topics[0][1][0][5]
        if error is not None:
            raise error_from_meta(error)
        for header, data in split(payload):
            if not partition.transactions.hides(header):
                records.extend(RecordBatch(data, header))
        following = reply.topics[0][1][0][3]
        if following <= offset:
            break
        offset = following
    return [record for record in records if record.offset >= partition.log.start_offset]


def _fetch(broker: Broker, request: Fetch) -> tuple[FetchReply, bytes]:
    """Carry out a request that does not wait."""
    answers: list[tuple[FetchReply, bytes]] = []

    def take(reply: FetchReply, payload: list[Bytes]) -> None:
        answers.append((reply, b"".join(payload)))

    broker.fetch(request, take, lambda: False)
    (answer,) = answers
    return answer
