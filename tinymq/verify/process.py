"""A broker as a process of its own, to be started, killed and started again."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import tinymq
from tinymq.errors import UnreachableError

#: Seconds after which a broker that does not listen has failed to start.
PATIENCE: Final = 30.0
#: Seconds between two looks at whether it listens.
_GLANCE: Final = 0.01
#: Names the file into which the broker records every write and sync.
RECORD_VARIABLE: Final = "TINYMQ_RECORD_WRITES"

#: twistd of the running Python, wherever its script was put.
TWISTD: Final = (
    sys.executable,
    "-c",
    "from twisted.scripts.twistd import run; run()",
    "--nodaemon",
    "--pidfile=",
)


class BrokerProcess:
    """
    One broker and its data folder; a context manager in which it runs.

    Attributes:
        data: The data folder.
        log: The file that takes what the broker prints.
        url: Where it listens for clients; empty before the first start.
        dashboard: Where its dashboard is; empty before the first start.

    Args:
        data: The data folder, which may be absent.
        url: Listen here again, as an earlier broker did.
        record: Record every write and sync into this file.
        http: Where its dashboard listens, an endpoint string; by default nowhere.
        arguments: More of its command line, such as its role.
    """

    def __init__(
        self,
        data: Path,
        *,
        url: str = "",
        record: Path | None = None,
        http: str = "none",
        arguments: Sequence[str] = (),
    ) -> None:
        self.data = data
        self.log = data.with_name(data.name + ".log")
        self.url = url
        self.dashboard = ""
        self._record = record
        self._http = http
        self._arguments = tuple(arguments)
        #: Whether what it tells its clients is not where it listens.
        self._elsewhere = False
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def advertise(self, place: str) -> None:
        """
        Let it tell its clients, from the next start on, that they reach it elsewhere.

        Args:
            place: ``HOST:PORT``.
        """
        self._arguments += (f"--set=network.advertise={place}",)
        self._elsewhere = True

    @property
    def pid(self) -> int:
        """The process id; 0 when it does not run."""
        return self._process.pid if self._process is not None else 0

    def launch(self) -> None:
        """Start it, and do not wait until it listens."""
        with contextlib.suppress(OSError):
            self._endpoints.unlink()
        port = self.url.rpartition(":")[2] or "0"
        command = [
            *TWISTD,
            "tinymq",
            f"--data={self.data}",
            f"--listen=tcp:{port}:interface=127.0.0.1",
            f"--http={self._http}",
            *self._arguments,
        ]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment(),
                start_new_session=True,
            )

    def start(self) -> None:
        """
        Start it and wait until it listens.

        Raises:
            UnreachableError: It ended, or took too long; the text has its last words.
        """
        self.launch()
        self.wait()

    def wait(self) -> None:
        """Wait until it listens; raises as `start` does."""
        deadline = time.monotonic() + PATIENCE
        while (found := self._listening()) is None:
            if self._process is None or self._process.poll() is not None:
                raise UnreachableError(f"the broker ended at its start: {self.last_words()}")
            if time.monotonic() > deadline:
                self.kill()
                raise UnreachableError(f"the broker did not start: {self.last_words()}")
            time.sleep(_GLANCE)
        self.url = self.url if self._elsewhere else found["listen"]
        self.dashboard = found.get("http") or ""

    def kill(self) -> None:
        """End it with SIGKILL: nothing of it runs any more, not even a `finally`."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """End it with SIGTERM, as an operator does, and return its exit status."""
        return self._end(signal.SIGTERM)

    def pause(self) -> None:
        """Let it stand still, as a machine that hangs; see `resume`."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    @property
    def status(self) -> int | None:
        """Its exit status; None while it runs or after it was ended from here."""
        return self._process.poll() if self._process is not None else None

    def last_words(self) -> str:
        """Give the end of what it printed."""
        try:
            lines = self.log.read_text("utf-8", "replace").splitlines()
        except OSError:
            return ""
        return " | ".join(lines[-8:])

    @property
    def _endpoints(self) -> Path:
        return self.data / "broker.json"

    def _listening(self) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads(self._endpoints.read_bytes())
        except (OSError, ValueError):
            return None
        return found if found.get("pid") == self.pid else None

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def _end(self, number: signal.Signals) -> int:
        if self._process is None:
            return 0
        self._process.send_signal(number)
        try:
            status = self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        self._process = None
        return status

    def _environment(self) -> dict[str, str]:
        environment = dict(os.environ)
        root = str(Path(tinymq.__file__).parent.parent)
        known = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = f"{root}{os.pathsep}{known}" if known else root
        environment.pop(RECORD_VARIABLE, None)
        if self._record is not None:
            environment[RECORD_VARIABLE] = str(self._record)
        return environment
