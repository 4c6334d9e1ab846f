"""Making exchanges and bindings in the MetaServer of a broker in memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.fakes.broker import Answers, BrokerFixture, batch
from tinymq.broker.partition import Appended
from tinymq.broker.routing.router import Router
from tinymq.meta.entries import Delete, Put
from tinymq.meta.registry import Topic
from tinymq.meta.server import MetaServer
from tinymq.routing import (
    Binding,
    Exchange,
    Kind,
    Terms,
    binding_id,
    binding_key,
    exchange_key,
)
from tinymq.wire.batch import split
from tinymq.wire.records import Record, RecordBatch


def make_exchange(
    meta: MetaServer, topic: Topic, kind: Kind = "direct", dead_letter: str = "", *, since: int = 0
) -> None:
    """Let a topic be an exchange, as if it had been one from the beginning."""
    exchange = Exchange(
        kind=kind,
        dead_letter=dead_letter or f"{topic.name}.unroutable",
        created_ms=since or topic.created_ms,
    )
    meta._write([], [Put(exchange_key(topic.id), exchange.encode())])


def drop_exchange(meta: MetaServer, topic: Topic) -> None:
    """Let a topic be no exchange any more."""
    meta._write([], [Delete(exchange_key(topic.id))])


def bind(
    meta: MetaServer,
    exchange: str,
    target: str,
    key: str | None = None,
    *,
    headers: Iterable[str] = (),
    rule: str | None = None,
) -> str:
    """Bind a topic to an exchange; the binding's id is returned."""
    terms = Terms(key, tuple(headers), rule)
    made = Binding(id=binding_id(target, terms), target=target, terms=terms, created_ms=1)
    topic = meta.describe(exchange)
    meta._write([], [Put(binding_key(topic.id, made.id), made.encode())])
    return made.id


def unbind(meta: MetaServer, exchange: str, binding: str) -> None:
    """Remove a binding."""
    meta._write([], [Delete(binding_key(meta.describe(exchange).id, binding))])


def exchange_of(
    broker: BrokerFixture,
    kind: Kind = "direct",
    *targets: str,
    name: str = "x",
    partitions: int = 1,
    **settings: Any,
) -> Topic:
    """Make an exchange, and topics bound to it: with their names as keys where it needs some."""
    topic = broker.topic(name, partitions, **settings)
    make_exchange(broker.meta, topic, kind)
    for each in targets:
        if each not in broker.meta.registry.by_name:
            broker.topic(each)
        bind(broker.meta, name, each, each if kind in ("direct", "topic") else None)
    return topic


def publish(
    broker: BrokerFixture, *keys: bytes | None, to: str = "x", index: int = 0, **columns: Any
) -> Answers:
    """Publish records whose values are their keys, unless told otherwise."""
    answers: Answers = []
    values = columns.pop("values", None) or [key or b"" for key in keys]
    data = batch(*values, keys=list(keys), **columns)
    broker.broker.produce(broker.meta.describe(to).id, index, data, answers.append)
    return answers


def settle(broker: BrokerFixture, turns: int = 40) -> None:
    """Let the broker do all that it can without time passing."""
    for _ in range(turns):
        broker.clock.advance(0)


def unroutable(answers: Answers) -> bytes | None:
    """What the one answer says of unroutable records."""
    (answer,) = answers
    assert isinstance(answer, Appended), answer
    return answer.unroutable


def records(broker: BrokerFixture, name: str, index: int = 0) -> list[Record]:
    """Every record of a partition that a reader sees."""
    partition = broker.partition(name, index)
    found: list[Record] = []
    offset = partition.log.start_offset
    while offset < partition.high_watermark:
        chunk = partition.read(offset, 1 << 20, nowait=False)
        assert chunk is not None
        for header, data in split(chunk.data):
            found += RecordBatch(data, header)
        offset = chunk.next_offset
    return found


def router_of(broker: BrokerFixture, name: str = "x", index: int = 0) -> Router:
    """The router of a partition."""
    hosted = broker.broker.channels.hosted(broker.meta.describe(name).id, index)
    assert hosted is not None
    assert hosted.router is not None
    return hosted.router
