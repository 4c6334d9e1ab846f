"""A log beside the data of a partition. To the committer it is like a partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tinymq.errors import PartitionOffline, WireError

if TYPE_CHECKING:
    from tinymq.broker.partition import Partition
    from tinymq.meta.registry import Topic
    from tinymq.storage.log import Log
    from tinymq.storage.memory import MemoryLog


class SideLog:
    """
    A log that shares the fate of a partition.

    Args:
        partition: The partition.
        log: The log; None where nothing is stored.
    """

    def __init__(self, partition: Partition, log: Log | None) -> None:
        self.partition = partition
        self._stored = log

    @property
    def topic(self) -> Topic:
        """The topic, whose policy says what safe means."""
        return self.partition.topic

    @property
    def log(self) -> Log | MemoryLog:
        """The log; that of the data, which asks for no sync, where nothing is stored."""
        return self.partition.log if self._stored is None else self._stored

    @property
    def stored(self) -> bool:
        """Whether there is a log on the disk."""
        return self._stored is not None

    @property
    def closed(self) -> WireError | None:
        """Why nothing is written any more, or None."""
        return self.partition.closed

    @property
    def failure(self) -> WireError | None:
        """Why nothing can be written, or None."""
        if self.closed is not None or self._stored is None or self._stored.offline is None:
            return self.closed
        offline = self._stored.offline
        return offline if isinstance(offline, WireError) else PartitionOffline(str(offline))

    @property
    def unsynced(self) -> bool:
        """Whether something was written that is not on disk yet."""
        log = self._stored
        return log is not None and log.synced_offset != log.written_offset
