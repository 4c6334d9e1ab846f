"""The root of the command: which verbs there are, and how every one of them ends."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import click
from click.exceptions import Exit
from typing_extensions import override

import tinymq
from tinymq.cli.failure import INTERRUPTED, Failed, report
from tinymq.cli.groups import Group
from tinymq.cli.session import Session, remote_options
from tinymq.errors import TinyMQError

#: Verb, where it is, what it does. The help must not import the verbs.
VERBS: dict[str, tuple[str, str]] = {
    "up": ("tinymq.cli.up:up", "Start a MetaServer and some brokers on this machine."),
    "topic": ("tinymq.cli.topic:topic", "List, make, change, empty and remove topics."),
    "channel": (
        "tinymq.cli.channel:channel",
        "List, make, change, steer and remove channels of topics.",
    ),
    "group": (
        "tinymq.cli.group:group",
        "List, show, move, reset and remove consumer groups.",
    ),
    "exchange": (
        "tinymq.cli.exchange:exchange",
        "List, make, change, try and remove exchanges.",
    ),
    "binding": ("tinymq.cli.exchange:binding", "List, add and remove bindings of exchanges."),
    "inflight": (
        "tinymq.cli.inflight:inflight",
        "Show messages in flight, and settle some of them.",
    ),
    "message": ("tinymq.cli.message:message", "Look at what became of single messages."),
    "lag": ("tinymq.cli.lag:lag", "Show how far channels and groups are behind."),
    "dlq": (
        "tinymq.cli.dlq:dlq",
        "List dead letters, send them back, drop or export them.",
    ),
    "push": ("tinymq.cli.push:push", "Have messages of channels sent to URLs."),
    "schedule": (
        "tinymq.cli.schedule:schedule",
        "Send messages again and again, by schedules.",
    ),
    "delayed": (
        "tinymq.cli.delayed:delayed",
        "List, cancel, release or move messages not due yet.",
    ),
    "outbox": (
        "tinymq.cli.outbox:outbox",
        "Publish what stands in a program's outbox, and look after it.",
    ),
    "pub": ("tinymq.cli.pub:pub", "Publish stdin, its lines, or a value."),
    "consume": (
        "tinymq.cli.read:consume",
        "Write the values of a topic to stdout.",
    ),
    "peek": ("tinymq.cli.read:peek", "Look at a few records."),
    "transaction": (
        "tinymq.cli.transaction:transaction",
        "Show transactions that are under way, and abort one.",
    ),
    "tail": ("tinymq.cli.read:tail", "Show the last records, and new ones as they come."),
    "node": ("tinymq.cli.node:node", "Show the brokers of a cluster, and drain one."),
    "clients": (
        "tinymq.cli.clients:clients",
        "Show who is connected, and hang up on a client.",
    ),
    "lookup": ("tinymq.cli.lookup:lookup", "Ask MetaServers which nodes have a topic."),
    "watch": (
        "tinymq.cli.watch:watch",
        "Print changes of topics, channels and brokers as they happen.",
    ),
    "info": ("tinymq.cli.about:info", "Show the broker and whether it is ready."),
    "log-level": (
        "tinymq.cli.about:log_level",
        "Show or change which log lines the broker writes.",
    ),
    "bench": ("tinymq.cli.bench:bench", "Measure publishing and reading."),
    "log": ("tinymq.cli.log:log", "Look into a data folder; needs no broker."),
    "verify-crash": (
        "tinymq.cli.crash:verify_crash",
        "Kill a broker again and again and prove that nothing is lost.",
    ),
    "verify-cluster": (
        "tinymq.cli.siege:verify_cluster",
        "Kill the processes of a cluster and prove that all go on.",
    ),
    "verify-history": (
        "tinymq.cli.history:verify_history",
        "Strike clients and brokers, and prove what groups promise.",
    ),
    "config": ("tinymq.cli.about:config", "Print the default configuration."),
    "version": ("tinymq.cli.about:version", "Print the version."),
}


class LazyGroup(Group):
    """A group whose commands are imported when they are used."""

    def __init__(self, *args: Any, verbs: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._verbs = dict(verbs)

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the verbs in the order of the table."""
        return [*self._verbs, *self._others()]

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a verb."""
        if cmd_name not in self._verbs:
            return self._others().get(cmd_name)
        module, _, attribute = self._verbs[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    @override
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the verbs without importing them."""
        with formatter.section("Commands"):
            known = [(name, text) for name, (_, text) in self._verbs.items()]
            others = [(name, each.help or "") for name, each in self._others().items()]
            formatter.write_dl([*known, *others])

    def _others(self) -> dict[str, click.Command]:
        """Make what the table of operations has beside these verbs; mostly nothing."""
        return {}


class Root(LazyGroup):
    """The command itself: turns every end of a verb into an exit status."""

    @override
    def _others(self) -> dict[str, click.Command]:
        from tinymq.cli.operation import missing  # noqa: PLC0415 - other verbs have no time for it

        return missing((), self._verbs)

    @override
    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb; two ends are taken from click, which has its own mind about them."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            _silence_stdout()
            raise Exit(0) from None
        except KeyboardInterrupt:
            raise Exit(INTERRUPTED) from None

    @override
    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> NoReturn:
        """Run, then exit the process."""
        extra["standalone_mode"] = False
        sys.exit(end(lambda: super(Root, self).main(*args, **extra)))


def end(run: Callable[[], object]) -> int:
    """
    Run a verb and return the exit status of the process.

    A reader of our output that went away (`| head`) is a good end, not an error.
    """
    try:
        result = run()
        sys.stdout.flush()
    except BrokenPipeError:
        _silence_stdout()
        return 0
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except (click.ClickException, Failed, TinyMQError, OSError) as error:
        return report(error)
    return result if isinstance(result, int) else 0


def _silence_stdout() -> None:
    """Keep the interpreter from failing once more when it flushes at its end."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.command(
    cls=Root,
    verbs=VERBS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@remote_options
@click.version_option(tinymq.__version__, "--version", message="tinymq %(version)s")
@click.pass_context
def root(context: click.Context) -> None:
    """
    Publish to, read from and look after a tinymq broker.

    Exit status: 0 done, 1 refused or failed, 2 wrong command line, 3 no broker answered
    or the one that is needed is away.
    """
    session = context.ensure_object(Session)
    context.call_on_close(session.close)
