"""Asking brokers, one by one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tinymq.node import Node
from tinymq.operation import Result
from tinymq.operations import run_on_node


class LocalNode:
    """
    The one broker there is, in this process.

    Args:
        node: The broker.
    """

    def __init__(self, node: Node) -> None:
        self._node = node

    async def ask(self, broker_id: int, operation: str, arguments: Mapping[str, Any]) -> Result:
        """Ask the broker of this process by a plain call."""
        return await run_on_node(self._node, operation, arguments)
