"""`tinymq consume --group`, with the blocking client and a scripted broker on a socket."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result

from tests.client.grouping import Grouping
from tests.sync.server import Server
from tinymq.cli.app import root
from tinymq.wire.records import encode_batch

Consume = Callable[..., Result]


@pytest.fixture
def puppet() -> Grouping:
    """Return a broker with three records."""
    made = Grouping()
    made.make("t", 1).logs[0].append(encode_batch([b"a", b"b", b"c"]))
    return made


@pytest.fixture
def consume(puppet: Grouping) -> Iterator[Consume]:
    """Return what runs the command."""
    with Server(puppet) as server:

        def run(*arguments: str, topics: tuple[str, ...] = ("t",)) -> Result:
            words = ["consume", *topics, "--url", server.url, "--group", "g", *arguments]
            return CliRunner().invoke(root, words, prog_name="tinymq")

        yield run


def test_goes_on_where_it_stopped(consume: Consume, puppet: Grouping) -> None:
    """What was written is committed, and the next run goes on behind it."""
    first = consume("-n", "2")
    assert (first.exit_code, first.output) == (0, "a\nb\n")
    assert puppet.committed().offset == 2
    second = consume("--exit")
    assert (second.exit_code, second.output) == (0, "c\n")
    assert puppet.committed().offset == 3
    assert puppet.live == []


def test_start(consume: Consume, puppet: Grouping) -> None:
    """A group that has committed nothing begins where it is told."""
    assert consume("--from", "1", "--exit").output == "b\nc\n"
    assert puppet.committed().offset == 3


def test_command(consume: Consume, puppet: Grouping) -> None:
    """A command that fails ends the reading, and its message is not committed."""
    line = '[ "$TINYMQ_OFFSET" != 1 ]'
    failed = consume("--exec", line, "--shell")
    assert failed.exit_code == 1
    assert "t/0@1: exit status 1; it comes again" in failed.output
    assert puppet.committed().offset == 1
    assert consume("--exec", "true", "--exit").exit_code == 0
    assert puppet.committed().offset == 3


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--channel", "c"], "choose one"),
        (["--ack"], "--ack goes with --channel"),
        (["--shell"], "--shell goes with --exec"),
        (["-p", "0"], "do not go with --group"),
        (["--from=-3"], "--from is earliest, latest"),
    ],
)
def test_words_that_do_not_fit(consume: Consume, words: list[str], why: str) -> None:
    """What makes no sense together is refused."""
    result = consume(*words)
    assert result.exit_code == 2
    assert why in result.output


def test_no_such_topic(consume: Consume, puppet: Grouping) -> None:
    """A name with a slip in it is told of, instead of nothing being read without a word."""
    refused = consume("--exit", topics=("t", "typo"))
    assert refused.exit_code == 1
    assert "typo" in refused.stderr
    assert puppet.live == []
    waits = consume("-n", "1", topics=("t", "typo"))
    assert (waits.exit_code, waits.stdout) == (0, "a\n")
    assert "there is no topic typo yet" in waits.stderr


def test_nothing_left_for_this_member(consume: Consume, puppet: Grouping) -> None:
    """Who is given no partition is told why it reads nothing."""
    puppet.deal = False
    result = consume("--exit")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "other members of group g have all partitions" in result.stderr
