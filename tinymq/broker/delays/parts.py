"""What the messages of one partition that are not due yet consist of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from tinymq.broker.delays.following import Follower
from tinymq.broker.delays.index import Index
from tinymq.broker.delays.shelf import StoredBatch
from tinymq.broker.delays.waiting import Waiting
from tinymq.broker.producers import ProducerTable
from tinymq.broker.sidelog import SideLog
from tinymq.errors import WireError
from tinymq.storage.log import Log
from tinymq.wire.batch import BatchHeader, stored

if TYPE_CHECKING:
    from tinymq.broker.delays.delaying import Delaying
    from tinymq.broker.delays.freeing import Freeing
    from tinymq.broker.delays.releasing import Releasing
    from tinymq.broker.partition import Partition
    from tinymq.storage.memory import MemoryLog


class Parts(SideLog):
    """
    The log, what memory knows of it, and the index; `Delays` is the whole.

    Args:
        host: All that waits.
        partition: The partition.
        log: Its delay log.
        index: The view of what waits.

    Attributes:
        memory: What is in memory of it.
        follower: Lets the index follow the log.
        releasing: Appends what is due.
        freeing: Lets go of the front of the log.
        index: The view of what waits.
        producers: What is known of the producers of delayed messages.
    """

    releasing: Releasing
    freeing: Freeing

    def __init__(
        self, host: Delaying, partition: Partition, log: Log | MemoryLog, index: Index
    ) -> None:
        super().__init__(partition, log if isinstance(log, Log) else None)
        self.host = host
        self._delay_log = log
        self.index = index
        self.memory = Waiting(host.now())
        self.follower = Follower(
            f"{partition.topic.name}/{partition.index}",
            log,
            index,
            partition.key,
            self.memory,
        )
        self.producers = ProducerTable(partition.limits.producer_window)
        #: Up to here the index must be before memory may reach further.
        self._far_end = 0
        #: Until when the disk and the index are left alone, for one of them refused.
        self._held_until = 0

    @override
    def __repr__(self) -> str:
        return f"<Delays of {self.partition.topic.name}/{self.partition.index}>"

    @property
    @override
    def log(self) -> Log | MemoryLog:
        """The delay log."""
        return self._delay_log

    @property
    def _always(self) -> bool:
        return self.topic.config.sync == "always" and self.stored

    @property
    def visible(self) -> int:
        """Offset behind the last record of the log that is as safe as the topic promises."""
        log = self._delay_log
        return log.synced_offset if self._always else log.written_offset

    @property
    def refusing(self) -> WireError | None:
        """Why nothing can be appended to the data log now, or None."""
        return self.partition.failure or self.host.refusing(self.partition)

    def wall(self) -> int:
        """The wall clock, for append times."""
        return self.host.broker.wall()

    @property
    def stored_bytes(self) -> int:
        """About how many bytes of the log wait."""
        return max(0, self.memory.stored)

    def batch(self, offset: int) -> StoredBatch:
        """
        Read the batch that a message lies in.

        Args:
            offset: Of the message in the delay log.

        Raises:
            CorruptBatch: It is not there.
        """
        return self.host.shelf.batch(self.partition.key, self._delay_log, offset)

    def _append(self, payload: bytes, header: BatchHeader, base: int) -> int:
        log = self._delay_log
        now = max(self.host.now(), log.max_timestamp)
        pieces = stored(payload, header, base, self.partition.epoch, now)
        log.append(pieces, base, base + header.records - 1, now)
        return now

    def _staged_more(self) -> None:
        """Tell the committer that there is something to write."""
        raise NotImplementedError

    def mark(self) -> None:
        """Let it have its turn."""
        raise NotImplementedError
