"""A consumer of one topic at every node that has it."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from attrs import define
from twisted.internet.defer import Deferred, fail
from twisted.logger import Logger

from tinymq.client.core.config import ConsumerConfig
from tinymq.client.core.delivered import ConsumerBatch
from tinymq.client.core.directory import Node
from tinymq.client.core.fetching import MOVED
from tinymq.client.core.starts import LATEST, At, Mark, Start, read_start
from tinymq.client.line import Line
from tinymq.client.lookup_readers import Reader, Readers
from tinymq.errors import ClosedError, TinyMQError, WireError

if TYPE_CHECKING:
    from tinymq.client.consumer import Consumer
    from tinymq.client.lookup import Lookup


@define(eq=False)
class _Offer:
    """What one node has for whoever asks next; it goes on when that is taken."""

    batch: ConsumerBatch | None
    error: TinyMQError | None
    taken: Deferred[None]


class LookupConsumer:
    """
    Reads a topic from every node that has it; made by `Lookup.consumer`.

    ::

        async for batch in lookup.consumer("clicks"):
            handle(batch.node.name, batch.values)

    It connects to nodes as they appear and leaves those that are no longer
    announced; one that comes back is read on where it was left. The nodes take
    turns. There is no order between them.

    Args:
        lookup: Finds the nodes.
        topic: Name of the topic.
        start: Where to start at each.
        config: Settings.

    Attributes:
        topic: Name of the topic.
    """

    _log = Logger()

    def __init__(self, lookup: Lookup, topic: str, start: Start, config: ConsumerConfig) -> None:
        self.topic = topic
        self._lookup = lookup
        self._start: Start = read_start(start)
        self._since_ms = int(lookup.wall() * 1000)
        self._marks: dict[str, dict[int, Mark]] = {}
        self._line: deque[_Offer] = deque()
        self._calls: Line[ConsumerBatch] = Line(lookup.reactor)
        self._closed = False
        self._readers: Readers[Consumer] = Readers(
            lookup, topic, lambda node, client: client.consumer(config), self._left
        )
        self._readers.start(self._begun)

    @property
    def nodes(self) -> list[Node]:
        """The nodes that are read now."""
        return self._readers.nodes

    def marks(self) -> dict[str, dict[int, Mark]]:
        """Say where every partition of every node stands, by the node's id."""
        stand = {one: self._stand(reader) for one, reader in self._readers.found.items()}
        return {**self._marks, **stand}

    def next_batch(self, timeout: float | None = None) -> Deferred[ConsumerBatch | None]:
        """
        Get the next batch of any node; several calls are served in turn.

        Args:
            timeout: Seconds to wait for one; None waits for ever.

        Returns:
            A Deferred that ends

            - with a `ConsumerBatch`, whose `node` says where it comes from;
            - with None when `timeout` has passed;
            - with what happened at one node, as for `Consumer.next_batch`, with the
              node's name in the error's data. The others go on; this one is tried
              again when the lookup servers were asked next;
            - with `ClosedError`, or `CancelledError`.
        """
        if self._closed:
            return fail(ClosedError("the consumer was closed"))
        waiter = self._calls.join(timeout)
        self._serve()
        return waiter.deferred

    def __aiter__(self) -> AsyncIterator[ConsumerBatch]:
        return self

    async def __anext__(self) -> ConsumerBatch:
        try:
            batch = await self.next_batch()
        except ClosedError:
            raise StopAsyncIteration from None
        assert batch is not None
        return batch

    def close(self) -> None:
        """Stop reading; waiting calls end with `ClosedError`."""
        if self._closed:
            return
        self._closed = True
        self._lookup.forget(self)
        self._readers.close()
        line, self._line = self._line, deque()
        for offer in line:
            offer.taken.callback(None)
        while self._calls:
            self._calls.fail(ClosedError("the consumer was closed"))

    # --- inside ----------------------------------------------------------------

    def _begun(self, reader: Reader[Consumer]) -> None:
        self._log.debug("Reading {topic} at {node}", topic=self.topic, node=reader.node.name)
        reading = Deferred.fromCoroutine(self._follow_one(reader))
        reading.addErrback(lambda failure: self._log.failure("Reading a node failed", failure))

    def _left(self, reader: Reader[Consumer]) -> None:
        self._marks[reader.node.id] = self._stand(reader)
        reader.what.close()
        self._readers.release(reader)

    def _stand(self, reader: Reader[Consumer]) -> dict[int, Mark]:
        try:
            marks = reader.what.marks(self.topic)
        except ClosedError:
            marks = {}
        return {**self._marks.get(reader.node.id, {}), **marks}

    async def _follow_one(self, reader: Reader[Consumer]) -> None:
        try:
            await reader.what.assign(self.topic, start=self._start_at(reader.node))
        except TinyMQError as error:
            # A node may announce a topic before it can serve it; the next round comes.
            self._log.debug(
                "{node} cannot be read yet: {error}", node=reader.node.name, error=error
            )
            self._readers.leave(reader)
            return
        while True:
            batch, wrong = None, None
            try:
                batch = await reader.what.next_batch()
            except ClosedError:
                return
            except TinyMQError as error:
                wrong = error
            offer = _Offer(batch, wrong, Deferred())
            if batch is not None:
                batch.node = reader.node
            if wrong is not None:
                self._blame(reader, wrong)
            self._line.append(offer)
            self._serve()
            await offer.taken
            if wrong is not None:
                self._readers.leave(reader)
                return

    def _blame(self, reader: Reader[Consumer], error: TinyMQError) -> None:
        """Name the node; a topic made anew there is read from its start next time."""
        if isinstance(error, WireError):
            error.data.setdefault("node", reader.node.name)
        if isinstance(error, MOVED):
            self._readers.leave(reader)
            self._marks.pop(reader.node.id, None)

    def _start_at(self, node: Node) -> dict[int, Start] | Start:
        marks = self._marks.get(node.id)
        if marks:
            return dict(marks)
        if self._start == LATEST and self._readers.met:
            return At(self._since_ms)  # what came there before we heard of it counts
        return self._start

    def _serve(self) -> None:
        while self._line and self._calls:
            offer = self._line.popleft()
            if offer.error is not None:
                self._calls.fail(offer.error)
            else:
                self._calls.serve(offer.batch)
            offer.taken.callback(None)
