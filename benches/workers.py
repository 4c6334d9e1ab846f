"""Client processes, seen from the one who starts them."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from benches.tasks import Figures, Task

_ROOT = Path(__file__).parent.parent


class Failed(Exception):
    """A measurement did not come to its end."""


class Worker:
    """
    One client process; killed when its time is over or its block is left.

    Args:
        task: What it does.
        environment: Variables of the process.
        timeout: Seconds that it may live.
    """

    def __init__(self, task: Task, environment: Mapping[str, str], timeout: float) -> None:
        self._task = task
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benches.roles", task.to_json()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
            cwd=_ROOT,
            text=True,
        )
        self._watchdog = threading.Timer(timeout, self._process.kill)
        self._watchdog.daemon = True
        self._watchdog.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._watchdog.cancel()
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def ready(self) -> None:
        """Wait until it is set up."""
        self._line()

    def go(self) -> None:
        """Let it begin."""
        self._say("go")

    def stop(self) -> Figures:
        """End one that would not end by itself, and return its figures."""
        self._say("stop")
        return self.figures()

    def figures(self) -> Figures:
        """Wait for its figures."""
        found: Figures = json.loads(self._line())
        return found

    def _say(self, word: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{word}\n")
            self._process.stdin.flush()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            status = self._process.wait()
            self._errors.seek(0)
            words = self._errors.read().decode("utf-8", "replace").strip().splitlines()
            why = "its time was over" if status == -9 else f"status {status}"
            raise Failed(f"{self._task.client}.{self._task.role}: {why}; {' | '.join(words[-3:])}")
        return line


def environment(*folders: Path) -> dict[str, str]:
    """Return the variables of client processes, which find packages in folders, too."""
    found = dict(os.environ)
    places = [str(_ROOT), *map(str, folders), found.get("PYTHONPATH", "")]
    found["PYTHONPATH"] = os.pathsep.join(filter(None, places))
    return found
