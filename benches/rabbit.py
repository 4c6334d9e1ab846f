"""RabbitMQ as a process of its own: its own node, ports, folder and port mapper."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil
from typing_extensions import override

from benches.programs import Program
from benches.servers import Peer, free_port
from benches.workers import Failed


class RabbitMQ(Peer):
    """
    RabbitMQ with its defaults; the policy of a topic is the type of its queue.

    Args:
        program: What is run.
        folder: Its data.
    """

    def __init__(self, program: Program, folder: Path) -> None:
        self._epmd = free_port()
        found = Path(program.path).resolve().with_name("rabbitmq-server")
        super().__init__(Program(str(found)) if found.exists() else program, folder)

    @override
    def _arguments(self) -> Sequence[str]:
        return ()

    @override
    def _version(self) -> str:
        done = subprocess.run(
            ["dpkg-query", "-W", "-f", "${Version}", "rabbitmq-server"],
            capture_output=True,
            text=True,
            check=False,
        )
        return f"RabbitMQ {done.stdout.strip() or '?'}"

    @override
    def _environment(self) -> dict[str, str]:
        here = str(self._folder)
        settings = self._folder / "rabbitmq.conf"
        settings.write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self._port}\nlog.file.level = warning\n", "utf-8"
        )
        (self._folder / "plugins").write_text("[].\n", "utf-8")
        return {
            **os.environ,
            "HOME": here,
            "RABBITMQ_NODENAME": f"bench{self._port}@localhost",
            "RABBITMQ_MNESIA_BASE": f"{here}/mnesia",
            "RABBITMQ_LOG_BASE": f"{here}/logs",
            "RABBITMQ_CONFIG_FILE": str(settings),
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{here}/plugins",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "ERL_EPMD_PORT": str(self._epmd),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }

    @property
    @override
    def process(self) -> psutil.Process:
        """The one of the node, not of the script that waits for it."""
        for child in super().process.children(recursive=True):
            if child.name().startswith("beam"):
                return child
        raise Failed("the node of RabbitMQ is gone")

    @override
    def stop(self) -> None:
        super().stop()
        epmd = shutil.which("epmd")
        if epmd is not None:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(
                    [epmd, "-kill"],
                    env={**os.environ, "ERL_EPMD_PORT": str(self._epmd)},
                    capture_output=True,
                    timeout=5,
                    check=False,
                )

    @override
    def create(self, topic: str, partitions: int, sync: str) -> None:
        with self._channel() as channel:
            channel.queue_declare(topic, durable=True, arguments={"x-queue-type": sync})

    @override
    def remove(self, topic: str) -> None:
        with self._channel() as channel:
            channel.queue_delete(topic)

    @override
    def length(self, topic: str) -> int:
        with self._channel() as channel:
            return int(channel.queue_declare(topic, passive=True).method.message_count)

    @contextlib.contextmanager
    def _channel(self) -> Iterator[Any]:
        pika = import_module("pika")  # only where there is such a peer
        parameters = pika.ConnectionParameters("127.0.0.1", self._port, heartbeat=0)
        connection = pika.BlockingConnection(parameters)
        try:
            yield connection.channel()
        finally:
            connection.close()

    @override
    def _listens(self) -> bool:
        """It listens before it is ready."""
        try:
            with self._channel():
                return True
        except Exception:  # noqa: BLE001 - pika has many, and all of them say: not yet
            return False
