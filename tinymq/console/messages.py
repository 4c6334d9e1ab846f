"""
Single records: looking at them, and publishing one.

Each partition's leader is asked, be it in this process or elsewhere.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.defer import TimeoutError as DeferredTimeout

from tinymq.client.core.partitioners import key_partition
from tinymq.console.base import Base
from tinymq.errors import (
    BrokerSilent,
    ConnectionLost,
    DeadlineExceeded,
    InvalidDelay,
    ValueTooLarge,
    WireError,
)
from tinymq.limits import LATEST_MS, MIB
from tinymq.maps import from_map
from tinymq.node.partitions import check_partition
from tinymq.node.records import MOST_PIECE
from tinymq.operation import Result
from tinymq.web.port import (
    AT_ONCE,
    Headers,
    MessageView,
    Newest,
    Oldest,
    Page,
    Position,
    RecordView,
    Scanned,
    Since,
    Start,
    Times,
)
from tinymq.wire.records import encode_batch

if TYPE_CHECKING:
    from tinymq.meta.registry import Topic

#: Bytes of a value in one answer of a broker elsewhere.
_WINDOW: Final = MIB
#: After these the broker may have done what was asked.
_UNKNOWN: Final = (ConnectionLost, DeadlineExceeded, DeferredTimeout)


class Messages(Base):
    """Records in and out, one by one or a page at a time."""

    async def browse(
        self, topic: str, partition: int | None, start: Start, limit: int, max_bytes: int
    ) -> Page:
        """Read records without any side effect."""
        found = self._operations.find(topic)
        check_partition(topic, found.partitions, partition)
        chosen = range(found.partitions) if partition is None else (partition,)
        leaders: defaultdict[int, list[int]] = defaultdict(list)
        for index in chosen:
            leaders[found.leaders[index]].append(index)
        wanted = {
            "id": found.id.hex(),
            **_start(start),
            "limit": limit,
            "max_bytes": max(64 * 1024, max_bytes // max(1, len(chosen))),
        }
        results = await gatherResults(
            [
                Deferred.fromCoroutine(self._browse(leader, {**wanted, "partitions": partitions}))
                for leader, partitions in leaders.items()
            ]
        )
        views = [from_map(row, RecordView) for result in results for row in result["records"]]
        views.sort(
            key=lambda view: (view.time_ms, view.partition, view.offset),
            reverse=isinstance(start, Newest),
        )
        scanned = [from_map(row, Scanned) for result in results for row in result["scanned"]]
        return Page(
            records=tuple(views[:limit]),
            scanned=tuple(sorted(scanned, key=lambda each: each.partition)),
            note="; ".join(note for result in results for note in result["notes"]),
        )

    async def _browse(self, leader: int, wanted: dict[str, Any]) -> Result:
        """Ask one broker; if it does not answer, that is a note of the page."""
        try:
            return await self._ask(leader, "node.browse", wanted)
        except BrokerSilent as error:
            why = error.text
        except WireError as error:
            why = f"{self.board.name(leader)} says: {error.text}"
        first, *others = wanted["partitions"]
        which = ", ".join(map(str, wanted["partitions"]))
        note = (
            f"partition{'s' if others else ''} {which if others else first} cannot be read: {why}"
        )
        return {"records": [], "scanned": [], "notes": [note]}

    async def message(
        self, topic: str, partition: int, offset: int, skip: int, length: int
    ) -> MessageView:
        """Read one record with a window of its value."""
        found = self._operations.find(topic)
        check_partition(topic, found.partitions, partition)
        leader = found.leader(partition)
        wanted = {"id": found.id.hex(), "partition": partition, "offset": offset}
        step = length if leader == self._broker.id else _WINDOW
        result = await self._ask(
            leader, "node.message", {**wanted, "skip": skip, "length": min(length, step)}
        )
        value = result["value"]
        while value is not None and len(value) < min(length, result["size"] - skip):
            window = {"skip": skip + len(value), "length": min(length - len(value), step)}
            more = (await self._ask(leader, "node.message", {**wanted, **window}))["value"]
            if not more:
                break
            value += more
        return from_map({**result, "topic": topic, "value": value}, MessageView)

    async def publish(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        partition: int | None,
        times: Times = AT_ONCE,
    ) -> Position:
        """Append one record, durable as the topic's policy says, or have it wait."""
        due = times.due
        if -due > LATEST_MS - self._broker.wall():
            raise InvalidDelay(
                f"the delay ends beyond the end of the year 9999 ({LATEST_MS} ms)", field="delay_ms"
            )
        found = self._operations.find(topic)
        self._check_sizes(found, value, key, headers)
        index = self._place(found, key) if partition is None else partition
        check_partition(topic, found.partitions, index)
        batch = encode_batch(
            [value],
            keys=None if key is None else [key],
            headers=[headers] if headers else None,
            times=self._broker.wall(),
            ttls=None if times.ttl_ms is None else [times.ttl_ms],
            dues=[due] if due else None,
        )
        result = await self._append(found, index, batch)
        return Position(
            partition=index,
            offset=-1 if due else result["offset"],
            time_ms=result["time_ms"],
            durable=not result["volatile"] and found.config.sync == "always",
            delayed=result["offset"] if due else None,
            unroutable=result["unroutable"],
            due_ms=(result["time_ms"] - due if due < 0 else due) if due else None,
        )

    async def _append(self, topic: Topic, partition: int, batch: bytes) -> Result:
        """Have the leader append a batch; one elsewhere gets a long one in pieces."""
        leader = topic.leader(partition)
        where = {"id": topic.id.hex(), "partition": partition}
        if leader == self._broker.id:
            return await self._ask(leader, "node.publish", {**where, "batch": batch})
        upload = 1 + secrets.randbits(62) if len(batch) > MOST_PIECE else 0
        for begin in range(0, len(batch) - MOST_PIECE, MOST_PIECE):
            piece = {"batch": batch[begin : begin + MOST_PIECE], "upload": upload, "more": True}
            await self._ask(leader, "node.publish", {**where, **piece})
        last = {"batch": batch[(len(batch) - 1) // MOST_PIECE * MOST_PIECE :], "upload": upload}
        try:
            return await self._ask(leader, "node.publish", {**where, **last})
        except BrokerSilent as error:
            if not isinstance(error.__cause__, _UNKNOWN):
                raise
            raise BrokerSilent(
                f"{error.text}; whether the message was stored is not known", **error.data
            ) from error

    def _check_sizes(
        self, topic: Topic, value: bytes | None, key: bytes | None, headers: Headers
    ) -> None:
        limits = self._broker.limits
        for name, size, most in (
            ("value", len(value or b""), min(limits.value, topic.config.max_value_bytes)),
            ("key", len(key or b""), limits.key),
            ("headers", sum(len(n.encode()) + len(v) for n, v in headers), limits.headers),
        ):
            if size > most:
                raise ValueTooLarge(
                    f"the {name} has {size} bytes; the limit is {most}", field=name, limit=most
                )

    def _place(self, topic: Topic, key: bytes | None) -> int:
        """Choose a partition; without a key, one whose broker answers if there is any."""
        if key is not None:
            return key_partition(key, topic.partitions)
        silent = self._silent_ids()
        usable = [at for at, leader in enumerate(topic.leaders) if leader not in silent]
        self._next += 1
        return usable[self._next % len(usable)] if usable else self._next % topic.partitions


def _start(start: Start) -> dict[str, Any]:
    """Tell a broker where a look begins."""
    if isinstance(start, Newest):
        return {"start": "newest"}
    if isinstance(start, Oldest):
        return {"start": "oldest"}
    if isinstance(start, Since):
        return {"start": "time", "at": start.ms}
    return {"start": "offset", "at": start.offset}
