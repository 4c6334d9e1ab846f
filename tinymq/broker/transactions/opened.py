"""
What a partition knows of transactions: which are open, and which were aborted.

A batch with the transactional bit opens the transaction of its producer id and epoch;
a control batch ends it. Both are in the log, so all of this can be read from the headers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, TypeAlias

from tinymq.errors import TransactionAborted, UnknownProducer
from tinymq.storage.facts import Chunk
from tinymq.wire.batch import CONTROL, TRANSACTIONAL, BatchHeader, split

#: Producer id and epoch: each transaction has its own.
Identity: TypeAlias = tuple[int, int]

#: Behind every offset.
NEVER: Final = 1 << 63


class Open(NamedTuple):
    """
    A transaction that is not decided yet.

    Attributes:
        first: The offset of its first record here.
        since_ms: When that was appended.
    """

    first: int
    since_ms: int


class _Ended(NamedTuple):
    """A transaction whose control batch may still be lost by a power cut."""

    at: int
    identity: Identity
    opened: Open


def identity_of(header: BatchHeader) -> Identity:
    """
    Return the transaction that a batch belongs to, or ends.

    Args:
        header: Its header.
    """
    return header.producer_id, header.producer_epoch


class Transactions:
    """
    The transactions of one partition.

    Attributes:
        open: Those that are not decided, in the order of their first records.
        first: The first record of the oldest of them; `NEVER` if there is none.
        aborted: Of each aborted one whose records may be in the log: its first record and
            its control batch, in the order of the latter.
        began: Called when one opens.
    """

    __slots__ = ("_ended", "aborted", "began", "first", "last_aborted", "open")

    def __init__(self) -> None:
        self.open: dict[Identity, Open] = {}
        self.first = NEVER
        self.aborted: dict[Identity, tuple[int, int]] = {}
        #: The last control batch of an aborted one.
        self.last_aborted = -1
        self.began: Callable[[], None] = _nothing
        self._ended: deque[_Ended] = deque()

    def begin(self, identity: Identity, offset: int, time_ms: int) -> None:
        """
        Take a batch of a transaction.

        Args:
            identity: The transaction.
            offset: The first offset of the batch.
            time_ms: Its append time.
        """
        if identity not in self.open:
            self.open[identity] = Open(offset, time_ms)
            self.first = min(self.first, offset)
            self.began()

    def check_new(self, identity: Identity) -> None:
        """
        Refuse the first batch of a transaction whose producer nobody remembers, if it is a copy.

        Args:
            identity: The transaction.

        Raises:
            TransactionAborted: It was aborted before.
            UnknownProducer: It is open, so this is not the first batch.
        """
        which = f"transaction {identity[0]}:{identity[1]}"
        if identity in self.aborted:
            raise TransactionAborted(f"{which} was aborted; begin another one")
        if identity in self.open:
            raise UnknownProducer(
                f"{which} is open here, and what was sent of it is not remembered; abort it",
                expected=0,
            )

    def end(self, identity: Identity, offset: int, synced: int, *, aborted: bool) -> None:
        """
        Take a control batch.

        Args:
            identity: The transaction that it ends.
            offset: Where it is.
            synced: Everything below is on the disk.
            aborted: Whether the transaction was aborted.
        """
        opened = self.open.pop(identity, None)
        if opened is None:
            return
        if aborted:
            # A copy that came late was aborted for itself, behind what was before.
            first, _ = self.aborted.pop(identity, (opened.first, offset))
            self.aborted[identity] = first, offset
            self.last_aborted = offset
        while self._ended and self._ended[0].at < synced:
            self._ended.popleft()
        if offset >= synced:
            self._ended.append(_Ended(offset, identity, opened))
        self._refresh()

    def take_back(self, offset: int) -> None:
        """
        Forget what was appended at or behind an offset.

        Args:
            offset: The end of what really was written.
        """
        gone = [identity for identity, each in self.open.items() if each.first >= offset]
        for identity in gone:
            del self.open[identity]
        if gone:
            self._refresh()

    def drop(self, identities: Iterable[Identity]) -> None:
        """
        Forget some that were taken for open.

        Args:
            identities: They.
        """
        for identity in identities:
            del self.open[identity]
        self._refresh()

    def forget(self, below: int) -> None:
        """
        Forget aborted transactions of which nothing is left.

        Args:
            below: No batch below this offset is there any more.
        """
        while self.aborted:
            identity, (_, last) = next(iter(self.aborted.items()))
            if last >= below:
                break
            del self.aborted[identity]

    def forget_cleaned(self, start: int, end: int) -> None:
        """
        Forget aborted transactions of which compaction left nothing.

        Args:
            start: The first offset that was cleaned.
            end: The offset behind the last.
        """
        gone = [
            identity
            for identity, (first, last) in self.aborted.items()
            if start <= first and last < end
        ]
        for identity in gone:
            del self.aborted[identity]

    def _refresh(self) -> None:
        oldest = next(iter(self.open.values()), None)
        self.first = NEVER if oldest is None else oldest.first

    # --- what readers ask -------------------------------------------------------

    def hides(self, header: BatchHeader) -> bool:
        """
        Say whether a batch is shown to nobody: of an aborted transaction, or the end of one.

        Args:
            header: Its header; it lies below the stable offset.
        """
        attributes = header.attributes
        if attributes & CONTROL:
            return True
        return bool(attributes & TRANSACTIONAL) and self._undone(header)

    def _undone(self, header: BatchHeader) -> bool:
        """
        Say whether a batch of a transaction was aborted.

        Not everything of an identity is: a copy may have come when the partition did not
        remember its producer any more, of a transaction that was committed. It is
        aborted, for its coordinator knows of nothing that is open.
        """
        found = self.aborted.get(identity_of(header))
        return found is not None and header.base_offset >= found[0]

    def within(self, chunk: Chunk, most: int) -> tuple[Chunk, list[Identity]]:
        """
        Say which aborted transactions have batches in a chunk.

        Args:
            chunk: Read from below the stable offset.
            most: How many may be told.

        Returns:
            The chunk, cut where there would be more, or where something is aborted of what
            counts before; and the transactions.
        """
        found: dict[Identity, None] = {}
        counts: set[Identity] = set()
        if chunk.start > self.last_aborted:
            return chunk, []
        size = 0
        for header, data in split(chunk.data):
            identity = identity_of(header)
            if not header.attributes & TRANSACTIONAL or identity not in self.aborted:
                pass
            elif not self._undone(header):
                counts.add(identity)
            else:
                if identity in counts or (identity not in found and len(found) >= most):
                    cut = memoryview(chunk.data)[:size]
                    return chunk._replace(data=bytes(cut), next_offset=header.base_offset), [*found]
                if not header.attributes & CONTROL:
                    found[identity] = None
            size += len(data)
        return chunk, [*found]

    # --- the checkpoint ------------------------------------------------------------

    def snapshot(self, offset: int) -> list[Any]:
        """
        Return what was so at an offset, as plain lists that msgpack can store.

        Args:
            offset: What is at or behind it does not count.
        """
        opened = {each.identity: each.opened for each in self._ended if each.at >= offset}
        opened |= self.open
        rows = sorted((*each, *identity) for identity, each in opened.items())
        aborted = [
            (*places, *identity) for identity, places in self.aborted.items() if places[1] < offset
        ]
        return [[list(row) for row in rows if row[0] < offset], [list(row) for row in aborted]]

    def restore(self, snapshot: list[Any]) -> None:
        """
        Take over a snapshot.

        Args:
            snapshot: From `snapshot`.
        """
        opened, aborted = snapshot
        self.open = {(each[2], each[3]): Open(each[0], each[1]) for each in opened}
        self.aborted = {(each[2], each[3]): (each[0], each[1]) for each in aborted}
        self.last_aborted = max((each[1] for each in aborted), default=-1)
        self._refresh()


def _nothing() -> None:
    """Tell nobody."""
