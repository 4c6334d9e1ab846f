"""The command as a process, against a real broker."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tinymq
from tests.conftest import LONG
from tinymq.verify.process import BrokerProcess

pytestmark = pytest.mark.process

COMMAND = [sys.executable, "-m", "tinymq.cli"]
ROOT = str(Path(tinymq.__file__).parent.parent)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Return a running broker, on a path with spaces and letters that are not ASCII."""
    broker = BrokerProcess(tmp_path_factory.mktemp("a brökers data") / "data")
    broker.start()
    yield broker
    broker.stop()


def environment(broker: BrokerProcess) -> dict[str, str]:
    """Give the environment that points to a broker."""
    return os.environ | {"PYTHONPATH": ROOT, "TINYMQ_URL": broker.url, "NO_COLOR": "1"}


def tinymq_run(broker: BrokerProcess, *arguments: str, **more: Any) -> Any:
    """Run the command to its end."""
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        env=environment(broker),
        timeout=60,
        check=False,
        **more,
    )


def tinymq_start(broker: BrokerProcess, *arguments: str, **more: Any) -> subprocess.Popen[bytes]:
    """Start the command, its output in a pipe without a buffer that `communicate` skips."""
    return subprocess.Popen(
        [*COMMAND, *arguments],
        bufsize=0,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(broker),
        **more,
    )


def first_line(process: subprocess.Popen[bytes]) -> bytes:
    """Wait for the first line of output."""
    assert process.stdout is not None
    return process.stdout.readline()


def test_a_pipe_through_a_topic(broker: BrokerProcess) -> None:
    """What goes in line by line comes out so, whatever the bytes."""
    content = b"".join(b"%d \xff\xfe\x00 line\n" % number for number in range(20_000))
    published = tinymq_run(broker, "pub", "pipe", "-l", "-o", "json", input=content)
    assert json.loads(published.stdout)["count"] == 20_000
    consumed = tinymq_run(broker, "consume", "pipe", "-e", "-f", r"%v\n")
    assert (consumed.returncode, consumed.stderr) == (0, b"")
    assert consumed.stdout == content


def test_lines_go_out_as_they_come(broker: BrokerProcess) -> None:
    """A line is published at once, although more may follow."""
    tinymq_run(broker, "topic", "create", "slow")
    publisher = tinymq_start(broker, "pub", "slow", "-l", stdin=subprocess.PIPE)
    assert publisher.stdin is not None
    publisher.stdin.write(b"at once\n")
    publisher.stdin.flush()
    consumed = tinymq_run(broker, "consume", "slow", "--max", "1")
    assert consumed.stdout == b"at once\n"
    _, errors = publisher.communicate()
    assert (publisher.returncode, errors) == (0, b"")


def test_a_reader_that_goes_away(broker: BrokerProcess) -> None:
    """`tinymq consume | head -1` ends well and without a word, though it would never end."""
    tinymq_run(broker, "pub", "head", "-l", input=b"".join(b"%d\n" % n for n in range(50_000)))
    reader = tinymq_start(broker, "consume", "head")
    assert first_line(reader) == b"0\n"
    assert reader.stdout is not None
    reader.stdout.close()
    assert reader.stderr is not None
    errors = reader.stderr.read()
    reader.stderr.close()
    assert (reader.wait(30), errors) == (0, b"")


@pytest.mark.parametrize("verb", ["consume", "tail"])
def test_ctrl_c(broker: BrokerProcess, verb: str) -> None:
    """Ctrl-C is the good end of a verb that follows a topic."""
    tinymq_run(broker, "pub", "follow", "one")
    follower = tinymq_start(broker, verb, "follow")
    assert b"one" in first_line(follower)
    follower.send_signal(signal.SIGINT)
    _, errors = follower.communicate(timeout=30)
    assert (follower.returncode, errors) == (0, b"")


