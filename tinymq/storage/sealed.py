"""
Small files of state: a magic, a checksum, a msgpack value.

They are replaced as one step (temporary file, sync, rename, sync of the folder).
A damaged one is told apart from an absent one, so that nothing is ever deleted
because of metadata that cannot be read.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import msgpack
from google_crc32c import value as crc_value

from tinymq.errors import StorageError

_HEAD: Final = struct.Struct(">4sI")


class Unreadable(StorageError):
    """A file of state is damaged."""


def seal(magic: bytes, value: object) -> bytes:
    """The content of a file of state."""
    return seal_packed(magic, msgpack.packb(value))


def seal_packed(magic: bytes, body: bytes) -> bytes:
    """The content of a file of state whose value is packed already."""
    return _HEAD.pack(magic, crc_value(body)) + body


def unseal(magic: bytes, content: bytes, path: str) -> Any:
    """
    Read a file of state.

    Args:
        magic: Four bytes that name its kind.
        content: The file.
        path: Its name, for the error.

    Raises:
        Unreadable: It is not what it should be.
    """
    body = content[_HEAD.size :]
    if len(content) < _HEAD.size or _HEAD.unpack_from(content) != (magic, crc_value(body)):
        raise Unreadable(f"{path} is damaged")
    try:
        return msgpack.unpackb(body, strict_map_key=False)
    except ValueError as error:
        raise Unreadable(f"{path} is damaged") from error
