"""
The traffic of a cluster: threads that publish, read and make topics until they are stopped.

Every thread has a client of its own and begins with another address. Values do
not name a partition, since for records without a key the client chooses it: the
numbers of one writer run through a whole topic, and must rise in each partition.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from attrs import define, field, frozen

from tinymq.client.core.partitioners import key_partition
from tinymq.errors import TinyMQError, UsageError
from tinymq.sync import Client, ClientConfig, ProducerConfig
from tinymq.verify.beats import Beats
from tinymq.verify.checker import Checker
from tinymq.verify.journal import Journal, Receipt
from tinymq.verify.numbered import Place, value_of

if TYPE_CHECKING:
    from tinymq.sync import Producer

#: Topic and its sync policy.
TOPICS: Final = (("safe", "always"), ("quick", "os"))
#: Partitions of each topic for each broker.
SHARE: Final = 2
#: Seconds that a call may take: those that may go elsewhere soon give up.
UNKEYED_DEADLINE: Final = 3.0
KEYED_DEADLINE: Final = 5.0
ADMIN_DEADLINE: Final = 20.0
#: Seconds of one wait for records.
GLANCE: Final = 0.5
#: Threads that publish without keys.
ANYWHERE: Final = 3

_PAUSE: Final = 0.02
_TOPIC_PAUSE: Final = 0.4
_MOST: Final = 8
_BATCH_ONE_IN: Final = 6
_PATIENCE: Final = 60.0


def named(topic: str) -> Place:
    """Give the place that the values of a topic bear."""
    return Place(topic, -1)


@frozen
class Lead:
    """
    Who leads what.

    Attributes:
        leaders: The broker's name by place.
    """

    leaders: Mapping[Place, str]

    def of(self, broker: str) -> list[Place]:
        """List the places of a broker."""
        return sorted(place for place, name in self.leaders.items() if name == broker)

    def keys(self, broker: str, partitions: int) -> list[tuple[str, bytes]]:
        """Find topic and key for records that a broker gets, two for each of its places."""
        found = []
        for place in self.of(broker):
            keys = (b"key-%d" % number for number in itertools.count())
            fitting = (key for key in keys if key_partition(key, partitions) == place.partition)
            found += [(place.topic, key) for key in itertools.islice(fitting, 2)]
        return found


def connect(url: str, deadline: float) -> Client:
    """Make a client with the settings that everybody has, but for its deadline."""
    config = ClientConfig(client_id="tinymq-verify", deadline_s=deadline)
    return Client(url, config)


@define
class Stage:
    """
    What every thread knows.

    Attributes:
        url: Gives the addresses of the cluster, beginning with the one of a number.
        journal: Where promises are kept.
        beats: Where moments are kept.
        lead: Who leads what.
        seed: Chance begins here.
        names: Numbers for writers that nobody had before.
        connect: Makes clients.
        words: What the last error of each kind said.
    """

    url: Callable[[int], str]
    journal: Journal
    beats: Beats
    lead: Lead
    seed: int
    names: itertools.count[int] = field(factory=itertools.count)
    connect: Callable[[str, float], Client] = connect
    words: dict[type[Exception], str] = field(factory=dict)

    def refused(self, topic: str, error: Exception) -> None:
        """Keep that a call failed, and what was said."""
        self.words[type(error)] = str(error)
        self.journal.refuse(topic, error)


class Writer:
    """
    One producer that numbers its records and keeps its receipts.

    After a call that failed its numbers begin anew under another name: what
    became of the failed ones nobody knows, and they may come late.

    Args:
        stage: Shared by all.
        client: Its client.
        what: Names its calls.
        deadline: Seconds of a call.
    """

    def __init__(self, stage: Stage, client: Client, what: str, deadline: float) -> None:
        self._stage = stage
        self._what = what
        self._deadline = deadline
        self._name = next(stage.names)
        self._producer: Producer = client.producer(
            ProducerConfig(create_topics=False, deadline_s=deadline)
        )

    def send(
        self,
        topic: str,
        count: int = 1,
        *,
        key: bytes | None = None,
        partition: int | None = None,
    ) -> list[Place]:
        """
        Send the next records in one call.

        Args:
            topic: Where to.
            count: How many; more than one make a batch.
            key: The key of all.
            partition: The partition of all, or None to let the client choose.

        Returns:
            Where they are.

        Raises:
            TinyMQError: As the producer's call; it was noted.
        """
        stage, journal = self._stage, self._stage.journal
        marks = journal.begin(named(topic), self._name, count)
        values = [value_of(named(topic), mark) for mark in marks]
        since = stage.beats.now()
        try:
            if count == 1:
                told = self._producer.send(topic, values[0], key, partition=partition)
                runs = [(told.partition, told.offset, 1)]
            else:
                keys = None if key is None else [key] * count
                runs = self._producer.send_batch(topic, values, keys, partition=partition).positions
        except TinyMQError as error:
            self._name = next(stage.names)
            stage.refused(topic, error)
            raise
        finally:
            stage.beats.took(self._what, since, self._deadline)
        if len(runs) == 1:  # otherwise nobody knows which record is where
            journal.acknowledge(
                Place(topic, runs[0][0]), Receipt(self._name, marks[0].number, count, runs[0][1])
            )
        return [Place(topic, run[0]) for run in runs]


class Crowd:
    """
    All threads.

    Args:
        stage: What they know.
        brokers: The names of the brokers.

    Attributes:
        readers: Judges of what was read along, by place.
        desk: Counts the errors of administration by kind.
    """

    def __init__(self, stage: Stage, brokers: Sequence[str]) -> None:
        self._stage = stage
        self._brokers = tuple(brokers)
        self._stop = threading.Event()
        self._still = threading.Event()
        self._writers: list[threading.Thread] = []
        self._others: list[threading.Thread] = []
        self.readers = {
            place: Checker(place, stage.journal.tried, named=named(place.topic))
            for place in stage.lead.leaders
        }

    @property
    def partitions(self) -> int:
        """How many partitions each topic has."""
        return SHARE * len(self._brokers)

    def streams(self, brokers: Sequence[str]) -> list[str]:
        """Name what must move while these brokers are there."""
        return [f"{what} {name}" for name in brokers for what in ("keyed", "read")]

    def start(self) -> None:
        """Begin."""
        for number in range(ANYWHERE):
            self._begin(self._writers, f"unkeyed {number}", number, self._anywhere)
        for number, name in enumerate(self._brokers):
            self._begin(self._writers, f"keyed {name}", number + 1, self._keyed(name))
        self._begin(self._writers, "desk", 0, self._desk)
        self._begin(self._others, "reader", 1, self._read)

    def stop_writing(self) -> None:
        """Let those that publish end after their present call."""
        self._still.set()
        self._join(self._writers)

    def stop(self) -> None:
        """Let everybody end."""
        self._still.set()
        self._stop.set()
        self._join([*self._writers, *self._others])

    def _join(self, threads: list[threading.Thread]) -> None:
        for thread in threads:
            thread.join(_PATIENCE)
            if thread.is_alive():
                self._stage.journal.broken.append(f"{thread.name} does not end")

    def _begin(
        self,
        threads: list[threading.Thread],
        name: str,
        first: int,
        body: Callable[[str, Client], None],
    ) -> None:
        def run() -> None:
            client = self._stage.connect(self._stage.url(first), ADMIN_DEADLINE)
            try:
                body(name, client)
            except Exception as error:  # noqa: BLE001 - whatever it is, it belongs in the report
                self._stage.journal.broken.append(f"{name} ended with {error!r}")
            finally:
                client.close()

        thread = threading.Thread(target=run, name=name, daemon=True)
        threads.append(thread)
        thread.start()

    def _chance(self, name: str) -> random.Random:
        return random.Random(f"{self._stage.seed}/{name}")  # noqa: S311 - nothing secret

    # --- who publishes ---------------------------------------------------------

    def _anywhere(self, name: str, client: Client) -> None:
        """Publish without keys, one by one and in small batches."""
        chance, beats = self._chance(name), self._stage.beats
        writer = Writer(self._stage, client, "unkeyed", UNKEYED_DEADLINE)
        while not self._still.wait(_PAUSE):
            topic = chance.choice(TOPICS)[0]
            count = 1 if chance.randrange(_BATCH_ONE_IN) else chance.randint(2, _MOST)
            if self._tried(writer, topic, count):
                beats.beat("unkeyed", name)

    def _keyed(self, broker: str) -> Callable[[str, Client], None]:
        """Publish with keys, or to a given partition, what one broker gets."""
        aims = self._stage.lead.keys(broker, self.partitions)

        def publish(name: str, client: Client) -> None:
            chance, beats = self._chance(name), self._stage.beats
            writer = Writer(self._stage, client, "keyed", KEYED_DEADLINE)
            while not self._still.wait(_PAUSE):
                topic, key = chance.choice(aims)
                if not chance.randrange(_BATCH_ONE_IN):
                    place = Place(topic, key_partition(key, self.partitions))
                    count = chance.randint(2, _MOST)
                    kept = self._tried(writer, topic, count, partition=place.partition)
                else:
                    kept = self._tried(writer, topic, 1, key=key)
                if kept:
                    beats.beat(name)

        return publish

    def _tried(self, writer: Writer, topic: str, count: int, **where: Any) -> bool:
        """Send, and say whether it was acknowledged; the journal knows of failures."""
        try:
            writer.send(topic, count, **where)
        except UsageError:
            raise
        except TinyMQError:
            return False
        return True

    # --- who reads, and who makes topics -----------------------------------------

    def _read(self, name: str, client: Client) -> None:
        """Read everything, as it comes, with one consumer."""
        consumer = client.consumer()
        for topic, _ in TOPICS:
            consumer.assign(topic)
        leaders, beats = self._stage.lead.leaders, self._stage.beats
        while not self._stop.is_set():
            since = beats.now()
            batch = consumer.next_batch(GLANCE)
            beats.took("read", since, GLANCE)
            if batch is None:
                continue
            place = Place(batch.topic, batch.partition)
            for record in batch:
                self.readers[place].read(record.offset, record.value)
            beats.beat(f"read {leaders[place]}")

    def _desk(self, name: str, client: Client) -> None:
        """Make topics, one after the other."""
        journal, beats = self._stage.journal, self._stage.beats
        for number in itertools.count():
            if self._still.wait(_TOPIC_PAUSE):
                return
            topic = f"made-{number}"
            journal.topics_tried.add(topic)
            since = beats.now()
            try:
                client.admin.create_topic(topic, 1)
            except UsageError:
                raise
            except TinyMQError as error:
                self._stage.refused(topic, error)
            else:
                journal.topics.add(topic)
                beats.beat("desk")
            finally:
                beats.took("create", since, ADMIN_DEADLINE)
