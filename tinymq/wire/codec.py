"""
msgpack with limits: the only way in which this project decodes a peer's msgpack.

Without limits a map of 16 MiB made of empty arrays costs 1.2 GB of memory.
"""

from __future__ import annotations

from typing import Any, Final

import msgpack

from tinymq.errors import MalformedFrame

#: The longest msgpack value that is decoded from the meta part of a frame.
MAX_META: Final = 64 * 1024

pack = msgpack.Packer(use_bin_type=True, autoreset=True).pack


def unpack_meta(data: bytes | bytearray | memoryview) -> dict[str, Any]:
    """
    Decode the meta part of a frame.

    Args:
        data: A msgpack map with string keys, at most `MAX_META` bytes; empty
            means an empty map.

    Returns:
        The map.

    Raises:
        MalformedFrame: It is not such a map.
    """
    if not data:
        return {}
    if len(data) > MAX_META:
        raise MalformedFrame(f"the meta part has {len(data)} bytes; the limit is {MAX_META}")
    try:
        meta = msgpack.unpackb(
            data,
            raw=False,
            strict_map_key=True,
            max_str_len=MAX_META,
            max_bin_len=MAX_META,
            max_array_len=MAX_META,
            max_map_len=4096,
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
    try:
        return msgpack.unpackb(
            data,
            raw=False,
            use_list=True,
            strict_map_key=True,
            max_str_len=size,
            max_bin_len=size,
            max_array_len=max(count, 256),
            max_map_len=0,
            max_ext_len=0,
        )
    except (msgpack.UnpackException, TypeError, RecursionError) as error:
        raise ValueError(str(error) or type(error).__name__) from error
