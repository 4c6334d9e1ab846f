"""Links over plain sockets: nothing happens unless somebody waits."""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import struct
from collections.abc import Sequence
from math import ceil
from typing import Final

from tinymq.client.core.address import Address
from tinymq.client.core.config import ClientConfig
from tinymq.client.core.link import Link
from tinymq.errors import ConnectionLost, UnreachableError
from tinymq.wire.frames import Bytes

#: Unsent bytes above which a link is paused, and below which it goes on.
_PAUSE_ABOVE: Final = 4 * 1024 * 1024
_RESUME_BELOW: Final = 1024 * 1024
#: Most pieces in one system call.
_MOST_PIECES: Final = 512
#: Nothing that a link has to do by itself is more urgent than this.
GLANCE_S: Final = 0.02

#: One wait in the system; longer ones are put together.
_LONGEST_WAIT_S: Final = 3600.0

_IN: Final = select.POLLIN
_OUT: Final = select.POLLIN | select.POLLOUT
_GLANCE: Final = struct.pack("ll", 0, int(GLANCE_S * 1_000_000))
_NOW: Final = socket.MSG_DONTWAIT


_log: Final = logging.getLogger(__name__)


class Plug:
    """
    The socket of one link.

    Args:
        link: Where bytes go.
        sock: A connected socket.
        network: Whose poll it is in.
    """

    __slots__ = ("_backlog", "_link", "_network", "_unsent", "sock")

    def __init__(self, link: Link, sock: socket.socket, network: SocketNetwork) -> None:
        self._link: Link | None = link
        self._network = network
        self._backlog: list[Bytes] = []
        self._unsent = 0
        self.sock = sock

    def write(self, pieces: Sequence[Bytes]) -> None:
        """
        Send now what the system takes, and keep the rest.

        Args:
            pieces: The bytes.
        """
        if self._backlog:
            self._backlog += pieces
            self._unsent += sum(map(len, pieces))
            self._send_backlog()
            return
        try:
            if len(pieces) == 1:
                sent = self.sock.send(pieces[0], _NOW)
            else:
                sent = self.sock.sendmsg(pieces[:_MOST_PIECES], (), _NOW)
        except BlockingIOError:
            sent = 0
        except OSError:
            return  # reading finds out why
        self._keep(pieces, sent)

    def serves(self, link: Link) -> bool:
        """
        Say whether this is the socket of a link.

        Args:
            link: The link.
        """
        return self._link is link

    @property
    def idle(self) -> bool:
        """Whether everything was sent."""
        return not self._backlog

    def received(self, data: bytes, now: float) -> None:
        """
        Pass on what was read, or the end of the connection.

        Args:
            data: The bytes; empty at the end.
            now: The time.
        """
        link = self._link
        if link is None:
            return
        if data:
            link.received(data, now)
        else:
            link.lost(ConnectionLost("the broker closed the connection"), now)

    def close(self) -> None:
        """Close the socket."""
        self._link = None
        self._network.unplug(self)

    def readable(self, size: int, now: float) -> None:
        """
        Read what is there.

        Args:
            size: Most bytes at once.
            now: The time.
        """
        link = self._link
        if link is None:
            return
        try:
            data = self.sock.recv(size, _NOW)
        except BlockingIOError:
            return
        except OSError as error:
            link.lost(ConnectionLost(f"the connection ended: {error}"), now)
            return
        self.received(data, now)

    def writable(self, now: float) -> None:
        """
        Go on sending.

        Args:
            now: The time.
        """
        self._send_backlog()
        if self._unsent < _RESUME_BELOW and self._link is not None:
            self._link.resume(now)

    def _send_backlog(self) -> None:
        pieces, self._backlog, self._unsent = self._backlog, [], 0
        try:
            sent = self.sock.sendmsg(pieces[:_MOST_PIECES], (), _NOW)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._network.watch(self, _IN)
            return
        self._keep(pieces, sent)

    def _keep(self, pieces: Sequence[Bytes], sent: int) -> None:
        """Keep what was not sent, and watch the socket accordingly."""
        place = 0
        while place < len(pieces) and sent >= len(pieces[place]):
            sent -= len(pieces[place])
            place += 1
        if place == len(pieces):
            self._network.watch(self, _IN)
            return
        self._backlog = [memoryview(pieces[place])[sent:], *pieces[place + 1 :]]
        self._unsent = sum(map(len, self._backlog))
        self._network.watch(self, _OUT)
        if self._unsent > _PAUSE_ABOVE and self._link is not None:
            self._link.pause()


