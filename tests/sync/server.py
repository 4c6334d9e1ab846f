"""A puppet broker on a real socket, in a thread, for the blocking face."""

from __future__ import annotations

import select
import socket
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Self

from tests.client.puppet import Line, Puppet

#: How often the thread looks for orders.
_GLANCE_S = 0.01


class Server:
    """
    Serves one puppet; a context manager.

    Attributes:
        puppet: The broker; change it only under `lock`.
        lock: Held while frames are carried out.
        cuts: Close every connection after so many more reads, if above 0.
    """

    def __init__(self, puppet: Puppet | None = None) -> None:
        self.puppet = puppet or Puppet()
        self.lock = Lock()
        self.cut_after = 0
        self.reads = 0
        self._stop = Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.puppet.brokers = [(1, "127.0.0.1", self.port, "puppet")]
        self._lines: dict[socket.socket, Line] = {}
        self._thread = Thread(target=self._run, daemon=True)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"tinymq://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join(5)
        for sock in [self._listener, *self._lines]:
            sock.close()

    def cut(self) -> None:
        """Close every connection, with whatever is on its way."""
        with self.lock:
            self._cut()

    def _cut(self) -> None:
        lines, self._lines = self._lines, {}
        for sock, line in lines.items():
            line.close()
            sock.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            with self.lock:
                socks = [self._listener, *self._lines]
            try:
                readable, _, _ = select.select(socks, [], [], _GLANCE_S)
            except (OSError, ValueError):
                continue  # cut in between
            with self.lock:
                for sock in readable:
                    self._serve(sock)
                self.puppet.wake(empty=not readable)
                for sock, line in list(self._lines.items()):
                    self._answer(sock, line)

    def _serve(self, sock: socket.socket) -> None:
        if sock is self._listener:
            accepted, _ = sock.accept()
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._lines[accepted] = Line(self.puppet)
            return
        line = self._lines.get(sock)
        if line is None:
            return
        try:
            data = sock.recv(1 << 18)
        except OSError:
            data = b""
        if not data:
            self._drop(sock)
            return
        line.feed(data)
        self.reads += 1
        if self.cut_after and self.reads >= self.cut_after:
            self.reads = 0
            self._cut()

    def _answer(self, sock: socket.socket, line: Line) -> None:
        data = line.take()
        try:
            if data:
                sock.sendall(data)
        except OSError:
            line.close()
        if not line.alive:
            self._drop(sock)

    def _drop(self, sock: socket.socket) -> None:
        line = self._lines.pop(sock, None)
        if line is not None:
            line.close()
        sock.close()
