"""
Frozen snapshots: the only thing that web, metrics and command line ever see.

A snapshot is a value. Whoever holds one can keep it, compare it or hand it to
a template; nothing in it changes, and nothing in it leads back to a live
object of the broker. Times are milliseconds since the epoch, UTC. Sizes are
bytes, rates are per second. What is not known is ``None``; 0 is a real 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

from attrs import frozen

Sync = Literal["always", "interval", "os", "memory"]
Span = Literal["recent", "long"]
#: What a process is: ``all`` is broker and MetaServer in one.
Role = Literal["all", "meta", "broker"]
#: What the cluster's own processes call themselves where they connect: a broker at its
#: MetaServer, a MetaServer at a broker, who announces itself at a lookup server,
#: and `tinymq up`, which looks whether its processes answer.
BROKER_CLIENT: Final = "tinymq-broker"
META_CLIENT: Final = "tinymq-meta"
ANNOUNCER_CLIENT: Final = "tinymq-announcer"
UP_CLIENT: Final = "tinymq-up"
#: By these names alone they are known, so whoever takes one hides behind it from the
#: usual list: it is for readers, and nothing is allowed or refused by it.
CLUSTER_CLIENTS: Final = frozenset({BROKER_CLIENT, META_CLIENT, ANNOUNCER_CLIENT, UP_CLIENT})


class Counters(NamedTuple):
    """
    What went through one object since the process started. Never decreases.

    Attributes:
        messages_in: Records appended.
        messages_out: Records handed to readers.
        bytes_in: Bytes of batches appended.
        bytes_out: Bytes of batches handed to readers.
    """

    messages_in: int = 0
    messages_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0


class Rates(NamedTuple):
    """The counters' growth per second, averaged over the last ten seconds."""

    messages_in: float = 0.0
    messages_out: float = 0.0
    bytes_in: float = 0.0
    bytes_out: float = 0.0


#: Nothing was counted yet.
NOTHING: Final = Counters()
#: No traffic.
IDLE: Final = Rates()


@frozen
class Series:
    """
    Values at a fixed step, oldest first.

    Attributes:
        step_ms: Time between two values.
        end_ms: End of the interval that the last value stands for.
        values: Rates per second. May be shorter than the span: what was
            before the process started is not known.
    """

    step_ms: int
    end_ms: int
    values: tuple[float, ...] = ()


@frozen
class Trail:
    """The history of one object over one span."""

    messages_in: Series
    messages_out: Series
    bytes_in: Series
    bytes_out: Series


@frozen
class Depth:
    """How many messages were in one place: ten minutes, and six hours."""

    recent: Series
    long: Series


@frozen(kw_only=True)
class Gap:
    """
    Offsets that were found damaged and set aside.

    Attributes:
        first: First missing offset.
        end: The offset after the last missing one.
        reason: One sentence.
    """

    first: int
    end: int
    reason: str = ""


class PartitionReport(NamedTuple):
    """
    What a broker says of one partition that it leads.

    Attributes:
        start: First offset kept.
        end: Offset of the next record that readers will see.
        bytes: Size on disk, or in memory for a memory-only topic.
        oldest_ms: Append time of the first record kept; None when empty.
        newest_ms: Append time of the last record; None when never.
        dropped: Records that went because a memory-only topic was full.
        failure: Why it is offline; empty when it is not.
        undo_until_ms: Until when the last purge can be undone; None without one.
        undo_records: How many records would come back.
        gaps: Damaged ranges, lowest first.
        counters: Since that broker started: they begin anew when it does.
        delayed: Messages that are not due yet.
        overdue: Messages that are due and not out.
        late_ms: How late 99 of 100 that came were at most; None if none did since that
            broker started.
    """

    start: int
    end: int
    bytes: int
    oldest_ms: int | None = None
    newest_ms: int | None = None
    dropped: int = 0
    failure: str = ""
    undo_until_ms: int | None = None
    undo_records: int = 0
    gaps: tuple[Gap, ...] = ()
    counters: Counters = Counters()
    delayed: int = 0
    overdue: int = 0
    late_ms: int | None = None

    @property
    def messages(self) -> int:
        """How many offsets are kept."""
        return self.end - self.start


