"""The options of `tinymq consume --channel`: what becomes of the messages of a channel."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import attrs
import click
from attrs import frozen

from tinymq.cli.jobs import Command
from tinymq.cli.session import Session
from tinymq.cli.values import DURATION, Position
from tinymq.cli.work import Work
from tinymq.cli.workers import Workers, execute, tell_people, tell_programs

#: Seconds that running commands have when we are asked to stop.
GRACE_S: Final = 30.0
#: Commands at once.
MOST_JOBS: Final = 1000


@frozen(kw_only=True)
class Chosen:
    """
    How a channel is worked, as the command line says.

    Attributes:
        channel: Its name; None when the topic is read.
        ack: Finish each message when it was written.
        line: The command of each message, or None.
        shell: Whether ``sh`` runs the line.
        jobs: How many commands run at once.
        grace: Seconds that running commands have when we are asked to stop.
        no_create: Refuse when there is no such channel.
        temporary: Let one that is made go when nobody takes its messages.
        group: Name of the group as whose member the topic is read, or None.
    """

    channel: str | None
    ack: bool
    line: str | None
    shell: bool
    jobs: int | None
    grace: float | None
    no_create: bool
    temporary: bool
    group: str | None = None

    def __attrs_post_init__(self) -> None:
        given = {
            "--ack": self.ack,
            "--exec": self.line is not None,
            "--shell": self.shell,
            "--jobs": self.jobs is not None,
            "--grace": self.grace is not None,
            "--no-create": self.no_create,
            "--temporary": self.temporary,
        }
        options = [name for name, there in given.items() if there]
        if self.group is not None:
            _check_group(self.channel, options)
            return
        if self.channel is None and options:
            raise click.UsageError(f"{options[0]} goes with --channel")
        if self.channel is not None and self.ack == given["--exec"]:
            raise click.UsageError(
                "say what becomes of the messages: --ack finishes each that was written, --exec "
                "runs a command for each; `tinymq channel peek` looks at them and takes none"
            )
        if not given["--exec"] and set(options) & {"--shell", "--jobs", "--grace"}:
            raise click.UsageError("--shell, --jobs and --grace go with --exec")

    def work(
        self, topics: tuple[str, ...], start: Position | None, most: int | None, *, stop: bool
    ) -> Work:
        """
        Say which messages are worked on.

        Args:
            topics: Names of the topics.
            start: Where a channel that is made begins, if that was said.
            most: Stop after so many.
            stop: Stop when nothing is left to be given out.
        """
        assert self.channel is not None
        begin: str | int | None = None
        if start is not None:
            if start.kind == "last":
                raise click.UsageError(
                    "with --channel, --from is earliest, latest, an OFFSET or @TIME"
                )
            starts: dict[str, str | int] = {"offset": start.value, "time": f"@{start.value}"}
            begin = starts.get(start.kind, start.kind)
        return Work(
            topics=topics,
            channel=self.channel,
            start=begin,
            create=not self.no_create,
            temporary=self.temporary,
            most=most,
            stop=stop,
        )


def _check_group(channel: str | None, options: list[str]) -> None:
    if channel is not None:
        raise click.UsageError("--group and --channel are two ways of reading: choose one")
    for name in options:
        if name not in {"--exec", "--shell"}:
            raise click.UsageError(f"{name} goes with --channel")
    if options == ["--shell"]:
        raise click.UsageError("--shell goes with --exec")


def channel_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of working a channel; the verb gets them as ``how``."""

    @functools.wraps(function)
    def verb(*args: Any, **kwargs: Any) -> Any:
        names = [each.name for each in attrs.fields(Chosen)]
        return function(*args, how=Chosen(**{name: kwargs.pop(name) for name in names}), **kwargs)

    for option in (
        click.option(
            "--temporary",
            is_flag=True,
            help="One that is made begins with new messages, and goes when nobody takes them.",
        ),
        click.option("--no-create", is_flag=True, help="Refuse when there is no such channel."),
        click.option(
            "--grace",
            type=DURATION,
            help=f"How long running commands may go on after Ctrl-C.  [default: {GRACE_S:.0f}s]",
        ),
        click.option(
            "-j",
            "--jobs",
            type=click.IntRange(1, MOST_JOBS),
            help="Commands at once.  [default: 1]",
        ),
        click.option("--shell", is_flag=True, help="Let sh run the line of --exec."),
        click.option("--exec", "line", metavar="COMMAND", help="Run this for each message."),
        click.option("--ack", is_flag=True, help="Write each message, then finish it."),
        click.option("-g", "--group", metavar="NAME", help="Read as a member of this group."),
        click.option("-c", "--channel", metavar="NAME", help="Work this channel of the topic."),
    ):
        verb = option(verb)
    return verb


def run_commands(session: Session, work: Work, how: Chosen, *, as_json: bool) -> int:
    """
    Run a command for each message of a channel.

    Args:
        session: Where the broker is.
        work: Which messages.
        how: Which command, and how many at once.
        as_json: Write each message with what became of it.

    Returns:
        The exit status.
    """
    assert how.line is not None
    command = Command.parse(how.line, work.channel, session.url, shell=how.shell, apart=as_json)
    tell = tell_programs if as_json else tell_people
    workers = Workers(command, how.jobs or 1, tell)
    return execute(session, work, workers, GRACE_S if how.grace is None else how.grace)
