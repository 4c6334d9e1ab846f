"""
Writes snapshots as plain JSON values: the same keys everywhere.

Offsets may pass 2^53, where JavaScript rounds; they are written as numbers
and, as ``…_text``, as strings.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, Final

from attrs import asdict

from tinymq.stats import (
    BrokerSnapshot,
    ClientSnapshot,
    ClusterSnapshot,
    PartitionSnapshot,
    TopicRow,
    TopicSnapshot,
)
from tinymq.web.brokers import Row
from tinymq.web.format import Times
from tinymq.web.plaintext import is_text
from tinymq.web.port import (
    ChannelPage,
    ClientPage,
    GroupPage,
    Headers,
    MessageView,
    Page,
    Position,
    RecordView,
    TopicPage,
)

Json = dict[str, Any]
_UTC: Final = Times(0)


def time(ms: int | None) -> str | None:
    """Write ISO 8601 in UTC; None when unknown."""
    return None if ms is None else _UTC.iso(ms) or None


def payload(value: bytes | None, size: int, name: str = "payload") -> Json:
    """
    Write bytes as a string where they are text, else as base64.

    Args:
        value: The bytes, or their beginning; None where there are none.
        size: How many there are.
        name: What the keys begin with.
    """
    if value is None:
        return {name: None, f"{name}_encoding": "string", f"{name}_bytes": 0, "truncated": False}
    plain = is_text(value) and (len(value) == size or _ends_whole(value))
    return {
        name: value.decode() if plain else base64.b64encode(value).decode(),
        f"{name}_encoding": "string" if plain else "base64",
        f"{name}_bytes": size,
        "truncated": len(value) < size,
    }


def _ends_whole(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _bytes(value: bytes | None, name: str) -> Json:
    written = payload(value, len(value or b""), name)
    return {name: written[name], f"{name}_encoding": written[f"{name}_encoding"]}


def headers(given: Headers) -> list[Json]:
    """Write headers in order; a name may come more than once."""
    return [{"name": name, **_bytes(value, "value")} for name, value in given]


def broker(one: BrokerSnapshot) -> Json:
    """Write a broker."""
    return {
        **asdict(one),
        "clients": one.clients,
        "rates": one.rates._asdict(),
        "started": time(one.started_ms),
        "heard": time(one.heard_ms),
    }


def broker_row(row: Row) -> Json:
    """Write a broker with how it stands. Figures that nobody knows are null."""
    written = broker(row.broker)
    if not row.known:
        keep = {"id", "name", "listen", "role", "heard", "heard_ms"}
        written = {key: value if key in keep else None for key, value in written.items()}
    written["state"] = row.standing.word.lower()
    written["silent_since"] = time(row.since_ms)
    return written


def brokers(cluster: ClusterSnapshot, rows: Sequence[Row]) -> Json:
    """Write all brokers in their envelope."""
    return {
        "items": [broker_row(row) for row in rows],
        "item_count": len(rows),
        "partial": bool(cluster.silent),
        "silent": [one.name for one in cluster.silent],
    }


def client(one: ClientSnapshot) -> Json:
    """Write a client."""
    return {
        "broker": one.broker,
        "broker_id": one.broker_id,
        "id": one.id,
        "client_id": one.client_id,
        "own": one.own,
        "address": one.address,
        "agent": one.agent,
        "protocol": one.protocol,
        "user": one.user,
        "since": time(one.since_ms),
        "heard": time(one.heard_ms),
        "slow_since": time(one.slow_since_ms),
        "counters": one.counters._asdict(),
        "rates": one.rates._asdict(),
        "buffered": one.buffered,
        "pending": one.pending,
        "waiting": one.waiting,
    }


def client_page(one: ClientPage) -> Json:
    """Write a list of clients in its envelope."""
    return {
        "items": [client(row) for row in one.items],
        "page": one.page,
        "page_count": one.page_count,
        "item_count": len(one.items),
        "filtered_count": one.filtered_count,
        "total_count": one.total_count,
        "own_count": one.own_count,
        "slow": one.slow,
        "partial": bool(one.silent),
        "silent": list(one.silent),
    }


def cluster(one: ClusterSnapshot) -> Json:
    """Write the cluster, without its curves."""
    return {
        "name": one.name,
        "label": one.label,
        "taken": time(one.taken_ms),
        "topics": one.topics,
        "partitions": one.partitions,
        "messages": one.messages,
        "bytes": one.bytes,
        "rates": one.rates._asdict(),
        "brokers": [broker(b) for b in one.brokers],
        "offline": [asdict(o) for o in one.offline],
        "offline_count": one.offline_count,
        "damaged": list(one.damaged),
        "partial": bool(one.silent),
        "silent": [each.name for each in one.silent],
    }


def topic_row(one: TopicRow) -> Json:
    """Write a topic of a list."""
    return {
        "name": one.name,
        "partitions": one.partitions,
        "messages": one.messages,
        "bytes": one.bytes,
        "sync": one.sync,
        "rates": one.rates._asdict(),
        "last_write": time(one.last_write_ms),
        "offline": one.offline,
        "leaders": list(one.leaders),
    }


def topic_page(one: TopicPage) -> Json:
    """Write a list of topics in its envelope."""
    return {
        "items": [topic_row(row) for row in one.items],
        "page": one.page,
        "page_count": one.page_count,
        "item_count": len(one.items),
        "filtered_count": one.filtered_count,
        "total_count": one.total_count,
        "partial": bool(one.silent),
        "silent": list(one.silent),
    }


def listed(one: ChannelPage | GroupPage) -> Json:
    """Write a list of channels or groups in its envelope; the rows are as lists have them."""
    return {
        "items": [dict(row) for row in one.items],
        "page": one.page,
        "page_count": one.page_count,
        "item_count": len(one.items),
        "filtered_count": one.filtered_count,
        "total_count": one.total_count,
        "states": dict(one.states),
        "partial": bool(one.silent),
        "silent": list(one.silent),
    }


def partition(one: PartitionSnapshot) -> Json:
    """Write a partition."""
    return {
        "partition": one.index,
        "leader": one.leader,
        "leader_id": one.leader_id,
        "start": one.start,
        "start_text": str(one.start),
        "end": one.end,
        "end_text": str(one.end),
        "messages": one.messages,
        "bytes": one.bytes,
        "rates": one.rates._asdict(),
        "oldest": time(one.oldest_ms),
        "last_write": time(one.last_write_ms),
        "state": one.state,
        "reason": one.reason,
        "gaps": [asdict(gap) for gap in one.gaps],
    }


def topic(one: TopicSnapshot) -> Json:
    """Write a topic with its partitions and settings."""
    return {
        "id": one.id,
        "name": one.name,
        "created": time(one.created_ms),
        "sync": one.sync,
        "config": {r.name: {"value": r.value, "default": r.default} for r in one.config},
        "messages": one.messages,
        "bytes": one.bytes,
        "rates": one.rates._asdict(),
        "oldest": time(one.oldest_ms),
        "last_write": time(one.last_write_ms),
        "undo": one.undo and {"until": time(one.undo.until_ms), "records": one.undo.records},
        "partitions": [partition(p) for p in one.partitions],
        "partial": bool(one.silent),
        "silent": list(one.silent),
    }


def record(one: RecordView) -> Json:
    """Write a record of a list, with the beginning of its value."""
    return {
        "partition": one.partition,
        "offset": one.offset,
        "offset_text": str(one.offset),
        "time": time(one.time_ms),
        **_bytes(one.key, "key"),
        "headers": headers(one.headers),
        **payload(one.preview, one.size),
    }


def page(one: Page) -> Json:
    """Write what a look at messages found, and what it looked at."""
    return {
        "items": [record(r) for r in one.records],
        "item_count": len(one.records),
        "scanned": [asdict(s) for s in one.scanned],
        "note": one.note,
    }


def message(one: MessageView) -> Json:
    """Write one message."""
    return {
        "topic": one.topic,
        "partition": one.partition,
        "offset": one.offset,
        "offset_text": str(one.offset),
        "time": time(one.time_ms),
        "produced": time(one.produced_ms),
        "expires": time(one.expires_ms),
        **_bytes(one.key, "key"),
        "headers": headers(one.headers),
        "skip": one.skip,
        **payload(one.value, one.size),
        "codec": one.codec,
        "leader_epoch": one.leader_epoch,
        "producer_id": one.producer_id,
        "sequence": one.sequence,
        **_bytes(one.message_id, "message_id"),
        "previous": one.previous,
        "next": one.next,
    }


def position(topic: str, one: Position) -> Json:
    """Write where a record went."""
    if one.delayed is not None:
        return {
            "partition": one.partition,
            "offset": None,
            "offset_text": None,
            "time": time(one.time_ms),
            "durable": one.durable,
            "delayed": f"{topic}/{one.partition}~{one.delayed}",
            "due_ms": one.due_ms,
        }
    return {
        "partition": one.partition,
        "offset": one.offset,
        "offset_text": str(one.offset),
        "time": time(one.time_ms),
        "durable": one.durable,
        **({"unroutable": True} if one.unroutable else {}),
    }
