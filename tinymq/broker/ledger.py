"""
The ledger of a partition: what its channels did, on the disk.

It is a log beside the data, written and synced in the groups of the committer.
What channels do is gathered in memory and becomes one batch when it is written;
who must know that it is safe waits for the end of that batch. A snapshot of all
channels is appended now and then; what lies before it is needed no more, and kept
for a while to tell the lives of messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from twisted.logger import Logger
from typing_extensions import override

from tinymq.broker.channel.queue import LedgerRecord
from tinymq.broker.partition import Partition
from tinymq.broker.sidelog import SideLog
from tinymq.errors import PartitionOffline, StorageFull, TinyMQError, WireError
from tinymq.limits import MIB
from tinymq.storage.facts import LogConfig
from tinymq.wire.batch import MAX_RECORDS, read_header, split, stamp
from tinymq.wire.records import RecordBatch, encode_batch

if TYPE_CHECKING:
    from tinymq.storage.log import Log

#: How the log is cut into files: it is let go soon, file by file.
LEDGER_CONFIG: Final = LogConfig(segment_bytes=8 * MIB)
#: Bytes of records in one batch, unless a single one is longer.
_BATCH_BYTES: Final = MIB
#: Bytes read at a time when a ledger is opened.
_READ_BYTES: Final = 4 * MIB
#: A snapshot is worth it when the ledger grew by so much since the last,
_GROWN: Final = 4
#: and by so many bytes at least.
_GROWN_BYTES: Final = 4 * MIB

#: Called once: with nothing when all is as safe as the topic promises, or with why it is not.
Safe = Callable[["WireError | None"], None]


class History(NamedTuple):
    """
    How long what lies before the last snapshot is kept.

    Attributes:
        ms: Milliseconds at most.
        bytes: Bytes at most.
    """

    ms: int
    bytes: int


_NO_HISTORY: Final = History(0, 0)


class Ledger(SideLog):
    """
    The ledger of one partition. To the committer it is like a partition.

    Args:
        partition: The partition.
        log: Its ledger log; None for a topic in memory, which loses all at once.
        gather: Gives what channels did since the last call.
        snapshots: Gives records that stand for everything before.
        now: Gives the time.
        history: How long what is not needed any more is kept.
    """

    _log = Logger()

    def __init__(
        self,
        partition: Partition,
        log: Log | None,
        gather: Callable[[], list[LedgerRecord]],
        snapshots: Callable[[], list[LedgerRecord]],
        now: Callable[[], int],
        history: History = _NO_HISTORY,
    ) -> None:
        super().__init__(partition, log)
        self._gather = gather
        self._snapshots = snapshots
        self._now = now
        self._history = history
        self._asking: list[Safe] = []
        self._waiting: deque[tuple[int, list[Safe]]] = deque()
        #: Likewise those who wait for the disk whatever the topic promises.
        self._asking_synced: list[Safe] = []
        self._waiting_synced: deque[tuple[int, list[Safe]]] = deque()
        #: Says whether there are lives of messages to tell, for which history is kept.
        self.has_lives: Callable[[], bool] = lambda: True
        #: Whether what channels did is not all in the log, so that only a snapshot helps.
        self.behind = False
        #: Bytes since the last snapshot, or since the start.
        self._since = 0
        self._snapshot_bytes = 0
        #: Where the last snapshot begins and ends.
        self._snapshot: tuple[int, int] | None = None

    @override
    def __repr__(self) -> str:
        return f"<Ledger of {self.partition.topic.name}/{self.partition.index}>"

    # --- what the committer asks -----------------------------------------------

    @property
    def synced_policy(self) -> bool:
        """Whether somebody waits for the disk."""
        waits = bool(self._asking_synced or self._waiting_synced)
        if self.topic.config.sync == "always":
            waits = waits or bool(self._asking or self._waiting)
        return waits and self.stored

    def write(self) -> None:
        """Hand everything that channels did to the operating system."""
        log = self._stored
        if log is None:
            self._gather()
            self._end(None)
            return
        if self.failure is not None:
            self._end(self.failure)
            return
        try:
            self._stage(log)
            log.write()
        except TinyMQError as error:
            self.behind = True
            self._snapshot = None
            for waiting in (self._waiting, self._waiting_synced):
                while waiting and waiting[-1][0] > log.written_offset:
                    self._asking[:0] = waiting.pop()[1]
            found = error if isinstance(error, WireError) else PartitionOffline(str(error))
            if not isinstance(error, StorageFull):
                self._log.error("{ledger} cannot be written: {error}", ledger=self, error=error)
            self._end(found)
            return
        if self.topic.config.sync != "always":
            self.advance()

    def write_through(self) -> None:
        """Bring all that channels did to the disk, and wait for it."""
        self.write()
        log = self._stored
        if log is not None and self.failure is None:
            try:
                log.sync()
            except (OSError, TinyMQError) as error:
                self._log.error("{ledger} cannot be synced: {error}", ledger=self, error=error)
            self.advance()

    def _stage(self, log: Log) -> None:
        records = self._gather()
        if self.behind or self._grown():
            first = log.end_offset
            records = self._snapshots()
            self._append(log, records)
            self.behind = False
            self._snapshot = first, log.end_offset
            self._since = 0
            self._snapshot_bytes = sum(len(value) for _, value in records)
        else:
            self._append(log, records)
        asking, self._asking = self._asking, []
        if asking:
            self._waiting.append((log.end_offset, asking))
        asking, self._asking_synced = self._asking_synced, []
        if asking:
            self._waiting_synced.append((log.end_offset, asking))

    def _grown(self) -> bool:
        least = max(_GROWN_BYTES, _GROWN * self._snapshot_bytes)
        return self._since > least

    def _append(self, log: Log, records: list[LedgerRecord]) -> None:
        now = max(self._now(), log.max_timestamp)
        for keys, values in _batches(records):
            batch = encode_batch(values, keys=keys)
            header = read_header(batch)
            base = log.end_offset
            self._since += len(batch)
            log.append(
                stamp(batch, header, base, self.partition.epoch, now),
                base,
                base + header.records - 1,
                now,
            )

    def advance(self) -> None:
        """Tell those who wait what is safe now, or that it will never be."""
        log = self._stored
        if log is None:
            return
        always = self.topic.config.sync == "always"
        safe = log.synced_offset if always else log.written_offset
        while self._waiting and self._waiting[0][0] <= safe:
            for tell in self._waiting.popleft()[1]:
                tell(None)
        while self._waiting_synced and self._waiting_synced[0][0] <= log.synced_offset:
            for tell in self._waiting_synced.popleft()[1]:
                tell(None)
        if self.failure is not None:
            self._end(self.failure)
        elif self._snapshot is not None and log.synced_offset >= self._snapshot[1]:
            first, self._snapshot = self._snapshot[0], None
            try:
                self._fold(log, first)
            except (OSError, TinyMQError) as error:
                self._log.warn("{ledger} cannot be trimmed: {error}", ledger=self, error=error)

    def _fold(self, log: Log, first: int) -> None:
        """Begin at the last snapshot from the next start on."""
        if self._history.ms and self._history.bytes and self.has_lives():
            log.fold(first, self._now() + self._history.ms)
            log.let_go(self._history.bytes)
        else:
            log.trim(first)

    def forget(self, *, all: bool = False) -> int:  # noqa: A002 - says what is meant
        """
        Let go of what was kept long enough.

        Args:
            all: Of everything that is not needed, for the disk is full.

        Returns:
            Files removed.
        """
        log = self._stored
        if log is None or log.offline is not None or self.closed is not None:
            return 0
        return log.let_go(0) if all else log.finish_purges(self._now())

    def _end(self, error: WireError | None) -> None:
        """Tell all who wait; of what was written before, the disk will tell."""
        gone: list[Safe] = []
        if error is None or self.failure is not None:
            for waiting in (self._waiting, self._waiting_synced):
                gone += (tell for _, calls in waiting for tell in calls)
                waiting.clear()
        asking = self._asking + self._asking_synced
        self._asking, self._asking_synced = [], []
        for tell in (*gone, *asking):
            tell(error)

    # --- what the channels ask ---------------------------------------------------

    def when_safe(self, tell: Safe) -> None:
        """
        Call something when all that channels did up to now is as safe as the topic promises.

        The committer must be told that this ledger has something to write.

        Args:
            tell: Called once, later.
        """
        self._asking.append(tell)

    def when_synced(self, tell: Safe) -> None:
        """
        Call something when all that channels did up to now is on the disk, as far as there is one.

        The committer must be told that this ledger has something to write.

        Args:
            tell: Called once, later.
        """
        self._asking_synced.append(tell)

    def close(self, reason: WireError) -> None:
        """
        Let go of everybody; the log is closed by who opened it.

        Args:
            reason: What those who wait are told.
        """
        waiting = [*self._waiting, *self._waiting_synced]
        self._waiting.clear()
        self._waiting_synced.clear()
        self._asking[:0] = [tell for _, calls in waiting for tell in calls]
        self._end(reason)


def _batches(records: list[LedgerRecord]) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """Cut records into columns of batches."""
    keys: list[bytes] = []
    values: list[bytes] = []
    size = 0
    for key, value in records:
        if values and (size + len(value) > _BATCH_BYTES or len(values) >= MAX_RECORDS):
            yield keys, values
            keys, values, size = [], [], 0
        keys.append(key)
        values.append(value)
        size += len(value)
    if values:
        yield keys, values


def records_in(log: Log) -> Iterable[LedgerRecord]:
    """
    Read a ledger from its start.

    Args:
        log: The log.

    Yields:
        Keys and values, in order.
    """
    offset = log.start_offset
    while offset < log.written_offset:
        chunk = log.read(offset, _READ_BYTES, log.written_offset)
        assert chunk is not None, "it was to wait for the disk"
        for header, data in split(chunk.data):
            batch = RecordBatch(data, header, inflated=1 << 31)
            rows = zip(batch.offsets, batch.keys, batch.values, strict=True)
            yield from (
                (key, value)
                for at, key, value in rows
                if at >= offset and key and value is not None
            )
        if chunk.next_offset <= offset:
            return
        offset = chunk.next_offset
