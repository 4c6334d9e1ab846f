"""
Every administrative operation, once.

A table says of each its name, its parameters, the role that may use it and
whether it changes anything. The wire (OPERATE), the HTTP API and the command
line all come here, so that they cannot differ.
"""

from __future__ import annotations

from tinymq.operation import REQUIRED, Nodes, Operation, Parameter, Result, Role
from tinymq.operations.operations import (
    OPERATIONS,
    Operations,
    Operator,
    known_operation,
    run_on_node,
)

__all__ = [
    "OPERATIONS",
    "REQUIRED",
    "Nodes",
    "Operation",
    "Operations",
    "Operator",
    "Parameter",
    "Result",
    "Role",
    "known_operation",
    "run_on_node",
]
