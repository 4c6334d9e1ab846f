"""Single records of the partitions that are here: looking at them, and publishing one."""

from __future__ import annotations

from operator import itemgetter
from typing import Any, Final

from attrs import define, field
from twisted.internet.defer import Deferred

from tinymq.broker.broker import Broker
from tinymq.broker.partition import Appended, Partition
from tinymq.broker.peek import Effort, Seen, look
from tinymq.broker.ports import Timer
from tinymq.errors import InvalidRequest, OffsetOutOfRange, Overloaded, WireError
from tinymq.limits import KIB, MIB
from tinymq.node.partitions import topic_key
from tinymq.node.turns import Turns
from tinymq.operation import Operation, Parameter, Result, table
from tinymq.wire.batch import BatchHeader, Codec
from tinymq.wire.fields import I64, PARTITION, array, binary, boolean, choice, integer, text
from tinymq.wire.records import Record, RecordBatch

#: Where a look begins: at the last records, at the first, at an offset, at a time.
STARTS: Final = ("newest", "oldest", "offset", "time")
#: Bytes of a key, and of a value, that a list of records holds.
_KEY_SHOWN: Final = 1024
_VALUE_SHOWN: Final = 512
#: Bytes of a list of records, as far as they are counted; the last one may go over it.
MOST_LISTED: Final = MIB
#: Most bytes of a batch in one request; the rest of the meta part is left for others.
MOST_PIECE: Final = 48 * KIB
#: Batches that come in pieces at the same time, and seconds between two pieces.
_MOST_UPLOADS: Final = 4
_UPLOAD_SECONDS: Final = 10.0


@define
class Upload:
    """
    A batch of which not all pieces have come.

    Attributes:
        timer: Gives it up.
        pieces: Those that have.
    """

    timer: Timer
    pieces: bytearray = field(factory=bytearray)


class Records:
    """What is done with single records."""

    _broker: Broker
    #: By the number that their sender chose.
    _uploads: dict[int, Upload]

    # --- looking ----------------------------------------------------------------

    async def browse(
        self,
        id: str,  # noqa: A002 - the wire's word
        partitions: list[int],
        start: str,
        at: int,
        *,
        limit: int,
        max_bytes: int,
    ) -> Result:
        """
        Look at records of some partitions, without any side effect.

        Many partitions are looked at in several turns of the reactor.
        """
        topic_id, turns = topic_key(id), Turns(self._broker.scheduler)
        notes: list[str] = []
        sight = _Sight(limit, newest=start == "newest")
        effort = Effort()
        for index in partitions:
            if turns.over:
                await turns.next()
            try:
                partition = self._broker.partition(topic_id, index)
                first = _first(partition, start, at, limit, notes)
                sight.add(partition, look(partition, first, limit, max_bytes, effort))
            except WireError as error:
                notes.append(f"partition {index} cannot be read: {error.text}")
        if sight.skipped:
            notes.append(f"{sight.skipped} batches cannot be shown")
        if effort.left <= 0 and not sight.complete:
            notes.append("only a part of the compressed batches is shown")
        return {"records": sight.rows(notes), "scanned": sight.scanned, "notes": notes}

    def message(
        self,
        id: str,  # noqa: A002 - the wire's word
        partition: int,
        offset: int,
        skip: int,
        length: int,
    ) -> Result:
        """Read one record with a window of its value."""
        place = self._broker.partition(topic_key(id), partition)
        record, header = self._kept(place, offset) or self._stored(place, offset)
        value = record.value
        return {
            **_message(place, record, header),
            "skip": skip,
            "value": None if value is None else value[skip : skip + length],
        }

    def _kept(self, place: Partition, offset: int) -> tuple[Record, BatchHeader] | None:
        """Find a record that is below the start of the log, and kept for a channel."""
        hosted = self._broker.channels.hosted(*place.key)
        found = None if hosted is None else hosted.stragglers.kept.get(offset)
        if found is None or offset >= place.log.start_offset:
            return None
        header, data = found
        (record,) = RecordBatch(data, header)
        return record, header

    def _stored(self, place: Partition, offset: int) -> tuple[Record, BatchHeader]:
        name, log, visible = f"{place.topic.name}/{place.index}", place.log, place.stable_offset
        if not log.start_offset <= offset < visible:
            raise OffsetOutOfRange(
                f"{name} holds offsets {log.start_offset} to {visible - 1}",
                start=log.start_offset,
                end=visible,
            )
        seen = look(place, offset, 1, self._broker.limits.payload)
        if not seen.records or seen.records[0][0].offset != offset:
            raise OffsetOutOfRange(
                f"{name} has no record at offset {offset}; it may lie in a gap",
                start=log.start_offset,
                end=visible,
            )
        return seen.records[0]

    # --- publishing -------------------------------------------------------------

    async def publish(
        self,
        id: str,  # noqa: A002 - the wire's word
        partition: int,
        batch: bytes,
        upload: int,
        *,
        more: bool,
    ) -> Result:
        """Append one batch; of a long one, the pieces come in order under a number."""
        topic_id = topic_key(id)
        if upload:
            whole = self._piece(upload, batch, more=more)
            if whole is None:
                return {}
            batch = whole
        done: Deferred[Appended | WireError] = Deferred()
        self._broker.produce(topic_id, partition, batch, done.callback)
        result = await done
        if isinstance(result, WireError):
            raise result
        return {
            "offset": result.base_offset,
            "time_ms": result.timestamp,
            "volatile": result.volatile,
            "unroutable": bool(result.unroutable),
        }

    def _piece(self, number: int, piece: bytes, *, more: bool) -> bytes | None:
        """Put a piece to those before it; return the whole once there are no more."""
        upload = self._uploads.pop(number, None)
        if upload is not None:
            upload.timer.cancel()
        pieces = bytearray() if upload is None else upload.pieces
        pieces += piece
        if len(pieces) > self._broker.limits.payload:
            raise InvalidRequest("the pieces are longer than a batch may be", field="batch")
        if not more:
            return bytes(pieces)
        if len(self._uploads) >= _MOST_UPLOADS:
            raise Overloaded("other long messages are on their way; try again in a moment")
        give_up = self._broker.scheduler.callLater(_UPLOAD_SECONDS, self._uploads.pop, number)
        self._uploads[number] = Upload(give_up, pieces)
        return None


