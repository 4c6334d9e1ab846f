"""`tinymq consume`, `peek` and `tail`. Reading never changes a topic."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from typing import Any, BinaryIO, Final

import click
from attrs import frozen

from tinymq.cli.endless import until_interrupted
from tinymq.cli.handling import Chosen, channel_options, run_commands
from tinymq.cli.jobs import Command
from tinymq.cli.joined import Joined, execute_group, write_group
from tinymq.cli.output import json_text, on_terminal, with_times
from tinymq.cli.reading import (
    Part,
    Wanted,
    all_known,
    bounded,
    follow,
    parts_of,
    some,
    some_known,
    until_end,
)
from tinymq.cli.render import (
    FORMAT_HELP,
    Form,
    Placed,
    compile_format,
    document,
    preview_line,
    safe_value_line,
    value_line,
)
from tinymq.cli.session import Session, remote
from tinymq.cli.values import (
    EARLIEST,
    START,
    Position,
    now_ms,
    parse_position,
    parse_time,
)
from tinymq.cli.work import acknowledge

OUTPUTS: Final = ("text", "json", "ndjson")


@frozen
class Sink:
    """
    Writes records to stdout, as they are wanted.

    Attributes:
        form: Writes one record.
        pattern: Only values that hold this are written.
        stream: Where to.
    """

    form: Form
    pattern: re.Pattern[bytes] | None
    stream: BinaryIO

    def write(self, records: Iterable[Placed]) -> int:
        """Write those that are wanted, and return how many they were."""
        lines = [self.form(placed) for placed in records if self.wants(placed)]
        self.stream.write(b"".join(lines))
        self.stream.flush()
        return len(lines)

    def wants(self, placed: Placed) -> bool:
        """Whether the record is to be shown."""
        return self.pattern is None or bool(self.pattern.search(placed.record.value or b""))


def _json_line(placed: Placed) -> bytes:
    return json_text(with_times(document(placed))).encode() + b"\n"


def _sink(form: Form, options: dict[str, Any]) -> Sink:
    """Choose how records are written."""
    if options["format"] is not None:
        form = compile_format(options["format"])
    elif options["output"] != "text":
        form = _json_line
    try:
        pattern = re.compile(options["grep"].encode()) if options["grep"] else None
    except re.error as error:
        raise click.UsageError(f"--grep: {error}") from None
    return Sink(form, pattern, sys.stdout.buffer)


def _form_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say how records are written."""
    for option in (
        click.option("--grep", metavar="REGEX", help="Only records whose value holds this."),
        click.option("-f", "--format", metavar="FORMAT", help=FORMAT_HELP),
        click.option(
            "-o",
            "--output",
            type=click.Choice(OUTPUTS),
            default="text",
            show_default=True,
            help="json and ndjson: one object a line.",
        ),
        click.option(
            "-p",
            "--partition",
            "partitions",
            type=click.IntRange(0),
            multiple=True,
            help="Only this one; may be repeated.",
        ),
    ):
        function = option(function)
    return function


def parse_place(text: str) -> tuple[str, tuple[int, ...], Position | None]:
    """
    Read ``TOPIC[/PARTITION][@POSITION]``.

    Raises:
        UsageError: It is no such place.
    """
    name, at, where = text.partition("@")
    topic, slash, number = name.partition("/")
    try:
        partitions = (int(number),) if slash else ()
        return topic, partitions, _position(where) if at else None
    except ValueError as error:
        raise click.UsageError(f"{text!r}: {error}") from None


def _position(text: str) -> Position:
    """Read a position; behind the `@` of a place a time needs no second one."""
    try:
        return parse_position(text, now_ms())
    except ValueError:
        return Position("time", parse_time(text, now_ms()))


