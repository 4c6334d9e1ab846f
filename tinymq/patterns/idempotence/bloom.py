"""A Bloom filter: says of an id that it was certainly never added, or perhaps was."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from math import ceil, log
from typing import Final

from tinymq.errors import UsageError

_LN2: Final = log(2)


class BloomFilter:
    """
    A set that forgets what is in it, but never what is not.

    The places of an id come from one BLAKE2b hash of 128 bits, of whose halves the second is
    added to the first again and again (Kirsch and Mitzenmacher).

    Args:
        capacity: How many ids it is made for.
        error_rate: Of how many ids that were not added it says that they were, when so many
            were added.

    Attributes:
        capacity: The same.
        count: How many were added.
    """

    def __init__(self, capacity: int, error_rate: float = 0.01) -> None:
        if capacity < 1 or not 0 < error_rate < 1:
            raise UsageError("a filter has a capacity of 1 or more, and a rate between 0 and 1")
        self.capacity = capacity
        self.count = 0
        self._size = max(8, ceil(-capacity * log(error_rate) / _LN2**2))
        self._hashes = max(1, round(self._size / capacity * _LN2))
        self._bits = bytearray((self._size + 7) // 8)

    @property
    def full(self) -> bool:
        """Whether as many were added as it was made for; it errs more from now on."""
        return self.count >= self.capacity

    def add(self, item: str) -> None:
        """
        Add an id.

        Args:
            item: The id.
        """
        bits = self._bits
        for place in self._places(item):
            bits[place >> 3] |= 1 << (place & 7)
        self.count += 1

    def __contains__(self, item: str) -> bool:
        bits = self._bits
        return all(bits[place >> 3] >> (place & 7) & 1 for place in self._places(item))

    def _places(self, item: str) -> Iterator[int]:
        digest = blake2b(item.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        first = int.from_bytes(digest[:8], "big")
        step = int.from_bytes(digest[8:], "big") | 1
        size = self._size
        return ((first + number * step) % size for number in range(self._hashes))
