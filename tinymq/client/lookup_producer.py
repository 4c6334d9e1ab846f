"""A producer that sends to nodes, in one or more copies."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Generic, overload

from attrs import define, evolve, frozen
from twisted.internet.defer import Deferred, DeferredList, fail
from typing_extensions import TypeVar

from tinymq.client.core.config import ProducerConfig
from tinymq.client.core.directory import Node
from tinymq.client.core.fetching import MOVED
from tinymq.client.core.messageids import MessageId
from tinymq.client.core.partitioners import Key
from tinymq.client.core.results import Delayed, Position
from tinymq.client.core.timing import Moment, Span, Timing, timing_of
from tinymq.errors import (
    ClosedError,
    RequestError,
    TinyMQError,
    TooFewCopies,
    UnreachableError,
    UsageError,
)

if TYPE_CHECKING:
    from tinymq.client.client import Client
    from tinymq.client.lookup import Lookup
    from tinymq.client.producer import Producer


#: Where a copy is: mostly a `Position`, and maybe `Delayed` where a delay was given.
P = TypeVar("P", bound=Position | Delayed, default=Position)


@frozen
class Stored(Generic[P]):
    """
    One copy of a record.

    Attributes:
        node: Where it is.
        position: Its place there; `Delayed` of one that waits until it is due.
    """

    node: Node
    position: P


@define(eq=False)
class _Seat:
    """A node, with its client and producer."""

    node: Node
    client: Client
    producer: Producer


@frozen
class _Record:
    topic: str
    value: Any
    key: Key | None
    headers: Any
    timing: Timing | None


class LookupProducer:
    """
    Sends records to nodes that have their topic; made by `Lookup.producer`.

    A node of the client's zone is taken if there is one, otherwise any; another
    one when it does not answer. When no node has the topic yet, one that has
    other topics makes it, if `ProducerConfig.create_topics` allows that. Nodes
    know nothing of each other: a record that was sent to a second node because
    the first fell silent may be at both, and equal keys meet only at one node.
    So consumers must be able to take a record twice.

    Args:
        lookup: Finds the nodes.
        config: Settings; `deadline_s` is for a record with all its attempts.
        copies: To how many nodes each record goes.

    Raises:
        UsageError: Less than one copy.
    """

    def __init__(self, lookup: Lookup, config: ProducerConfig, copies: int) -> None:
        if type(copies) is not int or copies < 1:
            raise UsageError(f"copies is a number from 1, not {copies!r}")
        self._lookup = lookup
        self._config = config
        self._copies = copies
        attempt = min(config.deadline_s, lookup.config.attempt_s)
        self._node_config = evolve(config, deadline_s=attempt)
        self._seats: dict[str, _Seat] = {}
        self._turn = int(lookup.chance() * 65_536)
        self._closed = False
        self._open: set[Deferred[list[Stored[Position | Delayed]]]] = set()

    @overload
    def send(
        self,
        topic: str,
        value: Any,
        key: Key | None = None,
        headers: Any = None,
        *,
        ttl: Span | None = None,
        id: MessageId | None = None,
    ) -> Deferred[list[Stored]]: ...

    @overload
    def send(
        self,
        topic: str,
        value: Any,
        key: Key | None = None,
        headers: Any = None,
        *,
        at: Moment,
        ttl: Span | None = None,
        id: MessageId | None = None,
    ) -> Deferred[list[Stored[Delayed]]]: ...

    @overload
    def send(
        self,
        topic: str,
        value: Any,
        key: Key | None = None,
        headers: Any = None,
        *,
        delay: Span | None,
        at: Moment | None = None,
        ttl: Span | None = None,
        id: MessageId | None = None,
    ) -> Deferred[list[Stored[Position | Delayed]]]: ...

    def send(  # noqa: PLR0913 - the fields of a record
        self,
        topic: str,
        value: Any,
        key: Key | None = None,
        headers: Any = None,
        *,
        delay: Span | None = None,
        at: Moment | None = None,
        ttl: Span | None = None,
        id: MessageId | None = None,  # noqa: A002 - its name everywhere
    ) -> Deferred[Any]:
        """
        Send one record.

        Args:
            topic: Name of the topic.
            value: Its value; None is a tombstone.
            key: Its key; chooses the partition, not the node.
            headers: Pairs of name and bytes, or a mapping.
            delay: How long it waits, counted from this call: seconds or a timedelta.
                Every copy waits at its node.
            at: When it comes instead: a datetime with its zone, or milliseconds since
                the epoch.
            ttl: How long it lives in channels from when it comes.
            id: Its message id; each node finds repeats by itself.

        Returns:
            A Deferred that ends

            - with a `Stored` for each copy, when all of them are stored;
            - with `TooFewCopies` when fewer were; its `stored` says which, and the
              record is read from there;
            - with the error of the last node when one copy was wanted and nobody
              stored it, such as `UnreachableError` or `StorageFull`;
            - with `UnreachableError` when no node is known;
            - with `ValueTooLarge`, `InvalidName`, `InvalidDelay` or `UsageError` for
              this record;
            - with `ClosedError` when the producer was closed before.
        """
        try:
            timing = timing_of(delay, at, ttl, self._lookup.reactor.seconds(), id)
        except TinyMQError as error:
            return fail(error)
        record = _Record(topic, value, key, headers, timing)
        sending = Deferred.fromCoroutine(self._send(record))
        self._open.add(sending)

        def ended(result: Any) -> Any:
            self._open.discard(sending)
            return result

        return sending.addBoth(ended)

    def close(self) -> Deferred[None]:
        """
        Take no more records, and settle those taken.

        Returns:
            A Deferred that ends with None when all are settled; it never fails.
        """
        self._closed = True
        return Deferred.fromCoroutine(self._close())

    async def _close(self) -> None:
        settled: list[Deferred[None]] = []
        for sending in tuple(self._open):
            waiting: Deferred[None] = Deferred()
            sending.addBoth(_tell, waiting)
            settled.append(waiting)
        for waiting in settled:
            await waiting
        seats, self._seats = self._seats, {}
        for seat in seats.values():
            await seat.producer.close()
            self._lookup.release(seat.node)
        self._lookup.forget(self)

    # --- inside ----------------------------------------------------------------

    async def _send(self, record: _Record) -> list[Stored[Position | Delayed]]:
        if self._closed:
            raise ClosedError("the producer was closed")
        until = self._lookup.reactor.seconds() + self._config.deadline_s
        queue = deque(await self._candidates(record.topic))
        if len(queue) < self._copies:
            raise self._too_few(record, [], f"{len(queue)} nodes are known")
        slots = [
            Deferred.fromCoroutine(self._store(record, queue, until)) for _ in range(self._copies)
        ]
        stored: list[Stored[Position | Delayed]] = []
        why: BaseException | None = None
        ended: list[tuple[bool, Any]] = await DeferredList(slots, consumeErrors=True)
        for worked, result in ended:
            if worked:
                stored.append(result)
            else:
                why = result.value
        if why is None:
            return stored
        if self._copies == 1 or not isinstance(why, TinyMQError) or isinstance(why, UsageError):
            raise why
        raise self._too_few(record, stored, str(why)) from why

    async def _store(
        self, record: _Record, queue: deque[Node], until: float
    ) -> Stored[Position | Delayed]:
        """Store one copy at the first node that takes it."""
        error: TinyMQError = UnreachableError("no further node is known")
        while queue and self._lookup.reactor.seconds() < until:
            node = queue.popleft()
            try:
                producer = self._seat(node).producer
                sending = producer.send_timed(
                    record.topic, record.value, record.key, record.headers, record.timing
                )
                place: Position | Delayed = await sending
                return Stored(node, place)
            except UsageError:
                raise
            except TinyMQError as wrong:
                if isinstance(wrong, RequestError) and not isinstance(wrong, MOVED):
                    raise
                error = wrong
                self._lookup.refresh(record.topic)
        raise error

    async def _candidates(self, topic: str) -> list[Node]:
        """The nodes to try, the best first."""
        nodes = await self._lookup.nodes(topic)
        if len(nodes) < self._copies and self._config.create_topics:
            more = {node.id: node for node in await self._lookup.any_nodes()}
            nodes += [node for one, node in more.items() if one not in {two.id for two in nodes}]
        self._drop_gone(nodes)
        self._turn += 1
        zone = self._lookup.config.client.zone
        turned = (
            nodes[self._turn % len(nodes) :] + nodes[: self._turn % len(nodes)] if nodes else []
        )

        def rank(node: Node) -> tuple[bool, bool]:
            seat = self._seats.get(node.id)
            failing = seat is not None and seat.client.failing
            return failing, bool(zone) and node.zone != zone

        return sorted(turned, key=rank)

    def _seat(self, node: Node) -> _Seat:
        seat = self._seats.get(node.id)
        if seat is not None and seat.node.address == node.address:
            return seat
        if seat is not None:  # it moved
            self._stand_up(seat)
        client = self._lookup.lease(node)
        seat = self._seats[node.id] = _Seat(node, client, client.producer(self._node_config))
        return seat

    def _stand_up(self, seat: _Seat) -> None:
        self._seats.pop(seat.node.id, None)

        def closed(result: Any) -> None:
            self._lookup.release(seat.node)

        seat.producer.close().addBoth(closed)

    def _drop_gone(self, nodes: list[Node]) -> None:
        """Close what nobody answers at any more."""
        named = {node.id for node in nodes}
        for seat in tuple(self._seats.values()):
            if seat.node.id not in named and seat.client.failing:
                self._stand_up(seat)

    def _too_few(
        self, record: _Record, stored: list[Stored[Position | Delayed]], why: str
    ) -> TinyMQError:
        text = f"topic {record.topic}: {len(stored)} of {self._copies} copies were stored: {why}"
        return UnreachableError(text) if self._copies == 1 else TooFewCopies(text, stored)


def _tell(result: Any, waiting: Deferred[None]) -> Any:
    waiting.callback(None)
    return result
