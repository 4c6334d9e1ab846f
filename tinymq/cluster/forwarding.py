"""The operations of a process that is only a broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tinymq.caller import LOCAL, Caller
from tinymq.cluster.remote import RemoteMeta, forwarded
from tinymq.node import NODE_OPERATIONS, Node
from tinymq.operation import ROLES, Result, require
from tinymq.operations import OPERATIONS, run_on_node

#: Operations that are about the process that is asked, unless they name another.
_HERE: Final = {"broker.info": "node.info", "broker.log_level": "node.log_level"}


class Forwarding:
    """
    Does what concerns its own partitions, and leaves the rest to the MetaServer.

    So that it does not matter which process of a cluster a client asks.

    Args:
        node: The broker of this process.
        meta: The MetaServer.
    """

    def __init__(self, node: Node, meta: RemoteMeta) -> None:
        self._node = node
        self._meta = meta

    async def run(self, name: str, arguments: Mapping[str, Any], caller: Caller = LOCAL) -> Result:
        """
        Carry out an operation by its name.

        Args:
            name: Any operation's.
            arguments: By name.
            caller: Who asks.

        Raises:
            Forbidden: The caller's role does not allow it; then nothing was looked at.
            MetaUnavailable: It is the MetaServer's, which does not answer.
            WireError: What the operation itself can fail with.
        """
        # The MetaServer sees this broker as its caller, so the role is checked here.
        known = OPERATIONS.get(name) or NODE_OPERATIONS.get(name)
        require(known.role if known else ROLES[-1], caller.role, name[:100])
        if name in _HERE and arguments.get("broker") is None:
            rest = {key: value for key, value in arguments.items() if key != "broker"}
            return await run_on_node(self._node, _HERE[name], rest)
        if name.startswith("node."):
            return await run_on_node(self._node, name, arguments, caller)
        return await self._meta.ask(name, **forwarded(arguments))
