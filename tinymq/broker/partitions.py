"""Opening, checkpointing and closing partitions: the domain's way to the data folder."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from twisted.logger import Logger

from tinymq.broker.partition import Partition, load_producers, save_producers
from tinymq.limits import Limits
from tinymq.storage.epochs import EpochFile
from tinymq.storage.facts import LogConfig
from tinymq.storage.files import FileCache
from tinymq.storage.folder import DataFolder
from tinymq.storage.log import Log
from tinymq.storage.memory import MemoryLog

if TYPE_CHECKING:
    from tinymq.meta.registry import Topic

_DATA: Final = "data"


class PartitionStore:
    """
    Partitions on disk.

    Args:
        folder: The data folder.
        files: Open files, shared by all logs.
        limits: The limits in force.
    """

    _log = Logger()

    def __init__(self, folder: DataFolder, files: FileCache, limits: Limits) -> None:
        self.folder = folder
        self._files = files
        self._limits = limits
        self._snapshots: dict[Partition, int] = {}

    def open(self, topic: Topic, index: int) -> Partition:
        """
        Open a partition, recovering its log after an unclean stop.

        Args:
            topic: Its topic.
            index: Its number.
        """
        if topic.config.storage == "memory":
            log = MemoryLog(topic.config.memory_bytes)
            return Partition(topic, index, log, None, self._limits)
        found: list[object] = []
        path = self.folder.partition_path(topic.id, index, _DATA)
        home = os.path.dirname(path)
        log_config = LogConfig(segment_bytes=topic.config.segment_bytes)
        disk_log = Log.open(
            self._files, path, log_config, self.folder.checkpoint_of(path), found.append
        )
        epochs = EpochFile(self.folder.disk, home)
        partition = Partition(topic, index, disk_log, epochs, self._limits)
        return partition
