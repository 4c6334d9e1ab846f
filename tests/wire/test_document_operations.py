"""docs/protocol.md lists the operations that OPERATE carries out."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.wire.test_document import section, tables
from tinymq.catalog import (
    channels,
    deadletters,
    delayed,
    endpoints,
    exchanges,
    groups,
    schedules,
    shapes,
)
from tinymq.operations import OPERATIONS

_SECTION = tables(section("### OPERATE `0x21`"))


def test_operations() -> None:
    """The operations: names, parameters with defaults, and roles."""
    assert [row[:3] for row in _SECTION[1]] == [
        [
            f"`{operation.name}`",
            ", ".join(
                f"`{parameter.name}`"
                + ("" if parameter.required else f" = {json_of(parameter.default)}")
                for parameter in operation.parameters
            ),
            operation.role,
        ]
        for operation in OPERATIONS.values()
    ]


def test_results() -> None:
    """Every operation says what it gives, and those for people all of its fields, in order."""
    told = {row[0].strip("`"): row[3] for row in _SECTION[1]}
    assert all(told.values())
    for operation in OPERATIONS.values():
        if operation.public:
            assert re.findall(r"`(\w+)`", told[operation.name]) == list(operation.result)


def test_maps() -> None:
    """The maps inside of results have the fields that are told."""
    assert {row[0]: re.findall(r"`(\w+)`", row[1]) for row in _SECTION[2]} == {
        "TOPIC": list(shapes.TOPIC["properties"]),
        "PARTITION": list(shapes.PARTITION["properties"]),
        "PLAN": list(shapes.PLAN["properties"]),
        "CHANNEL": list(channels.CHANNEL["properties"]),
        "SEEK": list(channels.SEEK["properties"]),
        "GROUP": list(groups.GROUP["properties"]),
        "MEMBER": list(groups.MEMBER["properties"]),
        "EXCHANGE": list(exchanges.EXCHANGE_ROW["properties"]),
        "BINDING": list(exchanges.BINDING["properties"]),
        "QUEUE": list(deadletters.DLQ_ROW["properties"]),
        "LETTER": list(deadletters.LETTER["properties"]),
        "SCHEDULE": list(schedules.SCHEDULE_ROW["properties"]),
        "ENDPOINT": list(endpoints.ENDPOINT["properties"]),
        "DELAYED": list(delayed.DELAYED_ROW["properties"]),
        "BROKER": list(shapes.BROKER_ROW["properties"]),
        "CLIENT": list(shapes.CLIENT["properties"]),
    }


def json_of(value: Any) -> str:
    """Write a default as JSON does, and nothing as nil."""
    return "nil" if value is None else json.dumps(value)
