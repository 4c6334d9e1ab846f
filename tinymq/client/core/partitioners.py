"""
Which partition a record goes to.

Keys hash as in Kafka's Java client, ``toPositive(murmur2(key)) % partitions``,
so that a topic can be filled by clients of both kinds. Pure Python needs about
2 us for a key; hence a bounded cache of partitions by key.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from typing_extensions import override

from tinymq.errors import UsageError

#: A key as callers may give it.
Key = bytes | bytearray | memoryview | str

#: Keys whose partition is remembered; the memory is bounded by it and by `_LONGEST_CACHED`.
_MOST_CACHED: Final = 1 << 16
_LONGEST_CACHED: Final = 256

_ONLY_BYTES: Final = frozenset({bytes})

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_WORD: Final = 0xFFFFFFFF
_SHIFT: Final = 24
_POSITIVE: Final = 0x7FFFFFFF


def key_bytes(key: Key | None) -> bytes | None:
    """
    Bring a key to its one form.

    Args:
        key: Any bytes, or a string, which is taken as UTF-8.

    Raises:
        UsageError: Neither.
    """
    if key is None or type(key) is bytes:
        return key
    if isinstance(key, str):
        return key.encode()
    if isinstance(key, (bytes, bytearray, memoryview)):
        return bytes(key)
    raise UsageError(f"a key is bytes or a string, not {type(key).__name__}")


def keys_bytes(keys: Iterable[Key | None]) -> list[bytes | None]:
    """
    Bring many keys to their one form.

    Args:
        keys: Any bytes, strings, or None.

    Raises:
        UsageError: Something else.
    """
    found = list(keys)
    if _ONLY_BYTES.issuperset(map(type, found)):
        return found  # type: ignore[return-value]
    return [key_bytes(key) for key in found]


def murmur2(data: bytes) -> int:
    """
    Hash bytes as Kafka does.

    Args:
        data: The key.

    Returns:
        The hash as an unsigned 32-bit number; Java shows it signed.
    """
    size = len(data)
    whole = size & ~3
    found = _SEED ^ size
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * _MULTIPLIER & _WORD
        word = (word ^ word >> _SHIFT) * _MULTIPLIER & _WORD
        found = found * _MULTIPLIER & _WORD ^ word
    if whole < size:
        found = (found ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _WORD
    found = (found ^ found >> 13) * _MULTIPLIER & _WORD
    return found ^ found >> 15


def key_partition(key: Key, partitions: int) -> int:
    """
    Find the partition of a key.

    Args:
        key: Any bytes or a string.
        partitions: How many partitions the topic has.
    """
    return (murmur2(key_bytes(key) or b"") & _POSITIVE) % partitions


class KeyCache(dict[bytes, int]):
    """
    Partitions of keys of one topic, worked out once; ``cache[key]`` never misses.

    Args:
        partitions: How many partitions the topic has.
    """

    __slots__ = ("partitions",)

    def __init__(self, partitions: int) -> None:
        super().__init__()
        self.partitions = partitions

    @override
    def __missing__(self, key: bytes) -> int:  # type: ignore[misc, unused-ignore]
        found = (murmur2(key) & _POSITIVE) % self.partitions
        if len(key) <= _LONGEST_CACHED:
            if len(self) >= _MOST_CACHED:
                self.clear()
            self[key] = found
        return found


class Turn:
    """
    Takes partitions in turn, each client from its own start.

    Args:
        chance: From 0 to 1; spreads the starts.
    """

    __slots__ = ("_count",)

    def __init__(self, chance: float) -> None:
        self._count = int(chance * 65_536)

    def next(self, partitions: int, usable: Sequence[int] = ()) -> int:
        """
        Take the next partition.

        Args:
            partitions: How many there are.
            usable: Those that have a leader, if not all.
        """
        self._count += 1
        return usable[self._count % len(usable)] if usable else self._count % partitions