@click.command()
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True)
@click.option(
    "--from",
    "start",
    type=START,
    help="earliest, latest, an OFFSET, -N or @TIME (ISO-8601, ms, or 10m ago); with -c all but "
    "-N, where a channel that is made now begins; with -g, where nothing was committed yet.  "
    "[earliest]",
)
@click.option("-n", "--max", "most", type=click.IntRange(1), help="Stop after so many records.")
@click.option(
    "-e",
    "--exit",
    "stop",
    is_flag=True,
    help="Stop at the end of the topic; with -c when nothing is left to be given out; with -g at "
    "the end of the partitions that this member is given.",
)
@channel_options
@_form_options
@remote
@until_interrupted
def consume(
    session: Session,
    topics: tuple[str, ...],
    start: Position | None,
    most: int | None,
    stop: bool,
    how: Chosen,
    **options: Any,
) -> int | None:
    """
    Write the values of a topic to stdout, and go on as new ones come.

    Nothing is acknowledged and nothing is removed, but with --channel: then messages are taken
    from a work queue, or from those of several topics, of which the first go before, and it is to
    be said what becomes of them.

    --ack writes each and finishes it. --exec runs a command for each, with its value on stdin
    and TINYMQ_TOPIC, _CHANNEL, _PARTITION, _OFFSET, _TIME, _ATTEMPT, _FAILURES, _KEY, _HEADERS
    (JSON) and _HEADER_NAME in its environment. Exit status 0 finishes the message, 65 sends it
    to the dead-letter topic, any other lets it come again after the channel's back-off, with the
    end of stderr as the reason. Leases are renewed meanwhile. Ctrl-C and SIGTERM let running
    commands end, for --grace at most; all else is given back.

    With --group the partitions of the topics are divided among all who read as this group, and
    it goes on where it has committed: what was written, or, with --exec, that whose command went
    well, one after the other. A command that fails ends the reading, and its message comes again.
    """
    sink = _sink(safe_value_line if on_terminal() else value_line, options)
    if how.group is not None:
        joined = Joined(group=how.group, topics=topics, start=start, most=most, stop=stop)
        return _consume_group(session, joined, how, sink, options)
    if how.channel is not None:
        work = how.work(topics, start, most, stop=stop)
        if options["partitions"] or options["grep"]:
            raise click.UsageError("--partition and --grep do not go with --channel")
        if how.ack:
            acknowledge(session, work, sink.write)
            return 0
        if options["format"]:
            raise click.UsageError("--format does not go with --exec")
        return run_commands(session, work, how, as_json=options["output"] != "text")
    if len(topics) > 1:
        raise click.UsageError("several topics go with --channel")
    parts = parts_of(session, Wanted(topics[0], options["partitions"], start or EARLIEST))
    _copy(session, topics[0], parts, sink, _Amount(most, stop))
    return None


def _consume_group(
    session: Session, joined: Joined, how: Chosen, sink: Sink, options: dict[str, Any]
) -> int:
    if options["partitions"] or options["grep"]:
        raise click.UsageError("--partition and --grep do not go with --group")
    if how.line is None:
        write_group(session, joined, sink.write)
        return 0
    if options["format"]:
        raise click.UsageError("--format does not go with --exec")
    apart = options["output"] != "text"
    command = Command.parse(how.line, joined.group, session.url, shell=how.shell, apart=apart)
    return execute_group(session, joined, command)


@frozen
class _Amount:
    """How much is copied: at most so many records, and whether to stop at the end."""

    most: int | None = None
    stop: bool = False


def _copy(session: Session, topic: str, parts: list[Part], sink: Sink, amount: _Amount) -> None:
    consumer = bounded(session) if amount.stop else session.client.consumer()
    written = 0
    try:
        stream = (
            until_end(session, consumer, topic, all_known(parts))
            if amount.stop
            else follow(consumer, topic, parts)
        )
        for records in stream:
            wanted = [placed for placed in records if sink.wants(placed)]
            if amount.most is not None:
                wanted = wanted[: amount.most - written]
            written += sink.write(wanted)
            if written == amount.most:
                break
    finally:
        consumer.close()


@click.command()
@click.argument("place", metavar="TOPIC[/PARTITION][@POSITION]")
@click.option("-n", "--max", "count", type=click.IntRange(1), default=10, show_default=True)
@_form_options
@remote
def peek(session: Session, place: str, count: int, **options: Any) -> None:
    """
    Look at a few records from a position on, over all partitions by time.

    POSITION is an offset, -N for the last N, or a time; the first record when
    not given.
    """
    topic, partitions, position = parse_place(place)
    position = position or EARLIEST
    sink = _sink(preview_line, options)
    parts = parts_of(session, Wanted(topic, options["partitions"] or partitions, position))
    newest = position.kind == "last"
    sink.write(some(session, topic, some_known(parts), count, newest=newest))


@click.command()
@click.argument("place", metavar="TOPIC[/PARTITION]")
@click.option("-n", "--last", "count", type=click.IntRange(0), default=10, show_default=True)
@click.option("--from", "start", type=START, help="Instead of the last N: from here on.")
@click.option("--no-follow", is_flag=True, help="Stop at the end of the topic.")
@_form_options
@remote
@until_interrupted
def tail(
    session: Session,
    place: str,
    count: int,
    start: Position | None,
    no_follow: bool,
    **options: Any,
) -> None:
    """Show the last records, and new ones as they come."""
    topic, partitions, position = parse_place(place)
    partitions = options["partitions"] or partitions
    start = start or position
    sink = _sink(preview_line, options)
    if start is not None:
        parts = parts_of(session, Wanted(topic, partitions, start))
        _copy(session, topic, parts, sink, _Amount(stop=no_follow))
        return
    parts = parts_of(session, Wanted(topic, partitions, Position("last", count)))
    if no_follow:
        some_known(parts)
    if count:
        sink.write(some(session, topic, parts, count, newest=True))
    if not no_follow:
        ends = [
            Part(part.partition, part.end if part.known else part.start, part.end) for part in parts
        ]
        _copy(session, topic, ends, sink, _Amount())
