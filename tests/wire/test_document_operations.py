"""docs/protocol.md lists the operations that OPERATE carries out."""

from __future__ import annotations

from typing import Any

from tests.wire.test_document import section, tables
from tinymq.operations import OPERATIONS, REQUIRED


def test_operations() -> None:
    """The operations: names, parameters with defaults, and roles."""
    (rows,) = tables(section("### OPERATE `0x21`"))[1:]

    assert [row[:3] for row in rows] == [
        [
            f"`{operation.name}`",
            ", ".join(
                f"`{parameter.name}`"
                + ("" if parameter.default is REQUIRED else f" = {json_of(parameter.default)}")
                for parameter in operation.parameters
            ),
            operation.role,
        ]
        for operation in OPERATIONS.values()
    ]


def json_of(value: Any) -> str:
    """Write a default as JSON does."""
    names = {None: "nil", True: "true", False: "false"}
    if value is None or isinstance(value, bool):
        return names[value]
    return f'"{value}"' if isinstance(value, str) else str(value)
