"""One partition that is cleaned: what its cleaner says, and its files that change places."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from tinymq.broker.partition import Partition
from tinymq.broker.workers import Failed, Worker
from tinymq.errors import TinyMQError
from tinymq.storage import swap as swapping
from tinymq.storage.tasks import Cleaned, Damaged, Done, Event, Task

if TYPE_CHECKING:
    from tinymq.broker.broker import Broker


class Told(Protocol):
    """
    Who is told how it goes.

    Attributes:
        worker: Cleans files.
    """

    worker: Worker

    def ended(self, partition: Partition, task: Task, done: Done, saved: int) -> None:
        """Take what came of a cleaning."""

    def failed(self, partition: Partition, reason: str) -> None:
        """Take that a cleaning ended before its time."""

    def left_over(self, partition: Partition, others: list[int], reason: str) -> None:
        """Take that replaced files could not be removed."""

    def damaged(self, partition: Partition, found: Damaged) -> None:
        """Take that a file is left alone."""


class Job:
    """
    One partition at work.

    Args:
        broker: The broker.
        cleaning: Told how it ends.
        partition: The partition.
        task: What is to be done.
    """

    def __init__(self, broker: Broker, cleaning: Told, partition: Partition, task: Task) -> None:
        self._broker = broker
        self._cleaning = cleaning
        self._partition = partition
        self._task = task
        self._disk = broker.store.folder.disk
        self._saved = 0
        #: Descriptors of files that lose their name: what is in them is freed elsewhere.
        self._held: list[int] = []

    def told(self, event: Event | Failed) -> None:
        """
        Take what happened.

        Args:
            event: The next event.
        """
        partition = self._partition
        if isinstance(event, Failed):
            self._give_up(event.reason)
        elif isinstance(event, Done):
            self._cleaning.ended(partition, self._task, event, self._saved)
        elif partition.closed is not None or not partition.topic.config.compacts:
            self._give_up("")
        elif isinstance(event, Damaged):
            self._cleaning.damaged(partition, event)
            self._cleaning.worker.go_on()
        else:
            self._broker.background.submit(partial(self._hold, event), partial(self._swap, event))

    def _hold(self, cleaned: Cleaned) -> None:
        for base, _ in cleaned.sources:
            try:
                path = swapping.segment_path(self._task.folder, base)
                self._held.append(self._disk.open(path))
            except (OSError, TinyMQError):
                return

    def _swap(self, cleaned: Cleaned) -> None:
        """Let a cleaned file take the place of others, now."""
        partition = self._partition
        try:
            done = partition.closed is None and partition.log.swap(cleaned)
        except (OSError, TinyMQError) as error:
            self._give_up(str(error))
            return
        if not done:
            self._give_up("its files changed meanwhile")
            return
        self._saved += sum(size for _, size in cleaned.sources) - cleaned.size
        partition.moved.add(partition)
        hosted = self._broker.channels.hosted(*partition.key)
        if hosted is not None:
            hosted.window.let_go()
        failed: list[str] = []
        others = [base for base, _ in cleaned.sources[1:]]

        def finish() -> None:
            try:
                swapping.finish(self._disk, self._task.folder, others)
            except (OSError, TinyMQError) as error:
                failed.append(str(error))
            self._let_go()

        def finished() -> None:
            if failed:
                self._cleaning.worker.stop()
                self._cleaning.left_over(partition, others, failed[0])
            else:
                self._cleaning.worker.go_on()

        self._broker.background.submit(finish, finished)

    def _let_go(self) -> None:
        while self._held:
            self._disk.close(self._held.pop())

    def _give_up(self, reason: str) -> None:
        self._cleaning.worker.stop()

        def abandon() -> None:
            self._let_go()
            try:
                swapping.abandon(self._disk, self._task.folder)
            except (OSError, TinyMQError):
                return  # the next start does it

        gone = self._partition.closed is not None
        done = partial(self._cleaning.failed, self._partition, "" if gone else reason)
        self._broker.background.submit(abandon, done)
