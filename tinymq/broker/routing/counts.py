"""What a router counts, from the start of its broker on."""

from __future__ import annotations


class Counts:
    """
    Counters of one router.

    Attributes:
        routed: Records that were planned.
        copied: Copies that are there.
        unroutable: Records that no binding takes.
        letters: Dead letters that are there.
        stayed: Dead letters that stay where they are, for they were parked there already.
        missing: Records that were purged, dropped or damaged before they were copied.
        unreadable: Records whose batch cannot be read.
    """

    __slots__ = (
        "copied",
        "letters",
        "missing",
        "routed",
        "stayed",
        "unreadable",
        "unroutable",
    )

    def __init__(self) -> None:
        self.routed = self.copied = self.unroutable = 0
        self.letters = self.stayed = self.missing = self.unreadable = 0
