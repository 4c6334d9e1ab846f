"""Rows about several brokers: what they gain, what metadata costs, how soon clients are back."""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil
from typing_extensions import override

from benches.bench import DEFERRED, Bench, Run, Runs, Subject
from benches.servers import Server
from benches.tasks import Figures, Task
from tinymq.sync import Client, ProducerConfig
from tinymq.verify.fleet import META, Fleet

#: Brokers of the cluster, and partitions of the topic: the same on one and on all.
BROKERS = 3
PARTITIONS = 6
#: Topics whose metadata is asked for.
TOPICS = 10_000


class Cluster(Server):
    """
    A MetaServer and brokers, each a process of its own.

    Args:
        folder: Their data.
    """

    version = "tinymq"

    def __init__(self, folder: Path) -> None:
        names = [f"b{number}" for number in range(1, BROKERS + 1)]
        self.fleet = Fleet(folder, names, random.Random())
        self.where = self.fleet.url()

    @override
    def start(self) -> None:
        self.fleet.start()

    @override
    def stop(self) -> None:
        self.fleet.kill()

    @property
    @override
    def process(self) -> psutil.Process:
        return psutil.Process(self.fleet.processes[META].pid)

    @property
    @override
    def cpu(self) -> float:
        times = [psutil.Process(each.pid).cpu_times() for each in self.fleet.processes.values()]
        return float(sum(each.user + each.system for each in times))

    @override
    def create(self, topic: str, partitions: int, sync: str) -> None:
        with Client(self.where) as client:
            client.admin.create_topic(topic, partitions, {"sync": sync})

    @override
    def remove(self, topic: str) -> None:
        with Client(self.where) as client:
            client.admin.delete_topic(topic)

    @override
    def length(self, topic: str) -> int:
        with Client(self.where) as client:
            return int(client.admin.topic(topic)["topic"]["messages"])


@contextmanager
def _cluster(bench: Bench) -> Iterator[Cluster]:
    """Start a cluster for one run, with data that go with it."""
    folder = bench.folder / bench.unused("cluster")
    cluster = Cluster(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


# --- more brokers --------------------------------------------------------------------


def brokers(bench: Bench) -> Runs:
    """Publish to one broker and to three by turns, from one process and from three."""
    for subject in DEFERRED:
        for producers in (1, 3):
            label = f"{subject.name}, {producers} producer{'s' * (producers > 1)}"
            yield Run(label, 100, partial(_pair, bench, subject, producers), subject.meaning)


def _pair(bench: Bench, subject: Subject, producers: int) -> Figures:
    one = _rate(bench, subject, producers)
    with _cluster(bench) as cluster:
        within = Bench(bench.folder, {"tinymq": cluster}, bench.environment, bench.scale)
        three = _rate(within, subject, producers)
    return {
        "one_per_s": one["per_s"],
        "three_per_s": three["per_s"],
        "ratio": three["per_s"] / one["per_s"],
        "one_server_us": one["server_us"],
        "three_server_us": three["server_us"],
    }


def _rate(bench: Bench, subject: Subject, producers: int) -> Figures:
    count = bench.amount(subject, 100) // producers
    server = bench.server(subject)
    with bench.topic(subject, PARTITIONS) as topic:
        work = [bench.task(subject, "produce", topic, count, 100) for _ in range(producers)]
        outcome = bench.run(server, *work)
        stored = server.length(topic)
    total = count * producers
    assert stored == total, f"{stored} of {total} messages are there"
    began = min(each["began"] for each in outcome.figures)
    ended = max(each["ended"] for each in outcome.figures)
    return {"per_s": total / (ended - began), "server_us": outcome.cpu / total * 1e6}


# --- metadata ------------------------------------------------------------------------


def metadata(bench: Bench) -> Runs:
    """Ask for the metadata of many topics anew, as a client does that uses them all."""
    yield Run(f"{bench.scaled(TOPICS)} topics", 3, partial(_metadata, bench))


def _metadata(bench: Bench) -> Figures:
    count = bench.scaled(TOPICS)
    with _cluster(bench) as cluster:
        making = Task(
            client="deferred",
            role="topics",
            where=cluster.where,
            count=count,
            options={"window": 100},
        )
        asking = Task(client="deferred", role="refresh", where=cluster.where, count=count)
        with bench.worker(making, 300.0) as worker:
            worker.go()
            made = worker.figures()
        outcome = bench.run(cluster, asking)
    (asked,) = outcome.figures
    return {
        "create_s": made["ended"] - made["began"],
        "refresh_ms": asked["refresh_ms"],
        "server_ms": outcome.cpu * 1000 / asked["rounds"],
    }


# --- a broker that is killed ------------------------------------------------------------


def failover(bench: Bench) -> Runs:
    """Kill a broker under a producer, start it again at once, and wait for the next answer."""
    yield Run("one broker of three, kill -9", 100, partial(_failover, bench))


def _failover(bench: Bench) -> Figures:
    with _cluster(bench) as cluster, Client(cluster.where) as client:
        client.admin.create_topic("t", PARTITIONS, {"sync": "always"})
        producer = client.producer(ProducerConfig(deadline_s=60))
        rows = client.admin.topic("t")["topic"]["partitions"]
        victim, partition = rows[0]["leader"], rows[0]["partition"]
        for _ in range(100):
            producer.send("t", b"x" * 100, partition=partition)
        process = cluster.fleet.processes[victim]
        process.kill()
        began = time.perf_counter()
        ready: list[float] = []

        def restart() -> None:
            process.start()
            ready.append(time.perf_counter() - began)

        starting = threading.Thread(target=restart)
        starting.start()
        producer.send("t", b"x" * 100, partition=partition)
        answered = time.perf_counter() - began
        starting.join()
    return {"start_s": ready[0], "answered_s": answered, "behind_ms": (answered - ready[0]) * 1000}
