"""
What a process stands on: time, disk, threads, and connections to other processes.

Tests put a process on a ground of their own: a fake clock, and links in memory.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol

from twisted.logger import Logger
from twisted.python.failure import Failure

from tinymq.broker.ports import Background
from tinymq.client.client import Client
from tinymq.client.core.config import ClientConfig
from tinymq.config import Config
from tinymq.storage.disk import Disk, RecordingDisk
from tinymq.storage.sync import PoolSyncer, Syncer

#: Names a file that gets every write and sync, for `tinymq verify-crash`.
RECORD_VARIABLE: Final = "TINYMQ_RECORD_WRITES"


class ThreadBackground:
    """
    Runs calls that wait for the disk in a few threads.

    Args:
        reactor: Twisted's reactor.
    """

    _log = Logger()

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="tinymq-read")

    def submit(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        """Run `work` in a thread, then, however it ended, `done` on the reactor's."""

        def run() -> None:
            try:
                work()
            except OSError:
                pass  # who reads again on the reactor's thread hears of it
            except Exception as error:  # noqa: BLE001 - a reader waits for `done`
                failure = Failure(error)  # type: ignore[no-untyped-call]
                self._reactor.callFromThread(self._told, failure)
            self._reactor.callFromThread(done)

        self._pool.submit(run)

    def _told(self, failure: Failure) -> None:
        self._log.failure("work in the background failed", failure)

    def stop(self) -> None:
        """End the threads."""
        self._pool.shutdown(wait=True)


class Ground(Protocol):
    """
    What a process stands on.

    Attributes:
        disk: Where the data folder is.
        syncer: Brings files to the disk.
        background: Runs what waits for the disk.
    """

    disk: Disk
    syncer: Syncer
    background: Background

    @property
    def reactor(self) -> Any:
        """Twisted's reactor, or what takes its place."""

    def wall(self) -> int:
        """Return the wall clock in milliseconds since the epoch."""

    def client(self, url: str, config: ClientConfig) -> Client:
        """
        Make a client of another process.

        Args:
            url: Where that is.
            config: Settings of the client.
        """

    def close(self) -> None:
        """End what runs beside the reactor, after what it does."""


class RealGround:
    """
    The real world.

    Args:
        reactor: Twisted's reactor.
        config: All settings.
    """

    def __init__(self, reactor: Any, config: Config) -> None:
        self.reactor = reactor
        record, storage = os.environ.get(RECORD_VARIABLE), config.storage
        self.disk: Disk = RecordingDisk(record, storage.data) if record else Disk()
        self.syncer: Syncer = PoolSyncer(self.disk, reactor.callFromThread, storage.sync_threads)
        self._threads = ThreadBackground(reactor)
        self.background: Background = self._threads

    def wall(self) -> int:
        """Return the wall clock in milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def client(self, url: str, config: ClientConfig) -> Client:
        """
        Make a client of another process, over sockets.

        Args:
            url: Where that is.
            config: Settings of the client.
        """
        return Client(self.reactor, url, config)

    def close(self) -> None:
        """End the threads, after what they do."""
        self.syncer.close()
        self._threads.stop()
