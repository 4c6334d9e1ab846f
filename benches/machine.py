"""The machine: what it is, and how fast its disk is at this moment."""

from __future__ import annotations

import os
import platform
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from benches.tasks import Figures, percentiles
from tinymq import __version__

_WRITES = 100
_BLOCK = bytes(4096)


def facts() -> str:
    """Describe the machine and what runs on it, in one line."""
    gib = psutil.virtual_memory().total / 2**30
    return ", ".join(
        [
            f"{psutil.cpu_count()} cores of {_model()}",
            f"{gib:.0f} GiB",
            f"{platform.system()} {platform.release()}",
            f"{platform.python_implementation()} {platform.python_version()}",
            f"tinymq {__version__}",
            *(f"{name} {_version(name)}" for name in ("twisted", "msgpack", "google-crc32c")),
        ]
    )


def probe(folder: Path) -> Figures:
    """Append blocks of 4 KiB with an fdatasync each, and tell how long one takes."""
    path = folder / "probe"
    number = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    taken = []
    try:
        for _ in range(_WRITES):
            os.write(number, _BLOCK)
            began = time.perf_counter()
            os.fdatasync(number)
            taken.append(time.perf_counter() - began)
    finally:
        os.close(number)
        path.unlink()
    return percentiles(taken)


def _model() -> str:
    for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "?"
