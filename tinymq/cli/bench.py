"""`tinymq bench`: how fast publishing and reading are, from one client process."""

from __future__ import annotations

import secrets
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import click
from attrs import define, field, frozen
from typing_extensions import override

from tinymq.cli.failure import Failed
from tinymq.cli.groups import Group
from tinymq.cli.output import facts, write_json
from tinymq.cli.progress import Advance, progress
from tinymq.cli.session import Session, remote
from tinymq.cli.values import SIZE, human_size

if TYPE_CHECKING:
    from tinymq.sync import Producer

#: The sending time at the beginning of each value, in nanoseconds.
_STAMP: Final = struct.Struct(">q")

PERCENTILES: Final = (50.0, 90.0, 99.0, 99.9)


@frozen(kw_only=True)
class Shape:
    """
    What is sent.

    Attributes:
        topic: Where to; a topic of its own when empty.
        size: Bytes of a value.
        messages: How many.
        batch: Messages of one call.
        partitions: Of the topic that is made.
        sync: The policy of the topic that is made.
    """

    topic: str
    size: int
    messages: int
    batch: int
    partitions: int
    sync: str


@define
class Timing:
    """
    Figures of one direction.

    Attributes:
        what: ``pub``, ``sub`` or ``e2e``.
        size: Bytes of a value.
        messages: How many went through.
        seconds: From the first call to the last answer.
        latencies: Seconds, of calls or of messages.
    """

    what: str
    size: int
    messages: int = 0
    seconds: float = 0.0
    latencies: list[float] = field(factory=list)

    def document(self) -> dict[str, Any]:
        """Give the figures for JSON."""
        seconds = max(self.seconds, 1e-9)
        found: dict[str, Any] = {
            "what": self.what,
            "messages": self.messages,
            "size": self.size,
            "seconds": round(self.seconds, 6),
            "messages_per_second": round(self.messages / seconds, 1),
            "bytes_per_second": round(self.messages * self.size / seconds, 1),
        }
        if self.latencies:
            found["latency_ms"] = latency(self.latencies)
        return found

    def lines(self) -> list[tuple[str, str]]:
        """Give the figures for people."""
        found = self.document()
        lines = [
            (self.what, f"{self.messages} messages of {human_size(self.size)}"),
            ("seconds", f"{self.seconds:.3f}"),
            ("messages/s", f"{found['messages_per_second']:,.0f}"),
            ("MB/s", f"{found['bytes_per_second'] / 1e6:,.1f}"),
        ]
        of = "message" if self.what == "e2e" else "call"
        for name, value in found.get("latency_ms", {}).items():
            lines.append((f"ms per {of}, {name}", f"{value:.3f}"))
        return lines


def latency(seconds: Sequence[float]) -> dict[str, float]:
    """Sum up latencies in milliseconds: least, mean, percentiles and most."""
    ordered = sorted(seconds)
    found = {"min": ordered[0], "mean": sum(ordered) / len(ordered)}
    for percent in PERCENTILES:
        found[f"p{percent:g}"] = ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
    found["max"] = ordered[-1]
    return {name: round(value * 1000, 4) for name, value in found.items()}


@click.group(cls=Group)
def bench() -> None:
    """Measure publishing and reading."""


def _options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--size", type=SIZE, default=128, show_default=True, help="Of a value."),
        click.option("--msgs", type=click.IntRange(1), default=100_000, show_default=True),
        click.option(
            "--batch",
            type=click.IntRange(1),
            default=1000,
            show_default=True,
            help="Messages of one call.",
        ),
        click.option("--partitions", type=click.IntRange(1), default=1, show_default=True),
        click.option("--sync", type=click.Choice(["always", "interval", "os"]), default="always"),
        click.option(
            "--topic",
            default="",
            help="Use this topic and keep it; else one is made and removed.",
        ),
        click.option("--json", "as_json", is_flag=True, help="The same as -o json."),
        click.option(
            "-o",
            "--output",
            type=click.Choice(["table", "json"]),
            default="table",
            show_default=True,
        ),
    ):
        function = option(function)
    return function


def _shape(options: dict[str, Any]) -> Shape:
    return Shape(
        topic=options["topic"],
        size=max(options["size"], _STAMP.size),
        messages=options["msgs"],
        batch=min(options["batch"], options["msgs"]),
        partitions=options["partitions"],
        sync=options["sync"],
    )


def _measure(
    session: Session,
    title: str,
    options: dict[str, Any],
    body: Callable[[Session, Shape, str, Advance], Timing],
) -> None:
    """Run one measurement on its topic and show the figures."""
    shape = _shape(options)
    topic = shape.topic or f"bench-{secrets.token_hex(4)}"
    session.operate(
        "topic.create",
        name=topic,
        partitions=None if shape.topic else shape.partitions,
        config={} if shape.topic else {"sync": shape.sync},
    )
    try:
        with progress(title, shape.messages) as advance:
            timing = body(session, shape, topic, advance)
    finally:
        if not shape.topic:
            session.operate("topic.delete", name=topic, dry_run=False)
    if options["as_json"] or options["output"] == "json":
        write_json(timing.document())
    else:
        facts(timing.lines())


