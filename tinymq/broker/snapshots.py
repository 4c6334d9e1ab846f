"""
The snapshot of a partition's producers: spares recovery a full read of the log's headers.

It may lag behind the log; what is missing is found in the headers behind it. It
is a sealed cache and not synced: one that a power cut spoilt is not believed.
"""

from __future__ import annotations

from typing import Any, Final

from tinymq.broker.mortal import Mortal
from tinymq.broker.producers import ProducerTable
from tinymq.broker.transactions.opened import Transactions
from tinymq.storage.disk import Disk
from tinymq.storage.epochs import EpochFile
from tinymq.storage.sealed import Unreadable, seal, unseal

#: The file in a partition's folder.
PRODUCERS_FILE: Final = "producers"
_MAGIC: Final = b"TMQP"
_VERSION: Final = 1


def save_producers(  # noqa: PLR0913, PLR0917 - what is known of a partition
    disk: Disk,
    folder: str,
    table: ProducerTable,
    offset: int,
    epoch: int,
    mortal: Mortal | None = None,
    transactions: Transactions | None = None,
) -> None:
    """
    Store what a partition remembers of its producers.

    Args:
        disk: Where to.
        folder: The partition's folder.
        table: The table.
        offset: Everything below is covered, and synced; what the table knows beyond
            is not believed later.
        epoch: The leader epoch in which that is so.
        mortal: Where there are messages with a time to live.
        transactions: Which are open, and which were aborted; with ``mortal``.
    """
    rows = [] if mortal is None else [mortal.to_list()]
    if transactions is not None:
        rows.append(transactions.snapshot(offset))
    content = seal(_MAGIC, [_VERSION, offset, epoch, table.snapshot(), *rows])
    disk.replace_file(f"{folder}/{PRODUCERS_FILE}", content, durable=False)


def load_producers(  # noqa: PLR0913, PLR0917 - what is known of a partition
    disk: Disk,
    folder: str,
    table: ProducerTable,
    end: int,
    epochs: EpochFile,
    mortal: Mortal | None = None,
    transactions: Transactions | None = None,
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
        mortal: To be filled, too.
        transactions: Likewise.

    Returns:
        The offset below which the table is complete; 0 without a snapshot.
    """
    path = f"{folder}/{PRODUCERS_FILE}"
    try:
        content = disk.read_file(path)
        if content is None:
            return 0
        version, offset, epoch, producers, *rest = unseal(_MAGIC, content, path)
        if version != _VERSION or offset > epochs.end_of(epoch, end):
            return 0
        table.restore(producers)
        table.take_back(offset)
        if mortal is not None and rest:
            mortal.restore(rest[0])
        if transactions is not None and len(rest) > 1:
            transactions.restore(rest[1])
    except (OSError, Unreadable, ValueError, TypeError):
        return 0
    return int(offset)


#: Likewise for the producers of messages that are not due yet.
DELAYERS_FILE: Final = "delay-producers"
_DELAYERS_MAGIC: Final = b"TMQY"


def save_delayers(disk: Disk, folder: str, known: int, snapshot: list[Any]) -> None:
    """
    Store what is known of the producers of delayed messages, and wait for the disk.

    It is done before the batches go from which it could be read again.

    Args:
        disk: Where to.
        folder: The partition's folder.
        known: Everything of the delay log below is covered, and nothing else.
        snapshot: Of the table.
    """
    content = seal(_DELAYERS_MAGIC, [_VERSION, known, snapshot])
    disk.replace_file(f"{folder}/{DELAYERS_FILE}", content)


def load_delayers(disk: Disk, folder: str, end: int) -> tuple[int, list[Any]]:
    """
    Load what `save_delayers` stored.

    Args:
        disk: Where from.
        folder: The partition's folder.
        end: The end of the delay log; a file that knows more of it is removed.

    Returns:
        The offset below which the snapshot is complete, and the snapshot.
    """
    path = f"{folder}/{DELAYERS_FILE}"
    try:
        content = disk.read_file(path)
        if content is None:
            return 0, []
        version, known, snapshot = unseal(_DELAYERS_MAGIC, content, path)
        if version == _VERSION and known <= end:
            return int(known), list(snapshot)
        # What it knows beyond the end was cut, and its offsets will be given again.
        disk.unlink(path)
    except (OSError, Unreadable, ValueError, TypeError):
        pass
    return 0, []
