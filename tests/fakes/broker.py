"""
A whole broker in memory: a clock in place of time, a held or instant disk, no sockets.

`BrokerFixture` puts the domain together as `tinymq.service` does. It can be
killed and started again on the same folder; what was not written is gone then.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import attrs
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.logger import ILogObserver, LogEvent, formatEvent
from twisted.python.failure import Failure
from typing_extensions import override
from zope.interface import implementer

from tests.fakes.disk import FaultyDisk
from tinymq.broker.broker import Broker
from tinymq.broker.directory import LocalDirectory
from tinymq.broker.housekeeping import Housekeeping
from tinymq.broker.partition import Appended, Partition
from tinymq.broker.partitions import PartitionStore
from tinymq.broker.ports import Background, InlineBackground, World
from tinymq.broker.reading import Reader
from tinymq.cluster.keeping import Keeping
from tinymq.cluster.nodes import LocalNode
from tinymq.config import DEFAULT_CONFIG, Config
from tinymq.errors import ShuttingDown, WireError
from tinymq.meta.registry import Topic
from tinymq.meta.server import Clocks, MetaServer
from tinymq.meta.store import Store
from tinymq.node import Node
from tinymq.operations import Operations
from tinymq.protocol import BrokerFactory, BrokerProtocol
from tinymq.storage.disk import Disk, Space
from tinymq.storage.facts import SyncTicket
from tinymq.storage.folder import DataFolder
from tinymq.storage.sync import Done, InlineSyncer, Syncer
from tinymq.wire.batch import split
from tinymq.wire.frames import Bytes, Frame, FrameDecoder, encode_frame
from tinymq.wire.header import REPLY, MessageType
from tinymq.wire.messages import (
    Fetch,
    FetchReply,
    Hello,
    InitProducerReply,
    Message,
    Metadata,
    MetadataReply,
    error_from_meta,
)
from tinymq.wire.records import RecordBatch, encode_batch

#: The wall clock of a fixture begins here.
BEGIN_MS = 1_750_000_000_000

#: What came of a batch, once it came.
Answers = list[Appended | WireError]
#: Producer id, epoch, sequence of the first record.
Sequenced = tuple[int, int, int]


T = TypeVar("T")


def only_of(found: list[T]) -> T:
    """The one thing there is."""
    (one,) = found
    return one


def outcome_of(coroutine: Coroutine[Any, Any, T], clock: Clock | None = None) -> T:
    """What a coroutine returns, or raises, that waits for nobody but some turns of a clock."""
    outcome: list[Any] = []
    Deferred.fromCoroutine(coroutine).addBoth(outcome.append)
    if clock is not None:
        for _ in range(12):
            clock.advance(0)
    result = only_of(outcome)
    if isinstance(result, Failure):
        result.raiseException()
    return result  # type: ignore[no-any-return]


class Wall:
    """A wall clock that is set by hand."""

    def __init__(self, now_ms: int = BEGIN_MS) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        """Return the milliseconds."""
        return self.now_ms


class BrokerDisk(FaultyDisk):
    """A `FaultyDisk` whose free space is set by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.free = Space(free=1 << 40, total=1 << 41)

    @override
    def space(self, path: str) -> Space:
        self._called("space")
        return self.free


class HeldSyncer:
    """A `Syncer` that finishes nothing until it is told to."""

    def __init__(self) -> None:
        self.groups: list[tuple[Sequence[SyncTicket], Done]] = []
        self.begun = 0

    def sync(self, tickets: Sequence[SyncTicket], done: Done) -> None:
        """Keep the group."""
        self.begun += 1
        self.groups.append((tickets, done))

    def release(self, error: OSError | None = None) -> None:
        """Finish the oldest group, as success or with an error for each ticket."""
        tickets, done = self.groups.pop(0)
        done(dict.fromkeys(tickets, error))

    def close(self) -> None:
        """Do nothing: there are no threads."""