@frozen(kw_only=True)
class PartitionSnapshot:
    """
    One partition of a topic.

    Attributes:
        index: Its number.
        leader: Name of the broker that holds it.
        start: First offset kept.
        end: Offset of the next record.
        bytes: Size on disk, or in memory for a memory-only topic.
        rates: Current rates.
        series: Records in, per second, last ten minutes; None when unknown.
        oldest_ms: Append time of the first record kept; None when empty.
        last_write_ms: Append time of the last record; None when never.
        state: Whether it can be read and written.
        reason: Why it is offline: a failure of its storage, or a broker that
            does not answer. Its figures are then the last known.
        gaps: Damaged ranges, lowest first.
        leader_id: Id of the broker that holds it; -1 when there is none.
        delayed: Messages that are not due yet.
        overdue: Messages that are due and not out.
        late_ms: How late 99 of 100 that came were at most; None if none did.
    """

    index: int
    leader: str
    start: int
    end: int
    bytes: int
    rates: Rates = IDLE
    series: Series | None = None
    oldest_ms: int | None = None
    last_write_ms: int | None = None
    state: Literal["online", "offline"] = "online"
    reason: str = ""
    gaps: tuple[Gap, ...] = ()
    leader_id: int = -1
    delayed: int = 0
    overdue: int = 0
    late_ms: int | None = None

    @property
    def messages(self) -> int:
        """How many offsets are kept."""
        return self.end - self.start


class ConfigRow(NamedTuple):
    """One setting of a topic, as people write it (``7 d``, ``none``), and what it is."""

    name: str
    value: str
    default: str
    text: str = ""
    allowed: str = ""


@frozen(kw_only=True)
class UndoWindow:
    """
    A purge that can still be undone.

    Attributes:
        until_ms: When the files are removed for good.
        records: How many records come back.
    """

    until_ms: int
    records: int


@frozen(kw_only=True)
class TopicSnapshot:
    """
    One topic with its partitions.

    Attributes:
        id: The 128-bit id, 32 hexadecimal digits.
        name: Its name.
        created_ms: When it was made.
        sync: What an acknowledgement means.
        config: Every setting that can be shown.
        partitions: By number.
        rates: Of all partitions together.
        recent: Last ten minutes; None when unknown.
        undo: The last purge, while it can be undone.
        silent: Names of brokers that lead partitions of it and do not answer.
    """

    id: str
    name: str
    created_ms: int
    sync: Sync
    config: tuple[ConfigRow, ...] = ()
    partitions: tuple[PartitionSnapshot, ...] = ()
    rates: Rates = IDLE
    recent: Trail | None = None
    undo: UndoWindow | None = None
    silent: tuple[str, ...] = ()

    @property
    def messages(self) -> int:
        """How many records are kept."""
        return sum(one.messages for one in self.partitions)

    @property
    def bytes(self) -> int:
        """Bytes of all partitions."""
        return sum(one.bytes for one in self.partitions)

    @property
    def delayed(self) -> int:
        """How many messages are not due yet."""
        return sum(one.delayed for one in self.partitions)

    @property
    def overdue(self) -> int:
        """How many messages are due and not out."""
        return sum(one.overdue for one in self.partitions)

    @property
    def late_ms(self) -> int | None:
        """How late 99 of 100 messages that came were at most, in the worst partition."""
        return max((p.late_ms for p in self.partitions if p.late_ms is not None), default=None)

    @property
    def oldest_ms(self) -> int | None:
        """Append time of the oldest record kept."""
        return min((p.oldest_ms for p in self.partitions if p.oldest_ms is not None), default=None)

    @property
    def last_write_ms(self) -> int | None:
        """Append time of the newest record."""
        known = (p.last_write_ms for p in self.partitions if p.last_write_ms is not None)
        return max(known, default=None)


