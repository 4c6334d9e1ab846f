"""
Ids of messages: 128 bits, which sort by time.

The layout is that of UUID version 7 (RFC 9562)::

    | 48 bits: ms since 1970 | 4: 0111 | 12: count | 2: 10 | 62: random |

Ids of one process rise, also when its clock goes back; ids of several processes are as much
in order as their clocks are.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from typing import Final

_VERSION: Final = 0x7 << 76
_VARIANT: Final = 0b10 << 62
_MOST_COUNT: Final = 0xFFF
_MOST_MS: Final = (1 << 48) - 1


class Ids:
    """
    Makes ids that rise.

    Args:
        clock: Seconds since 1970.
        chance: Gives so many random bits; asked each time, so that a fork does no harm.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.time,
        chance: Callable[[int], int] = secrets.randbits,
    ) -> None:
        self._clock = clock
        self._chance = chance
        self._ms = 0
        self._count = 0
        self._lock = threading.Lock()

    def new(self) -> bytes:
        """Make an id, of 16 bytes."""
        now = min(max(0, int(self._clock() * 1000)), _MOST_MS)
        with self._lock:
            if now > self._ms:
                self._ms, self._count = now, 0
            elif self._count < _MOST_COUNT:
                self._count += 1
            else:
                self._ms, self._count = self._ms + 1, 0
            high = (self._ms << 80) | _VERSION | (self._count << 64)
        return (high | _VARIANT | self._chance(62)).to_bytes(16, "big")


def made_ms(message_id: bytes) -> int:
    """
    Tell when an id was made, milliseconds since 1970.

    Args:
        message_id: The id.
    """
    return int.from_bytes(message_id[:6], "big")
