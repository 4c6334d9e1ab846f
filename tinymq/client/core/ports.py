"""What the core needs from a face: sockets, and a log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from tinymq.client.core.address import Address
from tinymq.wire.frames import Bytes

if TYPE_CHECKING:
    from tinymq.client.core.link import Link


class Wire(Protocol):
    """What a face gives a link to write to."""

    def write(self, pieces: Sequence[Bytes]) -> None:
        """Send bytes, now or later, in order."""

    def close(self) -> None:
        """Close the connection; nothing more is reported about it."""


class Network(Protocol):
    """What a face does for the core."""

    def dial(self, link: Link, address: Address, now: float) -> None:
        """Connect, and tell by `Link.connected` or `Link.failed`, now or later."""

    def hang_up(self, link: Link) -> None:
        """Give up connecting; nothing more is reported about it."""

    def report(self, what: str, error: Exception) -> None:
        """Log an error of the caller's own code, which is nobody else's concern."""

    def say(self, text: str) -> None:
        """Log a line for people, who may want to act."""
