"""A broker as a process: what signals and limits of the system do to it."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tinymq.sync import Client
from tinymq.verify.process import BrokerProcess

pytestmark = pytest.mark.process


def test_told_twice_to_stop(tmp_path: Path) -> None:
    """A second SIGTERM while it stops is no error, and the stop stays an orderly one."""
    broker = BrokerProcess(tmp_path / "data")
    broker.start()
    with Client(broker.url) as client:
        client.producer().send("t", b"a")
    # A connection that does not close keeps the stop busy for a moment.
    port = int(broker.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)):
        process = broker.pid
        os.kill(process, signal.SIGTERM)
        time.sleep(0.01)
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(process, number)
        assert broker.stop() == -signal.SIGTERM
    text = broker.log.read_text()
    assert "Traceback" not in text
    assert text.count("stopping: no new") == 1
    assert (tmp_path / "data" / "clean").exists()


def test_few_descriptors(tmp_path: Path) -> None:
    """Log files never take the descriptors that clients need, whatever the setting."""
    broker = BrokerProcess(tmp_path / "data")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    script = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64));"
        "from tests.test_system import fill; fill(sys.argv[1])"
    )
    assert hard >= soft
    done = subprocess.run(
        [sys.executable, "-c", script, str(broker.data)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def fill(data: str) -> None:
    """Publish to more topics than there are descriptors, with the limit of this process."""
    broker = BrokerProcess(Path(data))
    broker.start()
    try:
        for place in range(0, 80, 10):
            # A new connection each time: one must always be possible.
            with Client(broker.url) as client, client.producer() as producer:
                for number in range(place, place + 10):
                    producer.send(f"t{number}", b"a")
        text = broker.log.read_text()
        assert "Traceback" not in text
        assert "raise `ulimit -n`" in text
    finally:
        broker.stop()


@pytest.mark.parametrize("limit", [16, 512])
def test_limit_is_raised(limit: int) -> None:
    """A soft limit that is too low is raised as far as the system lets it."""
    script = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (100, 4096));"
        "from tinymq.config import DEFAULT_CONFIG;"
        "from tinymq.service import BrokerService;"
        f"config = DEFAULT_CONFIG.changed({{'storage.max_open_files': {limit}}});"
        "print(BrokerService(None, config)._open_files(),"
        " resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == [str(limit), "100" if limit == 16 else "1024"]
