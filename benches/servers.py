"""The brokers that are measured, as processes: tinymq and its peers."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

import psutil
from typing_extensions import override

from benches.programs import Program
from benches.workers import Failed
from tinymq.sync import Client
from tinymq.verify.process import BrokerProcess

_PATIENCE = 30.0


class Server(ABC):
    """
    A server with a folder of its own.

    Attributes:
        where: What its clients are told.
        version: What it is.
    """

    where: str
    version: str

    @abstractmethod
    def start(self) -> None:
        """Start it and wait until it listens."""

    @abstractmethod
    def stop(self) -> None:
        """End it; nothing happens when it does not run."""

    @property
    @abstractmethod
    def process(self) -> psutil.Process:
        """Its process."""

    @abstractmethod
    def create(self, topic: str, partitions: int, sync: str) -> None:
        """Make a topic."""

    @abstractmethod
    def remove(self, topic: str) -> None:
        """Remove a topic with its messages."""

    @abstractmethod
    def length(self, topic: str) -> int:
        """Count the messages of a topic."""

    def unsettled(self, topic: str, channel: str) -> int:
        """
        Count the messages that a channel, or group, has not settled; by default all there are.

        Args:
            topic: The topic.
            channel: Who takes its messages.
        """
        return self.length(topic)

    @property
    def cpu(self) -> float:
        """Seconds of processor time so far."""
        times = self.process.cpu_times()
        return float(times.user + times.system)

    @property
    def memory(self) -> int:
        """Resident bytes."""
        return int(self.process.memory_info().rss)

    @property
    def open_files(self) -> int:
        """Descriptors in use."""
        return int(self.process.num_fds())


class TinyMQ(Server):
    """
    A tinymq broker from this checkout.

    Args:
        folder: Its data.
    """

    version = "tinymq"

    def __init__(self, folder: Path) -> None:
        self.broker = BrokerProcess(folder, http="tcp:0:interface=127.0.0.1")
        self.where = ""
        self._admin: Client | None = None

    @override
    def start(self) -> None:
        self.broker.start()
        self.where = self.broker.url

    @override
    def stop(self) -> None:
        if self.broker.pid:
            self.broker.stop()

    @property
    @override
    def process(self) -> psutil.Process:
        return psutil.Process(self.broker.pid)

    @override
    def create(self, topic: str, partitions: int, sync: str) -> None:
        with Client(self.where) as client:
            client.admin.create_topic(topic, partitions, {"sync": sync})

    @override
    def remove(self, topic: str) -> None:
        with Client(self.where) as client:
            client.admin.delete_topic(topic)

    @override
    def length(self, topic: str) -> int:
        with Client(self.where) as client:
            return int(client.admin.topic(topic)["topic"]["messages"])

    @override
    def unsettled(self, topic: str, channel: str) -> int:
        with Client(self.where) as client:
            found = client.admin.operate("channel.info", topic=topic, name=channel)
            return int(found["channel"]["lag"])


class Peer(Server):
    """
    A foreign server, which speaks lines of text.

    Args:
        program: What is run.
        folder: Its data, removed at its end.
    """

    def __init__(self, program: Program, folder: Path) -> None:
        self._program = program
        self._folder = folder
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.where = f"127.0.0.1:{self._port}"
        self.version = self._version()

    @abstractmethod
    def _arguments(self) -> Sequence[str]:
        """Its command line."""

    @abstractmethod
    def _version(self) -> str:
        """Its name and version."""

    def _environment(self) -> dict[str, str]:
        """Its variables."""
        return self._program.environment

    @override
    def start(self) -> None:
        self._folder.mkdir(parents=True)
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [self._program.path, *self._arguments()],
                cwd=self._folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        until = time.monotonic() + _PATIENCE
        while not self._listens():
            if self._process.poll() is not None or time.monotonic() > until:
                self.stop()
                raise Failed(f"{self._program.path} does not listen, see {self._folder}/log")
            time.sleep(0.02)

    @override
    def stop(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    @override
    def process(self) -> psutil.Process:
        assert self._process is not None
        return psutil.Process(self._process.pid)

    def ask(self, line: str) -> str:
        """Send a line and return the beginning of the answer."""
        with socket.create_connection(("127.0.0.1", self._port), _PATIENCE) as connection:
            connection.sendall(line.encode() + b"\r\n")
            return connection.recv(4096).decode()

    def _listens(self) -> bool:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self._port), 0.5).close()
            return True
        return False

    def _said(self, argument: str) -> str:
        done = subprocess.run(
            [self._program.path, argument],
            env=self._program.environment,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
        return done.stdout.strip()


class Redis(Peer):
    """
    Redis with an append-only file, which is not rewritten meanwhile.

    Args:
        program: What is run.
        folder: Its data.
        fsync: Its setting ``appendfsync``.
    """

    def __init__(self, program: Program, folder: Path, fsync: str) -> None:
        self._fsync = fsync
        super().__init__(program, folder)

    @override
    def _arguments(self) -> Sequence[str]:
        settings = {
            "bind": "127.0.0.1",
            "port": str(self._port),
            "dir": str(self._folder),
            "appendonly": "yes",
            "appendfsync": self._fsync,
            "auto-aof-rewrite-percentage": "0",
            "save": "",
        }
        return [word for name, value in settings.items() for word in (f"--{name}", value)]

    @override
    def _version(self) -> str:
        words = dict(word.partition("=")[::2] for word in self._said("--version").split())
        return f"Redis {words.get('v', '?')}"

    @override
    def create(self, topic: str, partitions: int, sync: str) -> None:
        """A stream begins with its first entry."""

    @override
    def remove(self, topic: str) -> None:
        self.ask(f"UNLINK {topic}")

    @override
    def length(self, topic: str) -> int:
        return int(self.ask(f"XLEN {topic}").strip(":\r\n"))

    @override
    def unsettled(self, topic: str, channel: str) -> int:
        pending = self.ask(f"XPENDING {topic} {channel}").split("\r\n")[1]
        return int(pending.strip(":"))


class Beanstalkd(Peer):
    """
    Beanstalkd with a binlog.

    Args:
        program: What is run.
        folder: Its data.
        fsync: Its option for fsync, such as ``-f50``.
    """

    def __init__(self, program: Program, folder: Path, fsync: str) -> None:
        self._fsync = fsync
        super().__init__(program, folder)

    @override
    def _arguments(self) -> Sequence[str]:
        place = ["-l", "127.0.0.1", "-p", str(self._port), "-b", str(self._folder)]
        return [*place, self._fsync]

    @override
    def _version(self) -> str:
        return self._said("-v")

    @override
    def create(self, topic: str, partitions: int, sync: str) -> None:
        """A tube begins with its first job."""

    @override
    def remove(self, topic: str) -> None:
        """Jobs go one by one only; the few that were put stay until the end."""

    @override
    def length(self, topic: str) -> int:
        for line in self.ask(f"stats-tube {topic}").splitlines():
            name, _, value = line.partition(": ")
            if name == "current-jobs-ready":
                return int(value)
        return 0


def free_port() -> int:
    """Find a port of TCP that nobody listens on."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])
