"""The messages of one partition that are not due yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from tinymq.broker.delays.index import Row
from tinymq.errors import WireError
from tinymq.wire.records import Record

if TYPE_CHECKING:
    from tinymq.broker.partition import Partition


class Delays:
    """
    What waits in a partition.

    Args:
        partition: The partition.
    """

    def __init__(self, partition: Partition) -> None:
        self.partition = partition

    def catch_up(self) -> Iterator[None]:
        """Bring the index up to the log, step by step."""
        raise NotImplementedError

    def count(self, since: int | None, until: int | None) -> int:
        """Count messages."""
        raise NotImplementedError

    def next_due(self) -> int | None:
        """Say when the first one comes."""
        raise NotImplementedError

    def rows(
        self, after: tuple[int, int] | None, since: int | None, until: int | None, limit: int
    ) -> list[Row]:
        """List messages."""
        raise NotImplementedError

    def find(self, ids: Sequence[int]) -> dict[int, Row]:
        """Find messages."""
        raise NotImplementedError

    def record(self, row: Row) -> Record:
        """Read one."""
        raise NotImplementedError

    def cancel(self, ids: Sequence[int], done: Callable[[list[int] | WireError], None]) -> None:
        """Cancel messages."""
        raise NotImplementedError

    def move(
        self, ids: Sequence[int], due: int, done: Callable[[list[int] | WireError], None]
    ) -> None:
        """Move messages."""
        raise NotImplementedError
