"""Counting instead of timing: bytes allocated, bytes copied."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any


def peak_bytes(call: Callable[[], object]) -> int:
    """Run something and return the most bytes that it held at one time."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def joined_bytes(call: Callable[[], object]) -> int:
    """Run something that feeds frame decoders and return the bytes that their joins copied."""
    copied = 0

    def watch(frame: FrameType, event: str, called: Any) -> None:
        nonlocal copied
        if event == "c_call" and called.__name__ == "join":
            copied += frame.f_locals["self"].buffered

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(before)
    return copied
