"""How rows of an outbox get to their topics: by a client, or whatever stands for one."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol

from tinymq.client.core.batches import ITEM_OVERHEAD, headers_size
from tinymq.client.core.config import ProducerConfig
from tinymq.client.core.results import PartlySent
from tinymq.errors import ClientError, StorageError, TinyMQError, Unroutable, WireError
from tinymq.limits import KIB
from tinymq.sync.client import Client
from tinymq.wire.records import Headers

_log: Final = logging.getLogger(__name__)

#: Bytes of rows that are sent in one go, so that all rows of a partition are one batch: a
#: batch is stored whole or not at all, so none overtakes one of the same key.
_CHUNK: Final = 384 * KIB
_BATCH: Final = 512 * KIB
#: Bytes of the id of a record, with its head.
_ID: Final = 18


class Row(NamedTuple):
    """
    A message in the outbox.

    Attributes:
        seq: Its place.
        id: Its id, 32 characters.
        topic: Where it goes.
        key: Its key.
        value: Its value.
        headers: Its headers; the id is among them.
        attempts: How often its topic refused it.
    """

    seq: int
    id: str
    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    attempts: int

    @property
    def size(self) -> int:
        """Upper bound of its bytes in a batch."""
        content = len(self.key or b"") + len(self.value or b"") + headers_size(self.headers)
        return content + 2 * ITEM_OVERHEAD + _ID


class Waits(Enum):
    """What became of a row that was not tried."""

    #: One of the same key before it was refused, or the topic cannot be written.
    BEHIND = "behind"


#: What became of a row: None if the broker has it.
Outcome = TinyMQError | Waits | None


class Way(Protocol):
    """How rows get to their topics."""

    def send(self, topic: str, rows: Sequence[Row]) -> list[Outcome]:
        """Publish rows of one topic, in order, and say what became of each."""

    def dedup_ms(self, topic: str) -> int | None:
        """Tell for how long the topic knows ids again; 0 if it does not, None if unknown."""

    def close(self) -> None:
        """Nothing more will be sent."""


def is_transient(error: TinyMQError) -> bool:
    """
    Tell whether time heals an error, so that it is nothing of the message's own.

    Args:
        error: The error.
    """
    if isinstance(error, WireError):
        return error.retriable or isinstance(error, StorageError)
    return isinstance(error, ClientError)


class ClientWay:
    """
    Publishes with a producer of a blocking client.

    Args:
        client: The client; it is not closed here.
        deadline_s: How long one attempt may take.
        config: Settings of the producer, such as compression.
    """

    def __init__(
        self, client: Client, deadline_s: float = 6.0, config: ProducerConfig | None = None
    ) -> None:
        made = config or ProducerConfig()
        settings: dict[str, Any] = {
            name: getattr(made, name) for name in ("codec", "partitioner", "create_topics")
        }
        self._client = client
        self._producer = client.producer(
            ProducerConfig(batch_bytes=_BATCH, deadline_s=deadline_s, **settings)
        )
        #: Whether records can have ids of their own, beside the header.
        self._ids = "ids" in inspect.signature(self._producer.send_batch).parameters

    def send(self, topic: str, rows: Sequence[Row]) -> list[Outcome]:
        """
        Publish rows of one topic, in order.

        Args:
            topic: The topic.
            rows: The rows.

        Returns:
            What became of each.
        """
        outcomes: list[Outcome] = []
        for chunk in chunks(rows):
            found = self._send(topic, chunk)
            outcomes += found
            if any(each is not None for each in found):
                break  # what comes behind must not overtake
        return outcomes + [Waits.BEHIND] * (len(rows) - len(outcomes))

    def dedup_ms(self, topic: str) -> int | None:
        """
        Tell for how long the topic knows ids again.

        Args:
            topic: The topic.

        Returns:
            Milliseconds, 0 if it does not, None if nobody says.
        """
        try:
            settings = self._client.admin.topic(topic)["topic"]["config"]
        except TinyMQError:
            return None
        by = settings.get("dedup.by", "id")
        ours = by == "header:message-id" or (by == "id" and self._ids)
        return int(settings.get("dedup.ms") or 0) if ours else 0

    def close(self) -> None:
        """Close the producer."""
        self._producer.close()

    # --- inside ------------------------------------------------------------------

    def _send(self, topic: str, rows: Sequence[Row]) -> list[Outcome]:
        try:
            self._batch(topic, rows)
        except PartlySent as error:
            if all(isinstance(failed.error, Unroutable) for failed in error.failed):
                return self._unroutable(topic, len(rows))
        except Unroutable:
            if len(rows) == 1:
                return self._unroutable(topic, 1)
        except TinyMQError as error:
            if is_transient(error) or len(rows) == 1:
                return [error] * len(rows)
        else:
            return [None] * len(rows)
        return self._one_by_one(topic, rows)

    def _batch(self, topic: str, rows: Sequence[Row]) -> None:
        more: dict[str, Any] = {}
        if self._ids:
            more["ids"] = [bytes.fromhex(row.id) for row in rows]
        self._producer.send_batch(
            topic,
            [row.value for row in rows],
            [row.key for row in rows],
            [row.headers for row in rows],
            **more,
        )

    def _one_by_one(self, topic: str, rows: Sequence[Row]) -> list[Outcome]:
        """Find out which of them it is that the topic does not take."""
        outcomes: list[Outcome] = []
        stuck: set[bytes] = set()
        for row in rows:
            if row.key is not None and row.key in stuck:
                outcomes.append(Waits.BEHIND)
                continue
            (outcome,) = self._send(topic, [row])
            outcomes.append(outcome)
            if isinstance(outcome, TinyMQError):
                if is_transient(outcome):
                    break
                if row.key is not None:
                    stuck.add(row.key)
        return outcomes + [Waits.BEHIND] * (len(rows) - len(outcomes))

    def _unroutable(self, topic: str, count: int) -> list[Outcome]:
        """Tell of what the exchange has, but nobody takes; to send it again changes nothing."""
        _log.warning("the exchange %s routes some of %d messages nowhere", topic, count)
        return [None] * count


def chunks(rows: Sequence[Row], most: int = _CHUNK) -> Iterator[Sequence[Row]]:
    """
    Cut rows into runs that fit into one batch.

    Args:
        rows: The rows.
        most: Bytes; a row that is larger comes alone.
    """
    start = size = 0
    for place, row in enumerate(rows):
        if place > start and size + row.size > most:
            yield rows[start:place]
            start, size = place, 0
        size += row.size
    if rows:
        yield rows[start:]
