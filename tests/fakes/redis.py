"""A real redis-server, on a free port and with a folder of its own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import ConnectionError as RedisGone
from redis.exceptions import RedisError

#: Seconds that it has to start.
_PATIENCE = 20.0


def needs_redis() -> pytest.MarkDecorator:
    """Skip where no server is installed, but not where everything must be tested."""
    missing = shutil.which("redis-server") is None and os.environ.get("CI") != "true"
    return pytest.mark.skipif(
        missing, reason="no redis-server is installed: sudo apt-get install redis-server"
    )


class RedisServer:
    """
    The server; every write is on the disk before it is answered.

    Args:
        folder: For its files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it is."""
        return f"redis://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        options += ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["redis-server", *options], stdout=log, stderr=subprocess.STDOUT
            )
        until = time.monotonic() + _PATIENCE
        with Redis(port=self.port) as client:
            while True:
                try:
                    client.ping()
                except RedisError as error:
                    if time.monotonic() > until or not isinstance(error, RedisGone | RedisError):
                        raise
                    time.sleep(0.02)
                else:
                    return

    def kill(self) -> None:
        """End it as the kernel does when memory is short."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
