"""The administrative operations, the same for both faces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgpack

from tinymq.client.core.cluster import Cluster
from tinymq.client.core.delayed_admin import DelayedCalls
from tinymq.client.core.exchange_admin import ExchangeCalls
from tinymq.client.core.group_admin import GroupCalls
from tinymq.client.core.letter_admin import LetterCalls
from tinymq.client.core.push_admin import PushCalls
from tinymq.client.core.results import Result
from tinymq.client.core.schedule_admin import ScheduleCalls
from tinymq.errors import MalformedFrame, TinyMQError
from tinymq.wire.frames import Bytes
from tinymq.wire.messages import Operate

#: A result now, or a Deferred of one.
R = TypeVar("R")

#: Operations that change nothing, so that they may be repeated after a lost answer.
HARMLESS: Final = frozenset(
    {
        "binding.list",
        "broker.info",
        "broker.list",
        "channel.info",
        "channel.list",
        "channel.members",
        "channel.peek",
        "client.info",
        "client.list",
        "cluster.watch",
        "delayed.get",
        "delayed.histogram",
        "delayed.list",
        "dlq.list",
        "dlq.messages",
        "exchange.info",
        "exchange.list",
        "exchange.test",
        "exchange.topology",
        "group.info",
        "group.list",
        "inflight.list",
        "lookup.find",
        "lookup.list",
        "message.life",
        "push.info",
        "push.list",
        "schedule.info",
        "schedule.list",
        "topic.history",
        "topic.info",
        "topic.list",
        "transaction.list",
    }
)

#: Told the result of an operation, or why there is none.
Operated = Callable[[Result | None, TinyMQError | None], None]


def hold_s(arguments: Mapping[str, Any]) -> float:
    """
    Say how long a broker may hold its answer to an operation.

    Args:
        arguments: Of the operation; ``wait_ms`` counts.
    """
    wait = arguments.get("wait_ms")
    return wait / 1000 if isinstance(wait, int) and not isinstance(wait, bool) and wait > 0 else 0.0


def operate(
    cluster: Cluster, name: str, arguments: dict[str, Any], done: Operated, now: float
) -> float:
    """
    Carry out an operation.

    Args:
        cluster: The brokers.
        name: Of the operation.
        arguments: Its arguments.
        done: Told once how it ended.
        now: The time.

    Returns:
        When it ends at the latest.
    """
    hold = hold_s(arguments)
    deadline = now + cluster.config.deadline_s + hold

    def told(reply: Any, payload: Bytes, error: TinyMQError | None, now: float) -> None:
        if error is not None:
            done(None, error)
            return
        try:
            result = read_result(payload)
        except TinyMQError as wrong:
            done(None, wrong)
            return
        revision = result.get("revision") if name == "cluster.watch" else None
        if isinstance(revision, int):
            cluster.heard(revision, now)
        done(result, None)

    message = Operate(name=name, arguments=arguments)
    if name in HARMLESS:
        cluster.ask(message, deadline, told, now, hold=hold)
    else:
        cluster.ask_once(message, deadline, told, now)
    return deadline


def _text(broker: str | int | None) -> str | None:
    return None if broker is None else str(broker)


def read_result(payload: Bytes) -> Result:
    """
    Read what an operation returned.

    Args:
        payload: Of the reply to OPERATE.

    Raises:
        MalformedFrame: It is no map.
    """
    try:
        found = msgpack.unpackb(payload, strict_map_key=False) if len(payload) else {}
    except (ValueError, msgpack.UnpackException) as error:
        raise MalformedFrame(f"the result of the operation cannot be read: {error}") from error
    if type(found) is not dict:
        raise MalformedFrame("the result of the operation is not a map")
    return found


class AdminCalls(
    LetterCalls[R],
    DelayedCalls[R],
    ScheduleCalls[R],
    ExchangeCalls[R],
    PushCalls[R],
    GroupCalls[R],
):
    """
    Administrative operations; every one ends as `operate` does.

    In the blocking face a call returns the result; in the Deferred face it
    returns a Deferred of it.
    """

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, Any] | None = None,
        *,
        dry_run: bool = False,
    ) -> R:
        """
        Create a topic; one that exists with the same settings is no error.

        Args:
            name: Its name.
            partitions: How many partitions.
            config: Settings by dotted name, such as ``retention.ms``.
            dry_run: Check and change nothing.
        """
        return self.operate(
            "topic.create",
            name=name,
            partitions=partitions,
            config=dict(config or {}),
            dry_run=dry_run,
        )

    def alter_topic(
        self,
        name: str,
        config: Mapping[str, Any] | None = None,
        partitions: int | None = None,
        *,
        dry_run: bool = False,
    ) -> R:
        """
        Change settings of a topic, or add partitions.

        Args:
            name: Its name.
            config: Settings to change.
            partitions: The new number of partitions, or None.
            dry_run: Say what would change, and change nothing.
        """
        return self.operate(
            "topic.alter",
            name=name,
            config=dict(config or {}),
            partitions=partitions,
            dry_run=dry_run,
        )

    def delete_topic(self, name: str, *, dry_run: bool = False) -> R:
        """
        Delete a topic with all its records.

        Args:
            name: Its name.
            dry_run: Say what would go, and change nothing.
        """
        return self.operate("topic.delete", name=name, dry_run=dry_run)

    def list_topics(
        self,
        filter: str = "",  # noqa: A002 - the API's word
        *,
        after: str = "",
        limit: int = 500,
    ) -> R:
        """
        List topics in order of their names.

        Args:
            filter: A glob; empty means all.
            after: Go on behind this name.
            limit: Most topics in the answer.
        """
        return self.operate("topic.list", filter=filter, after=after, limit=limit)

    def topic(self, name: str) -> R:
        """
        Describe a topic and its partitions.

        Args:
            name: Its name.
        """
        return self.operate("topic.info", name=name)

    def purge(
        self,
        name: str,
        *,
        partition: int | None = None,
        before: int | None = None,
        before_ms: int | None = None,
        keep: int | None = None,
        dry_run: bool = False,
    ) -> R:
        """
        Remove records from the start; it can be undone for some minutes.

        Args:
            name: The topic.
            partition: Only there.
            before: Records below this offset.
            before_ms: Records older than this time.
            keep: All but so many.
            dry_run: Say what would go, and change nothing.
        """
        return self.operate(
            "topic.purge",
            name=name,
            partition=partition,
            before=before,
            before_ms=before_ms,
            keep=keep,
            dry_run=dry_run,
        )

    def undo_purge(self, name: str, *, partition: int | None = None, dry_run: bool = False) -> R:
        """
        Take back the last purge.

        Args:
            name: The topic.
            partition: Only there.
            dry_run: Find out whether it can be taken back, and change nothing.
        """
        return self.operate("topic.undo_purge", name=name, partition=partition, dry_run=dry_run)

    def compact_topic(self, name: str, *, partition: int | None = None, dry_run: bool = False) -> R:
        """
        Have the log of a topic that is compacted cleaned soon, its newest file too.

        Args:
            name: The topic.
            partition: Only there.
            dry_run: Only tell how much there is to clean.
        """
        return self.operate("topic.compact", name=name, partition=partition, dry_run=dry_run)

    def topic_history(self, name: str, *, after: str = "", limit: int = 100) -> R:
        """
        Tell who changed what about a topic, the newest first.

        Args:
            name: The topic.
            after: Where the last answer said that the next page begins.
            limit: Most changes in the answer.
        """
        return self.operate("topic.history", name=name, after=after, limit=limit)

    def list_transactions(
        self, state: str | None = None, *, after: str = "", limit: int = 100
    ) -> R:
        """
        List the transactions that are under way, by the names of their producers.

        Args:
            state: Only those that are ``open``, ``committing`` or ``aborting``.
            after: Where the last answer said that the next page begins.
            limit: Most transactions in the answer.
        """
        return self.operate("transaction.list", state=state, after=after, limit=limit)

    def abort_transaction(self, transactional_id: str, *, dry_run: bool = False) -> R:
        """
        Abort the transaction of a producer, which hears of it when it goes on.

        Args:
            transactional_id: The producer's.
            dry_run: Only tell which it is.
        """
        return self.operate("transaction.abort", transactional_id=transactional_id, dry_run=dry_run)

    def broker_info(self, broker: str | int | None = None) -> R:
        """
        Describe a broker, and whether it is ready.

        Args:
            broker: Its name or number; None means the one that answers.
        """
        return self.operate("broker.info", broker=_text(broker))

    def list_brokers(self) -> R:
        """List the brokers of the cluster, also those that are silent."""
        return self.operate("broker.list")

    def drain_broker(self, broker: str | int, *, undo: bool = False, dry_run: bool = False) -> R:
        """
        Give a broker no new partitions; those that it has stay where they are.

        Args:
            broker: Its name or number.
            undo: Give it new partitions again.
            dry_run: Say what would change, and change nothing.
        """
        return self.operate("broker.drain", broker=str(broker), undo=undo, dry_run=dry_run)

    def list_clients(
        self,
        broker: str | int | None = None,
        filter: str = "",  # noqa: A002 - the API's word
        *,
        after: str = "",
        limit: int = 100,
    ) -> R:
        """
        List the connections of clients.

        Args:
            broker: Only those of the broker of this name or number.
            filter: A glob for client ids and addresses; empty means all.
            after: Go on behind this row, as the last answer named it.
            limit: Most rows in the answer.
        """
        return self.operate(
            "client.list", broker=_text(broker), filter=filter, after=after, limit=limit
        )

    def client_info(self, broker: str | int, id: int) -> R:  # noqa: A002 - the API's word
        """
        Describe the connection of one client.

        Args:
            broker: The name or number of its broker.
            id: Of the connection, unique there.
        """
        return self.operate("client.info", broker=str(broker), id=id)

    def kick_client(
        self,
        broker: str | int,
        id: int,  # noqa: A002 - the API's word
        reason: str | None = None,
        *,
        dry_run: bool = False,
    ) -> R:
        """
        Close the connection of a client, which may connect anew.

        Args:
            broker: The name or number of its broker.
            id: Of the connection, unique there.
            reason: Told to the client, and written into the log; None says that an
                operator did it.
            dry_run: Say whom it would hit, and change nothing.
        """
        return self.operate(
            "client.kick", broker=str(broker), id=id, reason=reason, dry_run=dry_run
        )

    def find_nodes(self, name: str) -> R:
        """
        Ask a lookup server which independent brokers have a topic.

        Args:
            name: The topic.
        """
        return self.operate("lookup.find", name=name)

    def list_announced(self, *, after: str = "", limit: int = 100) -> R:
        """
        Ask a lookup server for the topics of independent brokers.

        Args:
            after: Go on behind this name.
            limit: Most topics in the answer.
        """
        return self.operate("lookup.list", after=after, limit=limit)

    def watch(self, revision: int | None = None, wait_ms: int = 30_000) -> R:
        """
        Wait until topics, channels or brokers change.

        ::

            seen = client.admin.watch(wait_ms=0)["revision"]
            while True:
                news = client.admin.watch(seen)
                for change in news["changes"]:  # of a topic, a channel or a broker
                    print(change["what"], change["name"], change["change"])
                seen = news["revision"]

        Args:
            revision: Of the last answer; None tells the revision of now.
            wait_ms: How long to wait for a change; then the answer has none.
        """
        return self.operate("cluster.watch", revision=revision, wait_ms=wait_ms)

    def log_level(self, level: str, broker: str | int | None = None, *, dry_run: bool = False) -> R:
        """
        Change which log lines the broker writes, until its next start.

        Args:
            level: The least important ones: ``debug``, ``info``, ``warn``,
                ``error`` or ``critical``.
            broker: The name or number of the broker; None means the one that answers.
            dry_run: Say which it is now, and change nothing.
        """
        return self.operate("broker.log_level", level=level, broker=_text(broker), dry_run=dry_run)
