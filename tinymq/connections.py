"""
All connections of a broker: their numbers, their sessions, and who they are.

Once a second each is asked for a sign of life, and of those that moved the rates
are computed, some hundred in one turn of the reactor. Everything else here happens
when somebody asks for it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Final

from twisted.internet.protocol import Factory
from twisted.logger import Logger

from tinymq.broker.broker import Broker
from tinymq.clockwork import Clockwork
from tinymq.connection import Connection
from tinymq.errors import StateError, UnknownClient
from tinymq.stats import ClientSnapshot
from tinymq.wire.messages import Hello

#: Seconds between two looks at the connections.
SWEEP_SECONDS: Final = 1.0
#: Connections that are looked at in one turn: some half a millisecond.
SLICE: Final = 500
#: What the former connection of a session is told.
TAKEN_OVER: Final = "the same session connected again"


class Connections(Factory):
    """
    All connections of a broker.

    Args:
        broker: The domain.
    """

    noisy = False
    _log = Logger()

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.scheduler = broker.scheduler
        #: In the order in which they came, so that runs on a fake clock are alike.
        self.connections: dict[Connection, None] = {}
        #: Those that sent or were sent something, until their rates are 0 again.
        self.moved: set[Connection] = set()
        self.refusing: str | None = None
        self._numbers = count(1)
        self._by_number: dict[int, Connection] = {}
        self._sessions: dict[bytes, Connection] = {}
        self._full = False
        self._swept_at = 0.0
        self._sweeping = False
        self._clockwork = Clockwork(self.scheduler)

    # --- coming and going -----------------------------------------------------

    def number(self) -> int:
        """Give out a number for a connection."""
        return next(self._numbers)

    def admits(self) -> bool:
        """Say whether there is room for one more connection."""
        if self.refusing is not None:
            return False
        most = self.broker.config.network.connections
        full = len(self.connections) >= most
        if full and not self._full:
            self._log.warn("{most} clients are connected; more are turned away", most=most)
        self._full = full
        return not full

    def joined(self, connection: Connection) -> None:
        """A connection was made."""
        if not self.connections:
            self._swept_at = self.scheduler.seconds()
            self._clockwork.every(SWEEP_SECONDS, lambda late: self._sweep())
        self.connections[connection] = None
        self._by_number[connection.number] = connection

    def left(self, connection: Connection) -> None:
        """A connection ended."""
        self.connections.pop(connection, None)
        self._by_number.pop(connection.number, None)
        self.moved.discard(connection)
        if self._sessions.get(connection.session) is connection:
            del self._sessions[connection.session]
        if not self.connections:
            self._clockwork.stop()

    def enter(self, connection: Connection, hello: Hello) -> bool:
        """
        Give a connection its session: the one that it asks for, or a new one.

        A client whose connection died without the broker's knowledge finds its
        session held by that connection, which is closed. A session of another
        client is not given away.

        Args:
            connection: It said HELLO.
            hello: What it said.

        Returns:
            Whether the session went on from a connection that was still there.
        """
        session = hello.session
        holder = None if session is None else self._sessions.get(session)
        resumed = False
        if holder is not None and holder.live:
            if _same_client(holder, connection):
                resumed = True
                self._log.info(
                    "{peer} goes on with the session of {former}",
                    peer=connection.peer,
                    former=holder.peer,
                )
                holder.say_goodbye(TAKEN_OVER, StateError)
            else:
                session = None
        connection.session = session or os.urandom(16)
        self._sessions[connection.session] = connection
        return resumed

    # --- once a second --------------------------------------------------------

    def _sweep(self) -> None:
        """Look at every connection, unless the last sweep is still under way."""
        if not self._sweeping:
            self._clockwork.in_turns(self._slices())

    def _slices(self) -> Iterator[None]:
        self._sweeping = True
        try:
            now = self.scheduler.seconds()
            before, self._swept_at = self._swept_at, now
            for connections in _cut(self.connections):
                for connection in connections:
                    connection.check(now)
                yield
            for connections in _cut(self.moved):
                resting = [each for each in connections if not each.traffic.sample(now, before)]
                self.moved.difference_update(resting)
                yield
        finally:
            self._sweeping = False

    # --- who is there ---------------------------------------------------------

    def clients(self) -> list[ClientSnapshot]:
        """List the clients, in the order in which they came."""
        origin = self._origin_ms()
        return [each.snapshot(origin) for each in self.connections if each.live]

    def client(self, number: int) -> ClientSnapshot:
        """
        Look at one client.

        Args:
            number: Of its connection.

        Raises:
            UnknownClient: It is not connected, or not any more.
        """
        return self._find(number).snapshot(self._origin_ms())

    def kick(self, number: int, reason: str) -> ClientSnapshot:
        """
        Close a client's connection; what it published before is still acknowledged.

        Args:
            number: Of its connection.
            reason: What the client is told; a sentence for people.

        Returns:
            The client as it was.

        Raises:
            UnknownClient: It is not connected, or not any more.
        """
        connection = self._find(number)
        client = connection.snapshot(self._origin_ms())
        self._log.info(
            "client {number} ({client_id!r}, {principal} at {peer}) is disconnected: {reason!r}",
            number=number,
            client_id=client.client_id,
            principal=client.user,
            peer=client.address,
            reason=reason,
        )
        connection.say_goodbye(reason, StateError)
        return client

    def _find(self, number: int) -> Connection:
        connection = self._by_number.get(number)
        if connection is None or not connection.live:
            raise UnknownClient(
                f"no client {number} is connected to {self.broker.name}; "
                "it went, or came again under another number: list the clients"
            )
        return connection

    def _origin_ms(self) -> int:
        """The wall clock when the scheduler's was 0, as both are now."""
        return self.broker.wall() - int(self.scheduler.seconds() * 1000)

    # --- the end --------------------------------------------------------------

    def refuse(self, reason: str) -> None:
        """
        Take no new connections.

        Args:
            reason: Why, for those who are here already.
        """
        self.refusing = reason

    def accept(self) -> None:
        """Take new connections."""
        self.refusing = None

    def close_all(self, reason: str) -> None:
        """
        End every connection in order.

        Args:
            reason: What the peers are told.
        """
        self._clockwork.stop()
        for connection in tuple(self.connections):
            connection.say_goodbye(reason)


def _cut(connections: Iterable[Connection]) -> Iterator[tuple[Connection, ...]]:
    """Cut connections into slices, as they are now."""
    whole = tuple(connections)
    for first in range(0, len(whole), SLICE):
        yield whole[first : first + SLICE]


def _same_client(one: Connection, other: Connection) -> bool:
    """Whether two connections come from the same client, as far as they say."""
    return (
        one.hello is not None
        and other.hello is not None
        and one.hello.client_id == other.hello.client_id
        and one.caller.principal == other.caller.principal
    )
