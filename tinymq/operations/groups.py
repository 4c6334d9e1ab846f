"""Consumer groups over all brokers: who reads, how far they are, and moving them."""

from __future__ import annotations

from typing import Any, Final

from tinymq.catalog import PUBLIC
from tinymq.errors import StateError
from tinymq.operation import NAME, Operation, Parameter, Result, table
from tinymq.operations.leaders import Leaders
from tinymq.wire.fields import I64, integer


class Groups(Leaders):
    """Consumer groups over all brokers."""

    async def ensure_group(self, name: str) -> Result:
        """Make a group for its first use at a broker elsewhere."""
        self._check_running()
        self._meta.ensure_group(name)
        return {"revision": self._revision}

    async def keep_group(self, name: str, created_ms: int) -> Result:
        """Take back a group that a broker elsewhere knows, after a backup was restored."""
        self._check_running()
        return {"kept": self._meta.keep_group(name, created_ms)}

    async def groups(self, **arguments: Any) -> Result:
        """List groups in order of their names."""
        raise StateError("not yet")

    async def group_info(self, name: str) -> Result:
        """Describe one group with its members and positions."""
        raise StateError("not yet")

    async def seek_group(self, name: str, **arguments: Any) -> Result:
        """Move a group to another place."""
        raise StateError("not yet")

    async def undo_group_seek(self, name: str, **arguments: Any) -> Result:
        """Take back what the last seek did."""
        raise StateError("not yet")

    async def reset_group(self, name: str, **arguments: Any) -> Result:
        """Forget the positions of a group."""
        raise StateError("not yet")

    async def delete_group(self, name: str, **arguments: Any) -> Result:
        """Remove a group with its positions."""
        raise StateError("not yet")


GROUP_OPERATIONS: Final[dict[str, Operation]] = table(
    PUBLIC["group.list"].by(Groups.groups),
    PUBLIC["group.info"].by(Groups.group_info),
    PUBLIC["group.seek"].by(Groups.seek_group),
    PUBLIC["group.undo_seek"].by(Groups.undo_group_seek),
    PUBLIC["group.reset"].by(Groups.reset_group),
    PUBLIC["group.delete"].by(Groups.delete_group),
    Operation(
        "meta.ensure_group", "cluster", True, (Parameter("name", NAME),), Groups.ensure_group
    ),
    Operation(
        "meta.keep_group",
        "cluster",
        True,
        (Parameter("name", NAME), Parameter("created_ms", integer(0, I64))),
        Groups.keep_group,
    ),
)
