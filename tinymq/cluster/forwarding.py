"""The operations of a process that is only a broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tinymq.broker.broker import Broker
from tinymq.caller import LOCAL, Caller
from tinymq.cluster.remote import RemoteMeta
from tinymq.errors import InvalidRequest, MetaUnavailable
from tinymq.node import Node
from tinymq.operation import Result
from tinymq.operations import OPERATIONS, known_operation, run_on_node

#: Operations that are about the process that is asked, unless they name another.
_HERE: Final = {"broker.info": "node.info", "broker.log_level": "node.log_level"}


class Forwarding:
    """
    Does what concerns its own partitions, and leaves the rest to the MetaServer.

    So that it does not matter which process of a cluster a client asks.

    Args:
        broker: The broker of this process.
        node: What it does with its partitions.
        meta: The MetaServer.
    """

    def __init__(self, broker: Broker, node: Node, meta: RemoteMeta) -> None:
        self._broker = broker
        self._node = node
        self._meta = meta

    async def run(self, name: str, arguments: Mapping[str, Any], caller: Caller = LOCAL) -> Result:
        """
        Carry out an operation by its name.

        Args:
            name: Any operation's.
            arguments: By name.
            caller: Who asks; the MetaServer is asked in the broker's name, so what the
                caller may do is seen to here.

        Raises:
            InvalidRequest: There is no such operation here, or an argument is wrong.
            Forbidden: The caller's role does not allow it; then nothing was looked at.
            MetaUnavailable: It is the MetaServer's, which does not answer.
            WireError: What the operation itself can fail with.
        """
        if name.startswith("node."):
            return await run_on_node(self._node, name, arguments, caller)
        operation = known_operation(name, OPERATIONS)
        operation.permit(caller.role)
        if not operation.public:
            raise InvalidRequest(
                f"{self._broker.name} is a broker, and {name} is for a MetaServer; "
                "cluster.meta must name a process of the role meta or all",
                field="name",
            )
        if name in _HERE and self._is_own(arguments.get("broker")):
            rest = {key: value for key, value in arguments.items() if key != "broker"}
            # What it is made of here is for the processes of a cluster; the role was seen to.
            return await run_on_node(self._node, _HERE[name], rest)
        if name == "cluster.watch":
            return await self._watch(caller, **operation.arguments(arguments))
        # None is what a missing argument means, and does not travel.
        told = {key: value for key, value in arguments.items() if value is not None}
        return await self._meta.ask(name, **told)

    def _is_own(self, broker: object) -> bool:
        return broker in (None, self._broker.id, str(self._broker.id), self._broker.name)

    async def _watch(self, caller: Caller, revision: int | None, wait_ms: int) -> Result:
        """Wait here, where every change arrives: the MetaServer need not know all who wait."""
        if revision is None:
            return {"revision": self._meta.registry.revision, "changes": []}
        await self._meta.changed_since(revision, wait_ms / 1000, caller)
        try:
            return await self._meta.ask("cluster.watch", revision=revision, wait_ms=0)
        except MetaUnavailable:
            if self._meta.registry.revision > revision:
                raise
            return {"revision": revision, "changes": []}
