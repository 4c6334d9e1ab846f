"""
What the web needs from the broker, and the values that cross.

`Console` is implemented by the broker's operations; tests implement it with an
in-memory fake. Every method either returns frozen values or raises an error
of `tinymq.errors`. Nothing that reads has a side effect: no attempt is
counted and no offset moves because somebody looked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

from attrs import frozen

from tinymq.caller import Caller
from tinymq.stats import ClientSnapshot, ClusterSnapshot, TopicSnapshot
from tinymq.web.lists import (
    ClientPage,
    ClientQuery,
    TopicPage,
    TopicQuery,
    select,
    select_clients,
)

__all__ = [
    "At",
    "ClientPage",
    "ClientQuery",
    "Console",
    "DrainPlan",
    "Headers",
    "MessageView",
    "Newest",
    "Oldest",
    "Page",
    "Plan",
    "PlanPart",
    "Position",
    "RecordView",
    "Scanned",
    "SettingChange",
    "Since",
    "Start",
    "TopicPage",
    "TopicQuery",
    "select",
    "select_clients",
]

Headers = tuple[tuple[str, bytes], ...]


# --- messages ----------------------------------------------------------------


@frozen
class Newest:
    """The last records."""


@frozen
class Oldest:
    """The first records that are kept."""


@frozen
class At:
    """From this offset on."""

    offset: int


@frozen
class Since:
    """From the first record that was appended at this time or later."""

    ms: int


Start = Newest | Oldest | At | Since


@frozen(kw_only=True)
class RecordView:
    """
    A record in a list.

    Attributes:
        partition: Where it is.
        offset: Where it is.
        time_ms: When it was appended.
        key: The first 1 KiB of its key; None when it has none.
        size: Bytes of its value.
        headers: Names and values, in order.
        preview: The first 512 bytes of the value; None is a tombstone.
    """

    partition: int
    offset: int
    time_ms: int
    key: bytes | None
    size: int
    headers: Headers = ()
    preview: bytes | None = b""


@frozen(kw_only=True)
class Scanned:
    """
    What was looked at in one partition.

    Attributes:
        partition: Its number.
        first: First offset looked at.
        end: The offset after the last one looked at.
        log_start: First offset kept.
        log_end: The next offset to be written.
    """

    partition: int
    first: int
    end: int
    log_start: int
    log_end: int


@frozen(kw_only=True)
class Page:
    """
    What `Console.browse` found.

    Attributes:
        records: By offset in one partition; by time over several. Newest
            first when the newest were asked for, else oldest first.
        scanned: What was looked at, so that the page can say so.
        note: A sentence about what was left out (bytes, damage, partitions
            that are offline); empty when nothing was.
    """

    records: tuple[RecordView, ...]
    scanned: tuple[Scanned, ...] = ()
    note: str = ""


@frozen(kw_only=True)
class MessageView:
    """
    One record with a window of its value.

    Attributes:
        topic: Where it is.
        partition: Where it is.
        offset: Where it is.
        time_ms: When it was appended.
        produced_ms: What the producer said; None when it did not.
        key: All of the key; None when it has none.
        headers: Names and values, in order.
        size: Bytes of the whole value.
        skip: Where the window begins.
        value: The window; None is a tombstone.
        stored: Bytes on disk of the batch that holds it; None when unknown.
        codec: How the batch is compressed, such as ``zstd``; ``none`` if not.
        batch_records: How many records the batch has.
        leader_epoch: Of the batch.
        producer_id: None when the producer was not idempotent.
        sequence: The producer's number of this record.
        message_id: The producer's own id of the message, if it gave one.
        expires_ms: When it expires; None for never.
        previous: Nearest lower offset that can be shown.
        next: Nearest higher offset that can be shown.
    """

    topic: str
    partition: int
    offset: int
    time_ms: int
    size: int
    key: bytes | None = None
    headers: Headers = ()
    produced_ms: int | None = None
    skip: int = 0
    value: bytes | None = b""
    stored: int | None = None
    codec: str = "none"
    batch_records: int = 1
    leader_epoch: int = 0
    producer_id: int | None = None
    sequence: int | None = None
    message_id: bytes | None = None
    expires_ms: int | None = None
    previous: int | None = None
    next: int | None = None


@frozen(kw_only=True)
class Position:
    """
    Where a published record went.

    Attributes:
        partition: Where it is.
        offset: Where it is.
        time_ms: Its append time.
        durable: Whether it is on disk (the topic's sync policy decides).
    """

    partition: int
    offset: int
    time_ms: int
    durable: bool = True


# --- changes -----------------------------------------------------------------


@frozen(kw_only=True)
class PlanPart:
    """What a purge or delete does to one partition."""

    partition: int
    first: int
    end: int
    records: int
    bytes: int
    oldest_ms: int | None = None


@frozen(kw_only=True)
class SettingChange:
    """One setting before and after; None where there is no such side."""

    name: str
    before: str | None
    after: str | None


@frozen(kw_only=True)
class Plan:
    """
    What an operation would do, or did. The same value for both.

    Attributes:
        action: ``create``, ``alter``, ``delete``, ``purge`` or ``undo``.
        topic: Of which topic.
        applied: False for a dry run.
        records: How many records go, or come back.
        bytes: How many bytes.
        oldest_ms: Append time of the oldest of them.
        parts: By partition; empty where that says nothing.
        changes: Settings that change.
        readers: Connected readers that would notice, by name.
        undo_until_ms: Until when it can be undone; None when it cannot.
        warnings: Sentences that a person should read first.
    """

    action: Literal["create", "alter", "delete", "purge", "undo"]
    topic: str
    applied: bool
    records: int = 0
    bytes: int = 0
    oldest_ms: int | None = None
    parts: tuple[PlanPart, ...] = ()
    changes: tuple[SettingChange, ...] = ()
    readers: tuple[str, ...] = ()
    undo_until_ms: int | None = None
    warnings: tuple[str, ...] = ()


@frozen(kw_only=True)
class DrainPlan:
    """
    What draining a broker would do, or did; or taking it back.

    Attributes:
        broker_id: Of which broker.
        broker: Its name.
        undo: Whether it is taken back.
        applied: False for a dry run.
        partitions: How many it leads, and keeps.
        takers: Names of the brokers that new partitions go to afterwards.
        warnings: Sentences that a person should read first.
    """

    broker_id: int
    broker: str
    undo: bool
    applied: bool
    partitions: int = 0
    takers: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


# --- the port ----------------------------------------------------------------


class Console(Protocol):
    """Everything that the web asks of the broker."""

    def cluster(self) -> ClusterSnapshot:
        """Look at the whole cluster. Cheap: called for every page."""

    def ready(self) -> str | None:
        """Say why publishing is refused, or None when it is not."""

    def topics(self, query: TopicQuery) -> TopicPage:
        """List topics; `select` does the work."""

    def topic(self, name: str) -> TopicSnapshot:
        """
        Look at one topic.

        Raises:
            UnknownTopic: There is none of this name.
        """

    async def browse(
        self, topic: str, partition: int | None, start: Start, limit: int, max_bytes: int
    ) -> Page:
        """
        Read records without any side effect.

        Args:
            topic: Name of the topic.
            partition: Its number, or None for all.
            start: Where to begin. An offset outside the log begins at the
                nearest end and is told in the note.
            limit: Most records.
            max_bytes: Stop after about as many bytes read from disk.

        Raises:
            UnknownTopic: There is none of this name.
            UnknownPartition: It has no such partition.
        """

    async def message(
        self, topic: str, partition: int, offset: int, skip: int, length: int
    ) -> MessageView:
        """
        Read one record with `length` bytes of its value from `skip` on.

        Raises:
            UnknownTopic: There is none of this name.
            UnknownPartition: It has no such partition.
            OffsetOutOfRange: There is no record with this offset.
        """

    async def publish(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        partition: int | None,
    ) -> Position:
        """
        Append one record, durable as the topic's policy says.

        Raises:
            UnknownTopic: There is none of this name.
            UnknownPartition: It has no such partition.
            ValueTooLarge: Value, key or headers are over the limit.
            StorageFull: Publishing is refused.
        """

    async def create_topic(
        self, name: str, partitions: int | None, config: Mapping[str, str], *, dry_run: bool
    ) -> Plan:
        """
        Make a topic. One that exists with the same settings is no error.

        Args:
            name: Its name.
            partitions: How many; as the broker is set when None.
            config: Settings that differ from the broker's defaults.
            dry_run: Only say what would happen.

        Raises:
            InvalidName: The name breaks the rule.
            InvalidRequest: A setting is wrong; `data["field"]` names it.
            TopicExists: It exists with other settings; `data["field"]` names one.
        """

    async def alter_topic(
        self, name: str, config: Mapping[str, str | None], *, dry_run: bool
    ) -> Plan:
        """
        Change settings; None returns one to its default.

        Raises:
            UnknownTopic: There is none of this name.
            InvalidRequest: A setting is wrong; `data["field"]` names it.
        """

    async def delete_topic(self, name: str, *, dry_run: bool) -> Plan:
        """Remove a topic with all its records. Raises `UnknownTopic`."""

    async def purge(
        self, topic: str, partition: int | None, before: At | Since | None, *, dry_run: bool
    ) -> Plan:
        """
        Move the start of the log, so that records before it are gone.

        Args:
            topic: Name of the topic.
            partition: Its number, or None for all.
            before: The first record to keep; None keeps none.
            dry_run: Only say what would happen.
        """

    async def undo_purge(self, topic: str) -> Plan:
        """
        Bring back what the last purge took.

        Raises:
            NothingToUndo: The window has passed.
        """

    async def operate(
        self, name: str, arguments: Mapping[str, Any], caller: Caller
    ) -> dict[str, Any]:
        """
        Carry out an operation by its name.

        Args:
            name: As in `tinymq.catalog`.
            arguments: By name.
            caller: Who asks.

        Returns:
            Its result, which JSON can hold.

        Raises:
            Forbidden: The caller's role does not allow it.
            InvalidRequest: An argument is wrong; `data["field"]` names it.
            WireError: What the operation itself can fail with.
        """

    async def clients(self, query: ClientQuery) -> ClientPage:
        """
        List clients; `select_clients` does the work.

        Asks every broker with one deadline; who does not answer in time is
        named in `ClientPage.silent`.
        """

    async def client(self, broker_id: int, client: int) -> ClientSnapshot:
        """
        Look at one client.

        Args:
            broker_id: The broker that it is connected to.
            client: Number of its connection there.

        Raises:
            UnknownBroker: There is none of this id.
            UnknownClient: It is not connected, or not any more.
            BrokerSilent: Its broker does not answer.
        """

    async def kick(self, broker_id: int, client: int, reason: str) -> ClientSnapshot:
        """
        End a client's connection. It may connect again at once.

        Args:
            broker_id: The broker that it is connected to.
            client: Number of its connection there.
            reason: Told to the client and written to the log.

        Returns:
            The client as it was.

        Raises:
            UnknownBroker: There is none of this id.
            UnknownClient: It is not connected, or not any more.
            BrokerSilent: Its broker does not answer.
        """

    async def drain(self, broker_id: int, undo: bool, dry_run: bool) -> DrainPlan:
        """
        Give a broker no new partitions any more, or again.

        Nothing moves: it keeps what it leads.

        Args:
            broker_id: Of which broker.
            undo: Take it back.
            dry_run: Only say what would happen.

        Raises:
            UnknownBroker: There is none of this id.
        """