class SocketNetwork:
    """
    Connects links by blocking, and reads when it is asked to.

    Args:
        config: Settings of the client.
    """

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._poll = select.poll()
        self._plugs: dict[int, Plug] = {}
        self._watched: dict[int, int] = {}
        self.patience = config.connect_timeout_s

    def __len__(self) -> int:
        return len(self._plugs)

    @property
    def watched(self) -> dict[int, int]:
        """What is waited for: events of `select.poll` by the number of the socket."""
        return dict(self._watched)

    def dial(self, link: Link, address: Address, now: float) -> None:
        """
        Connect a link.

        Args:
            link: The link.
            address: Where to.
            now: The time.
        """
        timeout = max(0.01, min(self._config.connect_timeout_s, self.patience))
        try:
            sock = socket.create_connection((address.host, address.port), timeout)
        except OSError as error:
            reason = UnreachableError(f"{address}: {error}")
            reason.__cause__ = error
            link.failed(reason, now)
            return
        sock.setblocking(True)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # For `Express` alone: everybody else reads without waiting.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _GLANCE)
        plug = Plug(link, sock, self)
        self._plugs[sock.fileno()] = plug
        self.watch(plug, _IN)
        link.connected(plug, now)

    def plug(self, link: Link) -> Plug | None:
        """
        Find the socket of a link.

        Args:
            link: The link.
        """
        for plug in self._plugs.values():
            if plug.serves(link):
                return plug
        return None

    def hang_up(self, link: Link) -> None:
        """
        Do nothing: connecting never goes on in the background.

        Args:
            link: The link.
        """

    def report(self, what: str, error: Exception) -> None:
        """
        Log an error of the caller's own code.

        Args:
            what: What failed.
            error: How.
        """
        _log.error("%s", what, exc_info=error)

    def say(self, text: str) -> None:
        """
        Log a line for people.

        Args:
            text: The line.
        """
        _log.warning("%s", text)

    def watch(self, plug: Plug, events: int) -> None:
        """
        Say what to wait for.

        Args:
            plug: The socket.
            events: Of `select.poll`.
        """
        number = plug.sock.fileno()
        if number >= 0 and self._watched.get(number) != events:
            self._watched[number] = events
            self._poll.register(number, events)

    def unplug(self, plug: Plug) -> None:
        """
        Close a socket.

        Args:
            plug: The socket.
        """
        number = plug.sock.fileno()
        if number >= 0:
            del self._plugs[number]
            if self._watched.pop(number, None) is not None:
                self._poll.unregister(number)
            with contextlib.suppress(OSError):
                plug.sock.close()

    def wait(self, timeout: float) -> list[tuple[Plug, int]]:
        """
        Wait until a socket has something, or time is up.

        Args:
            timeout: Seconds.
        """
        found = self._poll.poll(ceil(min(timeout, _LONGEST_WAIT_S) * 1000) if timeout > 0 else 0)
        plugs = self._plugs
        return [(plugs[number], events) for number, events in found if number in plugs]

    def work(self, found: list[tuple[Plug, int]], now: float) -> None:
        """
        Read and write.

        Args:
            found: From `wait`.
            now: The time.
        """
        for plug, events in found:
            if events & ~select.POLLOUT:
                plug.readable(self._config.read_bytes, now)
            if events & select.POLLOUT:
                plug.writable(now)
