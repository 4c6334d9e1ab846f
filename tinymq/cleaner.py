"""The process that cleans files, as its broker sees it: started on demand, killed with it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Final

import msgpack
from twisted.internet.error import ProcessExitedAlready
from twisted.internet.protocol import ProcessProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure
from typing_extensions import override

import tinymq
from tinymq.broker.workers import Failed, Tell
from tinymq.storage.tasks import Task
from tinymq.storage.worker import LENGTH, event_of, frame

#: What is started.
MODULE: Final = "tinymq.storage.worker"


class _Link(ProcessProtocol):
    """What the process says."""

    _log = Logger()

    def __init__(self, worker: ProcessWorker) -> None:
        self._worker = worker
        self._buffer = bytearray()

    @override
    def outReceived(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= LENGTH.size:
            end = LENGTH.size + LENGTH.unpack_from(self._buffer)[0]
            if len(self._buffer) < end:
                return
            content = bytes(self._buffer[LENGTH.size : end])
            del self._buffer[:end]
            self._worker.heard(self, msgpack.unpackb(content, strict_map_key=False))

    @override
    def errReceived(self, data: bytes) -> None:
        text = data.decode("utf-8", "replace").rstrip()
        self._log.warn("the process that cleans files: {text}", text=text)

    @override
    def processExited(self, reason: Failure) -> None:
        self._worker.gone(self, reason.getErrorMessage())

    @override
    def outConnectionLost(self) -> None:
        self._worker.gone(self, "its output ended")


class ProcessWorker:
    """
    Cleans files in a process of its own.

    Args:
        reactor: Twisted's reactor.
    """

    _log = Logger()

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._link: _Link | None = None
        self._tell: Tell | None = None

    @property
    def pid(self) -> int | None:
        """The number of the process, None while there is none."""
        transport: Any = None if self._link is None else self._link.transport
        return None if transport is None else transport.pid

    def begin(self, task: Task, tell: Tell) -> None:
        """Begin to clean, in a new process if there is none."""
        self._tell = tell
        if self._link is None:
            try:
                self._start()
            except OSError as error:
                reason = f"no process could be started: {error}"
                self._tell = None
                self._reactor.callLater(0, tell, Failed(reason))
                return
        self._send(["clean", task.to_map()])

    def _start(self) -> None:
        home = str(Path(tinymq.__file__).resolve().parent.parent)
        paths = [home, *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        command = [sys.executable, "-m", MODULE]
        self._link = link = _Link(self)
        try:
            self._reactor.spawnProcess(link, sys.executable, command, env=environment)
        except OSError:
            self._link = None
            raise
        self._log.info("started a process that cleans files, {pid}", pid=self.pid)

    def go_on(self) -> None:
        """Ask for the next event."""
        if self._tell is not None:
            self._send(["go"])

    def _send(self, message: list[Any]) -> None:
        transport: Any = None if self._link is None else self._link.transport
        if transport is not None:
            transport.write(frame(message))

    def heard(self, link: _Link, message: list[Any]) -> None:
        """
        Take what the process says.

        Args:
            link: The process.
            message: An event.
        """
        tell = self._tell
        if link is not self._link or tell is None:
            return
        event = event_of(message)
        if message[0] in {"done", "failed"}:
            self._tell = None
        tell(Failed(event) if isinstance(event, str) else event)

    def gone(self, link: _Link, reason: str) -> None:
        """
        Take that the process is gone; the next task starts another one.

        Args:
            link: The process.
            reason: Why.
        """
        if link is not self._link:
            return
        self._link, tell, self._tell = None, self._tell, None
        if tell is not None:
            tell(Failed(f"the process that cleans files ended: {reason}"))

    def stop(self) -> None:
        """Leave what was begun: the process goes with it."""
        self._tell = None
        link, self._link = self._link, None
        transport: Any = None if link is None else link.transport
        if transport is not None:
            try:
                transport.signalProcess("KILL")
            except (ProcessExitedAlready, OSError):
                return

    def rest(self) -> None:
        """Let the process end by itself: there is nothing to do."""
        link, self._link = self._link, None
        transport: Any = None if link is None else link.transport
        if transport is not None:
            transport.closeStdin()
