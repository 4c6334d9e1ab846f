"""Data folders as operators leave them: closed to the broker's user, or copied while it runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Final

import pytest

import tinymq
from tinymq.sync import Client
from tinymq.verify.process import TWISTD, BrokerProcess

pytestmark = pytest.mark.process

ROOT: Final = str(Path(tinymq.__file__).parent.parent)
NOBODY: Final = 65_534
PATIENCE: Final = 60
AS_NOBODY: Final = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")


@pytest.fixture
def place() -> Iterator[Path]:
    """Return a folder that every user may enter, with a space and a letter that is no ASCII."""
    folder = Path(tempfile.mkdtemp(prefix="tinymq é "))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def data(place: Path) -> Path:
    """Return a data folder that holds a topic and belongs to nobody, who can run a broker."""
    if os.geteuid() != 0 or shutil.which(AS_NOBODY[0]) is None:
        pytest.skip("only root can be another user")
    probe = [*AS_NOBODY, sys.executable, "-c", "import tinymq.tap"]
    if subprocess.run(probe, capture_output=True, env=environment(), check=False).returncode:
        pytest.skip("another user cannot read this installation")
    broker = BrokerProcess(place / "data")
    broker.start()
    with Client(broker.url) as client:
        client.producer().send("t", b"x")
    broker.stop()
    for path in (broker.data, *broker.data.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    return broker.data


def environment() -> dict[str, str]:
    """Let a process find this tinymq and leave nothing behind."""
    return os.environ | {"PYTHONPATH": ROOT, "PYTHONDONTWRITEBYTECODE": "1"}


def refusal(data: Path) -> str:
    """Start a broker as nobody, who must not succeed, and return its one line."""
    command = [*TWISTD, "tinymq", f"--data={data}", "--listen=tcp:0:interface=127.0.0.1"]
    ended = subprocess.run(
        [*AS_NOBODY, *command, "--http=none"],
        capture_output=True,
        text=True,
        cwd="/",
        env=environment(),
        timeout=PATIENCE,
        check=False,
    )
    assert ended.returncode == 1, ended
    assert "Traceback" not in ended.stdout + ended.stderr
    (line,) = ended.stderr.splitlines()
    return line


def test_a_folder_that_is_closed_to_the_user(data: Path) -> None:
    """Whichever part may not be written or entered, the start ends with a line that names it."""
    for part, mode in ((data, 0o555), (data, 0o000), (data / "topics", 0o500)):
        before = part.stat().st_mode
        os.chown(part, 0, 0)
        part.chmod(mode)
        line = refusal(data)
        assert str(part) in line
        assert "Permission denied" in line
        part.chmod(before)
        os.chown(part, NOBODY, NOBODY)
    store = data / "meta.sqlite"
    os.chown(store, 0, 0)
    assert f"{store} may not be read and written by this user" in refusal(data)


def test_a_copy_of_a_running_broker(tmp_path: Path) -> None:
    """
    A folder that was copied under load opens, and each partition holds a beginning of its log.

    What is acknowledged while files are copied may be missing in the copy, but
    nothing is out of order, doubled, or of another record.
    """
    broker = BrokerProcess(tmp_path / "live")
    broker.start()
    enough, stop = threading.Event(), threading.Event()

    def load() -> None:
        with Client(broker.url) as client:
            client.admin.create_topic("t", 2, {"segment.bytes": 65_536})
            producer = client.producer()
            for first in count(0, 20):
                if stop.is_set():
                    return
                values = [b"%d" % number for number in range(first, first + 20)]
                for partition in range(2):
                    producer.send_batch("t", values, partition=partition)
                if first % 500 == 0:
                    client.admin.create_topic(f"more-{first}")
                if first == 2_000:
                    enough.set()

    thread = threading.Thread(target=load)
    thread.start()
    try:
        assert enough.wait(PATIENCE)
        subprocess.run(["cp", "-r", broker.data, tmp_path / "copy"], check=True)
    finally:
        stop.set()
        thread.join()
        broker.kill()
    copy = BrokerProcess(tmp_path / "copy")
    copy.start()
    try:
        with Client(copy.url) as client:
            ends = [row["end"] for row in client.admin.topic("t")["topic"]["partitions"]]
            assert min(ends) > 2_000
            consumer = client.consumer()
            consumer.assign("t")
            found: list[list[tuple[int, bytes | None]]] = [[], []]
            while [len(part) for part in found] != ends:
                batch = consumer.next_batch()
                assert batch is not None
                found[batch.partition] += [(record.offset, record.value) for record in batch]
            for part in found:
                assert part == [(number, b"%d" % number) for number in range(len(part))]
            assert client.producer().send("t", b"new", partition=0).offset == ends[0]
    finally:
        copy.stop()
    assert "Traceback" not in copy.log.read_text()
