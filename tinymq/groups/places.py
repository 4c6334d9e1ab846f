"""Which broker coordinates a group."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b


def coordinator_of(group: str, brokers: Iterable[int]) -> int:
    """
    Pick the broker that coordinates a group: the one that scores highest for its name.

    Everybody who knows the same brokers picks the same one. A broker that comes takes
    over only the groups for which it scores highest, and one that goes leaves only its
    own groups to others.

    Args:
        group: Its name.
        brokers: The ids of the brokers that live.

    Returns:
        The broker's id, or -1 if there is none.
    """
    name = group.encode()
    return max(brokers, key=lambda broker: (_score(name, broker), -broker), default=-1)


def _score(name: bytes, broker: int) -> bytes:
    key = broker.to_bytes(8, "big", signed=True)
    return blake2b(name, digest_size=8, key=key).digest()
