"""
What a forked child must not keep open.

A child without `exec` has every descriptor of its parent. When the parent dies, the
child would still hold the lock of the data folder, and connections that nobody serves.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Protocol
from weakref import WeakSet


class Forkable(Protocol):
    """Whatever holds descriptors."""

    def forked(self) -> None:
        """Close them: this is a child of the process that they are for."""


_holders: WeakSet[Forkable] = WeakSet()


def close_in_children(holder: Forkable) -> None:
    """
    Have something close its descriptors in every child that is forked off.

    Args:
        holder: It; it may be forgotten at any time.
    """
    _holders.add(holder)


def _forked() -> None:
    for holder in tuple(_holders):
        with suppress(OSError):
            holder.forked()


os.register_at_fork(after_in_child=_forked)
