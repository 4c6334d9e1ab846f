"""What the part of a subscription at one broker needs of the whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tinymq.errors import TinyMQError
from tinymq.wire.messages import Subscribe

if TYPE_CHECKING:
    from tinymq.client.core.branch import Branch
    from tinymq.client.core.held import HeldLease


class Trunk(Protocol):
    """What a branch needs of its subscription."""

    def request(self, number: int, credit: int) -> Subscribe:
        """Make the SUBSCRIBE of a branch."""

    @property
    def topic(self) -> str:
        """Name of the topic."""

    def settled(self, branch: Branch) -> None:
        """Something is to be told at the end of the turn."""

    def ready(self, branch: Branch, leases: list[HeldLease]) -> None:
        """Messages came."""

    def joined(self, branch: Branch, error: TinyMQError | None, now: float) -> None:
        """A SUBSCRIBE was answered."""
