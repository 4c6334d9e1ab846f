"""
Bytes to frames and frames to bytes.

A frame's body is ``u32 meta length | meta (msgpack map) | payload``; an empty
body stands for an empty meta and no payload.

The decoder parses the newest chunk where it lies, and keeps a *list* of chunks
while one long frame is still short of bytes. So a frame cut into a thousand
pieces costs one join, and a chunk with a thousand frames no copy of the rest
per frame: both are linear in bytes. Small pieces go into a `bytearray`, since
as objects of their own they would cost thirty times their bytes.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from struct import Struct
from typing import Any, Final

from typing_extensions import override

from tinymq.errors import (
    BadMagic,
    FrameTooLarge,
    MalformedFrame,
    ProtocolError,
    UnsupportedVersion,
)
from tinymq.wire.codec import MAX_META, MAX_REPLY_META, pack, unpack_meta
from tinymq.wire.header import HEADER, HEADER_SIZE, MAGIC, REPLY, VERSION, MessageType

Bytes = bytes | bytearray | memoryview

_META_LENGTH: Final = Struct(">I")
_META_PREFIX: Final = _META_LENGTH.size

#: Pieces below this size are gathered instead of being listed one by one.
_SMALL: Final = 1024


class Frame:
    """
    One frame as it came: type, message id, and a body still to be read.

    Attributes:
        type: The type byte, with `REPLY` set in a reply.
        message_id: Pairs a reply with its request; 0 wants no reply.
        body: The bytes behind the header.
    """

    __slots__ = ("body", "message_id", "type")

    def __init__(self, type_: int, message_id: int, body: Bytes) -> None:
        self.type = type_
        self.message_id = message_id
        self.body = body

    def split(self) -> tuple[dict[str, Any], Bytes]:
        """
        Read the body.

        Returns:
            The meta map and the payload.

        Raises:
            MalformedFrame: The body does not follow the layout.
        """
        body = self.body
        size = len(body)
        if not size:
            return {}, b""
        if size < _META_PREFIX:
            raise MalformedFrame(f"a body has 0 or at least {_META_PREFIX} bytes, not {size}")
        end = _META_PREFIX + _META_LENGTH.unpack_from(body)[0]
        limit = MAX_REPLY_META if self.type & REPLY else MAX_META
        if end > size or end > limit + _META_PREFIX:
            raise MalformedFrame(f"the meta part of {end - 4} bytes does not fit its frame")
        return unpack_meta(body[_META_PREFIX:end], limit), body[end:]

    @override
    def __repr__(self) -> str:
        try:
            name = (
                MessageType(self.type & ~REPLY).name if self.type != MessageType.ERROR else "ERROR"
            )
        except ValueError:
            name = f"0x{self.type:02x}"
        kind = " reply" if self.type & REPLY and self.type != MessageType.ERROR else ""
        return f"<{name}{kind} id={self.message_id} body={len(self.body)} B>"


def encode_frame(
    type_: int, message_id: int, meta: dict[str, Any] | None = None, payload: Iterable[Bytes] = ()
) -> list[Bytes]:
    """
    Encode one frame.

    Args:
        type_: The type byte.
        message_id: 0 to 2**32 - 1.
        meta: The map of the meta part.
        payload: Pieces of the payload; they are not copied.

    Returns:
        Pieces to be written in this order.
    """
    pieces = list(payload)
    if not meta and not pieces:
        return [HEADER.pack(MAGIC, VERSION, type_, message_id, 0)]
    packed = pack(meta or {})
    length = _META_PREFIX + len(packed) + sum(map(len, pieces))
    head = HEADER.pack(MAGIC, VERSION, type_, message_id, length)
    return [head + _META_LENGTH.pack(len(packed)) + packed, *pieces]


class FrameDecoder:
    """
    Cuts a stream of bytes into frames.

    Args:
        limit: Most bytes of a body. It may be changed between frames: a broker
            allows little before HELLO and more after it.
    """

    __slots__ = ("_chunks", "_error", "_have", "_need", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._chunks: list[bytes | bytearray] = []
        self._error: ProtocolError | None = None
        self._have = 0
        self._need = HEADER_SIZE

    @property
    def buffered(self) -> int:
        """Bytes kept for a frame that is not complete."""
        return self._have

    def feed(self, data: bytes) -> Generator[Frame, None, None]:
        """
        Take bytes and give out the frames that they complete.

        Nothing happens before the iterator is asked. One that is closed early
        keeps what it did not reach; ``feed(b"")`` goes on from there. After an
        error nothing is kept, and every further feed raises it again.

        Args:
            data: What was read from the peer; may be empty.

        Yields:
            Complete frames, in order.

        Raises:
            BadMagic: These are not frames at all.
            UnsupportedVersion: A version that is not spoken here.
            FrameTooLarge: A length in a header is over the limit; raised as
                soon as the header is there, before any of the body is kept.
        """
        if self._error is not None:
            raise self._error
        self._keep(data)
        # A header in pieces is looked at early, so that a foreign protocol is
        # refused on its first bytes; a body in pieces waits.
        if self._have < self._need and self._need > HEADER_SIZE:
            return
        buffer = b"".join(self._chunks)  # of one chunk of bytes this is no copy
        position, size = 0, len(buffer)
        self._need = HEADER_SIZE
        try:
            while size - position >= HEADER_SIZE:
                magic, version, type_, message_id, length = HEADER.unpack_from(buffer, position)
                if magic != MAGIC:
                    raise BadMagic
                if version != VERSION:
                    raise UnsupportedVersion(
                        f"version {version} is not spoken here; use version {VERSION}",
                        versions=[VERSION],
                    )
                if length > self.limit:
                    raise FrameTooLarge(
                        f"a body of {length} bytes is over the limit of {self.limit}",
                        limit=self.limit,
                    )
                end = position + HEADER_SIZE + length
                if end > size:
                    self._need = end - position
                    break
                start, position = position + HEADER_SIZE, end
                yield Frame(type_, message_id, buffer[start:end])
            else:
                if not _MAGIC_BYTES.startswith(buffer[position : position + 2]):
                    raise BadMagic
        except ProtocolError as error:
            self._error = error
            position = size
            raise
        finally:
            rest = buffer[position:]
            self._chunks = [rest] if rest else []
            self._have = len(rest)

    def _keep(self, data: bytes) -> None:
        self._have += len(data)
        if len(data) >= _SMALL or not self._chunks:
            self._chunks.append(data)
        elif data:
            last = self._chunks[-1]
            if type(last) is not bytearray:
                last = bytearray()
                self._chunks.append(last)
            last += data


_MAGIC_BYTES: Final = MAGIC.to_bytes(2, "big")
