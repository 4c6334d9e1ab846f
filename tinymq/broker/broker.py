"""
The broker: which partitions there are, and what clients ask of them.

Everything here answers at once or through a callback; nothing blocks but reads
of pages that are in memory anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from twisted.logger import Logger

from tinymq.broker.channels import Channels
from tinymq.broker.cleaning import Cleaning
from tinymq.broker.committer import Committer
from tinymq.broker.delays.delaying import Delaying
from tinymq.broker.groups.committing import Committing
from tinymq.broker.groups.coordinating import Coordinating
from tinymq.broker.outgoing import Outgoing
from tinymq.broker.partition import Answer, Partition
from tinymq.broker.partitions import PartitionStore
from tinymq.broker.ports import Directory, Neighbours, NoNeighbours, Timer, World
from tinymq.broker.reading import Fetched, Reader, Wanted
from tinymq.broker.routing.routing import Routing
from tinymq.broker.schedules.scheduling import Scheduling
from tinymq.broker.transactions.deciding import Deciding
from tinymq.broker.transactions.transacting import Transacting
from tinymq.config import Config
from tinymq.errors import (
    NotLeader,
    ShuttingDown,
    StateError,
    StorageFull,
    TinyMQError,
    UnknownTopicId,
    WireError,
)
from tinymq.names import valid_name
from tinymq.storage.sync import Syncer
from tinymq.wire.batch import waits
from tinymq.wire.frames import Bytes
from tinymq.wire.messages import (
    BrokerRow,
    Fetch,
    InitProducerReply,
    Metadata,
    MetadataReply,
    Offsets,
    OffsetsReply,
    TopicRow,
    error_meta,
)

if TYPE_CHECKING:
    from tinymq.meta.registry import Registry, Topic

#: What keeps a broker from taking what is published: its disk, or that it is nobody's member.
Cause = Literal["disk", "cluster"]

#: Bytes of topic rows in one METADATA reply; a little under the limit of meta.
METADATA_BYTES: Final = 48 * 1024
#: Most topics in one METADATA reply.
METADATA_TOPICS: Final = 1000
#: Seconds before what could not be opened is tried again.
OPEN_SECONDS: Final = 5
#: The disk's free space is not looked at for every batch, however little is left.
LOOK_BYTES: Final = 64 * 1024


class Broker:
    """
    The partitions of this process, and the requests about them.

    Args:
        config: All settings.
        meta: Knows topics and brokers.
        store: Opens and closes partitions.
        world: Scheduler, wall clock, background.
        syncer: Brings files to the disk.
    """

    _log = Logger()

    def __init__(
        self, config: Config, meta: Directory, store: PartitionStore, world: World, syncer: Syncer
    ) -> None:
        self.config = config
        self.limits = config.limits
        self.meta = meta
        self.store = store
        self.scheduler = world.scheduler
        self.wall = world.wall
        self.syncer = syncer
        self.background = world.background
        #: The connections that have something to send.
        self.outgoing = Outgoing()
        self.committer = Committer(world.scheduler, syncer)
        self.committer.begun, self.committer.ended = self.outgoing.hold, self.said
        #: Its number, as the MetaServer gave it; 0 is no broker's, and leads nothing.
        self.id = 0
        #: Its name; the MetaServer gives one to a broker that was given none.
        self.name = config.broker.name
        self.address: tuple[str, int] = ("127.0.0.1", 7800)
        #: Partitions that came or changed since `tinymq.figures.reports` emptied the set.
        self.moved: set[Partition] = set()
        #: Told of each partition that is here no more.
        self.dropped: Callable[[Partition], None] = lambda partition: None
        #: The other brokers, to which dead letters may have to go.
        self.neighbours: Neighbours = NoNeighbours()
        #: Why publishing is refused, or None.
        self.refusing: WireError | None = None
        self._refusals: dict[Cause, WireError] = {}
        #: Bytes that may still be published before the disk's free space is looked at.
        self._unlooked = 0
        self._look: Callable[[], None] | None = None
        self._world = world
        self._partitions: dict[tuple[bytes, int], Partition] = {}
        self._producer_ids: Iterator[int] = iter(())
        self._waiting_for_ids: list[Callable[[InitProducerReply | WireError], None]] = []
        self._unwatch: Callable[[], None] | None = None
        #: Why partitions of a topic that are led here could not be opened, by its id.
        self._unopened: dict[bytes, str] = {}
        self._later: Timer | None = None
        #: Where what is published to exchanges goes.
        self.routing = Routing(self)
        self.channels = Channels(self)
        self.committing = Committing(self)
        self.coordinating = Coordinating(self)
        self.delaying = Delaying(self)
        self.scheduling = Scheduling(self)
        #: The transactions in its partitions,
        self.deciding = Deciding(self)
        #: and those that it decides.
        self.transacting = Transacting(self)
        #: Compaction of the logs of topics that want it.
        self.cleaning = Cleaning(self)

    # --- partitions -----------------------------------------------------------

    def open(self) -> None:
        """Open every partition that this broker leads, remove what was deleted, and follow."""
        self.store.take_away_deleted(self.meta.registry.deleted)
        self._empty_deleted()
        for topic in self.meta.registry.topics.values():
            self.open_topic(topic)
        self.delaying.open()
        self.scheduling.open()
        self.store.opened(self.partitions())
        self._unwatch = self.meta.watch(self._changed)
        self.coordinating.open()

    def close(self) -> None:
        """Follow the MetaServer no more; partitions stay open."""
        if self._unwatch is not None:
            self._unwatch()
            self._unwatch = None
        if self._later is not None and self._later.active():
            self._later.cancel()
        self._later = None
        self.coordinating.close()
        self.transacting.close()
        self.deciding.close()
        self.cleaning.close()
        self.channels.close()
        self.routing.close()
        self.scheduling.close()
        self.delaying.close()

    def _changed(self, before: Registry, after: Registry) -> None:
        if after.groups is not before.groups:
            self.channels.follow_groups(before.groups, after.groups)
        for topic_id in after.touched:
            topic = after.topics.get(topic_id)
            if topic is not None:
                self._open_or_later(topic)
            elif topic_id in after.deleted and topic_id in before.topics:
                self.drop_topic(before.topics[topic_id])

    def _open_or_later(self, topic: Topic) -> None:
        """Open a topic's partitions; what cannot be opened now keeps no other one from it."""
        try:
            self.open_topic(topic)
        except (OSError, TinyMQError) as error:
            if topic.id not in self._unopened:
                self._log.error("{topic} is not open yet: {error}", topic=topic.name, error=error)
            self._unopened[topic.id] = str(error)
            if self._later is None:
                self._later = self.scheduler.callLater(OPEN_SECONDS, self._open_again)
        else:
            if self._unopened.pop(topic.id, None) is not None:
                self._log.info("{topic} is open now", topic=topic.name)

    def _open_again(self) -> None:
        self._later = None
        for topic_id in tuple(self._unopened):
            topic = self.meta.registry.topics.get(topic_id)
            if topic is None:
                del self._unopened[topic_id]
            else:
                self._open_or_later(topic)

    def open_topic(self, topic: Topic) -> None:
        """
        Open the partitions of a topic that are not open yet.

        Args:
            topic: As the MetaServer has it now.
        """
        for index in range(topic.partitions):
            key = topic.id, index
            if key in self._partitions:
                self._altered(self._partitions[key], topic)
            elif topic.leaders[index] == self.id:
                partition = self._partitions[key] = self.store.open(topic, index)
                partition.moved = self.moved
                self.moved.add(partition)
                self.deciding.opened(partition)
                self.transacting.opened(partition)
                if self._unwatch is not None:
                    self.delaying.recover(partition)
        self.channels.follow(topic)
        self.scheduling.follow(topic)

    def _altered(self, partition: Partition, topic: Topic) -> None:
        policy, partition.topic = partition.topic.config.sync, topic
        self.store.configure(partition)
        if policy != topic.config.sync and (partition.unsynced or not partition.idle):
            self.committer.sync_all([partition])

    def drop_topic(self, topic: Topic) -> None:
        """
        Close the partitions of a deleted topic and remove their files.

        Args:
            topic: As it was.
        """
        dropped = self.partitions_of(topic)
        for partition in dropped:
            del self._partitions[topic.id, partition.index]
            self.moved.discard(partition)
            partition.moved = set()  # a sync under way would bring it back
            self.dropped(partition)
            self.committer.forget(partition)
            self.deciding.drop(partition)
            self.channels.drop(partition)
            self.scheduling.drop(partition)
            self.delaying.drop(partition)
            partition.close(UnknownTopicId(f"topic {topic.name} was deleted"))

        def remove() -> None:
            self.store.delete(topic, dropped)
            self._empty_deleted()

        # A sync under way would fail, for all its partitions, if the folders went.
        self.committer.after_sync(remove)

    def _empty_deleted(self) -> None:
        """Free the space of deleted topics, which may take long."""
        removed: list[str] = []

        def done() -> None:
            for path in removed:
                self._log.info("removed {path}", path=path)

        self._world.background.submit(lambda: removed.extend(self.store.empty()), done)

    def partitions(self) -> list[Partition]:
        """All partitions that are open."""
        return list(self._partitions.values())

    def partitions_of(self, topic: Topic) -> list[Partition]:
        """The partitions of one topic that are here, in order."""
        return [
            self._partitions[topic.id, index]
            for index in range(topic.partitions)
            if (topic.id, index) in self._partitions
        ]

    def held(self, topic_id: bytes, index: int) -> Partition | None:
        """Find a partition that is here, None if it is not."""
        return self._partitions.get((topic_id, index))

    def partition(self, topic_id: bytes, index: int) -> Partition:
        """
        Find a partition.

        Args:
            topic_id: The topic's id.
            index: Its number.

        Raises:
            UnknownTopicId: There is no such topic, maybe no longer.
            UnknownPartition: The topic has no such partition.
            NotLeader: Another broker leads it.
            StateError: It could not be opened yet.
        """
        found = self._partitions.get((topic_id, index))
        if found is not None:
            return found
        topic = self.meta.registry.topic_of(topic_id)
        if topic.leader(index) == self.id and topic_id in self._unopened:
            raise StateError(f"{topic.name}/{index} is not open yet: {self._unopened[topic_id]}")
        raise NotLeader(f"{topic.name}/{index} is led by another broker; refresh the metadata")

    # --- records --------------------------------------------------------------

    def produce(self, topic_id: bytes, index: int, batch: Bytes, answer: Answer) -> None:
        """
        Append a batch.

        Args:
            topic_id: The topic's id.
            index: The partition.
            batch: Exactly one record batch.
            answer: Called once, as `Partition.append` does.

        Raises:
            UnknownTopicId: There is no such topic.
            UnknownPartition: The topic has no such partition.
        """
        try:
            partition = self.partition(topic_id, index)
            if self._look is not None and self.refusing is None and not partition.volatile:
                self._count(len(batch))
            refusing = self.refusing or partition.full
            if refusing is not None and not (partition.volatile and type(refusing) is StorageFull):
                # Not raised: it is kept, and would gather the frames of all who hear it.
                answer(refusing)
                return
        except WireError as error:
            answer(error)
            return
        if waits(batch):
            self.delaying.take(partition, batch, answer)
            return
        if partition.judge is not None:
            try:
                answer = partition.judge.begin(batch, answer)
            except WireError as error:
                answer(error)
                return
        if partition.append(batch, self.wall(), answer):
            self.committer.staged(partition)

    def said(self) -> None:
        """Send what was said, unless messages are to be given out at the end of this turn."""
        if not self.channels.turning:
            self.outgoing.send()

    def look_after(self, size: int, look: Callable[[], None]) -> None:
        """
        Have the disk's free space looked at before long, if so much is published.

        Args:
            size: Bytes of batches.
            look: Called once, before the batch that passes `size` is taken.
        """
        self._unlooked, self._look = max(size, LOOK_BYTES), look

    def _count(self, size: int) -> None:
        self._unlooked -= size
        look = self._look
        if self._unlooked >= 0 or look is None:
            return
        self._look = None
        try:
            look()
        except (OSError, TinyMQError) as error:
            self._log.error("space failed: {error}", error=error)

    def fetch(self, request: Fetch, answer: Fetched, full: Callable[[], bool]) -> Reader:
        """
        Read batches, waiting for new ones if need be.

        Args:
            request: What is asked.
            answer: Called once with the reply, maybe before this returns.
            full: Whether the peer takes no more just now; asked before reading.

        Returns:
            The read under way, to be cancelled when the peer goes.
        """
        wanted: list[Wanted] = []
        for topic_id, rows in request.topics:
            for index, offset, epoch in rows:
                try:
                    partition, error = self.partition(topic_id, index), None
                except WireError as failure:
                    partition, error = None, failure
                wanted.append(Wanted(topic_id, index, partition, offset, epoch, error))
        request.max_bytes = min(request.max_bytes, self.limits.fetch, self.limits.outgoing)
        reader = Reader(request, wanted, answer, full, self._world)
        reader.start()
        return reader

    def offsets(self, request: Offsets) -> OffsetsReply:
        """
        Find offsets by time.

        Args:
            request: What is asked.
        """
        results: list[tuple[int, int, int, int, object]] = []
        for index, time_ms in request.queries:
            try:
                found = self.partition(request.topic_id, index).offset_at(time_ms)
                results.append((index, *found, None))
            except WireError as error:
                results.append((index, -1, -1, -1, error_meta(error)))
        return OffsetsReply(results=results)

    def init_producer(self, answer: Callable[[InitProducerReply | WireError], None]) -> None:
        """
        Give out a producer id that nobody else has or will have.

        Args:
            answer: Called once, maybe before this returns.
        """
        producer_id = next(self._producer_ids, None)
        if producer_id is not None:
            answer(self._identity(producer_id))
            return
        self._waiting_for_ids.append(answer)
        if len(self._waiting_for_ids) == 1:
            self.meta.producer_ids(self._take_ids)

    def _take_ids(self, found: range | WireError) -> None:
        waiting, self._waiting_for_ids = self._waiting_for_ids, []
        if isinstance(found, WireError):
            for answer in waiting:
                answer(found)
            return
        self._producer_ids = iter(found)
        for answer in waiting:
            self.init_producer(answer)

    def _identity(self, producer_id: int) -> InitProducerReply:
        return InitProducerReply(
            producer_id=producer_id, epoch=0, window=self.limits.producer_window
        )

    # --- metadata -------------------------------------------------------------

    def metadata(self, request: Metadata, answer: Callable[[MetadataReply], None]) -> None:
        """
        Tell where topics are, and make those that may be made on first use.

        Args:
            request: Names, or a place in the list of all.
            answer: Called once, maybe before this returns.
        """
        if request.names is None:
            answer(self._page(request.after))
            return
        names, failed = request.names, dict[str, WireError]()
        missing: set[str] = set()
        if request.create and not isinstance(self.refusing, ShuttingDown):
            missing = {name for name in names if name not in self.meta.registry.by_name}

        def told(name: str, found: Topic | WireError) -> None:
            if isinstance(found, WireError):
                failed[name] = found
            missing.discard(name)
            if not missing:
                answer(self._metadata_reply([self._named(each, failed) for each in names]))

        if not missing:
            answer(self._metadata_reply([self._named(each, failed) for each in names]))
        for name in tuple(missing):
            self.meta.ensure_topic(name, partial(told, name))

    def _page(self, after: str) -> MetadataReply:
        rows: list[TopicRow] = []
        size = 0
        for topic in self.meta.registry.page(after, METADATA_TOPICS):
            row = self._topic_row(topic)
            size += len(topic.name) + 40 + 2 * topic.partitions
            if rows and size > METADATA_BYTES:
                break
            rows.append(row)
        names = self.meta.registry.names
        return self._metadata_reply(rows, more=bool(rows) and rows[-1][0] != names[-1])

    def _metadata_reply(self, rows: list[TopicRow], *, more: bool = False) -> MetadataReply:
        registry = self.meta.registry
        brokers: list[BrokerRow] = [
            (each.id, each.host, each.port, each.name) for each in registry.brokers.values()
        ]
        zones = {str(each.id): each.zone for each in registry.brokers.values() if each.zone}
        return MetadataReply(
            revision=registry.revision,
            brokers=brokers,
            topics=rows,
            more=more,
            zones=zones or None,
        )

    def _named(self, name: str, failed: dict[str, WireError]) -> TopicRow:
        try:
            if name in failed:
                raise failed[name].with_traceback(None)
            return self._topic_row(self.meta.registry.topic(valid_name(name)))
        except WireError as error:
            return (name[:200], b"", [], {}, error_meta(error))

    def _topic_row(self, topic: Topic) -> TopicRow:
        shown: dict[str, Any] = {"sync": topic.config.sync, "storage": topic.config.storage}
        if topic.config.compacts:
            shown["compacted"] = True
        if topic.config.dedup_ms is not None:
            shown["dedup.by"] = topic.config.dedup_by
        live = self.meta.registry.brokers
        leaders = [leader if leader in live else -1 for leader in topic.leaders]
        return (topic.name, topic.id, leaders, shown, None)

    # --- life -----------------------------------------------------------------

    @property
    def ready(self) -> str | None:
        """Why publishing is refused, or None when it is not."""
        return None if self.refusing is None else self.refusing.text

    @property
    def load(self) -> dict[str, Any]:
        """How much this broker has to do, for who places new partitions."""
        return {
            "partitions": len(self._partitions),
            "bytes": sum(each.log.size_bytes for each in self._partitions.values()),
            "refusing": self.ready,
        }

    def refuse(self, error: WireError | None, cause: Cause = "disk") -> None:
        """
        Refuse publishing, or take it again once nothing else stands against it.

        Args:
            error: What producers are told; None if the cause is gone.
            cause: Where the trouble is.
        """
        if isinstance(self.refusing, ShuttingDown):
            return
        if error is None:
            self._refusals.pop(cause, None)
        else:
            self._refusals[cause] = error
        if not isinstance(error, ShuttingDown):
            error = self._refusals.get("cluster") or self._refusals.get("disk")
        if type(error) is not type(self.refusing):
            if error is not None and not isinstance(error, ShuttingDown):
                self._log.error("publishing is refused: {reason}", reason=error.text)
            elif error is None:
                self._log.info("publishing is taken again")
        self.refusing = error
