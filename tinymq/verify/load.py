"""Traffic on a broker that dies now and then: threads that publish, and one that makes topics."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from attrs import frozen

from tinymq.errors import TinyMQError, UsageError
from tinymq.verify.clients import PRODUCER
from tinymq.verify.jobs import LOOSE
from tinymq.verify.journal import Journal, Receipt
from tinymq.verify.numbered import Mark, Place, value_of
from tinymq.verify.threads import Threads

if TYPE_CHECKING:
    from tinymq.sync import Client, Producer

#: Makes a client of the broker at a URL.
Connect = Callable[[str], "Client"]

#: Most records of one call.
_MOST: Final = 40
#: Seconds between two calls of one thread, so that checking keeps up.
_PAUSE: Final = 0.002
#: Seconds between two new topics.
_TOPIC_PAUSE: Final = 0.04

#: Topic, its sync policy, its partitions. All three policies must hold when a
#: process dies; only the first when the power fails.
TOPICS: Final = (("safe", "always", 3), ("timed", "interval", 2), ("quick", "os", 2))
#: Topics that may lose an end of their logs in a power cut.
LOSSY: Final = frozenset(name for name, sync, _ in (*TOPICS, LOOSE) if sync != "always")


@frozen
class Scene:
    """
    What every thread of a load knows.

    Attributes:
        url: The broker.
        connect: Makes clients.
        journal: Where promises are kept.
        seed: Chance begins here.
    """

    url: str
    connect: Connect
    journal: Journal
    seed: int


class Load:
    """
    Publishes from several threads until it is stopped.

    Args:
        scene: The broker and the journal.
        producers: How many threads publish; one more makes topics.
        first: Number of the first producer. Producers are never the same in two
            loads of one data folder.
    """

    def __init__(self, scene: Scene, producers: int, first: int = 0) -> None:
        self._scene = scene
        self._names = range(first, first + producers + 1)
        self._threads = Threads(scene.journal.broken)

    def start(self) -> None:
        """Make the topics and begin."""
        make_topics(self._scene)
        *publishers, maker = self._names
        for name in publishers:
            self._begin(self._publish, name)
        self._begin(self._make, maker)

    def ask_to_stop(self) -> None:
        """Let every thread end after its present call."""
        self._threads.stopping.set()

    def join(self) -> None:
        """Wait until every thread has ended."""
        self._threads.join()

    def _begin(self, body: Callable[[int, Client], None], name: int) -> None:
        scene = self._scene
        self._threads.begin(
            f"producer {name}",
            lambda: scene.connect(scene.url),
            lambda client: body(name, client),
        )

    def _publish(self, name: int, client: Client) -> None:
        chance = random.Random(f"{self._scene.seed}/{name}")  # noqa: S311 - nothing secret
        places = [Place(topic, part) for topic, _, parts in TOPICS for part in range(parts)]
        sender = Sender(name, client, self._scene.journal)
        while not self._threads.stopping.wait(_PAUSE):
            sender.send(chance.choice(places), chance.randint(1, _MOST))

    def _make(self, name: int, client: Client) -> None:
        """Make one topic after the other, each with one record."""
        journal = self._scene.journal
        sender = Sender(name, client, journal)
        number = 0
        while not self._threads.stopping.wait(_TOPIC_PAUSE):
            topic = f"made-{name}-{number}"
            number += 1
            journal.topics_tried.add(topic)
            try:
                client.admin.create_topic(topic)
            except UsageError:
                raise
            except TinyMQError as error:
                journal.refuse(topic, error)
                continue
            journal.topics.add(topic)
            sender.send(Place(topic, 0), 1)


class Sender:
    """
    One producer that numbers its records and keeps its receipts.

    Args:
        name: Its number.
        client: Its client.
        journal: Where promises are kept.
        key_of: Gives the key of a record; without it records have none.
    """

    def __init__(
        self,
        name: int,
        client: Client,
        journal: Journal,
        key_of: Callable[[Mark], bytes] | None = None,
    ) -> None:
        self._name = name
        self._key_of = key_of
        self._client = client
        self._journal = journal
        self._producer: Producer | None = None

    def send(self, place: Place, count: int) -> None:
        """Send the next records to a place; a failure is noted and the next ones follow."""
        if self._producer is None:
            self._producer = self._client.producer(PRODUCER)
        marks = self._journal.begin(place, self._name, count)
        values = [value_of(place, mark) for mark in marks]
        keys = None if self._key_of is None else [self._key_of(mark) for mark in marks]
        cuts = self._journal.power_cuts
        try:
            sent = self._producer.send_batch(place.topic, values, keys, partition=place.partition)
        except UsageError:
            raise
        except TinyMQError as error:
            self._journal.refuse(place.topic, error)
            self._producer = None
            return
        spans_cut = cuts != self._journal.power_cuts and place.topic in LOSSY
        if spans_cut and len(sent.positions) > 1:
            # Some batches were acknowledged before the cut, which took them back, and
            # the others lie in their places: which offset is whose cannot be told.
            return
        self._keep(place, marks[0].number, sent.positions)

    def _keep(self, place: Place, number: int, positions: Sequence[tuple[int, int, int]]) -> None:
        # The batches of one call have the order of its records.
        for _, offset, count in sorted(positions):
            self._journal.acknowledge(place, Receipt(self._name, number, count, offset))
            number += count


def make_topics(scene: Scene) -> None:
    """Make the topics that are published to."""
    client = scene.connect(scene.url)
    try:
        for name, sync, partitions in TOPICS:
            scene.journal.topics_tried.add(name)
            client.admin.create_topic(name, partitions, {"sync": sync})
            scene.journal.topics.add(name)
    finally:
        client.close()
