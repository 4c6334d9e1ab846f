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

    A reactor would find out that they may write, and let them, after everybody else
    had his turn. Whatever is not sent here is sent so.

    Who was spoken to last comes first: a publisher hears that a message is stored before
    its readers are given it, and a system with few processors lets whoever is woken run
    at once, before anything is sent to the next one.
    """

    def __init__(self) -> None:
        self._speakers: dict[Speaker, None] = {}

    def add(self, speaker: Speaker) -> None:
        """
        Let somebody send at the end of the turn.

        Args:
            speaker: It was given something to send.
        """
        self._speakers[speaker] = None

    def send(self) -> None:
        """Let all of them send."""
        speakers, self._speakers = self._speakers, {}
        for speaker in reversed(speakers):
            speaker.send()
