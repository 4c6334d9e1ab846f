"""A connection, the topics that there are, operations, and errors."""

from __future__ import annotations

from typing import Any

from tinymq.errors import WireError, from_wire
from tinymq.wire.fields import (
    I32,
    I64,
    TOPIC_ID,
    array,
    binary,
    boolean,
    counts,
    integer,
    mapping,
    optional,
    row,
    text,
    wire,
    words,
)
from tinymq.wire.header import MessageType
from tinymq.wire.messages.base import NAME, PAGE, PARTITIONS, Message, message


@message(MessageType.HELLO)
class Hello(Message):
    """The first request of a connection."""

    client_id: str = wire("c", text(200), default="")
    software: str = wire("s", text(200), default="")
    versions: list[int] | None = wire("v", array(integer(0, 255), 16), default=None)
    session: bytes | None = wire("n", optional(binary(16, 16)), default=None)
    heartbeat: int = wire("h", integer(1, 300), default=15)
    mechanism: str = wire("m", text(64), default="anonymous")


@message(MessageType.HELLO, reply=True)
class HelloReply(Message):
    """The broker's answer: who it is and what it allows."""

    broker_id: int = wire("b", integer(0, I32))
    name: str = wire("c", text(200))
    software: str = wire("s", text(200))
    cluster: bytes = wire("u", TOPIC_ID)
    session: bytes = wire("n", binary(16, 16))
    resumed: bool = wire("r", boolean, default=False)
    heartbeat: int = wire("h", integer(1, 300))
    limits: dict[str, int] = wire("l", counts)
    authenticate: bool = wire("a", boolean, default=False)


@message(MessageType.PING)
class Ping(Message):
    """Sign of life; request and reply are empty."""


@message(MessageType.GOODBYE)
class Goodbye(Message):
    """Told before the connection is closed in order."""

    reason: str = wire("x", text(1000), default="")


@message(MessageType.METADATA)
class Metadata(Message):
    """
    Topics by name, or page by page.

    Without names the topics behind `after` are listed in order of their names,
    as many as fit; the reply's `more` says whether to ask again.
    """

    names: list[str] | None = wire("n", optional(array(NAME, 100)), default=None)
    after: str = wire("k", NAME, default="")
    create: bool = wire("c", boolean, default=False)


#: Name, topic id, leader of each partition, configuration, error or None.
TopicRow = tuple[str, bytes, list[int], dict[str, Any], Any]
#: Broker id, host, port, name.
BrokerRow = tuple[int, str, int, str]


@message(MessageType.METADATA, reply=True)
class MetadataReply(Message):
    """What a client needs to find a partition."""

    revision: int = wire("r", integer(0, I64))
    brokers: list[BrokerRow] = wire(
        "b", array(row(integer(0, I32), text(300), integer(0, 65_535), text(200)), 1000)
    )
    topics: list[TopicRow] = wire(
        "t",
        array(
            row(
                NAME,
                binary(0, 16),
                array(integer(-1, I32), PARTITIONS),
                mapping,
                optional(mapping),
            ),
            PAGE,
        ),
    )
    more: bool = wire("m", boolean, default=False)
    #: Broker id, as text, to the broker's zone; those without one are left out.
    zones: dict[str, str] | None = wire("z", words, default=None)


@message(MessageType.OPERATE)
class Operate(Message):
    """One administrative operation of operations.py, such as ``topic.create``."""

    name: str = wire("o", text(100))
    arguments: dict[str, Any] | None = wire("a", mapping, default=None)


@message(MessageType.OPERATE, reply=True)
class OperateReply(Message):
    """The result is a msgpack map in the payload, since it may be long."""


@message(MessageType.ERROR, reply=True)
class Error(Message):
    """An error as it travels; the same map stands inside FETCH's and OFFSETS' rows."""

    code: int = wire("e", integer(0, 65_535))
    text: str = wire("x", text(4000), default="")
    retriable: bool = wire("r", boolean, default=False)
    fatal: bool = wire("f", boolean, default=False)
    data: dict[str, Any] | None = wire("d", mapping, default=None)


def error_meta(error: WireError) -> dict[str, Any]:
    """Turn an error into the map that travels."""
    return Error(
        code=error.code,
        text=error.text[:1000].encode("utf-8", "replace").decode(),
        retriable=error.retriable,
        fatal=error.fatal,
        data=error.data or None,
    ).to_meta()


def error_from_meta(meta: dict[str, Any]) -> WireError:
    """Turn the map that travelled back into an error."""
    found = Error.from_meta(meta)
    error = from_wire(found.code, found.text)
    error.data = found.data or {}  # not as keywords: a peer chooses the names
    if type(error) is WireError:
        error.__dict__.update(retriable=found.retriable, fatal=found.fatal)
    return error
