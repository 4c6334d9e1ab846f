"""A broker made of the wire classes alone, which does what a test tells it to."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any

from attrs import Factory, asdict, define, evolve

from tinymq.client.core.address import Address
from tinymq.client.core.cluster import Cluster
from tinymq.client.core.config import ClientConfig
from tinymq.client.core.link import Link
from tinymq.errors import (
    ConnectionLost,
    HelloRequired,
    InvalidRequest,
    LogTruncated,
    OffsetOutOfRange,
    OutOfOrderSequence,
    UnknownProducer,
    UnknownTopic,
    UnknownTopicId,
    UnknownType,
    UnreachableError,
    WireError,
)
from tinymq.limits import DEFAULT_LIMITS, Limits
from tinymq.wire.batch import (
    HAS_DUE,
    NO_PRODUCER,
    SEQUENCE_MODULUS,
    BatchHeader,
    read_header,
    stamp,
)
from tinymq.wire.codec import pack
from tinymq.wire.frames import Bytes, Frame, FrameDecoder, encode_frame
from tinymq.wire.header import REPLY, MessageType
from tinymq.wire.messages import (
    EARLIEST,
    LATEST,
    REQUESTS,
    Fetch,
    FetchReply,
    FetchResult,
    Hello,
    HelloReply,
    InitProducer,
    InitProducerReply,
    Message,
    Metadata,
    MetadataReply,
    Offsets,
    OffsetsReply,
    Operate,
    Ping,
    Produce,
    ProduceReply,
    error_meta,
)
from tinymq.wire.produced import check_produced
from tinymq.wire.records import RecordBatch

#: What the puppet stamps batches with.
APPENDED_MS = 1_700_000_000_000
ADDRESS = Address("127.0.0.1", 7800)

Answer = tuple[Message, Sequence[Bytes]]


@define
class PuppetLog:
    """One partition: whole batches, and a memory of producers like a broker's."""

    batches: list[bytes] = Factory(list)
    headers: list[BatchHeader] = Factory(list)
    start: int = 0
    end: int = 0
    epoch: int = 0
    cuts: list[tuple[int, int]] = Factory(list)
    producers: dict[tuple[int, int], deque[tuple[int, int, int]]] = Factory(dict)

    def append(self, data: Bytes, limits: Limits = DEFAULT_LIMITS) -> tuple[int, bool]:
        """Store a batch once; return its offset and whether it was there before."""
        header = check_produced(data, limits)
        if header.producer_id != NO_PRODUCER:
            known = self.producers.get((header.producer_id, header.producer_epoch))
            if known is None and header.base_sequence:
                raise UnknownProducer
            first = header.base_sequence
            following = (first + header.records) % SEQUENCE_MODULUS
            for one, other, offset in known or ():
                if (one, other) == (first, following):
                    return offset, True
            if known is not None and known[-1][1] != first:
                raise OutOfOrderSequence(expected=known[-1][1])
            self.producers.setdefault(
                (header.producer_id, header.producer_epoch), deque(maxlen=64)
            ).append((first, following, self.end))
        offset = self.end
        whole = b"".join(map(bytes, stamp(data, header, offset, self.epoch, APPENDED_MS)))
        self.batches.append(whole)
        self.headers.append(header._replace(base_offset=offset))
        self.end += header.records
        return offset, False

    def values(self) -> list[bytes | None]:
        """Every value in order."""
        return [value for batch in self.batches for value in RecordBatch(batch).values]

    def offset_at(self, query: int) -> int:
        """Find an offset as OFFSETS does; all batches are of one time."""
        if query in (LATEST, EARLIEST):
            return self.end if query == LATEST else self.start
        return self.start if query <= APPENDED_MS else self.end

    def check(self, offset: int, epoch: int) -> None:
        """Refuse a position as a broker does."""
        survived = min((end for one, end in self.cuts if one >= epoch), default=self.end)
        if epoch >= 0 and offset > survived:
            raise LogTruncated(start=self.start, end=survived)
        if not self.start <= offset <= self.end:
            raise OffsetOutOfRange(start=self.start, end=self.end)

    def following(self, offset: int, data: bytes) -> int:
        """Where to read on: behind the data, or behind a gap up to the end."""
        if not data:
            return self.end
        place = sum(header.next_offset <= offset for header in self.headers)
        size = 0
        while size < len(data):
            size += len(self.batches[place])
            place += 1
        return self.headers[place - 1].next_offset

    def cut(self, offset: int) -> None:
        """Lose the end, and begin a new epoch, as a broker does after a power cut."""
        while self.headers and self.headers[-1].next_offset > offset:
            self.headers.pop()
            self.batches.pop()
        self.cuts.append((self.epoch, offset))
        self.epoch, self.end = self.epoch + 1, offset

    def epoch_at(self, offset: int) -> int:
        """The epoch of the record before an offset, -1 where there is none."""
        if offset <= 0:
            return -1
        return next((one for one, end in self.cuts if offset <= end), self.epoch)

    def read(self, offset: int, most: int) -> bytes:
        """Whole batches from an offset on, the first in any case."""
        found = b""
        for header, batch in zip(self.headers, self.batches, strict=True):
            if header.next_offset > offset:
                if found and len(found) + len(batch) > most:
                    break
                found += batch
        return found


