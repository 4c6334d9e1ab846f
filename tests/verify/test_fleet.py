"""The processes of a cluster, without starting one: addresses, logs, copies."""

from __future__ import annotations

import random
import socket
from pathlib import Path
from typing import cast

from tinymq.verify.fleet import META, Fleet, bad_lines, copy_folder, free_port
from tinymq.verify.intruders import last_error

LOG = """2026-11-29T17:34:00.028Z info     clients connect to tinymq://127.0.0.1:1
2026-11-29T17:34:01.028Z warn     the MetaServer does not answer (error)
2026-11-29T17:34:02.028Z error    the replica cannot be kept
2026-11-29T17:34:03.028Z critical b1 is live
Traceback (most recent call last):
  File "x.py", line 1
Unhandled error in Deferred:
tinymq: error: the first
tinymq: error: the last
"""


def test_addresses(tmp_path: Path) -> None:
    """Each process has an address of its own, and each client begins with another one."""
    fleet = Fleet(tmp_path / "new", ("b1", "b2"), random.Random(1))
    places = fleet.url().removeprefix("tinymq://").split(",")
    assert len(set(places)) == 3
    assert fleet.url(1) == "tinymq://" + ",".join([*places[1:], places[0]])
    assert fleet.url(3) == fleet.url()
    assert list(fleet.processes) == [META, "b1", "b2"]
    assert fleet.meta == places[0]
    assert (fleet.errors(), fleet.stop()) == ([], [])
    fleet.kill()


def test_free_port() -> None:
    """A port where something listens is not taken."""

    class Twice:
        """Chance that tries a taken one first."""

        def choice(self, ports: object) -> int:
            """Give the next."""
            return int(given.pop(0))

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        taken = listening.getsockname()[1]
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            free = other.getsockname()[1]
        given = [taken, free]
        assert free_port(cast("random.Random", Twice())) == free


def test_bad_lines(tmp_path: Path) -> None:
    """Errors and tracebacks are found in a log, warnings are none."""
    log = tmp_path / "log"
    assert bad_lines(log) == []
    log.write_text(LOG)
    assert [line.split()[-1] for line in bad_lines(log)] == ["kept", "live", "last):", "Deferred:"]


def test_last_error(tmp_path: Path) -> None:
    """What a process said when it did not start is the last line of its kind."""
    log = tmp_path / "log"
    assert last_error(log) == ""
    log.write_text(LOG)
    assert last_error(log) == "the last"


def test_copy_of_a_folder_in_use(tmp_path: Path) -> None:
    """A file that vanishes while a folder is copied does not matter."""
    source = tmp_path / "source"
    (source / "below").mkdir(parents=True)
    (source / "below" / "file").write_text("kept")
    (source / "gone").symlink_to(source / "nowhere")
    copy_folder(source, tmp_path / "target")
    assert (tmp_path / "target" / "below" / "file").read_text() == "kept"
    assert not (tmp_path / "target" / "gone").exists()
