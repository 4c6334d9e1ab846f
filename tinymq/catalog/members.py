"""The operations on members of consumer groups."""

from __future__ import annotations

from typing import Final

from tinymq.catalog.groups import GROUP_NAME, GROUP_PATH, MEMBER
from tinymq.catalog.shapes import DRY_RUN
from tinymq.operation import DRY, Http, Operation, Parameter, table
from tinymq.wire.fields import text

#: By name.
GROUP_MEMBERS: Final[dict[str, Operation]] = table(
    Operation(
        "group.evict",
        "operator",
        True,
        (
            GROUP_NAME,
            Parameter("member", text(256), text="Id of the member, or its instance."),
            Parameter("reason", text(200), default="", text="What it is told, for people."),
            DRY,
        ),
        text="Send a member away: what it reads is given to others at once. "
        "One that still runs joins again.",
        http=Http("POST", f"{GROUP_PATH}/members/{{member}}:evict"),
        cli=("group", "evict"),
        result={"member": MEMBER, "dry_run": DRY_RUN},
    ),
)
