"""
The part of the MetaServer that follows its store: what is written becomes a snapshot.

The operations stand on it: `membership` those on brokers, `server` those on topics.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from typing import Final

from attrs import define

from tinymq.config import DEFAULT_CONFIG, Config
from tinymq.errors import StateError, StorageError, StorageFull
from tinymq.meta.changes import PAGE_BYTES, Changes, Described, Teller
from tinymq.meta.draft import Draft, follow
from tinymq.meta.entries import Compare, Event, Put, Write, prefix
from tinymq.meta.observers import Observer, Observers
from tinymq.meta.registry import Registry
from tinymq.meta.store import Store

ID_BYTES: Final = 16
#: What the keys of histories begin with.
HISTORY: Final = "history/"


@define
class Clocks:
    """
    The sources of time and chance; leases go by the store's own clock.

    Attributes:
        wall: Seconds since the epoch.
        entropy: Random bytes, as many as asked.
    """

    wall: Callable[[], float] = time.time
    entropy: Callable[[int], bytes] = os.urandom


class Following:
    """
    A snapshot that follows a store.

    Args:
        store: Where everything is kept; closed by its owner.
        config: The defaults of topics, and the limits.
        clocks: The sources of time and chance.
        history: How many revisions a watcher may be behind.
    """

    def __init__(
        self,
        store: Store,
        config: Config = DEFAULT_CONFIG,
        clocks: Clocks | None = None,
        history: int = 1000,
    ) -> None:
        self._store = store
        self._history = history
        self._config = config
        self._clocks = clocks or Clocks()
        self._observers = Observers()
        if store.get("cluster") is None:
            store.put("cluster", self._clocks.entropy(ID_BYTES).hex().encode())
        self._compact(store.revision)
        self._teller = Teller(store, self._clocks.entropy(8).hex())
        self.registry = self._load()
        self._watch = store.watch(self._apply, *prefix(""))

    def close(self) -> None:
        """Stop following the store."""
        self._watch.cancel()
        self._observers.clear()

    def watch(self, observer: Observer) -> Callable[[], None]:
        """
        Call an observer after every change, once it is durable.

        Returns:
            What ends it.
        """
        return self._observers.add(observer)

    # --- what others are told

    def changes(self, cursor: str = "", limit: int = PAGE_BYTES) -> Changes:
        """
        Return what a replica does not know yet, a page of it.

        A page that is neither full nor holds an event says that there is nothing
        new: whoever wants to wait asks again after the next change (`watch`).

        Args:
            cursor: That of the page before; empty for everything.
            limit: About so many bytes at most.
        """
        return self._teller.changes(cursor, limit)

    def knows_cursor(self, cursor: str) -> bool:
        """
        Say whether `changes` goes on from a cursor, or tells everything anew.

        Args:
            cursor: That of the page before.
        """
        return self._teller.knows(cursor)

    def described_changes(self, revision: int) -> list[Described]:
        """
        Return which topics, channels and brokers are others than they were at a revision.

        Raises:
            InvalidRequest: The history does not reach back to it.
        """
        return self._teller.described(revision)

    @property
    def revision(self) -> int:
        """The revision of the last write, of whatever kind."""
        return self._store.revision

    def _load(self) -> Registry:
        revision = self._store.revision
        # Histories may be most of what is stored, and no snapshot is made of them.
        (first, last), (begin, end) = prefix(""), prefix(HISTORY)
        entries = (*self._store.range(first, begin), *self._store.range(end, last))
        draft = Draft(Registry())
        for entry in entries:
            try:
                follow(draft, Event(entry.key, revision, entry))
            except Exception as error:
                raise StorageError(
                    f"{self._store.file}: {entry.key} cannot be read ({error}); "
                    "nothing was deleted",
                    file=str(self._store.file),
                ) from error
        return draft.finish(revision)

    def _apply(self, events: tuple[Event, ...]) -> None:
        draft = Draft(self.registry)
        for event in events:
            follow(draft, event)
        if self._store.revision - self._store.compacted > 2 * self._history:
            self._compact(self._store.revision - self._history)
        if draft.is_changed:
            before, self.registry = self.registry, draft.finish(events[0].revision)
            self._observers.tell(before, self.registry)

    def _compact(self, revision: int) -> None:
        with contextlib.suppress(StorageFull):  # the next one makes up for it
            self._store.compact(revision)

    # --- writing

    def _count_up(self, key: str, by: int) -> int:
        """Raise a durable counter and return what it was."""
        value = self._count(key)
        self._write([], [Put(key, str(value + by).encode())])
        return value

    def _count(self, key: str) -> int:
        entry = self._store.get(key)
        return int(entry.value) if entry else 0

    def _write(
        self, compares: Sequence[Compare], writes: Sequence[Write], *, vital: bool = False
    ) -> None:
        if writes and not self._store.transact(compares, writes, vital=vital):
            raise StateError("somebody else changed this at the same time; try again")

    def _now_ms(self) -> int:
        return int(self._clocks.wall() * 1000)
