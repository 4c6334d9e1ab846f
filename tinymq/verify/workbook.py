"""
What was delivered from channels, and what was said of it.

A message whose lease was lost may still be handed out by a client that has not
heard of that yet, and a broker that was killed knows nothing of its last leases. So
a message that is handed out after it was settled with confirmation is only
suspicious: it is finished, and when that is confirmed too, it was delivered again.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal

from attrs import define

from tinymq.verify.jobs import Act, Job
from tinymq.verify.numbered import Mark, Place, mark_of

if TYPE_CHECKING:
    from tinymq.client.core.message import QueueMessage

#: What can be seen to be wrong when messages are delivered.
Wrong = Literal["returned", "forgotten", "twice", "disordered", "foreign"]

#: Findings of one channel that are told in words; the count goes on.
_MOST_TOLD: Final = 10


@define
class Card:
    """
    One message in one channel.

    Attributes:
        lease: The highest lease that it was handed out in.
        deliveries: How often it was handed out.
        tried: Finished or rejected so often, without having heard that it was late.
        closed: The lease in which that was confirmed; 0 when it was not.
        suspicious: Whether it was handed out after that.
        rejected: Whether a rejection was confirmed.
        failed: How often it was let go, or returned as failed.
        attempts: The least number that its next delivery must have.
        failures: The least number of failures that it must have.
    """

    lease: int = 0
    deliveries: int = 0
    tried: int = 0
    closed: int = 0
    suspicious: bool = False
    rejected: bool = False
    failed: int = 0
    attempts: int = 1
    failures: int = 0


class Workbook:
    """
    The account of one channel, kept by many threads.

    Args:
        job: The channel.
        named: The place that the values of a partition bear.

    Attributes:
        job: The channel.
        counts: What was found wrong.
        found: The same in words.
        delivered: How many messages were handed out.
        confirmed: How many settles were confirmed.
    """

    def __init__(self, job: Job, *, anywhere: bool = False) -> None:
        self.job = job
        self.counts: Counter[Wrong] = Counter()
        self.found: list[str] = []
        self.delivered = 0
        self.confirmed = 0
        self._anywhere = anywhere
        self._lock = threading.Lock()
        self._cards: dict[tuple[Place, Mark], Card] = defaultdict(Card)
        #: The highest offset handed out for the first time, by partition and key.
        self._last: dict[tuple[int, bytes | None], int] = {}

    def named(self, partition: int) -> Place:
        """Give the place that the values of a partition bear."""
        return Place(self.job.topic, -1 if self._anywhere else partition)

    @property
    def cards(self) -> Mapping[tuple[Place, Mark], Card]:
        """All messages, by the place that their values bear, and their mark."""
        return self._cards

    def card(self, place: Place, mark: Mark) -> Card:
        """Tell what is known of a message."""
        with self._lock:
            return self._cards[place, mark]

    def hand_out(self, message: QueueMessage) -> Mark | None:
        """
        Note that a message was handed out.

        Args:
            message: The message.

        Returns:
            Whose it is; None for one that nobody wrote.
        """
        place = self.named(message.partition)
        mark = mark_of(place, message.value)
        with self._lock:
            if mark is None:
                self._find("foreign", f"{message!r} was never sent")
                return None
            self.delivered += 1
            card = self._cards[place, mark]
            if card.deliveries == 0:
                self._first(message)
            elif self.job.once:
                self._find("twice", f"{message!r} was delivered before")
            elif message.lease == card.lease:
                self._find("twice", f"{message!r} was handed out before in the same lease")
            card.deliveries += 1
            if message.lease > card.lease:
                card.lease = message.lease
                self._again(card, message)
        return mark

    def _first(self, message: QueueMessage) -> None:
        if self.job.order == "none":
            return
        line = (message.partition, message.key if self.job.order == "key" else None)
        before = self._last.get(line, -1)
        if message.offset < before:
            self._find("disordered", f"{message!r} came first after offset {before}")
        self._last[line] = max(message.offset, before)

    def _again(self, card: Card, message: QueueMessage) -> None:
        card.suspicious = bool(card.closed)
        if message.attempt < card.attempts or message.failures < card.failures:
            self._find(
                "forgotten",
                f"{message!r} has {message.failures} failures, and should be attempt "
                f"{card.attempts} with {card.failures} at least",
            )

    def is_suspicious(self, message: QueueMessage, mark: Mark) -> bool:
        """Whether a message should not have come again, unless its lease is lost."""
        return self.card(self.named(message.partition), mark).suspicious

    def begin(self, message: QueueMessage, mark: Mark, act: Act) -> None:
        """Note that something is being said of a message."""
        with self._lock:
            card = self._cards[self.named(message.partition), mark]
            if act in {"finish", "reject"}:
                card.tried += 1
            if act in {"requeue", "hold"}:
                card.failed += 1

    def late(self, message: QueueMessage, mark: Mark, act: Act) -> None:
        """Note that what was said of a message came too late."""
        with self._lock:
            if act in {"finish", "reject"}:
                self._cards[self.named(message.partition), mark].tried -= 1

    def confirm(self, message: QueueMessage, mark: Mark, act: Act) -> None:
        """Note that what was said of a message is written down."""
        with self._lock:
            self.confirmed += 1
            card = self._cards[self.named(message.partition), mark]
            if act in {"finish", "reject"}:
                if card.closed not in {0, message.lease}:
                    self._find("returned", f"{message!r} was settled with confirmation before")
                card.closed = max(card.closed, message.lease)
                card.rejected |= act == "reject"
            elif act == "requeue":
                card.attempts = max(card.attempts, message.attempt + 1)
                card.failures = max(card.failures, message.failures + 1)
            elif act == "give_back":
                card.attempts = max(card.attempts, message.attempt)

    def _find(self, wrong: Wrong, text: str) -> None:
        self.counts[wrong] += 1
        if len(self.found) < _MOST_TOLD:
            self.found.append(f"channel {self.job.name}: {wrong}: {text}")
