"""The root of the command: help, errors, exit statuses and ends."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from typing import Any

import click
import pytest
from click.testing import CliRunner

import tinymq
from tests.cli.conftest import Run
from tests.fakes.memory_broker import MemoryBroker
from tinymq import errors
from tinymq.cli import failure, session
from tinymq.cli.app import VERBS, LazyGroup, end, root
from tinymq.cli.session import Session


def test_help_lists_every_verb(run: Run) -> None:
    """The help names each verb with what it does."""
    text = run("--help").output
    for name, (_, what) in VERBS.items():
        assert name in text
        assert what in text


@pytest.mark.parametrize("verb", list(VERBS))
def test_each_verb_has_help(run: Run, verb: str) -> None:
    """Each verb can be imported, and its help begins as in the list."""
    result = run(verb, "--help")
    assert result.exit_code == 0
    assert VERBS[verb][1].split(".")[0] in " ".join(result.output.split())


def test_help_is_quick_and_needs_no_twisted() -> None:
    """Neither the help nor the verbs' modules import Twisted; the help not even rich."""
    modules = sorted({where.partition(":")[0] for where, _ in VERBS.values()})
    code = (
        "import sys, contextlib\n"
        "from tinymq.cli import main\n"
        "with contextlib.suppress(SystemExit): main(['--help'])\n"
        "heavy = {'rich', 'msgpack', 'twisted', 'tinymq.sync'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "import importlib\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        "assert 'twisted' not in sys.modules and 'rich' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("words", [(), ("channel",), ("transaction",)])
def test_no_verb(run: Run, words: tuple[str, ...]) -> None:
    """Without a verb the help is shown in its lines, as a usage error."""
    result = run(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == run(*words, "--help").stdout


def test_no_whole_number(run: Run) -> None:
    """What is no number is said in plain words."""
    result = run("lag", "--fail-over", "many")
    assert result.exit_code == 2
    assert "'many' is no whole number (hint: tinymq lag --help)" in result.stderr


def test_unknown_verb(run: Run) -> None:
    """An unknown verb is a usage error in one line."""
    result = run("frobnicate")
    assert result.exit_code == 2
    assert result.stderr == "error: there is no command 'frobnicate' (hint: tinymq --help)\n"


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("tpoic", "topic"),
        ("consum", "consume"),
        ("TAIL", "tail"),
        ("publish", "pub"),
        ("topics", "topic"),
        ("list", None),
        ("topic list", "ls"),
        ("topic delete", "rm"),
        ("topic lss", "ls"),
        ("node undrian", "undrain"),
        ("clients kik", "kick"),
        ("log varify", "verify"),
    ],
)
def test_did_you_mean(run: Run, line: str, meant: str | None) -> None:
    """A verb that is mistyped, or called as elsewhere, is answered with the right one."""
    result = run(*line.split())
    assert result.exit_code == 2
    assert ("did you mean" in result.stderr) == (meant is not None)
    if meant is not None:
        assert f"; did you mean {meant}? (hint:" in result.stderr


@pytest.mark.process
def test_the_package_is_the_command() -> None:
    """`python -m tinymq` is `tinymq`."""
    done = subprocess.run(
        [sys.executable, "-m", "tinymq", "--version"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, f"tinymq {tinymq.__version__}\n")


def test_usage_errors_name_the_verb(run: Run) -> None:
    """The hint leads to the help of the verb that was used."""
    result = run("topic", "purge", "x", "--keep", "-1")
    assert result.exit_code == 2
    assert "(hint: tinymq topic purge --help)" in result.stderr


@pytest.mark.parametrize(
    ("error", "status", "hint"),
    [
        (errors.NoBroker("no broker at x:1"), 3, "`twistd -n tinymq` starts one"),
        (errors.NoBroker("x takes connections but hangs"), 3, "look at that process"),
        (errors.UnreachableError("no link"), 3, "`tinymq node ls`"),
        (errors.DeadlineExceeded("partition 1 of topic t: late"), 3, "`tinymq node ls`"),
        (errors.NotLeader("no live broker leads it"), 3, "`tinymq node ls`"),
        (errors.BrokerSilent("b does not answer"), 3, ""),
        (errors.MetaUnavailable("it does not answer"), 3, ""),
        (errors.ConnectionLost("it went away"), 3, "is the broker still running?"),
        (errors.DeadlineExceeded("10 s passed"), 3, "--timeout allows more time"),
        (errors.StorageFull("the disk is full"), 1, "`tinymq topic purge`"),
        (errors.BufferFull("full"), 1, ""),
        (errors.ConfigError("a bad url"), 2, ""),
        (errors.InternalError("oh"), 1, ""),
        (PermissionError(13, "Permission denied", "/x"), 1, "run as the owner"),
    ],
)
def test_errors_of_the_broker(
    broker: MemoryBroker, run: Run, error: Exception, status: int, hint: str
) -> None:
    """Each error is one line on stderr, with a hint where there is advice."""
    broker.failure = error
    result = run("topic", "ls")
    assert result.exit_code == status
    assert result.stdout == ""
    assert result.stderr.startswith(f"error: {failure.text_of(error)}")
    assert hint in result.stderr
    assert result.stderr.count("\n") == 1


def test_errors_have_one_line_without_a_final_stop() -> None:
    """A text of several lines becomes one."""
    assert failure.text_of(ValueError("two\n lines.")) == "two lines"
    assert failure.text_of(KeyError()) == "KeyError"


def test_a_topic_of_other_kind_has_its_own_hint() -> None:
    """Who looks for dead letters in the wrong topic is told where they are."""
    error = errors.UnknownTopic("cats is no dead-letter topic: nothing came", topic="cats")
    assert failure.hint_of(error) == "`tinymq dlq ls` lists the dead-letter topics"


def test_a_reader_that_went_away_is_a_good_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """`tinymq ... | head` ends with status 0 and without a word."""
    monkeypatch.setattr("tinymq.cli.app._silence_stdout", lambda: None)

    def run() -> None:
        raise BrokenPipeError

    assert end(run) == 0


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()])
def test_interrupted(error: BaseException) -> None:
    """Ctrl-C ends with the status that shells expect."""

    def run() -> None:
        raise error

    assert end(run) == 130


