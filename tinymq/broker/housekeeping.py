"""What a broker does by the clock: watch the disk, apply retention, write checkpoints."""

from __future__ import annotations

from collections.abc import Callable

from twisted.logger import Logger

from tinymq.broker.broker import Broker
from tinymq.broker.checkpoints import Checkpoints
from tinymq.broker.partition import Partition
from tinymq.broker.ports import Scheduler, Timer
from tinymq.errors import StorageError, StorageFull, TinyMQError
from tinymq.storage.disk import Space

#: Seconds between looks at the free space.
SPACE_SECONDS = 1.0

#: Of a small disk, this share is the reserve, whatever the setting says.
RESERVE_SHARE = 0.05


def reserve_of(space: Space, setting: int) -> int:
    """
    Tell how many bytes must stay free.

    Args:
        space: The file system.
        setting: ``storage.reserve_bytes``, which is meant for disks of today.
    """
    return min(setting, int(space.total * RESERVE_SHARE))


class Housekeeping:
    """
    The clockwork of a broker.

    Args:
        broker: The domain.
    """

    _log = Logger()

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._timers: dict[str, Timer] = {}
        self._checkpoints = Checkpoints(
            broker.scheduler, broker.committer, broker.syncer, broker.store
        )
        self.space: Space | None = None

    def start(self) -> None:
        """Begin; the disk is looked at once, now."""
        config = self._broker.config
        self._every("space", SPACE_SECONDS, self.look_at_space)
        self._every("retention", config.retention.check_seconds, self.apply_retention)
        self._every("checkpoint", config.storage.checkpoint_seconds, self.checkpoint)
        self._every("compaction", config.compaction.check_seconds, self._broker.cleaning.look)
        self.look_at_space()

    def stop(self) -> None:
        """End."""
        for timer in self._timers.values():
            if timer.active():
                timer.cancel()
        self._timers.clear()
        self._checkpoints.stop()

    def _every(self, name: str, seconds: float, call: Callable[[], None]) -> None:
        scheduler: Scheduler = self._broker.scheduler

        def due() -> None:
            self._timers[name] = scheduler.callLater(seconds, due)
            try:
                call()
            except (OSError, TinyMQError) as error:
                self._log.error("{name} failed: {error}", name=name, error=error)

        self._timers[name] = scheduler.callLater(seconds, due)

    def look_at_space(self) -> None:
        """Refuse publishing while the disk is nearly full; take it again afterwards."""
        folder = self._broker.store.folder
        if not folder.present():
            self._broker.refuse(
                StorageError(
                    f"the data folder {folder.path} was taken away while the broker runs; what is "
                    "published would be lost: stop the broker and put the folder back"
                )
            )
            return
        space = folder.space()
        self.space = space
        reserve = reserve_of(space, self._broker.config.storage.reserve_bytes)
        if not space.low(reserve):
            self._broker.refuse(None)
            # A fast publisher fills a small disk between two ticks of the clock.
            self._broker.look_after((space.free - reserve) // 2, self.look_at_space)
            return
        self._broker.refuse(
            StorageFull(
                f"the disk has {space.free} bytes free and keeps {reserve} in reserve; "
                "publishing is refused until space is freed: purge or delete topics, "
                "or shorten retention",
                free=space.free,
                reserve=reserve,
            )
        )
        self._end_undo_windows()

    def _end_undo_windows(self) -> None:
        """Let go of what was purged: on a full disk, space matters more than undoing."""
        for partition in self._broker.partitions():
            self._forget(partition, all=True)
            window = partition.log.undo_window
            if window is None:
                continue
            try:
                partition.log.finish_purges(window[0])
                partition.moved.add(partition)
            except (OSError, TinyMQError) as error:
                self._log.warn(
                    "{partition}: what was purged could not be removed: {error}",
                    partition=partition,
                    error=error,
                )
            else:
                self._log.warn(
                    "{partition}: the purge can no longer be undone, its space was needed",
                    partition=partition,
                )

    def _forget(self, partition: Partition, *, all: bool = False) -> None:  # noqa: A002
        """Let go of what channels did long ago."""
        if partition.ledger is None:
            return
        try:
            partition.ledger.forget(all=all)
        except (OSError, TinyMQError) as error:
            self._log.error(
                "the history of {partition} could not be removed: {error}",
                partition=partition,
                error=error,
            )

    def apply_retention(self) -> None:
        """Let go of what every topic no longer keeps."""
        now = self._broker.wall()
        for partition in self._broker.partitions():
            self._forget(partition)
            try:
                removed = partition.log.finish_purges(now)
                if partition.failure is None:
                    removed += self._expire(partition, now)
                if removed:
                    partition.moved.add(partition)
                    self._broker.channels.trimmed(partition)
                partition.producers.forget_idle(now)
                if partition.dedup is not None:
                    partition.dedup.look_after(now)
            except (OSError, TinyMQError) as error:
                self._log.error(
                    "retention of {partition} failed: {error}", partition=partition, error=error
                )
        self._squeeze()

    def _expire(self, partition: Partition, now: int) -> int:
        self._secure(partition, now)
        hosted = self._broker.channels.hosted(*partition.key)
        if hosted is not None:
            return hosted.holding.apply(now)
        if self._broker.channels.unopened(partition):
            return 0  # what its channels need is not known
        return partition.log.expire(now, *partition.topic.config.limits)

    def _secure(self, partition: Partition, now: int) -> None:
        """Before records go: that some of them waited, and came, is told by them alone."""
        config = partition.topic.config
        if partition.delays is None and partition.dedup is None:
            return
        if config.retention_mode == "settled" or partition.log.due(now, *config.limits):
            if partition.delays is not None:
                partition.delays.secure()
            if partition.dedup is not None:
                partition.dedup.secure()

    def _squeeze(self) -> None:
        """Let channels hold back less while the disk is nearly full, those with the most first."""
        space, percent = self.space, self._broker.config.retention.hold_percent
        if space is None:
            return
        # What others have of the disk is no reason: nothing that goes here would change it.
        used = sum(each.log.size_bytes for each in self._broker.partitions())
        reserve = reserve_of(space, self._broker.config.storage.reserve_bytes)
        over = used - (used + max(0, space.free - reserve)) * percent // 100
        for holding in self._broker.channels.holdings():
            holding.squeezed = over > 0
            over -= holding.bytes

    def checkpoint(self) -> None:
        """Bring to the disk what no policy did, and keep the next recovery short."""
        self._checkpoints.begin(self._broker.partitions())
