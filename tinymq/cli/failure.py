"""
How a verb ends badly: one line on stderr and an exit status.

::

    0  done
    1  refused, or failed
    2  the command line is wrong
    3  no broker answered, or the one that is needed is away
"""

from __future__ import annotations

import re
from typing import Final

import click

from tinymq import errors
from tinymq.cli.output import printable

REFUSED: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3
#: What shells report for a process that Ctrl-C ended.
INTERRUPTED: Final = 130

#: What is said of a broker that is away, by the others or by what they told before.
_AWAY: Final = (errors.NotLeader, errors.BrokerSilent, errors.MetaUnavailable)

#: How click says it, by the name of its own type.
_NO_NUMBER: Final = re.compile(r"is not a valid integer(?: range)?\b")

_START_HINT: Final = (
    "is it running? --url names another; `twistd -n tinymq` starts one, `tinymq up` several"
)
_HANGS_HINT: Final = "look at that process and its log; --url names another"
_NODES_HINT: Final = "`tinymq node ls` shows which brokers are there"


class _NoDeadLetters(Exception):
    """A topic is there, and is another one than was meant."""


_HINTS: tuple[tuple[type[Exception], str], ...] = (
    (errors.NoBroker, _START_HINT),
    (errors.UnreachableError, _NODES_HINT),
    (errors.ConnectionLost, "is the broker still running? its log says why it closed"),
    (errors.DeadlineExceeded, "--timeout allows more time; `tinymq node ls` shows who is silent"),
    (_NoDeadLetters, "`tinymq dlq ls` lists the dead-letter topics"),
    (
        errors.UnknownTopic,
        "`tinymq topic ls` lists them; `tinymq topic create`, or the first publish, makes one",
    ),
    (errors.UnknownChannel, "`tinymq channel ls` lists the channels"),
    (errors.UnknownGroup, "`tinymq group ls` lists the groups"),
    (errors.GroupBusy, "`tinymq group info` shows the members; --force does it all the same"),
    (errors.UnknownPartition, "`tinymq topic info -p` lists the partitions"),
    (errors.NotLeader, "`tinymq node ls` shows who is silent; try again when it is back"),
    (errors.UnknownBroker, "`tinymq node ls` lists the brokers"),
    (errors.TopicExists, "`tinymq topic edit` changes settings"),
    (errors.ChannelExists, "`tinymq channel edit` changes settings"),
    (errors.OffsetOutOfRange, "`tinymq topic info -p` shows the range of offsets"),
    (errors.ValueTooLarge, "the topic's setting max.value.bytes allows more"),
    (errors.StorageFull, "`tinymq topic purge` and shorter retention free space"),
    (
        errors.EndpointRefused,
        "start it with --set push.allow=HOST, or put push.allow into its settings",
    ),
    (PermissionError, "run as the owner of the file or folder"),
)


class Failed(Exception):
    """
    A verb cannot go on.

    Args:
        text: What is wrong.
        hint: What to do about it.
        status: The exit status.
    """

    def __init__(self, text: str, hint: str = "", status: int = REFUSED) -> None:
        super().__init__(text)
        self.hint = hint
        self.status = status


def status_of(error: Exception) -> int:
    """Give the exit status that an error means."""
    if isinstance(error, Failed):
        return error.status
    if isinstance(error, (click.UsageError, errors.UsageError)):
        return USAGE
    if isinstance(error, _AWAY):
        return UNREACHABLE
    if isinstance(error, errors.ClientError) and not isinstance(error, errors.BufferFull):
        return UNREACHABLE
    return REFUSED


def of_partition(error: Exception) -> bool:
    """Whether brokers were found, and only the one of some partition does not answer."""
    away = isinstance(error, (errors.DeadlineExceeded, errors.UnreachableError))
    return away and "partition " in str(error)  # `MetadataCache.place` names it so


def hint_of(error: Exception) -> str:
    """Say what to do about an error; empty when there is no advice."""
    if isinstance(error, Failed):
        return error.hint
    if isinstance(error, click.UsageError):
        where = error.ctx.command_path if error.ctx else "tinymq"
        return f"{where} --help"
    if isinstance(error, errors.NoBroker) and "takes connections" in str(error):
        return _HANGS_HINT
    if of_partition(error):
        return _NODES_HINT
    if isinstance(error, (errors.TopicExists, errors.UnknownTopic)) and "tinymq" in str(error):
        return ""  # it says itself what to do
    if "is no dead-letter topic" in str(error):
        error = _NoDeadLetters()
    return next((hint for kind, hint in _HINTS if isinstance(error, kind)), "")


def text_of(error: Exception) -> str:
    """Say in one line what went wrong."""
    if isinstance(error, click.ClickException):
        text = _NO_NUMBER.sub("is no whole number", error.format_message())
    elif isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    elif isinstance(error, errors.UnknownTopic):
        text = str(error).partition(" yet: ")[0]  # what follows is advice for programs
    else:
        text = str(error) or type(error).__name__
    return printable(" ".join(text.split())).rstrip(".")


def report(error: Exception) -> int:
    """Print an error to stderr and return the exit status."""
    hint = hint_of(error)
    click.echo(f"error: {text_of(error)}" + (f" (hint: {hint})" if hint else ""), err=True)
    return status_of(error)
