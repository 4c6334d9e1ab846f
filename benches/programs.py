"""
Where the peers' programs come from: this machine, or a folder of our own.

What is missing is fetched as packages of the distribution and of PyPI and
unpacked into the scratch folder; nothing is installed on the machine.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from attrs import frozen

_PATIENCE = 120
#: Servers may stand where only root looks.
_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])

#: Program to the Debian packages that hold it and what it needs.
_PACKAGES = {
    "redis-server": ("redis-server", "redis-tools", "libjemalloc2", "liblzf1", "libatomic1"),
    "beanstalkd": ("beanstalkd",),
}
#: Program to the modules and packages of its Python client.
_CLIENTS = {
    "redis-server": ("redis", "hiredis"),
    "beanstalkd": ("greenstalk",),
    "rabbitmq-server": ("pika",),
}
#: Programs that need more than their own packages, and are used only where they are installed.
_INSTALLED = {"rabbitmq-server": "apt-get install rabbitmq-server"}


@frozen
class Program:
    """
    A program that can be run.

    Attributes:
        path: Its file.
        libraries: The folder of its libraries, or an empty text.
    """

    path: str
    libraries: str = ""

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which it finds its libraries."""
        found = dict(os.environ)
        if self.libraries:
            found["LD_LIBRARY_PATH"] = self.libraries
        return found


class Programs:
    """
    Finds and fetches programs.

    Args:
        folder: What is fetched goes there, and is found there the next time.
    """

    def __init__(self, folder: Path) -> None:
        self.python = folder / "python"
        self._folder = folder

    def get(self, name: str) -> Program:
        """
        Return a peer's server, once its Python client is there, too.

        Raises:
            OSError: It cannot be had.
        """
        if name in _INSTALLED and shutil.which(name, path=_PATH) is None:
            raise OSError(f"it is not installed ({_INSTALLED[name]})")
        missing = [client for client in _CLIENTS[name] if not self._has(client)]
        if missing:
            pip = (sys.executable, "-m", "pip", "install", "--quiet", "--target", str(self.python))
            self._call([*pip, *missing], self._folder)
        return self._server(name)

    def _has(self, module: str) -> bool:
        return importlib.util.find_spec(module) is not None or (self.python / module).is_dir()

    def _server(self, name: str) -> Program:
        found = shutil.which(name, path=_PATH)
        if found:
            return Program(found)
        root = self._folder / "root"
        if not (root / f"usr/bin/{name}").exists():
            packages = self._folder / "packages" / name
            packages.mkdir(parents=True, exist_ok=True)
            self._call(["apt-get", "download", "--quiet", *_PACKAGES[name]], packages)
            for package in packages.glob("*.deb"):
                self._call(["dpkg", "-x", str(package), str(root)], packages)
        libraries = sorted(str(path) for path in (root / "usr/lib").glob("*-linux-gnu"))
        return Program(str(root / f"usr/bin/{name}"), ":".join(libraries))

    @staticmethod
    def _call(command: Sequence[str], folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=_PATIENCE,
                stdin=subprocess.DEVNULL,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise OSError(f"{command[0]} took too long") from error
        if done.returncode:
            words = (done.stderr or done.stdout).strip().splitlines()
            raise OSError(f"{command[0]} failed: {words[-1] if words else done.returncode}")