def test_a_verb_may_give_its_own_status() -> None:
    """What a verb returns is the exit status, if it is a number."""
    assert (end(lambda: 1), end(lambda: None), end(lambda: "text")) == (1, 0, 0)


def test_where_the_broker_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The URL comes from the verb, the root, the environment or the default, in this order."""
    seen: list[tuple[str, float]] = []

    def connect(url: str, timeout: float) -> Any:
        seen.append((url, timeout))
        raise errors.UnreachableError

    def run(*arguments: str) -> None:
        CliRunner().invoke(root, list(arguments), obj=Session(connect, explain=lambda url: None))

    monkeypatch.delenv("TINYMQ_URL", raising=False)
    run("topic", "ls")
    monkeypatch.setenv("TINYMQ_URL", "tinymq://env")
    run("topic", "ls")
    run("--url", "tinymq://root", "topic", "ls")
    run("--url", "tinymq://root", "topic", "ls", "--url", "tinymq://verb", "--timeout", "1m")
    assert seen == [
        ("tinymq://127.0.0.1:7800", 10.0),
        ("tinymq://env", 10.0),
        ("tinymq://root", 10.0),
        ("tinymq://verb", 60.0),
    ]


def test_version(run: Run) -> None:
    """The version is told in two ways."""
    assert run("--version").output == f"tinymq {tinymq.__version__}\n"
    assert run("version").output.startswith(f"tinymq {tinymq.__version__}, Python 3.")
    assert '"tinymq"' in run("version", "-o", "json").output


def test_config(run: Run) -> None:
    """The default configuration is TOML with comments."""
    text = run("config").output
    assert "[storage]" in text
    assert "#data = " in text


def test_info(broker: MemoryBroker, run: Run) -> None:
    """The broker's state is shown; one that is not ready has status 1."""
    assert run("info").output.splitlines()[0].split() == ["ready", "yes"]
    broker.ready = False
    result = run("info")
    assert result.exit_code == 1
    assert "no: the disk is full" in result.output
    assert run("info", "-o", "json").exit_code == 1


def test_log_level(broker: MemoryBroker, run: Run) -> None:
    """The level is shown, changed, or only looked at."""
    assert run("log-level").output == "info\n"
    assert run("log-level", "debug", "--dry-run").output == (
        "the broker would write log lines from debug on; before from info on\n"
    )
    assert broker.log_level == "info"
    assert run("log-level", "debug").output == (
        "the broker writes log lines from debug on; before from info on\n"
    )
    assert broker.log_level == "debug"
    assert json.loads(run("log-level", "-o", "json").output) == {"level": "debug"}
    assert json.loads(run("log-level", "warn", "-o", "json").output) == {
        "level": "warn",
        "before": "debug",
        "dry_run": False,
    }
    assert run("log-level", "loud").exit_code == 2


def test_client_is_closed_at_the_end(broker: MemoryBroker) -> None:
    """Whatever happens, the client is closed."""
    clients = []

    def connect(url: str, timeout: float) -> Any:
        from tests.fakes.memory_broker import MemoryClient  # noqa: PLC0415

        clients.append(MemoryClient(broker))
        return clients[-1]

    CliRunner().invoke(root, ["topic", "info", "nothing"], obj=Session(connect))
    assert [client.closed for client in clients] == [True]


def test_lazy_groups_know_only_their_verbs() -> None:
    """An unknown name gives no command."""
    group = LazyGroup("test", verbs={})
    assert group.get_command(click.Context(group), "anything") is None


def test_what_the_client_says(capsys: pytest.CaptureFixture[str]) -> None:
    """Log lines of the client come to stderr once each, and move no cursor."""
    log = logging.getLogger("tinymq.sync")
    before = log.handlers[:], log.propagate
    try:
        for _ in range(2):
            session.connect("tinymq://127.0.0.1:1", 1.0).close()
        logging.getLogger("tinymq.sync.network").warning("the link to %s is lost", "\x1b[2J")
        log.error("it failed", exc_info=ValueError("why"))
    finally:
        log.handlers[:], log.propagate = before
    assert capsys.readouterr().err == "the link to \\x1b[2J is lost\nit failed: why\n"
