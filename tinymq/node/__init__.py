"""
What one broker does with its own partitions, for the MetaServer's process.

The operations of people (`tinymq.operations`) are carried out by asking the
brokers for these; a broker in the same process is asked by a plain call.
"""

from __future__ import annotations

from tinymq.node.node import NODE_OPERATIONS, Node

__all__ = ["NODE_OPERATIONS", "Node"]
