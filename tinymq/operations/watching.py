"""Hearing of changes: topics and brokers that come, change and go."""

from __future__ import annotations

from typing import Final

from tinymq.operation import Operation, Parameter, Result, table
from tinymq.operations.base import Base
from tinymq.wire.fields import I64, integer, optional

#: Longest wait for a change.
MOST_WAIT_MS: Final = 60_000


class Watching(Base):
    """What somebody who watches is told."""

    async def changes(self, revision: int | None, wait_ms: int) -> Result:
        """Tell what has changed since a revision, waiting for something if need be."""
        if revision is None:
            return {"revision": self._revision, "changes": []}
        await self._changed_since(revision, wait_ms / 1000)
        found = self._meta.described_changes(revision)
        rows = [{"what": each.what, "name": each.name, "change": each.change} for each in found]
        return {"revision": self._revision, "changes": rows}


WATCH_OPERATIONS: Final[dict[str, Operation]] = table(
    Operation(
        "cluster.watch",
        "viewer",
        False,
        (
            Parameter("revision", optional(integer(0, I64)), default=None),
            Parameter("wait_ms", integer(0, MOST_WAIT_MS), default=30_000),
        ),
        Watching.changes,
    ),
)
