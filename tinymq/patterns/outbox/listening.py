"""Wakes a relay as soon as PostgreSQL tells of a commit, instead of at its next look."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

from tinymq.errors import UsageError
from tinymq.patterns.outbox.relay import Relay
from tinymq.patterns.sql import Connection

_log: Final = logging.getLogger(__name__)


class Listener:
    """
    Listens in a thread of its own, on a connection of psycopg 3.2 or newer.

    The outbox must have been made with ``notify=True``. A notification that is lost, as with
    a connection, costs nothing: the relay looks by itself every `RelayConfig.poll_s`.

    Args:
        relay: Whom it wakes.
        connect: Opens a connection.
        glance_s: How soon `close` is noticed.
        retry_s: The wait after a lost connection.
    """

    def __init__(
        self,
        relay: Relay,
        connect: Callable[[], Connection],
        glance_s: float = 0.5,
        retry_s: float = 1.0,
    ) -> None:
        if not relay.outbox.notify:
            raise UsageError("this outbox tells nobody of commits: make it with notify=True")
        self._relay = relay
        self._connect = connect
        self._glance_s = glance_s
        self._retry_s = retry_s
        self._stopped = threading.Event()
        #: Set while it listens.
        self.listening = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tinymq-listener", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Listen no longer."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.is_set():
            connection: Any = None
            try:
                connection = self._connect()
                self._listen(connection)
            except Exception as error:  # noqa: BLE001 - drivers have errors of their own
                _log.warning("notifications of the outbox are not heard just now: %s", error)
                self._stopped.wait(self._retry_s)
            finally:
                self.listening.clear()
                if connection is not None:
                    with contextlib.suppress(Exception):
                        connection.close()

    def _listen(self, connection: Any) -> None:
        connection.autocommit = True
        connection.execute(f"LISTEN {self._relay.outbox.channel}")
        self.listening.set()
        self._relay.poke()  # for what was committed before
        while not self._stopped.is_set():
            for _ in connection.notifies(timeout=self._glance_s, stop_after=1):
                self._relay.poke()
