"""The processes of one cluster: a MetaServer and its brokers, each to be killed and started."""

from __future__ import annotations

import random
import re
import shutil
import signal
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tinymq.verify.process import BrokerProcess

#: Ports below those that the system gives to outgoing connections: a client that
#: knocks at a dead broker's door must not find itself there.
_PORTS: Final = range(20_000, 32_000)
#: Lines of a log that nothing excuses.
_BAD: Final = re.compile(r"^\S+Z (error|critical)\b|Traceback \(most recent|Unhandled")
#: The name of the MetaServer among the processes.
META: Final = "meta"
#: Most lines of one log that are told.
_MOST_TOLD: Final = 5


class Fleet:
    """
    A MetaServer and brokers, not yet started.

    Args:
        folder: Holds their data folders and logs.
        brokers: The names of the brokers.
        chance: Picks ports.

    Attributes:
        processes: By name; the MetaServer's is `META`.
        brokers: The names of the brokers.
    """

    def __init__(self, folder: Path, brokers: Sequence[str], chance: random.Random) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.brokers = tuple(brokers)
        self._chance = chance
        place = f"tinymq://127.0.0.1:{free_port(chance)}"
        self.meta = place.removeprefix("tinymq://")
        arguments = ("--role=meta", "--name=meta")
        self.processes = {META: BrokerProcess(folder / META, url=place, arguments=arguments)}
        for name in brokers:
            self.processes[name] = self.another(folder / name, name)

    def another(self, data: Path, name: str) -> BrokerProcess:
        """Make a further broker of this cluster, not yet started."""
        return BrokerProcess(
            data,
            url=f"tinymq://127.0.0.1:{free_port(self._chance)}",
            arguments=("--role=broker", f"--meta={self.meta}", f"--name={name}"),
        )

    def url(self, first: int = 0) -> str:
        """Give the addresses of all processes, beginning with another one for each number."""
        places = [each.url.removeprefix("tinymq://") for each in self.processes.values()]
        first %= len(places)
        return "tinymq://" + ",".join([*places[first:], *places[:first]])

    def start(self) -> None:
        """
        Start everything, and wait until it listens.

        Raises:
            UnreachableError: One did not start.
        """
        for process in self.processes.values():
            process.launch()
        for process in self.processes.values():
            process.wait()

    def stop(self) -> list[str]:
        """Stop everything in order, and say which process ended badly."""
        bad = []
        for name in (*self.brokers, META):
            status = self.processes[name].stop()
            if status not in {0, -signal.SIGTERM}:
                bad.append(f"the exit status of {name} after SIGTERM was {status}")
        return bad

    def kill(self) -> None:
        """End whatever still runs."""
        for process in self.processes.values():
            process.kill()

    def errors(self) -> list[str]:
        """Find the lines in the logs that must not be."""
        return [
            f"{name} logged: {line}"
            for name, process in self.processes.items()
            for line in bad_lines(process.log)
        ]


def free_port(chance: random.Random) -> int:
    """Find a port where nothing listens."""
    while True:
        port = chance.choice(_PORTS)
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def bad_lines(log: Path) -> list[str]:
    """Give the lines of a log that tell of errors, the first few."""
    try:
        lines = log.read_text("utf-8", "replace").splitlines()
    except OSError:
        return []
    return [line[:300] for line in lines if _BAD.search(line)][:_MOST_TOLD]


def copy_folder(source: Path, target: Path) -> None:
    """Copy a data folder that is in use: what vanishes meanwhile is left out."""

    def take(here: str, there: str) -> str:
        try:
            return shutil.copy2(here, there)
        except FileNotFoundError:
            return there

    shutil.copytree(source, target, copy_function=take)
