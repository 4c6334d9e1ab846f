"""The threads of a load: each with a client of its own, until they are asked to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tinymq.sync import Client

#: Seconds that a thread may take to end.
_PATIENCE: Final = 60.0


class Threads:
    """
    Some threads that end together.

    Args:
        broken: Takes what ended a thread that should have gone on.

    Attributes:
        stopping: Set when every thread should end after its present call.
    """

    def __init__(self, broken: list[str]) -> None:
        self.stopping = threading.Event()
        self._broken = broken
        self._threads: list[threading.Thread] = []

    def begin(
        self, name: str, connect: Callable[[], Client], body: Callable[[Client], None]
    ) -> None:
        """
        Start a thread.

        Args:
            name: Its name, for people.
            connect: Makes its client.
            body: What it does.
        """

        def run() -> None:
            client = connect()
            try:
                body(client)
            except Exception as error:  # noqa: BLE001 - whatever it is, it belongs in the report
                self._broken.append(f"{name}: {error!r}")
            finally:
                client.close()

        thread = threading.Thread(target=run, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def join(self) -> None:
        """Wait until every thread has ended."""
        self.stopping.set()
        for thread in self._threads:
            thread.join(_PATIENCE)
            if thread.is_alive():
                self._broken.append(f"{thread.name} does not end")
