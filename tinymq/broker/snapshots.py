"""
The snapshot of a partition's producers: spares recovery a full read of the log's headers.

It may lag behind the log; what is missing is found in the headers behind it.
"""

from __future__ import annotations

from typing import Final

import msgpack

from tinymq.broker.producers import ProducerTable
from tinymq.storage.disk import Disk
from tinymq.storage.epochs import EpochFile

#: The file in a partition's folder.
PRODUCERS_FILE: Final = "producers"


def save_producers(disk: Disk, folder: str, table: ProducerTable, offset: int, epoch: int) -> None:
    """
    Store what a partition remembers of its producers.

    Args:
        disk: Where to.
        folder: The partition's folder.
        table: The table.
        offset: The table covers everything below.
        epoch: The leader epoch in which that is so.
    """
    disk.replace_file(
        f"{folder}/{PRODUCERS_FILE}",
        msgpack.packb({"offset": offset, "epoch": epoch, "producers": table.snapshot()}),
    )


def load_producers(
    disk: Disk, folder: str, table: ProducerTable, end: int, epochs: EpochFile
) -> int:
    """
    Load what `save_producers` stored.

    It is not believed when the log was cut below it since, though it may have
    grown beyond that again; nor in what it says of batches that were not yet
    written when it was made.

    Args:
        disk: Where from.
        folder: The partition's folder.
        table: The table to fill.
        end: The end of the log.
        epochs: Tell where the log was cut.

    Returns:
        The offset below which the table is complete; 0 without a snapshot.
    """
    try:
        content = disk.read_file(f"{folder}/{PRODUCERS_FILE}")
        if content is None:
            return 0
        found = msgpack.unpackb(content, strict_map_key=True)
        offset = int(found["offset"])
        if offset > epochs.end_of(int(found["epoch"]), end):
            return 0
        table.restore(found["producers"])
        table.take_back(offset)
    except (OSError, ValueError, KeyError, TypeError, msgpack.UnpackException):
        return 0
    return offset