class HeldBackground:
    """A `Background` that does nothing until it is told to."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], None], Callable[[], None]]] = []

    def submit(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        """Keep the work."""
        self.waiting.append((work, done))

    def release(self) -> None:
        """Do the oldest work."""
        work, done = self.waiting.pop(0)
        work()
        done()


def batch(*values: bytes | None, producer: Sequenced | None = None, **columns: Any) -> bytes:
    """Encode records as a producer sends them."""
    producer_id, epoch, sequence = producer or (-1, -1, -1)
    return encode_batch(
        values or (b"v",),
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        **columns,
    )


def values_in(payload: Bytes) -> list[bytes | None]:
    """All values in a run of batches."""
    return [value for header, data in split(payload) for value in RecordBatch(data, header).values]


class Fetched:
    """A FETCH under way; `reply` is None until it was answered."""

    def __init__(self) -> None:
        self.reply: FetchReply | None = None
        self.payload = b""
        self.reader: Reader | None = None
        self.answered = 0
        self.full = False

    def __call__(self, reply: FetchReply, payload: list[Bytes]) -> None:
        """Take the answer."""
        self.answered += 1
        self.reply = reply
        self.payload = b"".join(payload)

    @property
    def rows(self) -> list[Any]:
        """The rows of all partitions."""
        assert self.reply is not None, "there is no answer yet"
        return [row for _, rows in self.reply.topics for row in rows]

    @property
    def values(self) -> list[bytes | None]:
        """The values of all records."""
        return values_in(self.payload)

    @property
    def error(self) -> WireError | None:
        """The error of the first row."""
        meta = self.rows[0][5]
        return None if meta is None else error_from_meta(meta)


#: Brokers that no test has stopped or killed yet; each test's end kills the rest.
RUNNING: list[BrokerFixture] = []


class BrokerFixture:
    """
    The rooms of a broker, put together without a reactor.

    Args:
        path: The data folder.
        disk: The disk; one whose syncs cost nothing by default.
        config: All settings.
        syncer: Brings files to the disk; at once by default.
        background: Runs what waits for the disk; at once by default.
        wall: The wall clock, to be shared by restarts.
    """

    def __init__(
        self,
        path: Path,
        *,
        disk: Disk | None = None,
        config: Config = DEFAULT_CONFIG,
        syncer: Syncer | None = None,
        background: Background | None = None,
        wall: Wall | None = None,
    ) -> None:
        self.path = path
        self.disk = disk or BrokerDisk()
        self.config = config
        self.wall = wall or Wall()
        self.clock = Clock()
        self.folder = DataFolder.open(str(path), self.disk, max_open=config.storage.max_open_files)
        self.meta_store = Store(path / "meta.sqlite", monotonic=self.clock.seconds)
        connection = self.meta_store._connection
        assert connection is not None
        connection.execute("PRAGMA synchronous = OFF")  # no test here cuts its power
        clocks = Clocks(wall=lambda: self.wall() / 1000)
        self.meta = MetaServer(self.meta_store, config, clocks)
        self.store = PartitionStore(self.folder, config.limits, config.producers)
        self.syncer = syncer or InlineSyncer(self.disk)
        world = World(self.clock, self.wall, background or InlineBackground())
        self.broker = Broker(config, LocalDirectory(self.meta), self.store, world, self.syncer)
        self.broker.id = 1
        self.node = Node(self.broker)
        self.nodes = LocalNode(self.node)
        self.operations = Operations(self.broker, self.meta, self.nodes)
        self.factory = self.node.connected = BrokerFactory(self.broker, self.operations)
        self.housekeeping = Housekeeping(self.broker)
        self.node.vitals.connections = self.factory.connections
        self.node.vitals.housekeeping = self.housekeeping
        self.keeping = Keeping(self.meta, self.broker)
        self.keeping.register()
        RUNNING.append(self)
        self.broker.open()

    # --- life -----------------------------------------------------------------

    def kill(self) -> None:
        """Leave everything as `kill -9` would; only the lock and descriptors go."""
        RUNNING.remove(self)
        self.folder.close()
        self.store.close_index()
        self.meta_store.close()

    def stop(self) -> None:
        """Stop in order, as the service does."""
        RUNNING.remove(self)
        self.broker.refuse(ShuttingDown())
        self.broker.committer.sync_all(self.broker.partitions())
        self.broker.committer.stop()
        partitions = self.broker.partitions()
        for partition in partitions:
            partition.close(ShuttingDown())
        self.store.close(partitions)
        self.meta_store.close()

    def again(self, **changes: Any) -> BrokerFixture:
        """Start once more on the same folder, after `kill` or `stop`."""
        given = {"config": self.config, "wall": self.wall, **changes}
        return BrokerFixture(self.path, **given)

    def turn(self) -> None:
        """Let one turn of the reactor pass: what is due now, and nothing that this begets."""
        now = self.clock.seconds()
        for call in [each for each in self.clock.calls if each.getTime() <= now]:
            if call.active():
                self.clock.calls.remove(call)
                call.called = 1
                call.func(*call.args, **call.kw)

    # --- topics ---------------------------------------------------------------

    def topic(self, name: str = "t", partitions: int = 1, **settings: Any) -> Topic:
        """Make a topic; settings are written with ``_`` for ``.``."""
        config = {key.replace("_", "."): value for key, value in settings.items()}
        return self.meta.create_topic(name, partitions, config)

    def operate(self, operation: str, /, **arguments: Any) -> dict[str, Any]:
        """Carry out an operation that waits for nobody."""
        return outcome_of(self.operations.run(operation, arguments))

    def carry_out(self, operation: str, /, **arguments: Any) -> dict[str, Any]:
        """Carry out an operation that may wait for the disk."""
        return outcome_of(self.operations.run(operation, arguments), self.clock)

    def metadata(self, **request: Any) -> MetadataReply:
        """Ask for metadata."""
        replies: list[MetadataReply] = []
        self.broker.metadata(Metadata(**request), replies.append)
        return only_of(replies)

    def new_producer(self) -> InitProducerReply:
        """Ask for a producer id."""
        replies: list[InitProducerReply | WireError] = []
        self.broker.init_producer(replies.append)
        reply = only_of(replies)
        assert isinstance(reply, InitProducerReply)
        return reply

    def partition(self, name: str = "t", index: int = 0) -> Partition:
        """Find a partition."""
        return self.broker.partition(self.meta.describe(name).id, index)

    # --- records --------------------------------------------------------------

    def stage(
        self,
        *values: bytes | None,
        topic: str = "t",
        partition: int = 0,
        producer: Sequenced | None = None,
    ) -> Answers:
        """Publish a batch in the present turn."""
        answers: Answers = []
        data = batch(*values, producer=producer)
        self.broker.produce(self.meta.describe(topic).id, partition, data, answers.append)
        return answers

    def produce(self, *values: bytes | None, **where: Any) -> Answers:
        """Publish a batch, and let the turn end."""
        answers = self.stage(*values, **where)
        self.turn()
        return answers

    def fetch(
        self,
        *positions: tuple[str, int, int] | tuple[str, int, int, int],
        **request: Any,
    ) -> Fetched:
        """Read from positions (topic, partition, offset, epoch = -1)."""
        topics = [
            (self.meta.describe(name).id, [(index, offset, rest[0] if rest else -1)])
            for name, index, offset, *rest in positions
        ]
        return self.fetch_ids(Fetch(topics=topics, **request))

    def fetch_ids(self, request: Fetch) -> Fetched:
        """Carry out a FETCH."""
        found = Fetched()
        found.reader = self.broker.fetch(request, found, lambda: found.full)
        return found

    def values(self, name: str = "t", index: int = 0) -> list[bytes | None]:
        """Every value that a reader sees."""
        found: list[bytes | None] = []
        partition = self.partition(name, index)
        offset = partition.log.start_offset
        while offset < partition.high_watermark:
            got = self.fetch((name, index, offset), max_wait_ms=0)
            assert got.error is None, got.error
            following = got.rows[0][3]
            assert following > offset, f"nothing at {offset}"
            found += got.values
            offset = following
        return found

    # --- connections ----------------------------------------------------------

    def connect(self, *, hello: bool = True, **said: Any) -> Connection:
        """Make a connection, which has said HELLO unless told otherwise."""
        connection = Connection(self.factory)
        if hello:
            connection.ask(Hello(**said))
        return connection


def only(answers: Answers) -> Appended:
    """The one answer, which is no error."""
    (answer,) = answers
    assert isinstance(answer, Appended), answer
    return answer


def refused(answers: Answers) -> WireError:
    """The one answer, which is an error."""
    (answer,) = answers
    assert isinstance(answer, WireError), answer
    return answer


@implementer(ILogObserver)
class LogKeeper:
    """
    Keeps what is logged.

    Attributes:
        events: Everything since `clear`.
    """

    def __init__(self) -> None:
        self.events: list[LogEvent] = []

    def __call__(self, event: LogEvent) -> None:
        """Take an event."""
        self.events.append(event)

    @property
    def failures(self) -> list[LogEvent]:
        """Those that tell of an exception."""
        return [event for event in self.events if event.get("log_failure")]

    @property
    def texts(self) -> list[str]:
        """What people would read."""
        return [formatEvent(event) for event in self.events]


class PeerTransport(StringTransport):
    """
    A transport whose peer reads or does not, as told.

    It pauses its producer as Twisted's sockets do: when more than `bufferSize`
    bytes wait after a write.
    """

    bufferSize = 65_536  # noqa: N815 - Twisted's name
    #: With `dataBuffer`, what Twisted's sockets know of bytes that were not sent.
    offset = _tempDataLen = 0  # noqa: N815 - Twisted's name

    def __init__(self) -> None:
        super().__init__(peerAddress=IPv4Address("TCP", "192.0.2.1", 54321))
        self.peer_reads = True
        self.aborted = False
        self.most = 0

    @override
    def write(self, data: bytes) -> None:
        super().write(data)
        waiting = self.io.tell()
        self.most = max(self.most, waiting)
        if not self.peer_reads and self.producer is not None and waiting > self.bufferSize:
            self.producer.pauseProducing()

    @property
    def dataBuffer(self) -> bytes:  # noqa: N802 - Twisted's name
        """What waits for the peer to read."""
        return bytes(self.value())

    @override
    def abortConnection(self) -> None:
        self.aborted = True
        super().abortConnection()

    def drain(self) -> bytes:
        """Let the peer read what waits."""
        data: bytes = self.value()
        self.clear()
        if self.producer is not None:
            self.producer.resumeProducing()
        return data


class Connection:
    """
    The client's end of one connection.

    Args:
        factory: The broker's.
    """

    def __init__(self, factory: BrokerFactory) -> None:
        address = IPv4Address("TCP", "192.0.2.1", 54321)
        protocol = factory.buildProtocol(address)
        assert protocol is not None
        self.protocol: BrokerProtocol = protocol
        self.transport = PeerTransport()
        self.protocol.makeConnection(self.transport)
        self._decoder = FrameDecoder(1 << 30)
        self._next = 0

    def feed(self, data: bytes) -> None:
        """Send bytes."""
        self.protocol.dataReceived(data)

    def send(
        self,
        type_: int,
        message_id: int = 0,
        meta: dict[str, Any] | None = None,
        payload: bytes = b"",
    ) -> None:
        """Send a frame."""
        self.feed(b"".join(encode_frame(type_, message_id, meta, [payload] if payload else [])))

    def post(self, message: Message, payload: bytes = b"") -> int:
        """Send a request under a new id, and return the id."""
        self._next += 1
        self.send(message.type, self._next, message.to_meta(), payload)
        return self._next

    def frames(self) -> list[Frame]:
        """Read what was answered since the last call."""
        data = self.transport.value()
        self.transport.clear()
        return list(self._decoder.feed(data))

    def ask(self, message: Message, payload: bytes = b"") -> Frame:
        """Send a request that is answered at once, and return its answer."""
        message_id = self.post(message, payload)
        (frame,) = self.frames()
        assert frame.message_id == message_id
        return frame

    def reads(self) -> bool:
        """Whether the broker reads what the client sends."""
        return bool(self.transport.producerState == "producing")

    def paused(self) -> bool:
        """Whether the broker knows that the client does not read."""
        return self.protocol.paused_since is not None

    @property
    def closed(self) -> bool:
        """Whether the broker closed the connection."""
        return self.transport.disconnecting

    def lose(self) -> None:
        """Cut the connection."""
        self.transport.connected = False
        self.protocol.connectionLost()


def error_of(frame: Frame) -> WireError:
    """The error in a frame, which must be one."""
    assert frame.type == MessageType.ERROR, frame
    return error_from_meta(frame.split()[0])


def is_reply(frame: Frame, type_: int) -> bool:
    """Whether a frame is the good answer to a request of a type."""
    return frame.type == type_ | REPLY


def changed(config: Config = DEFAULT_CONFIG, **values: Any) -> Config:
    """A configuration with other values; the names have ``__`` between group and name."""
    return config.changed({name.replace("__", "."): value for name, value in values.items()})


def smaller_limits(**limits: int) -> Config:
    """A configuration with other limits."""
    return attrs.evolve(DEFAULT_CONFIG, limits=attrs.evolve(DEFAULT_CONFIG.limits, **limits))
