"""`tinymq pub`: publish what comes on stdin."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import click
from attrs import define, field

from tinymq.cli.failure import REFUSED, Failed, status_of
from tinymq.cli.lines import gather, lines, stdin_source, whole
from tinymq.cli.output import counted, note, tell_passed, write_json
from tinymq.cli.progress import progress
from tinymq.cli.session import Session, remote
from tinymq.cli.values import DELAY, HEADER, LIFE, MOMENT, MOMENT_TEXT, SIZE, human_size, iso
from tinymq.errors import TinyMQError, Unroutable
from tinymq.limits import DEFAULT_LIMITS

if TYPE_CHECKING:
    from tinymq.sync import Position, Producer, Sent

#: Most lines that one call publishes.
BATCH: Final = 10_000
#: Seconds that lines wait for a broker when nothing else is said: it may be starting again.
LINES_S: Final = 60.0


@define
class Published:
    """
    What was acknowledged.

    Attributes:
        count: Messages.
        size: Bytes of their values.
        ranges: By partition the first and the last offset.
        volatile: The topic is kept in memory only.
        delayed: By partition the first and the last id of those that wait.
        due_ms: When a single message comes, if it waits.
        unroutable: Those among them that no binding of the exchange takes.
        duplicates: By partition the first and the last offset of the first ones of those whose
            ids were there before.
        repeats: How many these are.
    """

    count: int = 0
    size: int = 0
    ranges: dict[int, tuple[int, int]] = field(factory=dict)
    volatile: bool = False
    delayed: dict[int, tuple[int, int]] = field(factory=dict)
    due_ms: int | None = None
    unroutable: int = 0
    duplicates: dict[int, tuple[int, int]] = field(factory=dict)
    repeats: int = 0

    def add(
        self,
        values: Sequence[bytes],
        placed: Sequence[tuple[int, int, int]],
        delayed: Sequence[tuple[int, int, int]] = (),
        *,
        volatile: bool = False,
        duplicates: Sequence[tuple[int, int, int]] = (),
    ) -> None:
        """Count the messages of one call."""
        self.count += len(values)
        self.volatile = self.volatile or volatile
        self.size += sum(map(len, values))
        self.repeats += sum(count for _, _, count in duplicates)
        for runs, ranges in (
            (placed, self.ranges),
            (delayed, self.delayed),
            (duplicates, self.duplicates),
        ):
            for partition, base, count in runs:
                first, last = ranges.get(partition, (base, base))
                ranges[partition] = (min(first, base), max(last, base + count - 1))


@define
class Publisher:
    """
    Publishes values with the options of one command line.

    Attributes:
        producer: Sends.
        topic: Where to.
        key: Key of each, unless the line has its own.
        headers: Headers of each.
        partition: Where to, or None for the partitioner's choice.
        times: When each comes and how long it lives, as `send` takes it.
        published: What was acknowledged so far.
    """

    producer: Producer
    topic: str
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    partition: int | None = None
    times: dict[str, Any] = field(factory=dict)
    published: Published = field(factory=Published)

    def publish(self, values: Sequence[bytes], keys: Sequence[bytes | None] | None) -> None:
        """Send many, and wait until all are acknowledged."""
        if keys is None and self.key is not None:
            keys = [self.key] * len(values)
        try:
            sent = self.producer.send_batch(
                self.topic,
                list(values),
                keys=None if keys is None else list(keys),
                headers=[self.headers] * len(values) if self.headers else None,
                partition=self.partition,
                **self.times,
            )
        except (TinyMQError, KeyboardInterrupt) as error:
            if self._go_nowhere(values, error):
                return
            raise self._broken(values, error) from None
        self._add(values, sent)

    def _add(self, values: Sequence[bytes], sent: Sent) -> None:
        self.published.add(
            values,
            sent.positions,
            sent.delayed,
            volatile=sent.volatile,
            duplicates=sent.duplicates,
        )

    def _go_nowhere(self, values: Sequence[bytes], error: BaseException) -> bool:
        """Count what is stored, but taken by no binding; say whether that is all that is wrong."""
        from tinymq.sync import PartlySent, Sent  # noqa: PLC0415 - not needed for --help

        if isinstance(error, Unroutable):
            sent, astray = Sent(0, []), len(values)
        elif isinstance(error, PartlySent):
            if not all(isinstance(failed.error, Unroutable) for failed in error.failed):
                return False
            sent, astray = error.sent, len(error.failed)
        else:
            return False
        self.published.unroutable += astray
        self._add(values, sent)
        return True

    def _broken(self, values: Sequence[bytes], error: BaseException) -> BaseException:
        """Say how far it came, so that one can go on from there."""
        from tinymq.sync import PartlySent  # noqa: PLC0415 - not needed for --help

        done, more = self.published.count, ""
        if isinstance(error, PartlySent):
            # Equal lines cannot be told apart: then an earlier one is taken for missing.
            missing = {failed.value for failed in error.failed}
            first = next(place for place, each in enumerate(values) if each in missing)
            done += first
            if error.sent.count > first:
                more = f", and {error.sent.count - first} of the {len(values) - first} behind them"
            error = error.failed[0].error
        told = f"lines 1 to {done} are acknowledged" if done else "no line is acknowledged"
        if not isinstance(error, Exception) or not (done or more):
            note(told)
            return error
        return Failed(
            f"{told}{more}; the others may be stored or not: {error}",
            f"go on with line {done + 1}",
            status_of(error),
        )

    def publish_one(self, value: bytes) -> None:
        """Send one, and wait until it is acknowledged."""
        from tinymq.sync import Delayed  # noqa: PLC0415 - not needed for --help

        place: Position | Delayed = self.producer.send(
            self.topic,
            value,
            key=self.key,
            headers=self.headers or None,
            partition=self.partition,
            **self.times,
        )
        if isinstance(place, Delayed):
            self.published.due_ms = place.due_ms
            delayed = [(place.partition, place.id, 1)]
            self.published.add([value], (), delayed, volatile=place.volatile)
        else:
            placed = [(place.partition, place.offset, 1)]
            if place.duplicate:
                self.published.add([value], (), volatile=place.volatile, duplicates=placed)
            else:
                self.published.add([value], placed, volatile=place.volatile)


def _bytes(value: str | None) -> bytes | None:
    """Give an argument back as the bytes that were typed."""
    return None if value is None else os.fsencode(value)


@click.command()
@click.argument("topic")
@click.argument("value", required=False)
@click.option("-k", "--key", help="Key of each message.")
@click.option("-K", "--key-separator", metavar="TEXT", help="With -l: the key ends here.")
@click.option("-H", "--header", "headers", type=HEADER, multiple=True, help="May be repeated.")
@click.option("-p", "--partition", type=click.IntRange(0), help="Instead of the key's.")
@click.option("-l", "--lines", "by_line", is_flag=True, help="Each line of stdin is a message.")
@click.option("--delay", type=DELAY, help="Each comes so much later: 5m, 1h30m.")
@click.option("--at", type=MOMENT, help=f"Each comes then: {MOMENT_TEXT}")
@click.option("--ttl", type=LIFE, help="Each expires in channels so long after it came.")
@click.option("--id", "id", metavar="TEXT", help="Its message id, for a topic with a dedup window.")
@click.option("--acks", type=click.Choice(["leader", "all", "none"]), default="leader")
@click.option("--codec", type=click.Choice(["none", "gzip", "zstd"]), default="none")
@click.option("--no-create", is_flag=True, help="Refuse when there is no such topic.")
@click.option("--max-bytes", type=SIZE, default=DEFAULT_LIMITS.value, help="Of one value.")
@click.option("--dry-run", is_flag=True, help="Read stdin and count, but publish nothing.")
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True
)
@remote
def pub(session: Session, topic: str, value: str | None, **options: Any) -> int:
    """
    Publish stdin, its lines, or a value.

    Without VALUE all of stdin is one message, with -l each line is one. Lines
    are sent as they come, and wait up to 60 s for a broker unless --timeout says
    otherwise. Returns when everything is acknowledged; otherwise says how many
    lines are. What comes later is told with its id, such as orders/0~17, which
    `tinymq delayed` takes.
    """
    if value is not None and options["by_line"]:
        raise click.UsageError("give VALUE or -l, not both")
    if options["key_separator"] and not options["by_line"]:
        raise click.UsageError("--key-separator goes with -l")
    if options["id"] == "":
        raise click.UsageError("--id is empty")
    if options["id"] is not None and options["by_line"]:
        raise click.UsageError("--id is of one message; with -l use a header or a key")
    if options["delay"] is not None and options["at"] is not None:
        raise click.UsageError("give --delay or --at, not both")
    if options["dry_run"]:
        published = Published()
        for values, _ in _messages(value, options):
            published.add(values, [])
    else:
        published = _publish(session, topic, value, options)
    _tell(topic, published, options["output"], dry_run=options["dry_run"])
    tell_passed(options["at"])
    if published.unroutable:
        note(
            f"{counted(published.unroutable, 'message')} of these go nowhere: no binding of "
            f"exchange {topic} takes them; they are in its dead-letter topic"
        )
    return REFUSED if published.unroutable else 0


def _publish(session: Session, topic: str, value: str | None, options: dict[str, Any]) -> Published:
    from tinymq.sync import ProducerConfig  # noqa: PLC0415 - not needed for --help

    config = ProducerConfig(
        acks=options["acks"],
        codec=options["codec"],
        create_topics=not options["no_create"],
        deadline_s=(session.given or LINES_S) if options["by_line"] else session.timeout,
    )
    producer = session.client.producer(config)
    publisher = Publisher(
        producer,
        topic,
        _bytes(options["key"]),
        options["headers"],
        options["partition"],
        {name: options[name] for name in ("delay", "at", "ttl", "id") if options[name] is not None},
    )
    total = _stdin_size() if options["by_line"] else None
    with progress(f"to {topic}", total) as advance:
        for values, keys in _messages(value, options):
            if options["by_line"]:
                publisher.publish(values, keys)
            else:
                publisher.publish_one(values[0])
            done = sum(map(len, values)) + len(values)
            advance(done, f"{publisher.published.count} messages")
    producer.close()
    return publisher.published


def _stdin_size() -> float | None:
    """Bytes of stdin when it is a file."""
    try:
        return os.fstat(sys.stdin.fileno()).st_size or None
    except OSError:
        return None


def _messages(
    value: str | None, options: dict[str, Any]
) -> Iterator[tuple[list[bytes], list[bytes | None] | None]]:
    """Yield values with their keys, if lines have keys."""
    if value is not None:
        yield [os.fsencode(value)], None
        return
    if sys.stdin.isatty():
        what = "each line is published" if options["by_line"] else "all of it is one message"
        note(f"reading from the terminal until Ctrl-D; {what}")
    chunks = gather(*stdin_source())
    if not options["by_line"]:
        yield [whole(chunks, options["max_bytes"])], None
        return
    separator = _bytes(options["key_separator"])
    for found in lines(chunks, options["max_bytes"]):
        for start in range(0, len(found), BATCH):
            some = found[start : start + BATCH]
            yield split_keys(some, separator) if separator else (some, None)


def split_keys(
    found: Sequence[bytes], separator: bytes
) -> tuple[list[bytes], list[bytes | None] | None]:
    """Cut each line into key and value; a line without the separator has no key."""
    values: list[bytes] = []
    keys: list[bytes | None] = []
    for line in found:
        key, cut, value = line.partition(separator)
        values.append(value if cut else line)
        keys.append(key if cut else None)
    return values, keys


def _tell(topic: str, published: Published, output: str, *, dry_run: bool) -> None:
    if output == "json":
        write_json(
            {
                "topic": topic,
                "count": published.count,
                "bytes": published.size,
                "positions": _runs(published.ranges),
                "delayed": _runs(published.delayed),
                "due_ms": published.due_ms,
                "unroutable": published.unroutable,
                "duplicates": _runs(published.duplicates),
                "volatile": published.volatile,
                "dry_run": dry_run,
            }
        )
        return
    verb = "would publish" if dry_run else "published"
    noun = "message" if published.count == 1 else "messages"
    places = ", ".join(_written(published.ranges, "", "@"))
    waiting = ", ".join(_written(published.delayed, f"{topic}/", "~"))
    before = ", ".join(_written(published.duplicates, "", "@"))
    due = "" if published.due_ms is None else f" until {iso(published.due_ms)}"
    click.echo(
        f"{verb} {published.count} {noun} ({human_size(published.size)}) to {topic}"
        + (f" at {places}" if places else "")
        + (f", {_repeats(published)} was there before: {before}" if before else "")
        + (f", delayed{due}: {waiting}" if waiting else "")
        + (", in memory only" if published.volatile else "")
    )


def _repeats(published: Published) -> str:
    """How many of the ids were there before."""
    many = published.repeats
    return "its id" if published.count == many == 1 else f"the id of {many} of them"


def _runs(ranges: dict[int, tuple[int, int]]) -> list[dict[str, int]]:
    return [
        {"partition": partition, "first": first, "last": last}
        for partition, (first, last) in sorted(ranges.items())
    ]


def _written(ranges: dict[int, tuple[int, int]], before: str, mark: str) -> Iterator[str]:
    for partition, (first, last) in sorted(ranges.items()):
        more = "" if first == last else f"..{last}"
        yield f"{before}{partition}{mark}{first}{more}"
