"""Rows of exchanges: how fast what is published is copied to its targets."""

from __future__ import annotations

import time
from functools import partial

from attrs import frozen

from benches.bench import DEFERRED, Bench, Run, Runs, Subject
from benches.tasks import Figures
from benches.workers import Failed
from tinymq.sync import Client

#: Seconds until all copies must be there.
PATIENCE = 120.0
#: Seconds between two looks.
_LOOK = 0.01


@frozen
class Shape:
    """
    An exchange with its bindings.

    Attributes:
        name: In the table.
        kind: Of the exchange.
        targets: Topics that get each message.
        bindings: How many there are, with those that no message meets.
    """

    name: str
    kind: str
    targets: int
    bindings: int


SHAPES = (
    Shape("direct, 1 match", "direct", 1, 1),
    Shape("direct, 10 matches", "direct", 10, 10),
    Shape("topic, 1 match of 10 000 bindings", "topic", 1, 10_000),
)


def route(bench: Bench) -> Runs:
    """Publish a backlog to an exchange, and wait for its copies."""
    (subject,) = (each for each in DEFERRED if each.sync == "always")
    for shape in SHAPES:
        yield Run(shape.name, 100, partial(_routed, bench, subject, shape), subject.meaning)


def _routed(bench: Bench, subject: Subject, shape: Shape) -> Figures:
    server = bench.server(subject)
    count = bench.scaled(200_000)
    name = bench.unused("exchange")
    targets = [f"{name}-{number}" for number in range(shape.targets)]
    with Client(server.where) as client:
        admin = client.admin
        admin.create_exchange(name, shape.kind, partitions=1)
        for target in targets:
            server.create(target, 1, subject.sync)
            admin.bind(name, target, key="key-0" if shape.kind == "direct" else "#")
        for number in range(shape.targets, shape.bindings):
            admin.bind(name, targets[0], key=f"*.{number}.other.#")
    try:
        keys = 1 if shape.kind == "direct" else 1000
        task = bench.task(subject, "produce", name, count, 100, keys=keys)
        cpu = server.cpu
        # The clock of a process is that of the machine.
        figures = bench.run(server, task).figures[0]
        began, published = figures["began"], figures["ended"]
        while any(server.length(target) < count for target in targets):
            if time.monotonic() > published + PATIENCE:
                raise Failed(f"the copies of {count} messages are not there")
            time.sleep(_LOOK)
        ended = time.monotonic()
        copies = count * shape.targets
        spent = server.cpu - cpu
    finally:
        for each in (name, *targets):
            server.remove(each)
    return {
        "per_s": count / (ended - began),
        "copies_per_s": copies / (ended - began),
        "behind_ms": (ended - published) * 1e3,
        "server_us": spent / copies * 1e6,
    }