def test_an_outage(tmp_path: Path) -> None:
    """Who follows a topic is told of a broker that went away, and goes on when it is back."""
    broker = BrokerProcess(tmp_path / "data")
    broker.start()
    try:
        tinymq_run(broker, "pub", "t", "one")
        follower = tinymq_start(broker, "consume", "t")
        assert first_line(follower) == b"one\n"
        broker.kill()
        assert follower.stderr is not None
        assert b" lost, trying again: " in follower.stderr.readline()
        broker.start()
        assert follower.stderr.readline().endswith(b" is back\n")
        tinymq_run(broker, "pub", "t", input=b"\xff\x00 two")
        assert first_line(follower) == b"\xff\x00 two\n"
        follower.send_signal(signal.SIGINT)
        _, errors = follower.communicate(timeout=30)
        assert (follower.returncode, errors) == (0, b"")
    finally:
        broker.stop()


def test_the_port_of_the_dashboard(tmp_path: Path) -> None:
    """Who takes the dashboard's port for the broker's is told which port is right."""
    broker = BrokerProcess(tmp_path / "data", http="tcp:0:interface=127.0.0.1")
    broker.start()
    try:
        wrong = broker.dashboard.replace("http://", "tinymq://")
        result = tinymq_run(broker, "--url", wrong, "--timeout", "1s", "topic", "ls")
        assert result.returncode == 3
        assert f"is the dashboard; clients connect to {broker.url}" in result.stderr.decode()
    finally:
        broker.stop()


def test_a_damaged_end(tmp_path: Path) -> None:
    """A topic whose last records are damaged on the disk is read to its end all the same."""
    broker = BrokerProcess(tmp_path / "data")
    broker.start()
    try:
        for value in ("one", "two", "three"):
            tinymq_run(broker, "pub", "torn", value)
        broker.stop()
        (segment,) = tmp_path.glob("data/topics/*/0/data/*.log")
        content = bytearray(segment.read_bytes())
        content[-1] ^= 1
        segment.write_bytes(content)
        broker.start()
        for arguments in (
            ["consume", "torn", "-e"],
            ["tail", "torn", "--no-follow", "-f", "%v\\n"],
        ):
            result = tinymq_run(broker, *arguments)
            assert (result.returncode, result.stdout, result.stderr) == (0, b"one\ntwo\n", b"")
        peeked = tinymq_run(broker, "peek", "torn", "-f", "%o ")
        assert (peeked.returncode, peeked.stdout) == (0, b"0 1 ")
    finally:
        broker.stop()


def test_nobody_answers(broker: BrokerProcess) -> None:
    """Where no broker is the status is 3, at once, with what to do about it."""
    url = "tinymq://127.0.0.1:1"
    for verb in (["topic", "ls"], ["pub", "t", "x"], ["tail", "t"]):
        result = tinymq_run(broker, "--url", url, *verb, "--timeout", "60s")
        assert result.returncode == 3
        assert result.stderr.decode() == (
            f"error: no broker answers at {url} "
            "(hint: is it running? --url names another; "
            "`twistd -n tinymq` starts one, `tinymq up` several)\n"
        )


def test_a_table_on_a_terminal(broker: BrokerProcess) -> None:
    """A terminal gets a table, without colour when NO_COLOR is set."""
    tinymq_run(broker, "topic", "create", "shown")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "topic", "ls"], stdout=theirs, env=environment(broker) | {"COLUMNS": "100"}
    )
    assert process.wait(30) == 0
    os.close(theirs)
    output = os.read(ours, 65536).decode()
    os.close(ours)
    assert "shown" in output
    assert "─" in output
    assert "\x1b[3" not in output


def test_bench(broker: BrokerProcess) -> None:
    """Every measurement runs on a real broker."""
    for what in ("pub", "sub", "e2e"):
        result = tinymq_run(broker, "bench", what, "--msgs", "2000", "--json")
        assert json.loads(result.stdout)["messages"] >= 2000


