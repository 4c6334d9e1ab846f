"""The operations of a process that is only a broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tinymq.caller import LOCAL, Caller
from tinymq.cluster.remote import RemoteMeta, forwarded
from tinymq.node import Node
from tinymq.operation import Result
from tinymq.operations import run_on_node

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
            MetaUnavailable: It is the MetaServer's, which does not answer.
            WireError: What the operation itself can fail with.
        """
        if name in _HERE and arguments.get("broker") is None:
            rest = {key: value for key, value in arguments.items() if key != "broker"}
            return await run_on_node(self._node, _HERE[name], rest, caller)
        if name.startswith("node."):
            return await run_on_node(self._node, name, arguments, caller)
        return await self._meta.ask(name, **forwarded(arguments))
