"""`tinymq consume --channel`."""

from __future__ import annotations

import json
import os
import signal
import time
from functools import partial
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.fakes.memory_broker import MemoryBroker
from tests.fakes.memory_channels import NOW_MS
from tests.fakes.memory_queue import MemorySubscription
from tinymq.cli import read
from tinymq.cli.jobs import Command, Job, Outcome
from tinymq.sync import SubscriptionConfig


@pytest.fixture
def filled(broker: MemoryBroker) -> MemoryBroker:
    """Return the broker with five messages in `audit`."""
    for number in range(5):
        broker.append("audit", b"%d" % number, key=b"k", headers=[("kind", b"mail")])
    return broker


def work(run: Run, *words: str, status: int = 0) -> Any:
    """Work the channel `c` of `audit`, which must end so."""
    result = run("consume", "audit", "-c", "c", *words)
    assert result.exit_code == status, (result.stdout, result.stderr, result.exception)
    return result


def subscription(broker: MemoryBroker) -> MemorySubscription:
    """The last subscription."""
    return broker.subscriptions[-1]


def settles(broker: MemoryBroker) -> dict[int, tuple[str, str]]:
    """What became of each message, and why."""
    return {offset: (verb, why) for offset, verb, why in subscription(broker).settled}


class TestAck:
    """--ack."""

    def test_each_is_written_and_finished(self, filled: MemoryBroker, run: Run) -> None:
        """Everything that can be given out is written, and then finished."""
        assert work(run, "--ack", "--exit").stdout == "0\n1\n2\n3\n4\n"
        assert settles(filled) == dict.fromkeys(range(5), ("finish", ""))

    def test_it_goes_on_until_ctrl_c(self, filled: MemoryBroker, run: Run) -> None:
        """Without --exit it waits for more; Ctrl-C is a good end."""
        filled.idle.append(partial(filled.append, "audit", b"late"))  # type: ignore[arg-type]
        assert work(run, "--ack").stdout.splitlines()[-1] == "late"

    def test_sigterm(self, filled: MemoryBroker, run: Run) -> None:
        """SIGTERM is a good end as well, and the old signal handlers are put back."""
        before = signal.getsignal(signal.SIGTERM)
        filled.idle.append(lambda: os.kill(os.getpid(), signal.SIGTERM))
        assert work(run, "--ack").stdout.count("\n") == 5
        assert signal.getsignal(signal.SIGTERM) is before

    def test_a_few(self, filled: MemoryBroker, run: Run) -> None:
        """With -n no more than that are taken and finished."""
        assert work(run, "--ack", "-n", "2").stdout == "0\n1\n"
        assert list(settles(filled)) == [0, 1]
        assert subscription(filled).config.max_in_flight == 2
        assert work(run, "--ack", "-n", "1", "-f", "%o %k|").stdout == "2 k|"

    def test_json(self, filled: MemoryBroker, run: Run) -> None:
        """JSON is that of the log, with the number of the attempt."""
        found = json.loads(work(run, "--ack", "-n", "1", "-o", "json").stdout)
        assert (found["value"], found["attempt"], found["failures"]) == ("0", 1, 0)

    def test_a_message_that_is_lost(self, filled: MemoryBroker, run: Run) -> None:
        """A message that was taken away before it could be finished is told of."""
        filled.losing = {1}
        result = work(run, "--ack", "--exit")
        assert result.stderr == "audit/0@1 was not ours any more: it comes again\n"
        assert 1 not in settles(filled)

    def test_a_reader_that_goes_away(
        self, filled: MemoryBroker, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What could not be written is given back."""

        def broken(sink: read.Sink, records: object) -> int:
            raise BrokenPipeError

        monkeypatch.setattr(read.Sink, "write", broken)
        work(run, "--ack")
        assert {verb for verb, _ in settles(filled).values()} == {"give_back"}


class TestSeveralTopics:
    """Channels of the same name on several topics."""

    def test_the_first_goes_before(self, filled: MemoryBroker, run: Run) -> None:
        """While something of the first topic is there, nothing of the second is taken."""
        filled.append("orders", b"urgent")
        result = run("consume", "orders", "audit", "-c", "c", "--ack", "-n", "3")
        assert (result.exit_code, result.stdout) == (0, "urgent\n0\n1\n")
        # Enough of each is here for one to go before the other.
        assert subscription(filled).config.max_in_flight == 12
        rest = run("consume", "orders", "audit", "-c", "c", "--ack", "--exit")
        assert rest.stdout == "2\n3\n4\n"

    def test_logs_are_read_one_by_one(self, filled: MemoryBroker, run: Run) -> None:
        """Without a channel there is no order among topics."""
        assert run("consume", "orders", "audit", "-e").exit_code == 2


def test_a_temporary_channel(filled: MemoryBroker, run: Run) -> None:
    """A channel that shall go again begins with what comes from now on."""
    filled.idle.append(partial(filled.append, "audit", b"new"))  # type: ignore[arg-type]
    assert work(run, "--ack", "--temporary", "-n", "1").stdout == "new\n"
    assert subscription(filled).config.temporary


class TestBeginning:
    """Where a channel begins, and whether it is made."""

    @pytest.mark.parametrize(
        ("where", "first"),
        [
            ((), "0"),
            (("--from", "3"), "3"),
            (("--from", "earliest"), "0"),
            (("--from", "@1750000003000"), "2"),
        ],
    )
    def test_a_new_one(
        self, filled: MemoryBroker, run: Run, where: tuple[str, ...], first: str
    ) -> None:
        """A channel that is made begins where it was said."""
        assert work(run, "--ack", "-n", "1", *where).stdout.strip() == first

    def test_one_that_exists(self, filled: MemoryBroker, run: Run) -> None:
        """One that exists goes on where it is, which is said."""
        filled.channels.make("audit", "c", cursor=4)
        result = work(run, "--ack", "-e", "--from", "earliest")
        assert result.stdout == "4\n"
        assert "audit/c exists, and goes on where it is" in result.stderr
        assert "exists" not in work(run, "--ack", "-e").stderr

    def test_none_is_made(self, filled: MemoryBroker, run: Run) -> None:
        """With --no-create a channel that there is not is an error."""
        result = work(run, "--ack", "--no-create", status=1)
        assert "`tinymq channel ls` lists the channels" in result.stderr

    def test_a_pause_is_an_end(self, filled: MemoryBroker, run: Run) -> None:
        """With --exit a channel that is paused is not waited for."""
        paused = {"since_ms": NOW_MS, "until_ms": None, "reason": ""}
        filled.channels.make("audit", "c", cursor=3, paused=paused)
        assert "audit/c is paused with 2 left to do" in work(run, "--ack", "-e").stderr

    def test_silence(self, filled: MemoryBroker, run: Run) -> None:
        """With --exit a broker that is silent for too long is an error, with status 3."""
        filled.channels.make("audit", "c", silent=True)
        result = work(run, "--ack", "-e", "--timeout", "0.001s", status=3)
        assert "far does not answer" in result.stderr
        assert "without --exit the broker is waited for" in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["-c", "c"],
        ["-c", "c", "--ack", "--exec", "true"],
        ["-c", "c", "--ack", "--jobs", "2"],
        ["-c", "c", "--ack", "-p", "0"],
        ["-c", "c", "--ack", "--grep", "x"],
        ["-c", "c", "--ack", "--from", "-3"],
        ["-c", "c", "--exec", "true", "-f", "%v"],
        ["-c", "c", "--exec", "no-such-program"],
        ["-c", "c", "--exec", "open 'quote"],
        ["-c", "c", "--exec", ""],
        ["--ack"],
        ["--exec", "true"],
        ["--no-create"],
        ["--temporary"],
    ],
)
def test_what_does_not_go_together(filled: MemoryBroker, run: Run, words: list[str]) -> None:
    """Nothing is taken when it is not clear what becomes of it."""
    assert run("consume", "audit", *words).exit_code == 2
    assert filled.subscriptions == []


@pytest.mark.process
class TestExec:
    """--exec."""

    def test_status_settles(self, filled: MemoryBroker, run: Run) -> None:
        """0 finishes, 65 rejects, everything else and a signal fail with stderr as the reason."""
        line = (
            "case $TINYMQ_OFFSET in 1) echo bad >&2; exit 65;; 2) echo busy >&2; exit 75;; "
            "3) kill -9 $$;; esac"
        )
        result = work(run, "-e", "-j", "2", "--shell", "--exec", line, status=1)
        assert settles(filled) == {
            0: ("finish", ""),
            1: ("reject", "exit status 65: bad"),
            2: ("requeue", "exit status 75: busy"),
            3: ("requeue", "ended by SIGKILL"),
            4: ("finish", ""),
        }
        assert "audit/0@1: exit status 65: bad; it goes to the dead-letter topic" in result.stderr
        assert subscription(filled).config.max_in_flight == 2

    def test_what_it_is_told(self, filled: MemoryBroker, run: Run) -> None:
        """The value is on stdin, all else in variables; JSON goes to stdout alone."""
        line = 'echo "$(cat) $TINYMQ_TOPIC $TINYMQ_CHANNEL $TINYMQ_KEY $TINYMQ_HEADER_KIND" >&2'
        result = work(run, "-n", "1", "-o", "json", "--shell", "--exec", line)
        assert result.stderr == "0 audit c k mail\n"
        found = json.loads(result.stdout)
        assert (found["outcome"], found["status"], found["offset"]) == ("finished", 0, 0)

    def test_no_shell_unless_asked(self, filled: MemoryBroker, run: Run) -> None:
        """Without --shell what the line holds is words and nothing more."""
        result = work(run, "-n", "1", "-o", "json", "--exec", "echo '$HOME' ; exit")
        assert result.stderr == "$HOME ; exit\n"

    def test_time_to_end(self, filled: MemoryBroker, run: Run) -> None:
        """Who is asked to stop lets running commands end, and begins nothing more."""
        line = f"kill -TERM {os.getpid()}; sleep 0.05"
        work(run, "--shell", "--exec", line)
        assert settles(filled) == {0: ("finish", "")}

    def test_no_time_left(self, filled: MemoryBroker, run: Run) -> None:
        """A command that goes on for too long is ended, and its message given back."""
        line = f"kill -TERM {os.getpid()}; sleep 30"
        began = time.monotonic()
        result = work(run, "--grace", "0.01s", "--shell", "--exec", line)
        assert time.monotonic() - began < 10
        assert settles(filled) == {0: ("give_back", "")}
        assert "audit/0@0: its command was ended; it was given back" in result.stderr

    def test_a_message_that_is_lost(self, filled: MemoryBroker, run: Run) -> None:
        """The command of a message that is not ours any more is ended."""
        filled.losing = {0}
        result = work(run, "-n", "1", "--exec", "sleep 30", status=1)
        assert settles(filled) == {}
        assert result.stderr == "audit/0@0 was taken away while its command ran\n"

    def test_a_program_that_cannot_be_run(
        self, filled: MemoryBroker, run: Run, tmp_path: Any
    ) -> None:
        """A file that is no program stops everything, and no message suffers for it."""
        file = tmp_path / "nonsense"
        file.write_bytes(b"\x00\x01")
        file.chmod(0o755)
        result = work(run, "--exec", str(file), status=1)
        assert "cannot be run" in result.stderr
        assert {verb for verb, _ in settles(filled).values()} == {"give_back"}


def test_variables_that_cannot_be_passed_on(filled: MemoryBroker, run: Run) -> None:
    """What no environment can hold is left out; what is no UTF-8 stays as it is."""
    filled.append("audit", b"v", b"a\x00b", headers=[("X-Ünit 1", b"\xff"), ("big", b"x" * 40_000)])
    filled.channels.make("audit", "c", cursor=5)
    source = MemorySubscription(filled, "audit", "c", SubscriptionConfig())
    message: Any = source.next(0)
    found = found_of(message)
    assert "TINYMQ_KEY" not in found
    assert "TINYMQ_HEADER_BIG" not in found
    assert "TINYMQ_HEADERS" not in found
    assert os.fsencode(found["TINYMQ_HEADER_X__NIT_1"]) == b"\xff"
    assert found["TINYMQ_URL"] == "tinymq://b"
    many = [(f"h{number}", b"x" * 30_000) for number in range(20)]
    filled.append("audit", b"v", headers=many)
    crowded: Any = source.next(0)
    assert 6 <= sum("HEADER_H" in name for name in found_of(crowded)) <= 8
    job = Job(Command(("true",), "c", ""), message)
    job.end(signal.SIGTERM)
    assert job.run() == Outcome("given_back")


def found_of(message: Any) -> dict[str, str]:
    """The variables of a message."""
    return Command(("true",), "c", "tinymq://b").variables(message)
