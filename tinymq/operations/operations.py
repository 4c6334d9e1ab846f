"""Carrying out operations by their names."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Final, Protocol

from twisted.logger import Logger

from tinymq.caller import LOCAL, Caller
from tinymq.errors import InvalidRequest, StorageError, UnknownTopicId
from tinymq.node import NODE_OPERATIONS, Node
from tinymq.operation import Operation, Result
from tinymq.operations.brokers import BROKER_OPERATIONS, Brokers
from tinymq.operations.channels import CHANNEL_OPERATIONS
from tinymq.operations.clients import CLIENT_OPERATIONS, Clients
from tinymq.operations.deadletters import DEAD_LETTER_OPERATIONS, DeadLetters
from tinymq.operations.delayed import DELAYED_OPERATIONS
from tinymq.operations.endpoints import ENDPOINT_OPERATIONS, Endpoints
from tinymq.operations.evicting import EVICTING_OPERATIONS, Evicting
from tinymq.operations.exchanges import EXCHANGE_OPERATIONS, Exchanges
from tinymq.operations.groups import GROUP_OPERATIONS, Groups
from tinymq.operations.inflight import INFLIGHT_OPERATIONS, InFlight
from tinymq.operations.lookups import LOOKUP_OPERATIONS, Lookups
from tinymq.operations.members import MEMBER_OPERATIONS, Members
from tinymq.operations.messages import MESSAGE_OPERATIONS, Messages
from tinymq.operations.retries import RETRY_OPERATIONS, Retries
from tinymq.operations.schedules import SCHEDULE_OPERATIONS, Schedules
from tinymq.operations.topics import TOPIC_OPERATIONS, Topics
from tinymq.operations.transactions import TRANSACTION_OPERATIONS, Transactions
from tinymq.operations.watching import WATCH_OPERATIONS, Watching

_log = Logger()
#: Ids of messages that are named in the log of what was done.
_MOST_NAMED: Final = 5

#: Every operation that a process with a MetaServer carries out, by its name.
OPERATIONS: Final[dict[str, Operation]] = {
    **TOPIC_OPERATIONS,
    **CHANNEL_OPERATIONS,
    **INFLIGHT_OPERATIONS,
    **GROUP_OPERATIONS,
    **EVICTING_OPERATIONS,
    **EXCHANGE_OPERATIONS,
    **MESSAGE_OPERATIONS,
    **SCHEDULE_OPERATIONS,
    **TRANSACTION_OPERATIONS,
    **DEAD_LETTER_OPERATIONS,
    **ENDPOINT_OPERATIONS,
    **DELAYED_OPERATIONS,
    **RETRY_OPERATIONS,
    **BROKER_OPERATIONS,
    **CLIENT_OPERATIONS,
    **WATCH_OPERATIONS,
    **LOOKUP_OPERATIONS,
    **MEMBER_OPERATIONS,
}


class Operator(Protocol):
    """Whoever carries out operations: a process with a MetaServer, or a broker."""

    async def run(self, name: str, arguments: Mapping[str, Any], caller: Caller = LOCAL) -> Result:
        """
        Carry out an operation by its name.

        Args:
            name: As in `OPERATIONS`, or ``node.…``.
            arguments: By name.
            caller: Who asks.

        Raises:
            WireError: What the operation can fail with.
        """


class Operations(
    Topics,
    InFlight,
    Groups,
    DeadLetters,
    Exchanges,
    Endpoints,
    Evicting,
    Retries,
    Messages,
    Schedules,
    Transactions,
    Brokers,
    Clients,
    Watching,
    Lookups,
    Members,
):
    """
    The operations of a process with a MetaServer.

    Most of them ask brokers; where that is the one of this process alone,
    nothing waits.
    """

    async def run(self, name: str, arguments: Mapping[str, Any], caller: Caller = LOCAL) -> Result:
        """
        Carry out an operation by its name, and log a change with who made it.

        Args:
            name: As in `OPERATIONS`.
            arguments: By name.
            caller: Who asks.

        Returns:
            A map that msgpack and JSON can hold.

        Raises:
            InvalidRequest: There is no such operation, or an argument is wrong.
            Forbidden: The caller's role does not allow it; then nothing was looked at.
            UnknownTopicId: The topic of this name has not the id that was given.
            WireError: What the operation itself can fail with.
            StorageError: The disk failed.
        """
        operation = known_operation(name, OPERATIONS)
        operation.permit(caller.role)
        checked = operation.arguments(arguments)
        if name.startswith("topic."):
            self._check_id(checked)
        return await carry_out(operation, self, checked, caller)

    def _check_id(self, arguments: dict[str, Any]) -> None:
        """Hold a caller to the topic that was meant, not to another one made under its name."""
        name, topic_id = arguments.get("name", ""), arguments.pop("id", None)
        if topic_id is not None and self.find(name).id.hex() != topic_id:
            raise UnknownTopicId(f"the topic {name} is not the one with the id {topic_id}")


async def run_on_node(
    node: Node, name: str, arguments: Mapping[str, Any], caller: Caller = LOCAL
) -> Result:
    """
    Carry out what a broker does with its own partitions.

    Args:
        node: The broker.
        name: As in `NODE_OPERATIONS`.
        arguments: By name.
        caller: Who asks.

    Raises:
        InvalidRequest: There is no such operation, or an argument is wrong.
        Forbidden: The caller's role does not allow it; then nothing was looked at.
        WireError: What the operation itself can fail with.
        StorageError: The disk failed.
    """
    operation = known_operation(name, NODE_OPERATIONS)
    operation.permit(caller.role)
    return await carry_out(operation, node, operation.arguments(arguments), caller)


async def carry_out(
    operation: Operation, owner: object, arguments: dict[str, Any], caller: Caller
) -> Result:
    """
    Call the method of an operation with checked arguments.

    Args:
        operation: Which.
        owner: Whose method.
        arguments: By name.
        caller: Who asks.

    Raises:
        StorageError: The disk failed.
    """
    who = (caller,) if operation.caller else ()
    assert operation.run is not None, "the table names who carries it out"
    try:
        result = operation.run(owner, *who, **arguments)
        if inspect.isawaitable(result):
            result = await result
    except OSError as error:
        raise StorageError(f"{operation.name} failed: {error.strerror or error}") from error
    if operation.changes and operation.public and not arguments["dry_run"]:
        _log.info(
            "{principal} did {operation} {what}",
            principal=caller.principal,
            operation=operation.name,
            what=_what(arguments),
        )
    return result


def _what(arguments: Mapping[str, Any]) -> str:
    """Name what an operation is about: a topic, a channel of one, messages, or a broker."""
    exchange, bound = arguments.get("exchange"), arguments.get("target") or arguments.get("id")
    if exchange:
        return f"{exchange} -> {bound}"
    name, topic = arguments.get("name"), arguments.get("topic")
    other = arguments.get("broker") or arguments.get("target")
    other = other or arguments.get("transactional_id") or ""
    if not topic or name:
        return f"{topic}/{name}" if topic and name else name or other
    partition, ids = arguments.get("partition"), arguments.get("ids") or ()
    place = topic if partition is None else f"{topic}/{partition}"
    more = ",..." if len(ids) > _MOST_NAMED else ""
    return place + (f"~{','.join(map(str, ids[:_MOST_NAMED]))}{more}" if ids else "")


def known_operation(name: str, operations: Mapping[str, Operation]) -> Operation:
    """
    Find an operation.

    Args:
        name: Its name.
        operations: Those there are, by name.

    Raises:
        InvalidRequest: There is none of this name.
    """
    found = operations.get(name)
    if found is None:
        raise InvalidRequest(
            f"there is no operation {name[:40]!r}; there are {', '.join(operations)}", field="name"
        )
    return found