@define
class PuppetTopic:
    """A topic."""

    name: str
    id: bytes
    logs: list[PuppetLog]
    leaders: list[int]
    #: What waits until it is due, by partition.
    delays: defaultdict[int, PuppetLog] = Factory(lambda: defaultdict(PuppetLog))


class Puppet:
    """
    A broker without I/O: frames in, frames out.

    Attributes:
        topics: By name.
        seen: Every request in order, except HELLO and PING.
        refuse: Asked before each request but HELLO; may return an error to answer.
        refuse_hello: The same for HELLO.
        mute: Types that are not answered.
        deaf: Types that are not even carried out.
        limits: Told to clients.
        heartbeat: Told to clients.
        polls: FETCH requests that wait for data.
        unroutable: Told in answers to PRODUCE.
    """

    def __init__(self, number: int = 1) -> None:
        self.number = number
        self.topics: dict[str, PuppetTopic] = {}
        self.seen: list[Message] = []
        self.refuse: Callable[[Message], WireError | None] = lambda request: None
        self.refuse_hello: Callable[[Message], WireError | None] = lambda request: None
        self.mute: set[int] = set()
        self.deaf: set[int] = set()
        self.limits = evolve(DEFAULT_LIMITS)
        self.heartbeat = 15
        self.window = 64
        self.cluster = bytes(16)
        self.brokers: list[tuple[int, str, int, str]] = [(number, *ADDRESS, "puppet")]
        self.polls: list[tuple[Line, int, Fetch]] = []
        self.hellos: list[Hello] = []
        self.operations: dict[str, Callable[..., dict[str, Any]]] = {}
        self.revision = 1
        self.unroutable: bytes | None = None
        self._ids = 0
        self._producer_id = 100

    def make(self, name: str, partitions: int = 1) -> PuppetTopic:
        """Make a topic, or make it anew."""
        self._ids += 1
        self.revision += 1
        logs = [PuppetLog() for _ in range(partitions)]
        topic = PuppetTopic(
            name, self._ids.to_bytes(2, "big") * 8, logs, [self.number] * partitions
        )
        self.topics[name] = topic
        return topic

    def values(self, name: str, partition: int = 0) -> list[bytes | None]:
        """Every value of a partition in order."""
        return self.topics[name].logs[partition].values()

    def kinds(self) -> list[str]:
        """The names of all requests seen."""
        return [request.type.name for request in self.seen]

    # --- requests --------------------------------------------------------------

    def answer(self, line: Line, frame: Frame) -> None:
        """Carry out one request."""
        kind = frame.type
        if kind & REPLY:
            return
        known = REQUESTS.get(kind)
        meta, payload = frame.split()
        try:
            if known is None:
                raise UnknownType
            request = known.from_meta(meta)
            if not line.greeted and not isinstance(request, Hello):
                raise HelloRequired
            self._note(line, request)
            if kind in self.deaf:
                return
            refusal = (self.refuse_hello if kind == MessageType.HELLO else self.refuse)(request)
            if refusal is not None:
                raise refusal
            reply = self._carry_out(line, frame.message_id, request, payload)
        except WireError as error:
            if kind not in self.mute and (frame.message_id or error.fatal):
                line.send(encode_frame(MessageType.ERROR, frame.message_id, error_meta(error)))
            if error.fatal:
                line.close()
            return
        if reply is not None and frame.message_id and kind not in self.mute:
            self.reply(line, kind, frame.message_id, reply)

    def reply(self, line: Line, kind: int, message_id: int, reply: Answer) -> None:
        """Send a reply."""
        message, pieces = reply
        line.send(encode_frame(kind | REPLY, message_id, message.to_meta(), pieces))

    def _note(self, line: Line, request: Message) -> None:
        if isinstance(request, Hello):
            line.greeted = True
            self.hellos.append(request)
        elif not isinstance(request, Ping):
            self.seen.append(request)

    def _carry_out(
        self, line: Line, message_id: int, request: Message, payload: Bytes
    ) -> Answer | None:
        match request:
            case Fetch():
                found = self._fetch(request)
                if found is None:
                    self.polls.append((line, message_id, request))
                return found
            case Operate():
                if request.name not in self.operations:
                    raise InvalidRequest(f"no operation {request.name}")
                result = self.operations[request.name](**(request.arguments or {}))
                return Ping(), (pack(result),)
        reply = self._message(request, payload)
        return None if reply is None else (reply, ())

    def _message(self, request: Message, payload: Bytes) -> Message | None:
        """Answer what is answered by a message alone."""
        match request:
            case Hello():
                return self._hello(request)
            case Metadata():
                return self._metadata(request)
            case Produce():
                return self._produce(request, payload)
            case Offsets():
                return self._offsets(request)
            case InitProducer():
                self._producer_id += 1
                return InitProducerReply(producer_id=self._producer_id, epoch=0, window=self.window)
        return request if isinstance(request, Ping) else None

    def _hello(self, request: Hello) -> HelloReply:
        return HelloReply(
            broker_id=self.number,
            name="puppet",
            software="puppet/1",
            cluster=self.cluster,
            session=request.session or b"s" * 16,
            heartbeat=self.heartbeat,
            limits={**asdict(self.limits), "of_the_future": 7},
        )

    def _metadata(self, request: Metadata) -> MetadataReply:
        rows: list[tuple[str, bytes, list[int], dict[str, Any], Any]] = []
        for name in request.names or sorted(self.topics):
            if name not in self.topics and request.create:
                self.make(name)
            topic = self.topics.get(name)
            if topic is None:
                rows.append((name, b"", [], {}, error_meta(UnknownTopic(f"no topic {name}"))))
            else:
                rows.append((name, topic.id, topic.leaders, {}, None))
        return MetadataReply(revision=self.revision, brokers=self.brokers, topics=rows)

    def find(self, topic_id: bytes) -> PuppetTopic:
        """Find a topic by its identity."""
        for topic in self.topics.values():
            if topic.id == topic_id:
                return topic
        raise UnknownTopicId

    def _produce(self, request: Produce, payload: Bytes) -> ProduceReply:
        topic = self.find(request.topic_id)
        delayed = bool(read_header(payload).attributes & HAS_DUE)
        log = (topic.delays if delayed else topic.logs)[request.partition]
        offset, duplicate = log.append(payload, self.limits)
        self.wake()
        stamped = -1 if duplicate else APPENDED_MS
        return ProduceReply(
            base_offset=offset,
            timestamp=stamped,
            duplicate=duplicate,
            delayed=delayed,
            unroutable=self.unroutable,
        )

    def _offsets(self, request: Offsets) -> OffsetsReply:
        topic = self.find(request.topic_id)
        rows: list[tuple[int, int, int, int, Any]] = []
        for partition, query in request.queries:
            log = topic.logs[partition]
            offset = log.offset_at(query)
            rows.append((partition, offset, log.epoch_at(offset), -1, None))
        return OffsetsReply(results=rows)

    # --- fetching --------------------------------------------------------------

    def _fetch(self, request: Fetch) -> Answer | None:
        topics: list[tuple[bytes, list[FetchResult]]] = []
        payload: list[bytes] = []
        worth = request.max_wait_ms == 0
        for topic_id, positions in request.topics:
            rows: list[FetchResult] = []
            for partition, offset, epoch in positions:
                try:
                    log = self.find(topic_id).logs[partition]
                    log.check(offset, epoch)
                except WireError as error:
                    worth = True
                    rows.append((partition, -1, -1, -1, 0, error_meta(error)))
                    continue
                data = log.read(offset, request.max_bytes)
                following = log.following(offset, data)
                worth = worth or following > offset
                payload.append(data)
                rows.append((partition, log.end, log.start, following, len(data), None))
            topics.append((topic_id, rows))
        return (FetchReply(topics=topics), payload) if worth else None

    def wake(self, *, empty: bool = False) -> None:
        """Answer the FETCH requests that have something now, or all of them."""
        polls, self.polls = self.polls, []
        for line, message_id, request in polls:
            reply = self._fetch(_hurried(request) if empty else request)
            if reply is None:
                self.polls.append((line, message_id, request))
            elif line.alive:
                self.reply(line, MessageType.FETCH, message_id, reply)


