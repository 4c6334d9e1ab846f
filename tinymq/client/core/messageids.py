"""Message ids as callers give them: by these a topic with a dedup window finds repeats."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final
from uuid import UUID

from tinymq.errors import UsageError

#: What an id may be given as.
MessageId = bytes | str | UUID

#: Bytes of an id on the wire.
ID_BYTES: Final = 16
#: Bytes that an id needs in a batch.
ID_OVERHEAD: Final = ID_BYTES + 2


def message_id(given: Any) -> bytes:
    """
    Bring an id to the form in which it travels.

    Args:
        given: 16 bytes, a UUID, or any text: that of a UUID stands for its bytes, any
            other for the BLAKE2b hash of its UTF-8.

    Raises:
        UsageError: It is something else.
    """
    if isinstance(given, str):
        if len(given) == 36:
            try:
                return UUID(given).bytes
            except ValueError:
                pass
        return blake2b(given.encode("utf-8", "surrogatepass"), digest_size=ID_BYTES).digest()
    if isinstance(given, UUID):
        return given.bytes
    if isinstance(given, (bytes, bytearray, memoryview)):
        if len(given) != ID_BYTES:
            raise UsageError(f"a message id has {ID_BYTES} bytes, not {len(given)}; or give a text")
        return bytes(given)
    raise UsageError(f"a message id is {ID_BYTES} bytes, a UUID or a text, not {given!r:.100}")


def message_ids(given: Any, count: int) -> list[bytes | None]:
    """
    The same for many records.

    Args:
        given: As many; None is a record without an id.
        count: How many records.

    Raises:
        UsageError: One is something else, or their number is another.
    """
    if isinstance(given, (str, bytes)) or not isinstance(given, Sequence) or len(given) != count:
        raise UsageError(f"{count} values need as many ids")
    return [None if one is None else message_id(one) for one in given]
