"""
The headers of a POST to a push endpoint.

The body is the value as it is. What a message says beside that goes into headers, as far
as HTTP allows; what does not fit is counted in ``TinyMQ-Headers-Omitted``.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Final

from attrs import frozen

from tinymq.webhook import sign
from tinymq.wire.records import Headers

#: What a message is sent as that does not say.
BINARY: Final = "application/octet-stream"
#: Bytes of a message's own headers that are sent.
MOST_HEADER_BYTES: Final = 16 * 1024
#: Bytes of a key that are sent.
MOST_KEY: Final = 2048
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
#: Printable ASCII, and no space around it: servers take those away.
_VALUE: Final = re.compile(rb"[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?")


@frozen(kw_only=True)
class Parcel:
    """
    One message, as it is sent.

    Attributes:
        topic: Name of its topic.
        channel: Name of the channel.
        partition: Number of its partition.
        offset: Its offset.
        attempt: The number of this attempt, from 1.
        key: Its key, or None.
        headers: Its headers.
        value: Its value; None is a tombstone.
        made_up: Whether it is a test, and there is no such message.
    """

    topic: str
    channel: str
    partition: int
    offset: int
    attempt: int
    key: bytes | None
    headers: Headers
    value: bytes | None
    made_up: bool = False

    @property
    def id(self) -> str:
        """What is the same at each attempt."""
        place = "test" if self.made_up else self.partition
        return f"{self.topic}/{place}@{self.offset}"

    @property
    def body(self) -> bytes:
        """What is sent."""
        return b"" if self.value is None else bytes(self.value)


def headers_of(
    parcel: Parcel, secret: str, extra: Mapping[str, str], now_ms: int
) -> list[tuple[str, str]]:
    """
    Make the headers of a POST.

    Args:
        parcel: The message.
        secret: What it is signed with.
        extra: What the endpoint wants added.
        now_ms: The wall clock.
    """
    stamp = now_ms // 1000
    content, own = _own(parcel.headers)
    found = [
        *((name, value) for name, value in extra.items() if name.lower() != "content-type"),
        ("Content-Type", content or _content_type(extra)),
        ("webhook-id", parcel.id),
        ("webhook-timestamp", str(stamp)),
        ("webhook-signature", sign(secret, parcel.id, stamp, parcel.body)),
        ("TinyMQ-Topic", parcel.topic),
        ("TinyMQ-Channel", parcel.channel),
        ("TinyMQ-Partition", str(parcel.partition)),
        ("TinyMQ-Offset", str(parcel.offset)),
        ("TinyMQ-Attempt", str(parcel.attempt)),
        *_key(parcel.key),
        *own,
    ]
    if parcel.value is None:
        found.append(("TinyMQ-Tombstone", "1"))
    if parcel.made_up:
        found.append(("TinyMQ-Test", "1"))
    return found


def _content_type(extra: Mapping[str, str]) -> str:
    return next((value for name, value in extra.items() if name.lower() == "content-type"), BINARY)


def _key(key: bytes | None) -> list[tuple[str, str]]:
    if key is None:
        return []
    if len(key) > MOST_KEY:
        return [("TinyMQ-Key-Encoding", "omitted")]
    if not key or _VALUE.fullmatch(key):
        return [("TinyMQ-Key", key.decode("ascii"))]
    return [
        ("TinyMQ-Key", base64.b64encode(key).decode()),
        ("TinyMQ-Key-Encoding", "base64"),
    ]


def _own(headers: Headers) -> tuple[str, list[tuple[str, str]]]:
    """Pick the content type, and the headers that fit."""
    content, found, left, omitted = "", [], MOST_HEADER_BYTES, 0
    for name, value in headers:
        fits = _NAME.fullmatch(name) and (not value or _VALUE.fullmatch(value))
        if not fits or len(name) + len(value) > left:
            omitted += 1
            continue
        text = value.decode("ascii")
        if name.lower() == "content-type" and text and not content:
            content = text
            continue
        left -= len(name) + len(value)
        found.append((f"TinyMQ-Header-{name}", text))
    if omitted:
        found.append(("TinyMQ-Headers-Omitted", str(omitted)))
    return content, found