def _hurried(request: Fetch) -> Fetch:
    """The same request with its patience at an end."""
    return Fetch.from_meta({**request.to_meta(), "w": 0})


class Line:
    """The broker's end of one connection."""

    def __init__(self, puppet: Puppet) -> None:
        self.puppet = puppet
        self.greeted = False
        self.alive = True
        self.out: list[Bytes] = []
        self._decoder = FrameDecoder(puppet.limits.body)

    def feed(self, data: bytes) -> None:
        """Take bytes from the client."""
        if self.alive:
            for frame in self._decoder.feed(data):
                self.puppet.answer(self, frame)

    def send(self, pieces: Sequence[Bytes]) -> None:
        """Queue bytes for the client."""
        self.out += pieces

    def take(self) -> bytes:
        """Take the bytes for the client."""
        data = b"".join(map(bytes, self.out))
        self.out.clear()
        return data

    def close(self) -> None:
        """End the connection after what was sent."""
        self.alive = False


class CoreWire:
    """What a link writes to, when there is no I/O at all."""

    def __init__(self, net: CoreNetwork, link: Link, line: Line) -> None:
        self.net = net
        self.link = link
        self.line = line
        self.open = True
        self.sent: list[bytes] = []

    def write(self, pieces: Sequence[Bytes]) -> None:
        """Keep bytes until the network pumps."""
        assert self.open
        self.sent += [bytes(piece) for piece in pieces]

    def close(self) -> None:
        """End the connection."""
        self.open = False


