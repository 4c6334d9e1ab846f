"""
What the web needs from the broker.

`Console` is implemented by the broker's operations; tests implement it with an
in-memory fake. Every method either returns frozen values or raises an error
of `tinymq.errors`. Nothing that reads has a side effect: no attempt is
counted and no offset moves because somebody looked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from tinymq.caller import LOCAL, Caller
from tinymq.stats import Backlog, ClientSnapshot, ClusterSnapshot, Depth, TopicSnapshot
from tinymq.web.channels import ChannelPage, ChannelQuery
from tinymq.web.groups import GroupPage, GroupQuery
from tinymq.web.lists import (
    ClientPage,
    ClientQuery,
    TopicPage,
    TopicQuery,
    select,
    select_clients,
)
from tinymq.web.values import (
    AT_ONCE,
    At,
    DrainPlan,
    Headers,
    MessageView,
    Newest,
    Oldest,
    Page,
    Plan,
    PlanPart,
    Position,
    RecordView,
    Scanned,
    SettingChange,
    Since,
    Start,
    Times,
)

__all__ = [
    "AT_ONCE",
    "At",
    "ChannelPage",
    "ChannelQuery",
    "ClientPage",
    "ClientQuery",
    "Console",
    "DrainPlan",
    "GroupPage",
    "GroupQuery",
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
    "Times",
    "TopicPage",
    "TopicQuery",
    "select",
    "select_clients",
]


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
        times: Times = AT_ONCE,
    ) -> Position:
        """
        Append one record, durable as the topic's policy says, or have it wait.

        Args:
            topic: Name of the topic.
            value: Its value; None is a tombstone.
            key: Its key.
            headers: Its headers.
            partition: Its partition, or None to choose one.
            times: When it comes, and how long it lives.

        Raises:
            InvalidDelay: It would come after the year 9999.
            UnknownTopic: There is none of this name.
            UnknownPartition: It has no such partition.
            ValueTooLarge: Value, key or headers are over the limit.
            StorageFull: Publishing is refused.
        """

    async def create_topic(
        self,
        name: str,
        partitions: int | None,
        config: Mapping[str, str],
        *,
        dry_run: bool,
        caller: Caller = LOCAL,
    ) -> Plan:
        """
        Make a topic. One that exists with the same settings is no error.

        Args:
            name: Its name.
            partitions: How many; as the broker is set when None.
            config: Settings that differ from the broker's defaults.
            dry_run: Only say what would happen.
            caller: Who asks; the topic's history names them.

        Raises:
            InvalidName: The name breaks the rule.
            InvalidRequest: A setting is wrong; `data["field"]` names it.
            TopicExists: It exists with other settings; `data["field"]` names one.
        """

    async def alter_topic(
        self,
        name: str,
        config: Mapping[str, str | None],
        *,
        dry_run: bool,
        caller: Caller = LOCAL,
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
        self,
        topic: str,
        partition: int | None,
        before: At | Since | None,
        *,
        dry_run: bool,
        caller: Caller = LOCAL,
    ) -> Plan:
        """
        Move the start of the log, so that records before it are gone.

        Args:
            topic: Name of the topic.
            partition: Its number, or None for all.
            before: The first record to keep; None keeps none.
            dry_run: Only say what would happen.
            caller: Who asks; the topic's history names them.
        """

    async def undo_purge(self, topic: str, caller: Caller = LOCAL) -> Plan:
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

    async def channels(self, query: ChannelQuery) -> ChannelPage:
        """
        List channels in any order.

        The rows of the page are as fresh as a look can be; where there are very many
        channels, their order may be that of some seconds ago.

        Raises:
            UnknownTopic: There is none of the name that is asked for.
        """

    async def backlog(self) -> Backlog:
        """Add up all channels; may be some seconds old where there are very many."""

    def lag(self, channel: Mapping[str, Any]) -> Depth:
        """
        Tell what the lag of a channel was, as far as looks at it told.

        Args:
            channel: As ``channel.info`` just told it.
        """

    async def groups(self, query: GroupQuery) -> GroupPage:
        """
        List consumer groups in any order; `select_groups` does the work.

        Where asking for all of them takes long, the answer may be some seconds old.
        """

    def group_lag(self, told: Mapping[str, Any]) -> Depth:
        """
        Tell what the lag of a group was, as far as looks at it told.

        Args:
            told: As ``group.info`` just told it.
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
