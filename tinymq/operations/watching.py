"""Hearing of changes: topics, channels and brokers that come, change and go."""

from __future__ import annotations

from typing import Final

from tinymq.caller import Caller
from tinymq.catalog import PUBLIC
from tinymq.operation import Operation, Result, table
from tinymq.operations.base import Base


class Watching(Base):
    """What somebody who watches is told."""

    async def changes(self, caller: Caller, revision: int | None, wait_ms: int) -> Result:
        """Tell what has changed since a revision, waiting for something if need be."""
        if revision is None:
            return {"revision": self._revision, "changes": []}
        self._meta.described_changes(revision)  # at once, if it is out of reach
        await self._changed_since(revision, wait_ms / 1000, caller)
        found = self._meta.described_changes(revision)
        rows = [{"what": each.what, "name": each.name, "change": each.change} for each in found]
        return {"revision": max(revision, self._revision), "changes": rows}


WATCH_OPERATIONS: Final[dict[str, Operation]] = table(
    PUBLIC["cluster.watch"].by(Watching.changes, caller=True),
)
