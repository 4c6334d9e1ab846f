"""
msgpack with limits: the only way in which this project decodes a peer's msgpack.

Without limits a map of 16 MiB made of empty arrays costs 1.2 GB of memory, and
six bytes of nested array headers set aside a megabyte: msgpack makes a list as
long as the header says before it has seen a single item.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

import msgpack

from tinymq.errors import MalformedFrame

#: The longest meta part of a request, and of anything that a broker decodes.
MAX_META: Final = 64 * 1024

#: The longest meta part of a reply: a broker tells more about many partitions
#: than a client can ask.
MAX_REPLY_META: Final = 1024 * 1024

#: The longest array in a meta part, or in an item of a column. A thousand is the
#: longest list of the protocol, and a thousand nested ones set aside this much each.
MAX_ARRAY: Final = 1024
#: The longest map.
MAX_MAP: Final = 4096
#: The longest encoding of a single number.
_NUMBER: Final = 9

pack = msgpack.Packer(use_bin_type=True, autoreset=True).pack


def unpack_meta(data: bytes | bytearray | memoryview, limit: int = MAX_META) -> dict[str, Any]:
    """
    Decode the meta part of a frame.

    Args:
        data: A msgpack map with string keys; empty means an empty map.
        limit: Most bytes.

    Returns:
        The map.

    Raises:
        MalformedFrame: It is not such a map.
    """
    if not data:
        return {}
    if len(data) > limit:
        raise MalformedFrame(f"the meta part has {len(data)} bytes; the limit is {limit}")
    try:
        meta = msgpack.unpackb(
            data,
            raw=False,
            strict_map_key=True,
            max_str_len=limit,
            max_bin_len=limit,
            max_array_len=MAX_ARRAY,
            max_map_len=MAX_MAP,
            max_ext_len=0,
        )
    except (ValueError, TypeError, msgpack.UnpackException, RecursionError) as error:
        raise MalformedFrame(f"the meta part is not msgpack that is taken here: {error}") from error
    if type(meta) is not dict or not all(type(key) is str for key in meta):
        raise MalformedFrame("the meta part must be a msgpack map with string keys")
    return meta


def unpack_column(data: bytes | bytearray | memoryview, count: int) -> Any:
    """
    Decode one column of a record batch.

    Args:
        data: A msgpack array of `count` items, or another single value.
        count: Items that an array may have at most.

    Returns:
        The decoded value.

    Raises:
        ValueError: It is not msgpack, or longer than allowed.
    """
    size = len(data)
    limits = {
        "raw": False,
        "strict_map_key": True,
        "max_str_len": size,
        "max_bin_len": size,
        "max_array_len": MAX_ARRAY,
        "max_map_len": 0,
        "max_ext_len": 0,
    }
    try:
        if count <= MAX_ARRAY or size <= _NUMBER:
            return msgpack.unpackb(data, **limits)
        return _unpack_long(data, msgpack.Unpacker(max_buffer_size=size, **limits))
    except (msgpack.UnpackException, TypeError, RecursionError) as error:
        raise ValueError(str(error) or type(error).__name__) from error


def _unpack_long(data: bytes | bytearray | memoryview, unpacker: Any) -> list[Any]:
    """Decode an array over `MAX_ARRAY`; half as fast, but what lies in it stays limited."""
    unpacker.feed(data)
    length = unpacker.read_array_header()
    found = list(islice(unpacker, length))
    if length != len(found) or unpacker.tell() != len(data):
        raise ValueError(f"an array of {length} items that does not end where its column ends")
    return found
