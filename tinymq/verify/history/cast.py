"""The processes that publish, read, work and move: started, struck, and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import tinymq

#: Seconds in which a process ends that was asked to.
_PATIENCE: Final = 60.0
#: Seconds in which it prints where it hangs.
_PRINTING: Final = 0.5
#: How it ends that was asked to, maybe before it could listen.
_ENDS: Final = frozenset((0, -signal.SIGTERM))


class Actor:
    """
    One process, which may have several lives.

    Args:
        name: ``ROLE-NUMBER``.
        folder: Takes the diaries; a folder ``output`` beside them what it prints.
        url: The brokers.
        seed: Chance begins here.
    """

    def __init__(self, name: str, folder: Path, url: str, seed: int) -> None:
        self.name = name
        self._folder = folder
        self._url = url
        self._seed = seed
        self._lives = 0
        self._asked = False
        self._process: subprocess.Popen[bytes] | None = None
        #: Problems of its ends: it must end well when it is asked to.
        self.problems: list[str] = []

    @property
    def output(self) -> Path:
        """What it printed."""
        return self._folder.parent / "output" / self.name

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None

    def start(self) -> None:
        """Let it live, once more."""
        diary = self._folder / f"{self.name}.{self._lives}"
        self._lives += 1
        self._asked = False
        root = str(Path(tinymq.__file__).parent.parent)
        known = os.environ.get("PYTHONPATH")
        path = f"{root}{os.pathsep}{known}" if known else root
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                [
                    *(sys.executable, "-m", "tinymq.verify.history.actor"),
                    *(self.name, self._url, str(diary), str(self._seed)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": path},
            )

    def kill(self) -> None:
        """End it in the middle of whatever it does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Let it stand still."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def ask_to_stop(self) -> None:
        """Ask it to end in order."""
        if self._process is not None:
            self._process.terminate()
            self._asked = True

    def stop(self) -> None:
        """Ask it to end in order, and wait for that."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            status = self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGUSR1)  # it prints where it hangs
            time.sleep(_PRINTING)
            words = self._last_words()
            self.problems.append(f"{self.name} did not end within {_PATIENCE:.0f} s: {words}")
            self.kill()
            return
        self._process = None
        if status not in _ENDS:
            self.problems.append(f"{self.name} ended with {status}: {self._last_words()}")

    def check(self) -> None:
        """Take note if it ended by itself, which it must not."""
        if self._process is not None and (status := self._process.poll()) is not None:
            self._process = None
            if not self._asked or status not in _ENDS:
                self.problems.append(f"{self.name} ended with {status}: {self._last_words()}")

    def _last_words(self) -> str:
        lines = self.output.read_text("utf-8", "replace").splitlines()
        return " | ".join(lines[-12:])[-1500:]


def cast(parts: Sequence[tuple[str, int]], folder: Path, url: str, seed: int) -> list[Actor]:
    """
    Make all processes, not yet started.

    Args:
        parts: Roles, and how many of each.
        folder: Takes the diaries.
        url: The brokers.
        seed: Chance begins here.
    """
    (folder.parent / "output").mkdir(parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    return [
        Actor(f"{role}-{number}", folder, url, seed)
        for role, count in parts
        for number in range(count)
    ]
