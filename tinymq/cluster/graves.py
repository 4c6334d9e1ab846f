"""Bringing dead letters to other brokers: they are asked as the MetaServer asks them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any

from twisted.internet.defer import DeferredLock, ensureDeferred

from tinymq.broker.ports import Letters
from tinymq.client.core.partitioners import key_partition
from tinymq.errors import BrokerSilent, TinyMQError, WireError
from tinymq.node.records import MOST_PIECE
from tinymq.operation import Nodes, Result


class Graves:
    """
    The other brokers, as one of them sees them.

    Args:
        nodes: The way to each.
    """

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        #: Whoever takes pieces keeps few batches that are not whole yet.
        self._pieces = DeferredLock()

    def bring(
        self, broker_id: int, letters: Letters, done: Callable[[WireError | None], None]
    ) -> None:
        """Have another broker append records."""
        ensureDeferred(self._bring(broker_id, letters, done))

    async def _bring(
        self, broker_id: int, letters: Letters, done: Callable[[WireError | None], None]
    ) -> None:
        found: WireError | None = None
        try:
            if len(letters.batch) > MOST_PIECE:
                async with self._pieces:
                    await self._send(broker_id, letters)
            else:
                await self._send(broker_id, letters)
        except WireError as error:
            found = error.with_traceback(None)
        except TinyMQError as error:
            found = BrokerSilent(f"broker {broker_id} does not answer: {error}", broker=broker_id)
        done(found)

    async def _send(self, broker_id: int, letters: Letters) -> None:
        """Send letters; many of them go in pieces."""
        batch = letters.batch
        where: dict[str, Any] = {
            "id": letters.topic_id.hex(),
            "partition": letters.partition,
            "producer": letters.producer,
            "first": letters.first,
        }
        upload = 1 + secrets.randbits(62) if len(batch) > MOST_PIECE else 0
        for begin in range(0, len(batch) - MOST_PIECE, MOST_PIECE):
            piece = {"batch": batch[begin : begin + MOST_PIECE], "upload": upload, "more": True}
            await self._nodes.ask(broker_id, "node.bury", {**where, **piece})
        last = batch[(len(batch) - 1) // MOST_PIECE * MOST_PIECE :]
        await self._nodes.ask(broker_id, "node.bury", {**where, "batch": last, "upload": upload})

    def ask(
        self,
        broker_id: int,
        operation: str,
        arguments: Mapping[str, Any],
        done: Callable[[Result | WireError], None],
    ) -> None:
        """Have another broker carry out an operation."""
        ensureDeferred(self._ask(broker_id, operation, arguments, done))

    async def _ask(
        self,
        broker_id: int,
        operation: str,
        arguments: Mapping[str, Any],
        done: Callable[[Result | WireError], None],
    ) -> None:
        found: Result | WireError
        try:
            found = await self._nodes.ask(broker_id, operation, arguments)
        except WireError as error:
            found = error.with_traceback(None)
        except TinyMQError as error:
            found = BrokerSilent(f"broker {broker_id} does not answer: {error}", broker=broker_id)
        done(found)

    def place(self, key: bytes, partitions: int) -> int:
        """Say where clients put a record of a key."""
        return key_partition(key, partitions)
