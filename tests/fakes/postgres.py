"""A real PostgreSQL, in a folder of its own, on a socket in it."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

#: Seconds that it has to start.
_PATIENCE: Final = 60.0
#: What is quick, since nobody's data depends on it.
_QUICK: Final = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")


def _program(name: str) -> str | None:
    places = [os.environ.get("PATH", ""), *map(str, Path("/usr/lib/postgresql").glob("*/bin"))]
    return shutil.which(name, path=os.pathsep.join(places))


def needs_postgres() -> pytest.MarkDecorator:
    """Skip where no server is installed, but not where everything must be tested."""
    missing = _program("initdb") is None and os.environ.get("CI") != "true"
    return pytest.mark.skipif(
        missing, reason="NO POSTGRESQL is installed: sudo apt-get install postgresql"
    )


class Postgres:
    """
    The server.

    It refuses to run as root, so root lends it to another user. Its folder lies in a short
    place of its own, since the name of a socket has 107 bytes at most.
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="tinymq-pg-", dir="/tmp"))
        self._process: subprocess.Popen[bytes] | None = None
        self._names = 0
        self._user = _other_user() if os.getuid() == 0 else None
        if self._user is not None:
            os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)

    def start(self) -> None:
        """Make its files, start it, and wait until it answers."""
        initdb, postgres = _program("initdb"), _program("postgres")
        assert initdb is not None
        assert postgres is not None
        data = self.folder / "data"
        self._run([initdb, "--pgdata", str(data), "--auth=trust", "--username=tinymq", "-N"])
        options = [f"-c{setting}" for setting in (*_QUICK, "listen_addresses=")]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [postgres, "-D", str(data), "-k", str(self.folder), *options],
                stdout=log,
                stderr=subprocess.STDOUT,
                **self._as_user(),
            )
        until = time.monotonic() + _PATIENCE
        while True:
            try:
                psycopg.connect(self.dsn("postgres")).close()
            except psycopg.OperationalError:
                assert time.monotonic() < until, (self.folder / "log").read_text()
                assert self._process.poll() is None, (self.folder / "log").read_text()
                time.sleep(0.02)
            else:
                return

    def dsn(self, database: str) -> str:
        """Say where a database is."""
        return f"host={self.folder} user=tinymq dbname={database}"

    def database(self) -> str:
        """Make an empty database, and say where it is."""
        self._names += 1
        name = f"d{self._names}"
        with psycopg.connect(self.dsn("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self.dsn(name)

    def stop(self) -> None:
        """End it at once, and remove its files."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)  # at once, without saving anything
            self._process.wait()
            self._process = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, command: list[str]) -> None:
        done = subprocess.run(command, capture_output=True, check=False, **self._as_user())
        assert done.returncode == 0, done.stderr

    def _as_user(self) -> dict[str, Any]:
        more: dict[str, Any] = {"cwd": self.folder}
        if self._user is not None:
            more |= {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": ()}
        return more


def _other_user() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise AssertionError("there is neither a user postgres nor nobody")
