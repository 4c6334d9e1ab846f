"""Processes that must not get in: copies of a broker, and brokers of another cluster."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path
from typing import Final

from tinymq.verify.clusterreport import ClusterReport
from tinymq.verify.fleet import Fleet, copy_folder
from tinymq.verify.process import BrokerProcess

#: Seconds in which a process that is refused must have ended.
PATIENCE: Final = 45.0
_GLANCE: Final = 0.1


class Intruders:
    """
    Starts what must be refused, and judges how it ends.

    Args:
        fleet: The cluster.
        folder: Where their data folders are made.
        chance: Picks ports.
    """

    def __init__(self, fleet: Fleet, folder: Path, chance: random.Random) -> None:
        self._fleet = fleet
        self._folder = folder
        self._chance = chance
        self._processes: dict[str, BrokerProcess] = {}

    def prepare(self) -> None:
        """Make the data folder of a broker of another cluster."""
        other = Fleet(self._folder / "other", ["stranger"], self._chance)
        try:
            other.start()
            other.stop()
        finally:
            other.kill()

    def begin(self, name: str) -> None:
        """
        Start a copy of a broker, which must live until `judge` was called.

        As soon as the broker is dead nothing tells a copy from it.
        """
        target = self._folder / f"copy-{name}"
        copy_folder(self._fleet.processes[name].data, target)
        self._launch("a copy of a broker's data folder", self._fleet.another(target, name))

    def refuse_others(self, report: ClusterReport) -> None:
        """Start the others, one after the other, and judge them."""
        first = self._fleet.brokers[0]
        same = self._fleet.another(self._fleet.processes[first].data, first)
        same.log = self._folder / "same.log"
        self._launch("a second process on a broker's data folder", same)
        self.judge(report)
        foreign = self._folder / "foreign"
        shutil.copytree(self._folder / "other" / "stranger", foreign)
        process = self._fleet.another(foreign, "stranger")
        self._launch("a broker of another cluster", process)
        self.judge(report)

    def judge(self, report: ClusterReport) -> None:
        """See that each was refused with words and a status."""
        for what, process in self._processes.items():
            deadline = time.monotonic() + PATIENCE
            while process.status is None and time.monotonic() < deadline:
                time.sleep(_GLANCE)
            status, words = process.status, last_error(process.log)
            if status is None:
                report.problem(f"{what} was not refused within {PATIENCE:.0f} s")
            elif status <= 0 or not words:
                report.problem(f"{what} ended with status {status}, saying {words!r}")
            report.notes.append(f"{what} is refused with status {status}: {words}")
            process.kill()
        self._processes.clear()

    def kill(self) -> None:
        """End whatever still runs."""
        for process in self._processes.values():
            process.kill()

    def _launch(self, what: str, process: BrokerProcess) -> None:
        process.launch()
        self._processes[what] = process


def last_error(log: Path) -> str:
    """Give the last line of a log that names an error of the start."""
    try:
        lines = log.read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    told = [line for line in lines if line.startswith("tinymq: error: ")]
    return told[-1].removeprefix("tinymq: error: ") if told else ""
