"""
A link to one broker that comes back after a loss.

::

            ask            connected          HELLO answered
    DOWN ---------> DIALING ---------> GREETING ---------> UP
     ^                 | failed            | lost           | lost
     +-----------------+-------------------+----------------+
                  wait (back-off), then DIALING if somebody asks

A request that was not written yet waits for the link until its deadline. One
that was written fails at once when the link is lost: only its owner knows
whether it may be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from math import inf
from typing import Any, Final, NamedTuple

from tinymq.client.core.address import Address, url_of
from tinymq.client.core.config import ClientConfig
from tinymq.client.core.connection import Connection, Done, Pushed
from tinymq.client.core.ports import Network, Wire
from tinymq.errors import (
    ClosedError,
    ConnectionLost,
    DeadlineExceeded,
    NoBroker,
    ProtocolError,
    TinyMQError,
    UnreachableError,
    WireError,
)
from tinymq.limits import DEFAULT_LIMITS, Limits
from tinymq.wire.frames import Bytes
from tinymq.wire.header import MessageType
from tinymq.wire.messages import HelloReply, Message

#: Requests that only the leader of a partition can carry out.
_FOR_LEADERS: Final = frozenset(
    {
        MessageType.PRODUCE,
        MessageType.FETCH,
        MessageType.OFFSETS,
        MessageType.SUBSCRIBE,
        MessageType.SETTLE,
        MessageType.UNSUBSCRIBE,
    }
)
#: Seconds between looks for a broker that fell silent and whom nobody asks.
_PROBE_S: Final = 10.0


class Phase(Enum):
    """Where a link stands."""

    DOWN = "down"
    DIALING = "dialing"
    GREETING = "greeting"
    UP = "up"
    CLOSED = "closed"


class _Waiting(NamedTuple):
    kind: int
    meta: dict[str, Any]
    payload: Iterable[Bytes]
    deadline: float
    done: Done
    quiet: bool


class Link:
    """
    A link to one broker.

    Args:
        addresses: Where it may be reached; they are tried in turn.
        config: Settings of the client.
        network: Connects.
        chance: Gives random numbers from 0 to 1, for the back-off.

    Attributes:
        phase: Where it stands.
        connection: The connection in use, or None.
        paused: The writing side is full; senders of much wait for `resumed`.
        spares: Where else somebody may answer; tried after `addresses`.
        watchers: Called with the link and the time whenever it comes up, goes
            down or takes more.
        pushes: By the number of a subscription, who takes what the broker sends for it.
        broker_id: Who answered HELLO last, or None before it.
        cluster_id: The id of that broker's cluster.
        expected: Which broker must answer, or None for any.
        patient: Whether requests wait for a broker that has never answered.
        wanted: Whether a broker that fell silent is looked for now and then,
            though nobody asks it for anything: it is spared while it fails.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        config: ClientConfig,
        network: Network,
        chance: Callable[[], float],
    ) -> None:
        self.addresses = list(addresses)
        self.phase = Phase.DOWN
        self.connection: Connection | None = None
        self.paused = False
        self.spares: list[Address] = []
        self.watchers: list[Callable[[Link, float], None]] = []
        self.pushes: dict[int, Pushed] = {}
        self.broker_id: int | None = None
        self.cluster_id: bytes | None = None
        self.expected: int | None = None
        self.patient = True
        self.wanted = False
        self._config = config
        self._network = network
        self._chance = chance
        self._wire: Wire | None = None
        self._waiting: dict[int, _Waiting] = {}
        self._ticket = 0
        self._next_address = 0
        self._tried = 0
        self._failures = 0
        self._retry_at = self._probe_at = 0.0
        self._dial_until = inf
        self._session: bytes | None = None
        self._why: TinyMQError | None = None

    @property
    def limits(self) -> Limits:
        """The limits of the broker, or the usual ones before it told them."""
        return DEFAULT_LIMITS if self.connection is None else self.connection.limits

    @property
    def waiting(self) -> int:
        """Requests that were not written yet."""
        return len(self._waiting)

    @property
    def failing(self) -> bool:
        """Whether the broker was tried in vain since it last answered."""
        if self.phase is Phase.UP:
            return self.connection is not None and self.connection.unheard
        return self._failures > 0

    def untried(self, now: float) -> bool:
        """
        Whether the broker may be tried again, and nobody does.

        Args:
            now: The time.
        """
        return self.phase is Phase.DOWN and not self._waiting and now >= self._retry_at

    @property
    def trouble(self) -> TinyMQError | None:
        """Why the broker does not answer, while it is tried in vain."""
        if self.failing and self.phase is Phase.UP:
            places = ", ".join(map(str, self.addresses))
            return DeadlineExceeded(f"the broker at {places} is connected and does not answer")
        return self._too_late() if self.failing else None

    def move(self, addresses: Sequence[Address], now: float) -> None:
        """
        Look for the broker elsewhere.

        Args:
            addresses: Where it may be reached now; if that is new it is tried at
                once.
            now: The time.
        """
        if self.addresses == list(addresses):
            return
        self.addresses = list(addresses)
        moved = ConnectionLost("the broker has another address now")
        if self.phase is Phase.DIALING:
            self._network.hang_up(self)
            self._down(moved, now)
        else:
            self.lost(moved, now)
        self._next_address = 0
        self._retry_at = now
        if self._waiting:
            self._dial(now)

    # --- asking ----------------------------------------------------------------

    def request(  # noqa: PLR0913 - the fields of a request
        self,
        kind: int,
        meta: dict[str, Any],
        payload: Iterable[Bytes],
        deadline: float,
        done: Done,
        now: float,
        *,
        quiet: bool = False,
    ) -> None:
        """
        Send a request, as soon as the link is up.

        Args:
            kind: Its type.
            meta: Its fields.
            payload: Pieces of its payload.
            deadline: When it ends without an answer.
            done: Told how it ended.
            now: The time.
            quiet: No answer is wanted; it ends when it is written.
        """
        if self.phase is Phase.UP and self.connection is not None:
            try:
                # A program that did nothing for long has not kept it alive: what
                # is written to a dead connection may be stored or not.
                self.connection.check(now)
            except ConnectionLost as error:
                self.lost(error, now)
        if self.phase is Phase.UP:
            self._send(_Waiting(kind, meta, payload, deadline, done, quiet), now)
            self.flush()
        elif self.phase is Phase.CLOSED:
            done(None, b"", ClosedError("the client was closed"), now)
        else:
            self._ticket += 1
            self._waiting[self._ticket] = _Waiting(kind, meta, payload, deadline, done, quiet)
            self._dial(now)

    def withdraw(self, done: Done) -> None:
        """
        Forget a request that was not written yet; nothing is told of it.

        Args:
            done: Who was to be told.
        """
        for key in [key for key, one in self._waiting.items() if one.done is done]:
            del self._waiting[key]

    def flush(self) -> None:
        """Hand what is encoded to the face."""
        if self._wire is not None and self.connection is not None:
            pieces = self.connection.data_to_send()
            if pieces:
                self._wire.write(pieces)

    # --- told by the face ------------------------------------------------------

    def connected(self, wire: Wire, now: float) -> None:
        """
        Greet the broker.

        Args:
            wire: Takes bytes.
            now: The time.
        """
        if self.phase is not Phase.DIALING:
            wire.close()
            return
        self.phase = Phase.GREETING
        self._wire = wire
        self.paused = False
        self.connection = Connection(self._config, now, self._session)
        self.connection.pushed = self._pushed
        self.flush()

    def failed(self, error: TinyMQError, now: float) -> None:
        """
        Wait and try the next address.

        Args:
            error: Why nobody answered.
            now: The time.
        """
        if self.phase is Phase.DIALING:
            self._down(error, now)

    def received(self, data: bytes, now: float) -> None:
        """
        Take bytes.

        Args:
            data: What was read.
            now: The time.
        """
        connection = self.connection
        if connection is None:
            return
        heard_again = connection.unheard
        try:
            connection.receive(data, now)
        except WireError as error:
            self.lost(error, now)
            return
        if heard_again:
            self._tell(now)
        if self.phase is Phase.GREETING and connection.hello is not None:
            self._greeted(connection.hello, now)
        self.flush()

    def lost(self, error: TinyMQError, now: float) -> None:
        """
        End the connection and all that was written to it.

        Args:
            error: Why.
            now: The time.
        """
        if self.phase in (Phase.GREETING, Phase.UP):
            self._down(error, now)

    def pause(self) -> None:
        """The writing side is full."""
        self.paused = True

    def resume(self, now: float) -> None:
        """
        The writing side takes more.

        Args:
            now: The time.
        """
        if self.paused:
            self.paused = False
            self._tell(now)

    # --- time and end ----------------------------------------------------------

    @property
    def wake_at(self) -> float:
        """When `tick` has something to do."""
        at = inf
        if self._waiting:
            at = min(one.deadline for one in self._waiting.values())
        if self.phase is Phase.DOWN:
            if self._waiting:
                return min(at, self._retry_at)
            return self._probe_at if self.wanted and self._failures else inf
        if self.phase is Phase.DIALING:
            return min(at, self._dial_until)
        return at if self.connection is None else min(at, self.connection.wake_at)

    def tick(self, now: float) -> None:
        """
        Do what is due.

        Args:
            now: The time.
        """
        overdue = [key for key, one in self._waiting.items() if one.deadline <= now]
        for one in [self._waiting.pop(key) for key in overdue]:
            one.done(None, b"", self._too_late(), now)
        if self.phase is Phase.DOWN:
            if self._waiting or (self.wanted and self._failures and now >= self._probe_at):
                self._dial(now)
        elif self.phase is Phase.DIALING and now >= self._dial_until:
            self._network.hang_up(self)
            self._down(UnreachableError("connecting took too long"), now)
        elif self.connection is not None:
            before = self.failing
            try:
                self.connection.tick(now)
            except ConnectionLost as error:
                self.lost(error, now)
            self.flush()
            if self.failing and not before and self.phase is Phase.UP:
                self._tell(now)

    def close(self, now: float) -> None:
        """
        Say goodbye and end everything.

        Args:
            now: The time.
        """
        if self.phase is Phase.CLOSED:
            return
        dialing, self.phase = self.phase is Phase.DIALING, Phase.CLOSED
        if dialing:
            self._network.hang_up(self)
        if self.connection is not None:
            self.connection.goodbye("the client closes")
            self.flush()
        self._drop(ClosedError("the client was closed"), now)
        self._refuse_waiting(ClosedError("the client was closed"), now)
        self.watchers.clear()

    # --- inside ----------------------------------------------------------------

    def _dial(self, now: float) -> None:
        if self.phase is not Phase.DOWN or now < self._retry_at:
            return
        self.phase = Phase.DIALING
        self._dial_until = now + self._config.connect_timeout_s
        places = [*self.addresses, *self.spares]
        self._network.dial(self, places[self._next_address % len(places)], now)

    def _greeted(self, hello: HelloReply, now: float) -> None:
        if self.expected is not None and hello.broker_id != self.expected:
            places = ", ".join(map(str, self.addresses))
            text = f"broker {hello.broker_id} answers at {places}, not broker {self.expected}"
            self.lost(UnreachableError(text), now)
            return
        strays = self._strays() if self.broker_id not in (None, hello.broker_id) else []
        self._up(hello, now)
        error = UnreachableError(f"broker {hello.broker_id} answers, which does not lead this")
        for one in strays:
            one.done(None, b"", error, now)

    def _pushed(self, message: Message, payload: Bytes, now: float) -> None:
        """Hand on what the broker sent by itself; that of a subscription that ended is dropped."""
        taker = self.pushes.get(getattr(message, "subscription", -1))
        if taker is not None:
            taker(message, payload, now)

    def _strays(self) -> list[_Waiting]:
        """Take out the requests that wait for a leader, and not for any broker."""
        found = [key for key, one in self._waiting.items() if one.kind in _FOR_LEADERS]
        return [self._waiting.pop(key) for key in found]

    def _up(self, hello: HelloReply, now: float) -> None:
        self.phase = Phase.UP
        self._failures = 0
        self._why = None
        self._session = hello.session
        self.broker_id = hello.broker_id
        self.cluster_id = hello.cluster
        waiting, self._waiting = self._waiting, {}
        for one in waiting.values():
            self._send(one, now)
        self._tell(now)

    def _send(self, one: _Waiting, now: float) -> None:
        assert self.connection is not None
        if one.quiet:
            self.connection.post(one.kind, one.meta, one.payload)
            one.done(None, b"", None, now)
        else:
            self.connection.request(one.kind, one.meta, one.payload, one.deadline, one.done)

    def _down(self, error: TinyMQError, now: float) -> None:
        if self.phase is not Phase.UP:
            self._next_address += 1
        self.phase = Phase.DOWN
        self._failures += 1
        self._why = error
        delay = self._config.backoff.delay(self._failures, self._chance())
        # A link that worked is tried again at once: most losses are restarts.
        self._retry_at = now + (0.0 if self._failures == 1 else delay)
        self._probe_at = max(self._retry_at, now + (0.0 if self._failures == 1 else _PROBE_S))
        self._drop(error, now)
        if isinstance(error, ProtocolError) and not error.retriable:
            self._refuse_waiting(error, now)
        elif self.broker_id is None and not self.patient:
            self._tried += 1
            if self._tried >= len(self.addresses):
                self._tried = 0
                self._refuse_waiting(self._nobody(error), now)
        self._tell(now)

    def _refuse_waiting(self, error: TinyMQError, now: float) -> None:
        waiting, self._waiting = self._waiting, {}
        for one in waiting.values():
            one.done(None, b"", error, now)

    def _drop(self, error: TinyMQError, now: float) -> None:
        connection, self.connection = self.connection, None
        wire, self._wire = self._wire, None
        self.paused = False
        if wire is not None:
            wire.close()
        if connection is not None:
            lost = error if isinstance(error, (ConnectionLost, ClosedError)) else _loss(error)
            connection.lost(lost, now)

    def _tell(self, now: float) -> None:
        for watcher in tuple(self.watchers):
            watcher(self, now)

    def _too_late(self) -> TinyMQError:
        if self._why is None:
            return DeadlineExceeded("the link to the broker did not come up within the deadline")
        places = ", ".join(map(str, self.addresses))
        return UnreachableError(f"no broker answered at {places}: {self._reason(self._why)}")

    def _reason(self, why: TinyMQError) -> str:
        """Say why, without the address where it is clear which one is meant."""
        text = str(why)
        return text.removeprefix(f"{self.addresses[0]}: ") if len(self.addresses) == 1 else text

    def _nobody(self, why: TinyMQError) -> NoBroker:
        """A refused connection needs no further words; anything else is told."""
        refused = isinstance(why.__cause__, ConnectionRefusedError)
        reason = "" if refused else f": {self._reason(why)}"
        error = NoBroker(f"no broker answers at {url_of(self.addresses)}{reason}")
        error.__cause__ = why
        return error


def _loss(error: TinyMQError) -> TinyMQError:
    lost = ConnectionLost(f"the connection ended: {error}")
    lost.__cause__ = error
    return lost
