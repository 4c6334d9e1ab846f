"""The rows of the table: rates and latencies, beside those of peers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from attrs import frozen

from benches import (
    bindings,
    clusters,
    compaction,
    delays,
    idle,
    queues,
    rebalances,
    routing,
    trials,
)
from benches.bench import BLOCKING, DEFERRED, PEERS, SIZES, TINYMQ, Bench, Run, Runs, Subject
from benches.tasks import Figures


@frozen
class Row:
    """
    One table of the report.

    Attributes:
        name: For ``--rows``.
        title: Above the table.
        runs: Gives the measurements of one round, in their order.
        figures: The columns.
        note: Below the title.
        once: It is measured in the first round only.
    """

    name: str
    title: str
    runs: Callable[[Bench], Runs]
    figures: tuple[str, ...]
    note: str = ""
    once: bool = False


#: Messages on their way with a Deferred for each.
WINDOW = 5000
#: Messages a second where latency is measured, and for how many seconds.
RATE, SECONDS = 1000, 3
#: How many seconds' messages a member of a group reads.
LOGS = 3
#: Records of a transaction, and of a call without one.
CALL = 1000
#: Partitions and keys of the keyed row.
KEYED = (8, 1000)


def produce(bench: Bench) -> Runs:
    """Publish as fast as it goes, in batches."""
    for size in SIZES:
        for subject in bench.running(*TINYMQ, *PEERS):
            measure = partial(_published, bench, subject, "produce", size)
            yield Run(subject.name, size, measure, subject.meaning)


def _published(
    bench: Bench,
    subject: Subject,
    role: str,
    size: int,
    partitions: int = 1,
    share: float = 1.0,
    **options: object,
) -> Figures:
    count = max(1, int(bench.amount(subject, size) * share))
    with bench.topic(subject, partitions) as topic:
        return bench.publish(subject, bench.task(subject, role, topic, count, size, **options))


def pairs(bench: Bench) -> Runs:
    """Publish to 1 and to 64 partitions by turns."""
    (subject,) = (each for each in DEFERRED if each.sync == "always")
    for number in range(3):
        yield Run(subject.name, 100, partial(_pair, bench, subject, number), subject.meaning)


def _pair(bench: Bench, subject: Subject, number: int) -> Figures:
    rates = {}
    for partitions in (1, 64) if number % 2 else (64, 1):
        found = _published(bench, subject, "produce", 100, partitions, 0.5)
        rates[partitions] = found["per_s"]
    return {"one_per_s": rates[1], "many_per_s": rates[64], "ratio": rates[64] / rates[1]}


def transactions(bench: Bench) -> Runs:
    """Publish with and without transactions by turns."""
    for size in SIZES:
        for subject in DEFERRED:
            for number in range(3):
                measure = partial(_transacted, bench, subject, size, number)
                yield Run(subject.name, size, measure, subject.meaning)


def _transacted(bench: Bench, subject: Subject, size: int, number: int) -> Figures:
    rates = {}
    for role in ("called", "transacted") if number % 2 else ("transacted", "called"):
        with bench.topic(subject) as topic:
            count = max(1, int(bench.amount(subject, size) * 0.3))
            task = bench.task(subject, role, topic, count, size, call=CALL)
            # What ends transactions takes offsets, too: only their producer can count.
            rates[role] = bench.run(bench.server(subject), task).figures[0]["per_s"]
    none, with_them = rates["called"], rates["transacted"]
    return {"none_per_s": none, "transactions_per_s": with_them, "ratio": with_them / none}


def keyed(bench: Bench) -> Runs:
    """Publish with keys to several partitions."""
    partitions, keys = KEYED
    for size in SIZES:
        for subject in DEFERRED:
            measure = partial(
                _published, bench, subject, "produce", size, partitions, 0.5, keys=keys
            )
            yield Run(subject.name, size, measure, subject.meaning)


def singles(bench: Bench) -> Runs:
    """Publish with a Deferred for each message."""
    for size in SIZES:
        for subject in DEFERRED:
            measure = partial(
                _published, bench, subject, "singles", size, share=0.15, window=WINDOW
            )
            yield Run(subject.name, size, measure, subject.meaning)


def outstanding(bench: Bench) -> Runs:
    """Publish one by one, subjects by turns several times a round."""
    for size in SIZES:
        for _ in range(3):
            for subject in bench.running(*BLOCKING, *PEERS):
                measure = partial(_one_by_one, bench, subject, size)
                yield Run(subject.name, size, measure, subject.meaning)


def _one_by_one(bench: Bench, subject: Subject, size: int) -> Figures:
    with bench.topic(subject) as topic:
        task = bench.task(subject, "outstanding", topic, bench.scaled(700), size)
        return bench.publish(subject, task)


def consume(bench: Bench) -> Runs:
    """Read a log that lies in the page cache."""
    (filler,) = (each for each in DEFERRED if each.sync == "os")
    readers = [
        (face, subject) for face, subject in (("Deferred", DEFERRED), ("blocking", BLOCKING))
    ]
    for size in SIZES:
        with _filled(bench, filler, size) as topic:
            for face, (subject, *_) in readers:
                for shape in ("columns", "records"):
                    read = partial(
                        _consumed, bench, subject, topic, size, records=shape == "records"
                    )
                    yield Run(f"tinymq {shape}, {face}", size, read, "offsets are the reader's")
        for peer in bench.running(*PEERS):
            if peer.server in ("redis-everysec", "beanstalkd-f50"):
                with _filled(bench, peer, size) as topic:
                    redis = peer.client == "redis_roles"
                    name = f"{peer.name}, {'XREAD' if redis else 'reserve and delete'}"
                    meaning = "offsets are the reader's" if redis else "each job is deleted"
                    yield Run(name, size, partial(_consumed, bench, peer, topic, size), meaning)


def members(bench: Bench) -> Runs:
    """Read a log by manual assignment and as a member of a group, by turns."""
    (subject,) = (each for each in DEFERRED if each.sync == "os")
    for size in SIZES:
        # Reading is faster than publishing: so much, that a start's few ms do not show.
        count = bench.amount(subject, size) * LOGS
        with _filled(bench, subject, size, count) as topic:
            for number in range(3):
                measure = partial(_grouped, bench, subject, topic, (size, count), number)
                yield Run("tinymq columns, Deferred", size, measure, "a commit every 5 s")


def _grouped(
    bench: Bench, subject: Subject, topic: str, log: tuple[int, int], number: int
) -> Figures:
    size, count = log
    rates = {}
    for role in ("consume", "group") if number % 2 else ("group", "consume"):
        task = bench.task(subject, role, topic, count, size)
        rates[role] = bench.run(bench.server(subject), task).figures[0]["per_s"]
    ratio = rates["group"] / rates["consume"]
    return {"manual_per_s": rates["consume"], "group_per_s": rates["group"], "ratio": ratio}


@contextmanager
def _filled(bench: Bench, subject: Subject, size: int, count: int | None = None) -> Iterator[str]:
    with bench.topic(subject) as topic:
        count = bench.amount(subject, size) if count is None else count
        bench.publish(subject, bench.task(subject, "produce", topic, count, size))
        yield topic


def _consumed(bench: Bench, subject: Subject, topic: str, size: int, **options: object) -> Figures:
    count = bench.amount(subject, size)
    task = bench.task(subject, "consume", topic, count, size, **options)
    outcome = bench.run(bench.server(subject), task)
    return outcome.figures[0] | {"server_us": outcome.cpu / count * 1e6}


def both(bench: Bench) -> Runs:
    """Publish and read at the same time."""
    for size in SIZES:
        for subject in bench.running(*DEFERRED, *PEERS):
            measure = partial(_through, bench, subject, size)
            yield Run(subject.name, size, measure, subject.meaning)


def _through(bench: Bench, subject: Subject, size: int) -> Figures:
    count = bench.amount(subject, size)
    with bench.topic(subject) as topic:
        reading = bench.task(subject, "consume", topic, count, size)
        writing = bench.task(subject, "produce", topic, count, size)
        outcome = bench.run(bench.server(subject), reading, writing)
    read, written = outcome.figures
    seconds = read["ended"] - written["began"]
    return {"per_s": count / seconds, "server_us": outcome.cpu / count * 1e6}


def latency(bench: Bench) -> Runs:
    """Publish at a steady rate, and see how old messages are when they are read."""
    for subject in bench.running(*TINYMQ, *PEERS):
        yield Run(subject.name, 100, partial(_aged, bench, subject), subject.meaning)


def _aged(bench: Bench, subject: Subject) -> Figures:
    count = bench.scaled(RATE * SECONDS)
    with bench.topic(subject) as topic:
        reading = bench.task(subject, "latency", topic, count, 100)
        writing = bench.task(subject, "paced", topic, count, 100, rate=RATE)
        outcome = bench.run(bench.server(subject), reading, writing)
    read, written = outcome.figures
    cores = (outcome.cpu + (read["client_us"] + written["client_us"]) * count / 1e6) * RATE / count
    return {"p50_us": read["p50_us"], "p99_us": read["p99_us"], "cores": cores}


_RATES = ("per_s", "server_us", "client_us")

ROWS = (
    Row(
        "produce",
        "Publish in batches, as fast as it goes",
        produce,
        _RATES,
        "tinymq: `send_batch`; Redis: XADD in pipelines of 500; beanstalkd: one put, one answer.",
    ),
    Row(
        "pairs",
        "64 partitions against 1",
        pairs,
        ("one_per_s", "many_per_s", "ratio"),
        "Pairs of runs right after each other; a sync for each file would show here.",
    ),
    Row(
        "partitions",
        "Many partitions with `always`",
        trials.partitions,
        ("per_s", "sync_p50_us", "sync_p99_us", "create_ms"),
        "sync: the time until one record in each partition is acknowledged.",
    ),
    Row(
        "transactions",
        f"Transactions of {CALL} records against none",
        transactions,
        ("none_per_s", "transactions_per_s", "ratio"),
        "Pairs of runs right after each other: calls of `send_batch`, and transactions with one "
        "each, 32 of either on their way.",
    ),
    Row("keyed", "Publish by 1000 keys to 8 partitions", keyed, _RATES),
    Row(
        "singles",
        "Publish with a Deferred for each message",
        singles,
        _RATES,
        f"{WINDOW} messages on their way.",
    ),
    Row(
        "outstanding",
        "One message outstanding",
        outstanding,
        ("p50_us", "p99_us"),
        "The blocking client. Compare within a round only: wake-ups of idle cores differ.",
    ),
    Row("consume", "Read a log from the page cache", consume, _RATES),
    Row(
        "groups",
        "Read a log as the member of a group, against manual assignment",
        members,
        ("manual_per_s", "group_per_s", "ratio"),
        "Pairs of runs right after each other; the group commits what it has read.",
    ),
    Row("both", "Publish and read together", both, ("per_s", "server_us")),
    Row(
        "latency",
        f"End to end at {RATE} messages a second",
        latency,
        ("p50_us", "p99_us", "cores"),
        "From before the publish call to the reader's hands; Redis: XADD and XREAD.",
    ),
    Row(
        "queue",
        "Take a backlog from a channel, and settle it",
        queues.consume,
        _RATES,
        f"Batches: up to {queues.BATCHES} messages in flight, settled a batch at a time; each "
        f"alone: {queues.ALONE} in flight, those of a turn in one frame. All settles of tinymq "
        "and Redis are confirmed before the clock stops, and nothing is left. RabbitMQ: pika.",
    ),
    Row(
        "queue-both",
        "Publish, take and settle together",
        queues.through,
        ("per_s", "server_us"),
        "From the first publish to the last confirmed settle.",
    ),
    Row(
        "queue-latency",
        f"End to end through a channel at {queues.RATE} messages a second",
        queues.latency,
        ("p50_us", "p99_us", "cores"),
        "From before the publish call to the handler's hands, each settled at once.",
    ),
    Row(
        "route",
        "Publish to an exchange until all copies are in their topics",
        routing.route,
        ("per_s", "copies_per_s", "behind_ms", "server_us"),
        "From the first publish to the last copy. behind: after the last acknowledgement. server: "
        "processor time for each copy.",
    ),
    Row(
        "queue-idle",
        "10 000 channels with a consumer each, in which nothing happens",
        idle.idle,
        ("create_s", "core_percent", "channel_kib"),
        f"{idle.TOPICS} topics of {idle.CHANNELS // idle.TOPICS} channels; those of a topic share "
        "a connection. create: making them all and subscribing to each. core: of the broker, over "
        f"{idle.SECONDS:.0f} s. channel: its memory.",
        once=True,
    ),
    Row(
        "queue-memory",
        "Memory of a message in flight",
        idle.memory,
        ("broker_bytes", "client_waiting_bytes", "client_held_bytes"),
        "60 000 messages of 100 B that are delivered and not settled; waiting: not handed out "
        "by the client; held: an object each in the caller's hands.",
        once=True,
    ),
    Row(
        "delayed",
        "Publish messages that come later, in batches",
        delays.produce,
        _RATES,
        "In 60 s: in the wheel. In an hour: in the log, and in the index soon.",
    ),
    Row(
        "delayed-late",
        f"{delays.LATE} messages that are due at any moment of {delays.SECONDS} s",
        delays.lateness,
        ("p50_us", "p99_us", "max_us", "early"),
        "How late a reader has them, by the wall clock here. early: 1 if one came early.",
    ),
    Row(
        "delayed-far",
        f"{delays.FAR} messages that are due within a year",
        delays.far,
        ("per_s", "indexed_per_s", "grown_mib", "start_s", "started_mib", "killed_start_s"),
        "indexed: until all are listed. grown: memory of the broker. start: until it listens.",
        once=True,
    ),
    Row(
        "matches",
        "Find the targets of a message among 10 000 bindings",
        bindings.matches,
        ("build_ms", "change_ms", "few_us", "match_us"),
        "Without a broker. few: among 10 bindings. build: making the table; "
        "change: one binding more or less. A fanout copies to all of its 10 000 targets; the "
        "1000 rules are all tried.",
    ),
    Row(
        "rebalance",
        f"Rebalance {rebalances.MEMBERS} members over {rebalances.PARTITIONS} partitions",
        rebalances.rebalances,
        ("come_ms", "one_more_ms", "one_less_ms", "took_ms", "moved"),
        "Without a broker, processor time of the coordinator and its members' requests: all come, "
        "one more, one goes. took: from the first that came until nothing moved, on the group's "
        "clock. moved: partitions that changed hands for one more.",
    ),
    Row(
        "frame",
        "A frame of 16 MiB in pieces of 1 KiB",
        trials.frame,
        ("short_ms", "long_ms", "linear", "ping_p99_us", "ping_max_us"),
        "linear: time of 16 MiB by 16 times that of 1 MiB. "
        "ping: PING each millisecond on another connection meanwhile.",
    ),
    Row(
        "turns",
        "Turns of the reactor under load",
        trials.turns,
        ("per_s", "late_ms", "ping_p50_us", "ping_p99_us", "page_p99_us"),
        "Publishing and reading at full speed, with 20 dashboard tabs refreshed every 2 s. "
        "late: the broker's own p99 of how late its timers run.",
        once=True,
    ),
    Row(
        "compact",
        "Clean 5 million records of 100 000 keys",
        compaction.compact,
        (
            *("per_s", "clean_s", "before_mib", "after_mib", "worker_mib", "grown_mib"),
            *("ping_p99_us", "late_ms"),
        ),
        "worker: most resident memory of the process that cleans; grown: that of the broker. "
        "ping: PING each millisecond meanwhile. late: the broker's own p99 of how late its timers "
        "run.",
        once=True,
    ),
    Row(
        "deaf",
        "1 GiB to readers that never read",
        trials.deaf,
        ("grown_mib", "bound_mib", "before_per_s", "meanwhile_per_s"),
        "grown: resident memory of the broker.",
        once=True,
    ),
    Row(
        "topics",
        "10 000 topics of one message",
        trials.topics,
        ("create_s", "start_s", "killed_start_s", "files", "rss_mib", "started_rss_mib"),
        "start: until it listens, after a clean stop and after kill -9.",
        once=True,
    ),
    Row(
        "brokers",
        "Three broker processes against one",
        clusters.brokers,
        ("one_per_s", "three_per_s", "ratio", "one_server_us", "three_server_us"),
        f"A topic of {clusters.PARTITIONS} partitions, on one process with everything, and spread "
        "over three brokers beside a MetaServer. server: processor time of all their processes.",
    ),
    Row(
        "metadata",
        "Metadata of 10 000 topics",
        clusters.metadata,
        ("create_s", "refresh_ms", "server_ms"),
        "create: by the first publish to each, through a cluster of three. refresh: a client "
        "asks for all of them again. server: processor time of the whole cluster meanwhile.",
        once=True,
    ),
    Row(
        "failover",
        "A broker is killed and started again",
        clusters.failover,
        ("start_s", "answered_s", "behind_ms"),
        "start: from the kill until the new process listens; answered: until a record that waited "
        "for its partition is acknowledged; behind: the difference.",
    ),
)
