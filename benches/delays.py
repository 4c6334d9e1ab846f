"""Rows about messages that come later."""

from __future__ import annotations

import time
from functools import partial

from benches.bench import DEFERRED, Bench, Run, Runs, Subject
from benches.servers import TinyMQ
from benches.tasks import Figures, Task
from benches.trials import own_broker
from benches.workers import Failed
from tinymq.limits import MIB
from tinymq.sync import Client

_ALWAYS, _ = DEFERRED
#: Messages for a rate, by their size.
_COUNTS = {100: 400_000, 1024: 150_000}
#: Messages, and the seconds within which they are due.
LATE, SECONDS = 20_000, 20
#: Messages that are due within the next year.
FAR = 1_000_000
_YEAR_S = 365 * 24 * 3600
#: Seconds in which the index has to follow.
_PATIENCE = 120.0


def produce(bench: Bench) -> Runs:
    """Publish with one delay for all, as fast as it goes."""
    for size, count in _COUNTS.items():
        for name, delay in (("in 60 s", (60, 60)), ("in an hour", (3600, 3600))):
            measure = partial(_published, bench, _ALWAYS, size, count, delay)
            yield Run(f"tinymq always, {name}", size, measure, _ALWAYS.meaning)


def _published(
    bench: Bench, subject: Subject, size: int, count: int, delay: tuple[float, float]
) -> Figures:
    with own_broker(bench) as server:
        server.create("delayed", 1, subject.sync)
        task = _task(server, "produce", bench.scaled(count), size, delay_s=delay)
        alone = Bench(bench.folder, {"tinymq": server}, bench.environment, bench.scale)
        outcome = alone.run(server, task)
    return outcome.figures[0] | {"server_us": outcome.cpu / task.count * 1e6}


def lateness(bench: Bench) -> Runs:
    """Have many messages due at any moment of some seconds."""
    yield Run(f"{bench.scaled(LATE)} messages", 100, partial(_late, bench), _ALWAYS.meaning)


def _late(bench: Bench) -> Figures:
    with own_broker(bench) as server:
        server.create("delayed", 1, _ALWAYS.sync)
        task = _task(server, "lateness", bench.scaled(LATE), 100, seconds=SECONDS)
        alone = Bench(bench.folder, {"tinymq": server}, bench.environment, bench.scale)
        found = alone.run(server, task).figures[0]
    return {key: found[key] for key in ("p50_us", "p99_us", "max_us", "early")}


def far(bench: Bench) -> Runs:
    """Have very many messages due within a year, and start again with them."""
    yield Run(f"{bench.scaled(FAR)} messages", 100, partial(_far, bench), _ALWAYS.meaning)


def _far(bench: Bench) -> Figures:
    count = bench.scaled(FAR)
    with own_broker(bench) as server:
        server.create("delayed", 1, _ALWAYS.sync)
        before = server.memory
        task = _task(server, "produce", count, 100, delay_s=(3600, _YEAR_S))
        alone = Bench(bench.folder, {"tinymq": server}, bench.environment, bench.scale)
        began = time.perf_counter()
        made = alone.run(server, task).figures[0]
        _listed(server, count)
        found = {
            "per_s": made["per_s"],
            "indexed_per_s": count / (time.perf_counter() - began),
            "grown_mib": (server.memory - before) / MIB,
        }
        server.stop()
        found["start_s"] = _start(server, count)
        found["started_mib"] = server.memory / MIB
        server.broker.kill()
        found["killed_start_s"] = _start(server, count)
    return found


def _listed(server: TinyMQ, count: int) -> None:
    """Wait until all are listed: the index has followed."""
    until = time.monotonic() + _PATIENCE
    while True:
        with Client(server.where) as client:
            try:
                total = client.admin.operate("delayed.list", limit=1)["total"]
            except Exception:  # noqa: BLE001 - the client's deadline may pass before
                total = -1
        if total == count:
            return
        if time.monotonic() > until:
            raise Failed(f"{total} of {count} messages are listed")


def _start(server: TinyMQ, count: int) -> float:
    began = time.perf_counter()
    server.start()
    seconds = time.perf_counter() - began
    _listed(server, count)
    return seconds


def _task(server: TinyMQ, role: str, count: int, size: int, **options: object) -> Task:
    return Task(
        client="delayed_roles",
        role=role,
        where=server.where,
        topic="delayed",
        count=count,
        size=size,
        options=options,
    )
