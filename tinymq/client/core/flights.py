"""Single records that a blocking caller writes and hears of by himself."""

from __future__ import annotations

from typing import Any, NamedTuple

from tinymq.client.core.batches import ITEM_OVERHEAD, Batch
from tinymq.client.core.lane import Lane
from tinymq.client.core.link import Link
from tinymq.client.core.producer import ProducerCore
from tinymq.errors import TinyMQError


class Flight(NamedTuple):
    """A record that is written outside of the common way."""

    lane: Lane
    batch: Batch
    link: Link
    data: bytes


class Flights:
    """
    The short way through a producer.

    Args:
        core: The producer.
    """

    def __init__(self, core: ProducerCore) -> None:
        self._core = core
        self._ledger = core.ledger

    def launch(self, lane: Lane, value: bytes, key: bytes | None, token: Any, now: float) -> Flight:
        """
        Encode a record for a caller that writes it at once.

        Args:
            lane: From `ProducerCore.calm_lane`.
            value: Its value.
            key: Its key.
            token: What the face is told with if it ends by the common way.
            now: The time.
        """
        core = self._core
        batch = Batch([value], now + core.config.deadline_s, self._ledger.generation)
        batch.keys = None if key is None else [key]
        batch.tokens = [token]
        batch.size = len(value) + len(key or b"") + 2 * ITEM_OVERHEAD
        link = core.sending.link(lane)
        lane.launch(batch)
        return Flight(lane, batch, link, batch.encode(core.sending.codec, lane.identity, now))

    def landed(self, flight: Flight) -> None:
        """
        Note that a launched record is stored.

        Args:
            flight: From `launch`.
        """
        flight.lane.landed(flight.batch)
        self._ledger.landed()

    def strayed(self, flight: Flight) -> None:
        """
        Note that a launched record takes the common way from here on.

        Args:
            flight: From `launch`.
        """
        self._ledger.force(flight.batch.size, 1)

    def returned(self, flight: Flight, reply: Any, error: TinyMQError | None, now: float) -> None:
        """
        Take the answer to a record that strayed.

        Args:
            flight: From `launch`.
            reply: Where it is stored.
            error: Or why it is not.
            now: The time.
        """
        self._core.sending.returned(flight.lane, flight.batch, reply, error, now)