@bench.command("pub")
@_options
@remote
def bench_pub(session: Session, **options: Any) -> None:
    """Measure publishing; the latency is that of calls of --batch messages."""
    _measure(session, "pub", options, _publish)


@bench.command("sub")
@_options
@remote
def bench_sub(session: Session, **options: Any) -> None:
    """Measure reading; a topic of its own is filled first."""
    _measure(session, "sub", options, _subscribe)


@bench.command("e2e")
@click.option("--rate", type=click.IntRange(1), help="Messages a second; as fast as it goes.")
@_options
@remote
def bench_e2e(session: Session, rate: int | None, **options: Any) -> None:
    """Measure the way from publishing to reading, for each message."""

    def body(session: Session, shape: Shape, topic: str, advance: Advance) -> Timing:
        return _end_to_end(session, shape, topic, advance, rate)

    _measure(session, "e2e", options, body)


def _calls(shape: Shape) -> Iterator[int]:
    """Yield how many messages each call has."""
    left = shape.messages
    while left > 0:
        yield min(left, shape.batch)
        left -= shape.batch


def _values(shape: Shape, count: int) -> list[bytes]:
    stamp = _STAMP.pack(time.monotonic_ns())
    return [stamp + bytes(shape.size - len(stamp))] * count


def _producer(session: Session) -> Producer:
    from tinymq.sync import ProducerConfig  # noqa: PLC0415 - not needed for --help

    return session.client.producer(ProducerConfig(deadline_s=session.timeout))


def _publish(session: Session, shape: Shape, topic: str, advance: Advance) -> Timing:
    timing = Timing("pub", shape.size)
    producer = _producer(session)
    began = time.perf_counter()
    for count in _calls(shape):
        values = _values(shape, count)
        sent = time.perf_counter()
        producer.send_batch(topic, values)
        timing.latencies.append(time.perf_counter() - sent)
        timing.messages += count
        advance(count, "")
    timing.seconds = time.perf_counter() - began
    producer.close()
    return timing


def _subscribe(session: Session, shape: Shape, topic: str, advance: Advance) -> Timing:
    from tinymq.sync import EARLIEST  # noqa: PLC0415 - not needed for --help

    if not shape.topic:
        _publish(session, shape, topic, lambda amount, text: None)
    held = session.operate("topic.info", name=topic)["topic"]["messages"]
    if held == 0:
        raise Failed(f"topic {topic} is empty", "without --topic one is made and filled")
    wanted = min(held, shape.messages)
    timing = Timing("sub", shape.size)
    size = 0
    consumer = session.client.consumer()
    began = time.perf_counter()
    consumer.assign(topic, start=EARLIEST)
    for batch in consumer:
        values = batch.values
        size += sum(map(len, filter(None, values)))
        timing.messages += len(values)
        advance(len(values), "")
        if timing.messages >= wanted:
            break
    timing.seconds = time.perf_counter() - began
    timing.size = size // timing.messages
    consumer.close()
    return timing


def _end_to_end(
    session: Session, shape: Shape, topic: str, advance: Advance, rate: int | None
) -> Timing:
    from tinymq.sync import LATEST  # noqa: PLC0415 - not needed for --help

    timing = Timing("e2e", shape.size)
    consumer = session.client.consumer()
    ends = {
        row["partition"]: row["end"]
        for row in session.operate("topic.info", name=topic)["topic"]["partitions"]
    }
    consumer.assign(topic, start=ends or LATEST)
    sender = Paced(session, shape, topic, rate)
    began = time.perf_counter()
    sender.start()
    for batch in consumer:
        now = time.monotonic_ns()
        for value in batch.values:
            timing.latencies.append((now - _STAMP.unpack_from(value or b"")[0]) / 1e9)
        timing.messages += len(batch)
        advance(len(batch), "")
        if timing.messages >= shape.messages or sender.failure is not None:
            break
    timing.seconds = time.perf_counter() - began
    sender.join()
    consumer.close()
    if sender.failure is not None:
        raise sender.failure
    return timing


class Paced(threading.Thread):
    """
    Publishes with a client of its own, at a rate if one is wanted.

    Attributes:
        failure: What ended it early.
    """

    def __init__(self, session: Session, shape: Shape, topic: str, rate: int | None) -> None:
        super().__init__(name="bench sender", daemon=True)
        self.failure: Exception | None = None
        self._session = session.fresh()
        self._shape = shape
        self._topic = topic
        self._rate = rate

    @override
    def run(self) -> None:
        """Publish everything."""
        try:
            producer = _producer(self._session)
            began = time.perf_counter()
            sent = 0
            for count in _calls(self._shape):
                if self._rate is not None:
                    time.sleep(max(0.0, began + sent / self._rate - time.perf_counter()))
                producer.send_batch(self._topic, _values(self._shape, count))
                sent += count
            producer.close()
        except Exception as error:  # noqa: BLE001 - told by the thread that reads
            self.failure = error
        finally:
            self._session.close()
