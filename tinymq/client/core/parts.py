"""What a cluster calls when time has passed or something changed."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Protocol


class Part(Protocol):
    """A producer or consumer as the cluster sees it."""

    @property
    def wake_at(self) -> float:
        """When `tick` has something to do."""

    def tick(self, now: float) -> None:
        """Do what is due."""

    def link_changed(self, now: float) -> None:
        """A link came up, went down or takes more."""

    def topics_changed(self, now: float) -> None:
        """The metadata was read anew."""

    def cluster_closed(self, now: float) -> None:
        """Nothing works any more; end every pending call."""


class LinkWatch:
    """
    A part that is told of links and of nothing else.

    Args:
        changed: Called when one changed.
    """

    wake_at = inf

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed

    def tick(self, now: float) -> None:
        """Do nothing."""

    def link_changed(self, now: float) -> None:
        """Tell."""
        self._changed()

    def topics_changed(self, now: float) -> None:
        """Do nothing."""

    def cluster_closed(self, now: float) -> None:
        """Do nothing."""
