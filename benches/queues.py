"""Rows of the work queue, beside the queues of peers in the same rounds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from attrs import evolve, frozen

from benches.bench import DEFERRED, SIZES, Bench, Run, Runs, Subject
from benches.tasks import Figures
from benches.workers import Failed

#: Messages in flight: of batches, and where each is settled alone.
BATCHES, ALONE = 20_000, 200
#: Messages a second where latency is measured, and for how many seconds.
RATE, SECONDS = 1000, 3

_REDIS = {"always": "XACK: fsync before the answer", "everysec": "XACK: fsync once a second"}
_RABBIT = {
    "quorum": "ack: not answered; synced later, with the write-ahead log",
    "classic": "ack: not answered; written later, with the queue's index",
}

REDIS = tuple(
    Subject(f"Redis {each}", f"redis-{each}", "redis_roles", "", meaning, 120_000)
    for each, meaning in _REDIS.items()
)
RABBIT = tuple(
    Subject(f"RabbitMQ {each}", "rabbitmq", "rabbit_roles", each, meaning, 25_000)
    for each, meaning in _RABBIT.items()
)


@frozen
class Way:
    """
    A way to take and settle messages.

    Attributes:
        name: Behind the subject's name.
        role: Of the client.
        window: Messages in flight.
    """

    name: str
    role: str
    window: int


_WHOLE = Way("whole batches", "ranges", BATCHES)
_EACH = (
    Way("each alone, function", "function", ALONE),
    Way("each alone, coroutine", "coroutine", ALONE),
    Way("each alone, 8 a turn", "eights", ALONE),
)
_OF_REDIS = Way("XREADGROUP and XACK of 500", "grouped", 500)
_OF_RABBIT = (
    Way("prefetch 500, ack of 100", "consume", 500),
    Way("prefetch 200, ack of each", "alone", ALONE),
)


def _queue(subject: Subject) -> Subject:
    """Return a subject of tinymq as a consumer of a channel."""
    name = subject.name.removesuffix(", Deferred")
    settled = "fdatasync of the ledger" if subject.sync == "always" else "ledger in the page cache"
    return evolve(
        subject, name=name, client="queue_roles", meaning=f"settle: {settled} before the answer"
    )


QUEUE = tuple(map(_queue, DEFERRED))


def consume(bench: Bench) -> Runs:
    """Take a backlog and settle all of it."""
    (plain,) = (each for each in DEFERRED if each.sync == "os")
    for size in SIZES:
        with _filled(bench, plain, size) as topic:
            read = partial(_read, bench, plain, topic, size)
            yield Run("tinymq log, columns", size, read, "none: offsets are the reader's")
        for subject in QUEUE:
            with _filled(bench, subject, size) as topic:
                yield _run(bench, subject, _WHOLE, topic, size)
            with _filled(bench, subject, size, _share(size)) as topic:
                for way in _EACH:
                    yield _run(bench, subject, way, topic, size, _share(size))
        for subject in bench.running(*REDIS):
            with _filled(bench, subject, size) as topic:
                yield _run(bench, subject, _OF_REDIS, topic, size)
        for subject in bench.running(*RABBIT):
            for way in _OF_RABBIT:
                with _filled(bench, subject, size) as topic:
                    yield _run(bench, subject, way, topic, size)


def _share(size: int) -> float:
    """How many of the messages of batches are settled one by one in about a second."""
    return 0.12 if size <= SIZES[0] else 0.3


def _run(
    bench: Bench, subject: Subject, way: Way, topic: str, size: int, share: float = 1.0
) -> Run:
    count = int(bench.amount(subject, size) * share)
    measure = partial(_consumed, bench, subject, way, topic, count, size)
    return Run(f"{subject.name}, {way.name}", size, measure, subject.meaning)


@contextmanager
def _filled(bench: Bench, subject: Subject, size: int, share: float = 1.0) -> Iterator[str]:
    with bench.topic(subject) as topic:
        count = int(bench.amount(subject, size) * share)
        writer = _publisher(subject)
        bench.publish(writer, bench.task(writer, "produce", topic, count, size))
        yield topic


def _publisher(subject: Subject) -> Subject:
    return evolve(subject, client="deferred") if subject in QUEUE else subject


def _read(bench: Bench, subject: Subject, topic: str, size: int) -> Figures:
    count = bench.amount(subject, size)
    outcome = bench.run(bench.server(subject), bench.task(subject, "consume", topic, count, size))
    return outcome.figures[0] | {"server_us": outcome.cpu / count * 1e6}


def _consumed(
    bench: Bench, subject: Subject, way: Way, topic: str, count: int, size: int
) -> Figures:
    server, channel = bench.server(subject), bench.unused("channel")
    task = bench.task(subject, way.role, topic, count, size, window=way.window, channel=channel)
    outcome = bench.run(server, task)
    left = server.unsettled(topic, channel)
    if left:
        raise Failed(f"{subject.name} has {left} of {count} messages that are not settled")
    return outcome.figures[0] | {"server_us": outcome.cpu / count * 1e6}


def through(bench: Bench) -> Runs:
    """Publish, take and settle at the same time."""
    for size in SIZES:
        for subject in QUEUE:
            yield _through(bench, subject, _WHOLE, size)
            yield _through(bench, subject, _EACH[0], size, _share(size))
        for subject in bench.running(*REDIS):
            yield _through(bench, subject, _OF_REDIS, size)
        for subject in bench.running(*RABBIT):
            yield _through(bench, subject, _OF_RABBIT[0], size)


def _through(bench: Bench, subject: Subject, way: Way, size: int, share: float = 1.0) -> Run:
    measure = partial(_passed, bench, subject, way, int(bench.amount(subject, size) * share), size)
    return Run(f"{subject.name}, {way.name}", size, measure, _both(subject))


def _both(subject: Subject) -> str:
    """What publishing and settling promise."""
    published = {
        "always": "fdatasync before the answer",
        "os": "in the page cache",
        "quorum": "write-ahead log synced before the answer",
        "classic": "fsync before the answer",
    }.get(subject.sync, "as the settle")
    return f"publish: {published}; {subject.meaning}"


def _passed(bench: Bench, subject: Subject, way: Way, count: int, size: int) -> Figures:
    channel = bench.unused("channel")
    publisher = _publisher(subject)
    with bench.topic(subject) as topic:
        taking = bench.task(
            subject, way.role, topic, count, size, window=way.window, channel=channel
        )
        writing = bench.task(publisher, "produce", topic, count, size)
        outcome = bench.run(bench.server(subject), taking, writing)
    taken, written = outcome.figures
    seconds = taken["ended"] - written["began"]
    return {"per_s": count / seconds, "server_us": outcome.cpu / count * 1e6}


def latency(bench: Bench) -> Runs:
    """Publish at a steady rate, see how old messages are when they are taken, and settle them."""
    for subject in (*QUEUE, *bench.running(*REDIS, *RABBIT)):
        yield Run(subject.name, 100, partial(_aged, bench, subject), _both(subject))


def _aged(bench: Bench, subject: Subject) -> Figures:
    count = bench.scaled(RATE * SECONDS)
    publisher = _publisher(subject)
    role = "group_latency" if subject in REDIS else "latency"
    options = {"window": ALONE, "channel": bench.unused("channel")}
    with bench.topic(subject) as topic:
        taking = bench.task(subject, role, topic, count, 100, **options)
        writing = bench.task(publisher, "paced", topic, count, 100, rate=RATE)
        outcome = bench.run(bench.server(subject), taking, writing)
    taken, written = outcome.figures
    spent = (taken["client_us"] + written["client_us"]) * count / 1e6
    cores = (outcome.cpu + spent) * RATE / count
    return {"p50_us": taken["p50_us"], "p99_us": taken["p99_us"], "cores": cores}