@frozen(kw_only=True)
class TopicRow:
    """
    A topic in a list: fields that cost nothing to know.

    `series` is filled in for the rows of the page that is shown, and for no
    others (see `tinymq.web.port.select`). `leaders` are the ids of the brokers
    that hold its partitions, by number of the partition; -1 where there is none.
    """

    name: str
    partitions: int
    messages: int
    bytes: int
    sync: Sync = "always"
    rates: Rates = IDLE
    last_write_ms: int | None = None
    offline: int = 0
    series: Series | None = None
    leaders: tuple[int, ...] = ()


@frozen(kw_only=True)
class OfflinePartition:
    """A partition that cannot be used: its storage failed, or its broker is silent."""

    topic: str
    partition: int
    reason: str


@frozen(kw_only=True)
class BrokerSnapshot:
    """
    One broker process against its limits.

    Attributes:
        name: Its name in the cluster.
        version: Of tinymq.
        pid: Of the process.
        started_ms: When it started.
        listen: Address of the wire protocol.
        memory: Resident bytes of the process; None when unknown.
        memory_limit: Where it must not go; None when there is no limit.
        disk_total: Of the file system that holds the data.
        disk_used: Of it, by anyone.
        disk_free: Left for this process.
        disk_reserve: Publishing is refused when less than this is free.
        descriptors: Open now.
        descriptors_limit: Most that may be open.
        reactor_lag_ms: 99th percentile of how late a timer ran.
        connections: Open now, of clients and of the cluster's own processes.
        refusing: Why publishing is refused; None when it is not.
        rates: Current rates.
        id: Its number in the cluster; 0 for a process that holds no partitions.
        role: What the process is.
        zone: Where it stands; may be empty.
        files: Log files open now; None when unknown.
        files_limit: Most of them that are kept open; None when there is no limit.
        partitions: That it leads.
        topics: That it leads a partition of.
        draining: Whether it gets no new partitions.
        incarnation: How often it has registered under its id.
        heard_ms: When it was last heard; None when it is this process.
        slow_clients: Connections that take no more of what is sent to them.
        own_connections: Those of the cluster's own processes.
    """

    name: str
    version: str
    pid: int
    started_ms: int
    listen: str
    memory: int | None = None
    memory_limit: int | None = None
    disk_total: int | None = None
    disk_used: int | None = None
    disk_free: int | None = None
    disk_reserve: int | None = None
    descriptors: int | None = None
    descriptors_limit: int | None = None
    reactor_lag_ms: float | None = None
    connections: int = 0
    refusing: str | None = None
    rates: Rates = IDLE
    id: int = 1
    role: Role = "all"
    zone: str = ""
    files: int | None = None
    files_limit: int | None = None
    partitions: int = 0
    topics: int = 0
    draining: bool = False
    incarnation: int = 0
    heard_ms: int | None = None
    slow_clients: int = 0
    own_connections: int = 0

    @property
    def clients(self) -> int:
        """How many clients are connected, without the cluster's own processes."""
        return max(0, self.connections - self.own_connections)


@frozen(kw_only=True)
class SilentBroker:
    """
    A broker that does not answer.

    Attributes:
        id: Its number in the cluster.
        name: Its name.
        listen: Address of its wire protocol, as last known.
        since_ms: When it was last heard.
    """

    id: int
    name: str
    listen: str
    since_ms: int


@frozen(kw_only=True)
class ClientSnapshot:
    """
    One client's connection, as its broker sees it.

    Texts that the client chose are as it sent them: whoever shows them escapes them.

    Attributes:
        broker: Name of the broker that it is connected to.
        broker_id: The broker's number.
        id: Number of the connection, never used again while its broker runs.
        since_ms: When it connected.
        heard_ms: When a byte of it came last.
        client_id: What it calls itself; may be empty.
        address: Where it is, as its broker sees it.
        agent: Its software, as it says.
        protocol: What it speaks.
        user: On whose behalf it acts.
        counters: What went through the connection: records of batches that it
            published and that were handed to it, bytes of all frames.
        rates: Their growth.
        buffered: Bytes that this process keeps for it until it reads; what the
            system keeps comes on top.
        pending: Bytes of its batches that wait for the disk.
        waiting: Its FETCH requests that wait.
        slow_since_ms: Since when it takes no more; None when it does.
    """

    broker: str
    broker_id: int
    id: int
    since_ms: int
    heard_ms: int
    client_id: str = ""
    address: str = ""
    agent: str = ""
    protocol: str = ""
    user: str = ""
    counters: Counters = NOTHING
    rates: Rates = IDLE
    buffered: int = 0
    pending: int = 0
    waiting: int = 0
    slow_since_ms: int | None = None

    @property
    def own(self) -> bool:
        """Whether it is a process of the cluster itself, as it says."""
        return self.client_id in CLUSTER_CLIENTS


