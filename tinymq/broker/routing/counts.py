"""What a router counts, from the start of its broker on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tinymq.broker.routing.planning import Plan


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

    def add(self, plan: Plan) -> None:
        """
        Count what a plan came upon.

        Args:
            plan: It is in force now.
        """
        self.routed += plan.records
        self.unroutable += plan.unroutable
        self.stayed += plan.stayed
        self.missing += plan.missing
        self.unreadable += plan.unreadable
