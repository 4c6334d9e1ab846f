"""The channels of a cluster: who publishes to them, and who works on them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import attrs

from tinymq.errors import TinyMQError, UsageError
from tinymq.verify import verdict
from tinymq.verify.clusterreport import ClusterReport
from tinymq.verify.crowd import ADMIN_DEADLINE, KEYED_DEADLINE, Lead, Stage, Writer
from tinymq.verify.inspector import Inspector
from tinymq.verify.jobs import CLUSTER_JOBS, SHARE, WORK
from tinymq.verify.journal import Journal
from tinymq.verify.numbered import Place
from tinymq.verify.threads import Threads
from tinymq.verify.workbook import Workbook
from tinymq.verify.workers import Worker, make_channels

if TYPE_CHECKING:
    from tinymq.sync import Client

#: Seconds between two calls of the one who publishes, so that the workers keep up.
_PAUSE: Final = 0.08
_RECORDS: Final = 6


class ClusterWorks:
    """
    One topic over all brokers, and its channels.

    Args:
        stage: What the threads of the crowd know.
        brokers: How many brokers there are.
        admin: Makes topic and channels.

    Attributes:
        books: The account of each channel.
    """

    def __init__(self, stage: Stage, brokers: int, admin: Client) -> None:
        topic = (*WORK[:2], SHARE * brokers)
        make_channels(admin, stage.journal, [topic], CLUSTER_JOBS)
        self._leaders = Lead(
            {
                Place(WORK[0], row["partition"]): row["leader"]
                for row in admin.admin.operate("topic.info", name=WORK[0])["topic"]["partitions"]
            }
        )
        #: What is published here is judged by what becomes of it, not by where it lies.
        self._stage = attrs.evolve(stage, journal=Journal(), words={})
        self.books = [Workbook(job, anywhere=True) for job in CLUSTER_JOBS]
        self._publishing = Threads(self._stage.journal.broken)
        self._working = Threads(self._stage.journal.broken)

    def start(self) -> None:
        """Begin."""
        for broker in sorted({*self._leaders.leaders.values()}):
            self._begin(self._publishing, f"work {broker}", 2, self._publish(broker))
        first = itertools.count()
        for book in self.books:
            for number in range(book.job.workers):
                name = f"worker {number} of {book.job.name}"
                worker = Worker(book, book.job.choose, self._chance(name), self._told)
                body = worker.until(self._working.stopping)
                self._begin(self._working, name, next(first), body)

    def stop_publishing(self) -> None:
        """Let whoever publishes end after his present call."""
        self._publishing.join()

    def close(self, report: ClusterReport) -> None:
        """
        Let everybody end, and judge what became of all messages.

        Args:
            report: Takes the findings.
        """
        stage = self._stage
        self._publishing.join()
        self._working.join()
        Inspector(self.books, stage.journal, report).close(
            lambda: stage.connect(stage.url(0), ADMIN_DEADLINE), {}, after_cut=False
        )
        report.figures["work"] = stage.journal.acknowledged
        verdict.judge_calls(report, stage)

    def _begin(
        self, threads: Threads, name: str, first: int, body: Callable[[Client], None]
    ) -> None:
        stage = self._stage
        threads.begin(name, lambda: stage.connect(stage.url(first), ADMIN_DEADLINE), body)

    def _chance(self, name: str) -> random.Random:
        return random.Random(f"{self._stage.seed}/{name}")  # noqa: S311 - nothing secret

    def _told(self, partition: int) -> None:
        self._stage.beats.beat(f"taken {self._leaders.leaders[Place(WORK[0], partition)]}")

    def _publish(self, broker: str) -> Callable[[Client], None]:
        """Publish with keys what one broker gets."""
        leaders = self._leaders
        keys = [key for _, key in leaders.keys(broker, len(leaders.leaders))]

        def publish(client: Client) -> None:
            chance = self._chance(f"work {broker}")
            writer = Writer(self._stage, client, "work", KEYED_DEADLINE)
            while not self._publishing.stopping.wait(_PAUSE):
                try:
                    writer.send(WORK[0], chance.randint(1, _RECORDS), key=chance.choice(keys))
                except UsageError:
                    raise
                except TinyMQError:
                    continue  # the journal knows

        return publish
