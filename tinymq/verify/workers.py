"""Those who take messages of channels and settle them, in every way there is."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from threading import Event
from typing import TYPE_CHECKING, Final, NamedTuple

from tinymq.errors import DeadlineExceeded, LeaseLost, TinyMQError
from tinymq.sync import SubscriptionConfig
from tinymq.verify.jobs import JOBS, LOOSE, WORK, Act, Job, key_of
from tinymq.verify.journal import Journal
from tinymq.verify.load import Scene, Sender
from tinymq.verify.numbered import Mark, Place
from tinymq.verify.threads import Threads
from tinymq.verify.workbook import Workbook

if TYPE_CHECKING:
    from tinymq.sync import Client, Message, Subscription

#: Seconds of one wait for a message.
_GLANCE: Final = 0.1
#: Seconds in which a settle must be confirmed, with its broker dead for a while.
_CONFIRMED: Final = 45.0
#: Most messages that are settled in one go.
_MOST: Final = 6
#: Most messages that a consumer holds and forgets.
_HELD: Final = 3
#: Seconds between two calls of the one who publishes, so that the workers keep up.
_PAUSE: Final = 0.02
_RECORDS: Final = 8

_CONFIG: Final = SubscriptionConfig(max_in_flight=16, create=False, deadline_s=60.0)


class _Said(NamedTuple):
    """What was said of a message, and awaits its confirmation."""

    message: Message
    mark: Mark
    act: Act


class Worker:
    """
    One consumer of a channel.

    Args:
        book: The account of the channel.
        choose: Says what becomes of a message, and whether to wait for the
            confirmation of that.
        chance: Decides the rest.
        told: Called with the partition of each message.
    """

    def __init__(
        self,
        book: Workbook,
        choose: Callable[[random.Random], tuple[Act, bool]],
        chance: random.Random,
        told: Callable[[int], None] = lambda partition: None,
    ) -> None:
        self._book = book
        self._told = told
        self._choose = choose
        self._chance = chance
        self._held: list[Message] = []
        self._awaited: list[_Said] = []

    def until(self, stopping: Event) -> Callable[[Client], None]:
        """
        Return what takes and settles messages.

        Args:
            stopping: Set when it is to end.
        """
        job = self._book.job

        def work(client: Client) -> None:
            with client.subscription(job.topic, job.name, _CONFIG) as subscription:
                while not stopping.is_set():
                    self._settle(self._take(subscription))
                    self._held = [each for each in self._held if not each.is_lost]
                    # Messages of a broker that is away must not hold up those of others.
                    self._look(0.0)
                self._look(_CONFIRMED)

        return work

    def _take(self, subscription: Subscription) -> list[Message]:
        found: list[Message] = []
        most = self._chance.randint(1, _MOST)
        while len(found) < most:
            message = subscription.next(0.0 if found else _GLANCE)
            if message is None:
                break
            found.append(message)
        return found

    def _settle(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._told(message.partition)
            mark = self._book.hand_out(message)
            if mark is None or not message.lease:
                continue
            act, wanted = self._choose(self._chance)
            if act == "hold" and len(self._held) >= _HELD:
                act = "finish"
            if self._book.is_suspicious(message, mark):
                act, wanted = "finish", True
            self._book.begin(message, mark, act)
            said = _Said(message, mark, act)
            try:
                self._say(message, act)
            except LeaseLost:
                self._book.late(*said)
                continue
            if wanted and act != "hold":
                self._awaited.append(said)

    def _say(self, message: Message, act: Act) -> None:
        if act == "finish":
            message.finish()
        elif act == "requeue":
            message.requeue(reason="try again")
        elif act == "reject":
            message.reject("no good")
        elif act == "give_back":
            message.give_back()
        else:
            self._held.append(message)

    def _look(self, seconds: float) -> None:
        """Take note of what was confirmed, and wait for each so long."""
        self._awaited = [said for said in self._awaited if not self._known(said, seconds)]

    def _known(self, said: _Said, seconds: float) -> bool:
        try:
            said.message.confirmed(seconds)
        except LeaseLost:
            self._book.late(*said)
        except DeadlineExceeded:
            return False
        except TinyMQError:
            pass  # nobody knows
        else:
            self._book.confirm(*said)
        return True


class Works:
    """
    Who publishes to the channels of one broker, and who works on them.

    Args:
        scene: The broker and the journal.
        first: Number of the producer, which no other has.

    Attributes:
        books: The account of each channel.
        journal: Where promises to those who publish are kept.
    """

    def __init__(self, scene: Scene, first: int) -> None:
        self._scene = scene
        self.journal = scene.journal
        self._first = first
        self.books = [Workbook(job) for job in JOBS]
        self._publishing = Threads(scene.journal.broken)
        self._working = Threads(scene.journal.broken)

    def start(self) -> None:
        """Make topics and channels, and begin."""
        client = self._scene.connect(self._scene.url)
        try:
            make_channels(client, self._scene.journal)
        finally:
            client.close()
        self._begin(self._publishing, "publisher", self._publish)
        for book in self.books:
            for number in range(book.job.workers):
                name = f"worker {number} of {book.job.name}"
                worker = Worker(book, book.job.choose, self._chance(name))
                self._begin(self._working, name, worker.until(self._working.stopping))

    def ask_to_stop(self) -> None:
        """Let whoever publishes end after his present call; the others work on."""
        self._publishing.stopping.set()

    def join(self) -> None:
        """Wait until every thread has ended."""
        self._publishing.join()
        self._working.join()

    def _begin(self, threads: Threads, name: str, body: Callable[[Client], None]) -> None:
        threads.begin(name, lambda: self._scene.connect(self._scene.url), body)

    def _chance(self, name: str) -> random.Random:
        return random.Random(f"{self._scene.seed}/{name}")  # noqa: S311 - nothing secret

    def _publish(self, client: Client) -> None:
        chance = self._chance("publisher")
        places = [Place(topic, each) for topic, _, count in (WORK, LOOSE) for each in range(count)]
        sender = Sender(self._first, client, self._scene.journal, key_of)
        while not self._publishing.stopping.wait(_PAUSE):
            sender.send(chance.choice(places), chance.randint(1, _RECORDS))


def make_channels(
    client: Client,
    journal: Journal,
    topics: Iterable[tuple[str, str, int]] = (WORK, LOOSE),
    jobs: Iterable[Job] = JOBS,
) -> None:
    """
    Make topics and channels.

    Args:
        client: Where.
        journal: Knows which topics may be there.
        topics: Name, sync policy and partitions of each topic.
        jobs: The channels.
    """
    for topic, sync, partitions in topics:
        journal.topics_tried.add(topic)
        client.admin.create_topic(topic, partitions, {"sync": sync})
        journal.topics.add(topic)
    for job in jobs:
        journal.topics_tried.add(job.dead)
        client.admin.create_channel(job.topic, job.name, job.config)


def finish_all(chance: random.Random) -> tuple[Act, bool]:
    """Finish each message and wait until that is written down."""
    return "finish", True