def _first(partition: Partition, start: str, at: int, limit: int, notes: list[str]) -> int:
    """Where to begin, and a note when that is not what was asked for."""
    low, visible = partition.log.start_offset, partition.stable_offset
    if start == "newest":
        return max(low, visible - limit)
    if start == "oldest":
        return low
    if start == "time":
        return partition.offset_at(at)[0]
    if not low <= at <= visible:
        nearest = min(max(at, low), visible)
        notes.append(
            f"partition {partition.index} can be read from offsets {low} to {visible}; "
            f"shown from {nearest}"
        )
        return nearest
    return at


class _Sight:
    """
    What was seen of several partitions, as far as it is shown.

    Args:
        limit: Most records.
        newest: Whether the newest come first, and are kept.
    """

    def __init__(self, limit: int, *, newest: bool) -> None:
        self._limit = limit
        self._newest = newest
        self._found: list[tuple[int, int, int, Record]] = []
        self.scanned: list[Result] = []
        self.skipped = 0
        self.complete = True

    def add(self, partition: Partition, seen: Seen) -> None:
        """Take what was seen of a partition."""
        index = partition.index
        self._found += [(one.timestamp, index, one.offset, one) for one, _ in seen.records]
        if len(self._found) > 2 * self._limit:
            self._cut()
        self.skipped += seen.skipped
        self.complete = self.complete and seen.complete
        self.scanned.append(
            {
                "partition": index,
                "first": seen.first,
                "end": seen.end,
                "log_start": partition.log.start_offset,
                "log_end": partition.stable_offset,
            }
        )

    def _cut(self) -> None:
        self._found.sort(key=itemgetter(0, 1, 2), reverse=self._newest)
        del self._found[self._limit :]

    def rows(self, notes: list[str]) -> list[Result]:
        """Describe as many records as fit, in order; note it when these are not all."""
        self._cut()
        rows: list[Result] = []
        left = MOST_LISTED
        for _, partition, _, record in self._found:
            if left <= 0:
                notes.append(f"headers are so long that only {len(rows)} messages are shown")
                break
            row = _row(partition, record)
            rows.append(row)
            left -= len(row["key"] or b"") + len(row["preview"] or b"")
            left -= sum(len(name) + len(value) for name, value in row["headers"])
        return rows


def _row(partition: int, record: Record) -> dict[str, Any]:
    return {
        "partition": partition,
        "offset": record.offset,
        "time_ms": record.timestamp,
        "key": None if record.key is None else record.key[:_KEY_SHOWN],
        "size": len(record.value or b""),
        "headers": [list(header) for header in record.headers],
        "preview": None if record.value is None else record.value[:_VALUE_SHOWN],
    }


def _message(place: Partition, record: Record, header: BatchHeader) -> Result:
    offset, idempotent = record.offset, header.producer_id >= 0
    return {
        "partition": place.index,
        "offset": offset,
        "time_ms": record.timestamp,
        "size": len(record.value or b""),
        "key": record.key,
        "headers": [list(each) for each in record.headers],
        "produced_ms": record.created,
        "stored": header.size,
        "codec": Codec(header.codec).name.lower(),
        "batch_records": header.records,
        "leader_epoch": header.leader_epoch,
        "producer_id": header.producer_id if idempotent else None,
        "sequence": header.base_sequence + offset - header.base_offset if idempotent else None,
        "previous": offset - 1 if offset > place.log.start_offset else None,
        "next": offset + 1 if offset + 1 < place.stable_offset else None,
    }


_ID: Final = Parameter("id", text(32))
_INDEX: Final = Parameter("partition", PARTITION)
_ANY: Final = integer(-I64, I64)

RECORD_OPERATIONS: Final[dict[str, Operation]] = table(
    Operation(
        "node.browse",
        "cluster",
        False,
        (
            _ID,
            Parameter("partitions", array(PARTITION, 1000)),
            Parameter("start", choice(*STARTS)),
            Parameter("at", _ANY, default=0),
            Parameter("limit", integer(1, 1000)),
            Parameter("max_bytes", integer(1, I64)),
        ),
        Records.browse,
    ),
    Operation(
        "node.message",
        "cluster",
        False,
        (
            _ID,
            _INDEX,
            Parameter("offset", _ANY),
            Parameter("skip", integer(0, I64)),
            Parameter("length", integer(0, I64)),
        ),
        Records.message,
    ),
    Operation(
        "node.publish",
        "cluster",
        True,
        (
            _ID,
            _INDEX,
            Parameter("batch", binary(0, I64)),
            Parameter("upload", integer(0, I64), default=0),
            Parameter("more", boolean, default=False),
        ),
        Records.publish,
    ),
)
