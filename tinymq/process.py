"""
Settings of the process itself, for a daemon that copies megabytes and lives for months.

None of them changes what the program does.
"""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress
from typing import Final

from tinymq.limits import MIB

#: Parameters of glibc's mallopt: without them it gives memory back and asks for
#: it again around every read of 256 KiB.
_MALLOC: Final = {
    -1: 64 * MIB,
    -2: 8 * MIB,
    -3: 32 * MIB,
}  # trim threshold, top pad, mmap threshold

#: Objects made between two looks of the garbage collector. Hardly anything here
#: is part of a cycle, and a look at a thousand queued batches is not free.
_GC_THRESHOLD: Final = 50_000


def tune() -> None:
    """Tune allocator and garbage collector; call it once everything is loaded."""
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for parameter, value in _MALLOC.items():
            mallopt(parameter, value)
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD)