def test_offline_check_of_a_running_broker(broker: BrokerProcess) -> None:
    """Looking into the folder of a running broker is harmless; repairing it is refused."""
    tinymq_run(broker, "pub", "offline", "x")
    looked = tinymq_run(broker, "log", "verify", str(broker.data), "-o", "json")
    assert {"offline", "pipe"} & {row["topic"] for row in json.loads(looked.stdout)["topics"]}
    repaired = tinymq_run(broker, "log", "repair", str(broker.data), "--yes")
    assert repaired.returncode == 2


def test_verify_crash(broker: BrokerProcess, tmp_path: Path) -> None:
    """A few kills and power losses: every promise is kept."""
    kills, cuts = ("50", "20") if LONG else ("3", "2")
    result = subprocess.run(
        [
            *COMMAND, "verify-crash", "--kills", kills, "--power-loss", cuts,
            "--seconds", "0.3", "--folder", str(tmp_path / "work"), "-o", "json",
        ],
        capture_output=True,
        env=environment(broker),
        timeout=600,
        check=False,
    )  # fmt: skip
    report = json.loads(result.stdout)
    assert report["problems"] == [], result.stderr
    assert result.returncode == 0
    assert report["held"] is True
    assert report["recovered"] > 0
    assert list((tmp_path / "work").iterdir()) == []


def test_a_channel_in_a_pipe(broker: BrokerProcess) -> None:
    """What is written with --ack is finished, and does not come again."""
    tinymq_run(broker, "pub", "line", "-l", input=b"one\ntwo\nthree\n")
    consume = ("consume", "line", "-c", "work", "--ack")
    first = tinymq_run(broker, *consume, "-n", "2")
    assert (first.returncode, first.stdout, first.stderr) == (0, b"one\ntwo\n", b"")
    rest = tinymq_run(broker, *consume, "--exit", "-o", "json")
    assert [json.loads(line)["value"] for line in rest.stdout.splitlines()] == ["three"]
    assert tinymq_run(broker, *consume, "--exit").stdout == b""


def test_commands_that_take_longer_than_a_lease(broker: BrokerProcess) -> None:
    """While a command runs its message is nobody else's; Ctrl-C lets it end."""
    tinymq_run(broker, "pub", "slow-work", "-l", input=b"a\nb\nc\n")
    tinymq_run(broker, "channel", "create", "slow-work", "c", "-s", "lease.ms=100")
    line = "echo begun $TINYMQ_OFFSET $TINYMQ_ATTEMPT; sleep 0.5; echo ended $TINYMQ_OFFSET"
    worker = tinymq_start(
        broker, "consume", "slow-work", "-c", "c", "--jobs", "2", "--shell", "--exec", line
    )
    assert first_line(worker).split()[0] == b"begun"
    worker.send_signal(signal.SIGINT)
    output, errors = worker.communicate(timeout=30)
    assert (worker.returncode, errors) == (0, b"")
    begun = output.count(b"begun") + 1
    assert output.count(b"ended") == begun
    info = json.loads(tinymq_run(broker, "channel", "info", "slow-work", "c", "-o", "json").stdout)
    assert (info["lag"], info["in_flight"]) == (3 - begun, 0)


def test_commands_whose_reader_goes_away(broker: BrokerProcess) -> None:
    """`tinymq consume --exec cat | head -1` ends well, and no message has failed for it."""
    tinymq_run(broker, "pub", "heads", "-l", input=b"".join(b"%d\n" % n for n in range(50)))
    worker = tinymq_start(broker, "consume", "heads", "-c", "c", "--exec", "echo $TINYMQ_OFFSET")
    assert first_line(worker) == b"$TINYMQ_OFFSET\n"
    assert worker.stdout is not None
    worker.stdout.close()
    assert worker.stderr is not None
    errors = worker.stderr.read()
    worker.stderr.close()
    assert (worker.wait(30), b"exit status" in errors) == (0, False)
    info = json.loads(tinymq_run(broker, "channel", "info", "heads", "c", "-o", "json").stdout)
    assert (info["totals"]["requeued"], info["in_flight"], info["waiting"]) == (0, 0, 0)
    assert 0 < info["ready"] < 50
