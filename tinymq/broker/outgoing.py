"""What is said in a turn of the reactor is sent at its end, not in a turn of its own."""

from __future__ import annotations

from typing import Protocol


class Speaker(Protocol):
    """Who was given something to send."""

    def send(self) -> None:
        """Send it now, as far as that does not have to wait."""


class Outgoing:
    """
    Those who have something to send.

    A transport waits until the reactor has found out that it may write, after everybody
    else had his turn.

    Who was spoken to last comes first: a publisher hears that a message is stored before
    its readers are given it, and a system with few processors lets whoever is woken run
    at once, before anything is sent to the next one.

    Attributes:
        held: Whether `send` is about to be called, so that it is worth waiting for.
    """

    def __init__(self) -> None:
        self.held = False
        self._speakers: dict[Speaker, None] = {}

    def hold(self) -> None:
        """Wait with what is said for `send`, which is called when this turn ends."""
        self.held = True

    def add(self, speaker: Speaker) -> None:
        """
        Let somebody send at the end of the turn.

        Args:
            speaker: It was given something to send.
        """
        self._speakers[speaker] = None

    def send(self) -> None:
        """Let all of them send."""
        self.held = False
        speakers, self._speakers = self._speakers, {}
        for speaker in reversed(speakers):
            speaker.send()