class CoreNetwork:
    """
    Joins a cluster to puppets without I/O, on a clock that a test sets.

    Attributes:
        now: The time.
        puppets: By address.
        up: Whether anybody can be reached.
        reports: Errors of the caller's own code.
        said: Lines for people.
    """

    def __init__(self, puppet: Puppet | None = None) -> None:
        self.now = 1000.0
        self.puppet = puppet or Puppet()
        self.puppets = {ADDRESS: self.puppet}
        self.up = True
        self.hang = False
        self.wires: list[CoreWire] = []
        self.dialed: list[Address] = []
        self.reports: list[tuple[str, Exception]] = []
        self.said: list[str] = []
        self._dialing: list[tuple[Link, Address]] = []

    def cluster(self, config: ClientConfig | None = None, *more: Address) -> Cluster:
        """Make a cluster on this network."""
        self.made = Cluster([ADDRESS, *more], config or ClientConfig(), self, lambda: 0.5)
        return self.made

    def dial(self, link: Link, address: Address, now: float) -> None:
        """Connect when the network pumps."""
        self.dialed.append(address)
        self._dialing.append((link, address))

    def hang_up(self, link: Link) -> None:
        """Stop connecting."""
        self._dialing = [one for one in self._dialing if one[0] is not link]

    def report(self, what: str, error: Exception) -> None:
        """Note it."""
        self.reports.append((what, error))

    def say(self, text: str) -> None:
        """Note it."""
        self.said.append(text)

    def pump(self) -> None:
        """Move bytes both ways until nothing moves."""
        moved = True
        while moved:
            moved = False
            dialing, self._dialing = ([], self._dialing) if self.hang else (self._dialing, [])
            for link, address in dialing:
                moved = True
                puppet = self.puppets.get(address)
                if puppet is None or not self.up:
                    link.failed(UnreachableError(f"{address} refused"), self.now)
                    continue
                wire = CoreWire(self, link, Line(puppet))
                self.wires.append(wire)
                link.connected(wire, self.now)
            for wire in tuple(self.wires):
                moved |= self._exchange(wire)
            if self.made.wake_at <= self.now:
                self.made.tick(self.now)
                moved = moved or bool(self._dialing) or any(wire.sent for wire in self.wires)

    def advance(self, seconds: float) -> None:
        """Let time pass, tick by tick as the cluster wants it."""
        until = self.now + seconds
        self.pump()
        while self.made.wake_at <= until:
            self.now = max(self.now, self.made.wake_at)
            self.made.tick(self.now)
            self.pump()
        self.now = until

    def cut(self, *, deliver: bool = False) -> None:
        """Lose every connection, after or before what was written arrived."""
        wires, self.wires = self.wires, []
        for wire in wires:
            if deliver and wire.open:
                wire.line.feed(b"".join(wire.sent))
            wire.line.close()
            if wire.open:
                wire.link.lost(ConnectionLost("cut"), self.now)

    def _exchange(self, wire: CoreWire) -> bool:
        sent, wire.sent = b"".join(wire.sent), []
        wire.line.feed(sent)
        back = wire.line.take()
        if wire.open and back:
            wire.link.received(back, self.now)
        if not wire.line.alive or not wire.open:
            self.wires.remove(wire)
            if wire.open:
                wire.link.lost(ConnectionLost("closed by the broker"), self.now)
        return bool(sent or back)