@frozen(kw_only=True)
class Backlog:
    """
    All channels added up, from one look.

    Attributes:
        taken_ms: When the look was taken.
        channels: How many there are.
        ready: Messages that can be given out.
        in_flight: Messages in the hands of consumers.
        waiting: Messages that wait for their next attempt.
        given_up: Messages on their way to a dead-letter topic.
        dead_letters: Messages that are kept as dead letters; None when unknown.
        dead_queues: Dead-letter topics that have some, at most five, the fullest first.
        worst: Up to five channels by lag, as operations describe them.
        latest: The channel whose oldest unsettled message is the oldest of all.
        troubled: Channels that are stuck, fall behind, or that nobody consumes while messages
            wait, at most twenty of them, the largest lag first.
        troubled_count: How many are.
        silent: Names of the brokers whose part is missing.
        ready_depth: How many could be given out, as far as looks told; None when unknown.
        in_flight_depth: How many were in the hands of consumers.
    """

    taken_ms: int
    channels: int = 0
    ready: int = 0
    in_flight: int = 0
    waiting: int = 0
    given_up: int = 0
    dead_letters: int | None = None
    dead_queues: tuple[tuple[str, int], ...] = ()
    worst: tuple[Mapping[str, Any], ...] = ()
    latest: Mapping[str, Any] | None = None
    troubled: tuple[Mapping[str, Any], ...] = ()
    troubled_count: int = 0
    silent: tuple[str, ...] = ()
    ready_depth: Depth | None = None
    in_flight_depth: Depth | None = None


@frozen(kw_only=True)
class ClusterSnapshot:
    """
    Everything that the overview needs, from one look.

    Attributes:
        name: What the operator calls the cluster.
        label: A word for its kind, such as ``production``; may be empty.
        taken_ms: When the look was taken.
        brokers: Those that are known, with their last known figures.
        silent: Those of them that do not answer.
        topics: How many there are.
        partitions: How many there are.
        messages: Records kept.
        bytes: Bytes kept.
        offline: Partitions that are offline, at most twenty of them.
        offline_count: How many are.
        damaged: Topics with damaged ranges, at most twenty of them.
        largest: Up to five topics by bytes.
        busiest: Up to five topics by records in.
        rates: Of all brokers.
        recent: Ten minutes; None when unknown.
        long: Six hours; None when unknown.
        channels: How many channels the topics have.
        groups: How many consumer groups there are.
    """

    name: str
    taken_ms: int
    label: str = ""
    brokers: tuple[BrokerSnapshot, ...] = ()
    silent: tuple[SilentBroker, ...] = ()
    topics: int = 0
    partitions: int = 0
    messages: int = 0
    bytes: int = 0
    offline: tuple[OfflinePartition, ...] = ()
    offline_count: int = 0
    damaged: tuple[str, ...] = ()
    largest: tuple[TopicRow, ...] = ()
    busiest: tuple[TopicRow, ...] = ()
    rates: Rates = IDLE
    recent: Trail | None = None
    long: Trail | None = None
    channels: int = 0
    groups: int = 0

    @property
    def clients(self) -> int:
        """How many clients the brokers have that answer, without the cluster's own processes."""
        silent = {one.id for one in self.silent}
        return sum(broker.clients for broker in self.brokers if broker.id not in silent)
