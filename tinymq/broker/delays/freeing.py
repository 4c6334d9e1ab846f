"""Letting go of the front of a delay log: what still waits there is copied to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tinymq.broker.delays.delays import Delays


class Freeing:
    """
    Frees the space of what came.

    Args:
        delays: What waits in a partition.
    """

    def __init__(self, delays: Delays) -> None:
        self._delays = delays
        self.more = False

    def turn(self) -> bool:
        """Free some space; say whether there is more to do."""
        return False
