"""One round: the servers that run, and how something is measured on them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from attrs import define, frozen

from benches.servers import Server
from benches.tasks import Figures, Task
from benches.workers import Failed, Worker

#: Bytes of a value.
SIZES = (100, 1024)
#: Seconds that one client process may take.
PATIENCE = 60.0

#: Never the same twice: what a failed run leaves behind must not be met again.
_numbers = itertools.count(1)


@frozen
class Subject:
    """
    Something that is measured: a server in one setting, through one client.

    Attributes:
        name: What it is called in tables.
        server: The name of its server.
        client: The module of its roles.
        sync: The policy of its topics.
        meaning: What an acknowledgement tells.
        amount: Messages of 100 bytes that take it about a second.
    """

    name: str
    server: str
    client: str
    sync: str
    meaning: str
    amount: int


_DISK = "fdatasync before the answer"
_PAGE = "in the system's page cache"

TINYMQ = (
    Subject("tinymq always, Deferred", "tinymq", "deferred", "always", _DISK, 2_000_000),
    Subject("tinymq always, blocking", "tinymq", "blocking", "always", _DISK, 2_000_000),
    Subject("tinymq os, Deferred", "tinymq", "deferred", "os", _PAGE, 2_000_000),
    Subject("tinymq os, blocking", "tinymq", "blocking", "os", _PAGE, 2_000_000),
)
DEFERRED = tuple(each for each in TINYMQ if each.client == "deferred")
BLOCKING = tuple(each for each in TINYMQ if each.client == "blocking")
PEERS = (
    Subject("Redis always", "redis-always", "redis_roles", "", "fsync before the answer", 120_000),
    Subject("Redis everysec", "redis-everysec", "redis_roles", "", "fsync once a second", 150_000),
    Subject("beanstalkd -f0", "beanstalkd-f0", "beanstalkd_roles", "", "fsync at each put", 2500),
    Subject("beanstalkd -f50", "beanstalkd-f50", "beanstalkd_roles", "", "fsync each 50 ms", 6000),
)


@frozen
class Run:
    """
    One measurement of a row.

    Attributes:
        case: What it is called in the table.
        size: Bytes of a value.
        measure: Takes it.
        meaning: What an acknowledgement tells.
    """

    case: str
    size: int
    measure: Callable[[], Figures]
    meaning: str = ""


#: What a row gives: its measurements in their order.
Runs = Generator[Run, None, None]


@frozen
class Outcome:
    """
    What client processes told, in their order, and what the server spent on it.

    Attributes:
        figures: Of each process.
        cpu: Seconds of the server's processor time.
    """

    figures: list[Figures]
    cpu: float


@define
class Bench:
    """
    One round.

    Attributes:
        folder: For data of servers that a row starts itself.
        servers: Those that run, by name.
        environment: Variables of client processes.
        scale: Factor for numbers of messages.
    """

    folder: Path
    servers: Mapping[str, Server]
    environment: Mapping[str, str]
    scale: float

    def running(self, *subjects: Subject) -> list[Subject]:
        """Return those subjects whose servers run."""
        return [each for each in subjects if each.server in self.servers]

    def scaled(self, count: float, least: int = 10) -> int:
        """Scale a number of messages."""
        return max(least, int(count * self.scale))

    def amount(self, subject: Subject, size: int) -> int:
        """Return how many messages keep a subject busy for about a second."""
        share = 1.0 if size <= SIZES[0] else 0.2 if subject in TINYMQ else 0.4
        return self.scaled(subject.amount * share)

    def server(self, subject: Subject) -> Server:
        """Return the server of a subject."""
        return self.servers[subject.server]

    def unused(self, kind: str) -> str:
        """Return a name that was not given before."""
        return f"{kind}-{next(_numbers)}"

    @contextmanager
    def topic(self, subject: Subject, partitions: int = 1) -> Iterator[str]:
        """Make a topic for a while."""
        server, name = self.server(subject), self.unused("bench")
        server.create(name, partitions, subject.sync)
        try:
            yield name
        finally:
            server.remove(name)

    def task(
        self, subject: Subject, role: str, topic: str, count: int, size: int, **options: object
    ) -> Task:
        """Describe the work of one client of a subject."""
        return Task(
            client=subject.client,
            role=role,
            where=self.server(subject).where,
            topic=topic,
            count=count,
            size=size,
            options=options,
        )

    @contextmanager
    def worker(self, task: Task, timeout: float = PATIENCE) -> Iterator[Worker]:
        """Start a client process and wait until it is set up."""
        with Worker(task, self.environment, timeout) as worker:
            worker.ready()
            yield worker

    def run(self, server: Server, *tasks: Task) -> Outcome:
        """Start client processes together, in this order, and wait for all."""
        with ExitStack() as stack:
            workers = [
                stack.enter_context(Worker(task, self.environment, PATIENCE)) for task in tasks
            ]
            for worker in workers:
                worker.ready()
            cpu = server.cpu
            for worker in workers:
                worker.go()
            figures = [worker.figures() for worker in workers]
            return Outcome(figures, server.cpu - cpu)

    def publish(self, subject: Subject, task: Task) -> Figures:
        """Let a client publish, and check that every message is there."""
        server = self.server(subject)
        outcome = self.run(server, task)
        stored = server.length(task.topic)
        if stored != task.count:
            raise Failed(f"{subject.name} holds {stored} of {task.count} messages")
        return outcome.figures[0] | {"server_us": outcome.cpu / task.count * 1e6}
