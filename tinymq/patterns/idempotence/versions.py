"""
Lets only newer versions of a thing through, or all of them in order.

::

    guard = VersionGuard(number_header("version"))

    @guard.newest
    def show(message):              # what is not newer than the last is left alone
        page[message.key] = message.value

    apply = guard.in_order(handle)  # early ones are held until the missing ones have come
    subscription.run(apply, manual=True)
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol

from tinymq.client.core.handling import Requeue
from tinymq.errors import UsageError
from tinymq.patterns.idempotence.calling import SKIP, Handler, guarded
from tinymq.patterns.idempotence.identity import Read, as_text, by_key, number_header
from tinymq.patterns.idempotence.ordering import InOrder, OrderConfig
from tinymq.patterns.idempotence.tables import KeyTable
from tinymq.patterns.sql import Connection, Dialect

#: A message of a key that is in hand comes again after so long.
_AGAIN_S: Final = 0.2


class Versions(Protocol):
    """The last version of each key."""

    def last(self, key: str, connection: Connection | None = None) -> int | None:
        """Tell the last version of a key."""

    def raise_to(self, key: str, version: int, connection: Connection | None = None) -> bool:
        """Note a version, and say whether it is newer than the last."""


class MemoryVersions:
    """
    The last versions, in memory: they are gone with the process.

    Args:
        most: Keys that are remembered; the ones not seen for longest are forgotten.
    """

    def __init__(self, most: int = 100_000) -> None:
        self._most = most
        self._last: OrderedDict[str, int] = OrderedDict()
        self._lock = threading.Lock()

    def last(self, key: str, connection: Connection | None = None) -> int | None:
        """
        Tell the last version of a key.

        Args:
            key: The key.
            connection: Of no meaning here.
        """
        return self._last.get(key)

    def raise_to(self, key: str, version: int, connection: Connection | None = None) -> bool:
        """
        Note a version, and say whether it is newer than the last.

        Args:
            key: The key.
            version: Its version.
            connection: Of no meaning here.
        """
        with self._lock:
            last = self._last.get(key)
            newer = last is None or version > last
            if newer:
                self._last[key] = version
            self._last.move_to_end(key)
            if len(self._last) > self._most:
                self._last.popitem(last=False)
            return newer


class TableVersions(KeyTable):
    """
    The last versions, in a table: several processes share them, and they stay.

    Args:
        connect: Opens a connection, which does not commit by itself.
        dialect: The kind of database.
        guard: Whose versions they are: each guard has its own.
        table: The name of the table.
        paramstyle: What the driver wants, if not what the dialect's usual one does.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        dialect: Dialect,
        guard: str,
        table: str = "tinymq_versions",
        paramstyle: str | None = None,
    ) -> None:
        super().__init__(connect, dialect, guard, (table, "BIGINT"), paramstyle)

    def last(self, key: str, connection: Connection | None = None) -> int | None:
        """
        Tell the last version of a key.

        Args:
            key: The key.
            connection: Where; otherwise in a transaction of its own.
        """
        found = self.read(key, connection)
        return None if found is None else int(found)

    def raise_to(self, key: str, version: int, connection: Connection | None = None) -> bool:
        """
        Note a version, and say whether it is newer than the last.

        Args:
            key: The key.
            version: Its version.
            connection: Where; otherwise in a transaction of its own.
        """
        if connection is None:
            with self.connections.transaction() as own:
                return self.raise_to(key, version, own)
        table = self.table
        return bool(
            self.run(
                connection,
                f"INSERT INTO {table} (guard, entity, value) VALUES (?, ?, ?) "  # noqa: S608
                "ON CONFLICT (guard, entity) DO UPDATE SET value = excluded.value "
                f"WHERE {table}.value < excluded.value",
                (self.guard, key, version),
            ).rowcount
        )


class VersionGuard:
    """
    Looks at the versions of messages, key by key.

    Args:
        version: Tells the version of a message, a whole number.
        key: Tells of what it is a version.
        versions: Where the last ones are kept; by default in memory.

    Attributes:
        old: Messages that were not newer, and were left alone.
    """

    def __init__(
        self,
        version: Read | str = "version",
        key: Read = by_key,
        versions: Versions | None = None,
    ) -> None:
        self.version = number_header(version) if isinstance(version, str) else version
        self.key = key
        self.versions: Versions = versions or MemoryVersions()
        self.old = 0
        self._in_hand: set[str] = set()
        self._open: set[int] = set()
        self._lock = threading.Lock()

    def newest(self, handler: Handler) -> Handler:
        """
        Let a handler have only messages that are newer than the last of their key.

        Within a transaction (`SeenStore.in_transaction` around this), versions of a table are
        looked at and noted in the same transaction. Otherwise a version is noted after the
        handler's success: a process that dies in between handles it again, and two processes
        may handle two versions of a key at the same time.

        Args:
            handler: Takes a message, and what a decorator around this gives.
        """
        return guarded(handler, self._newest)

    def newest_in_transaction(self, handler: Handler) -> Handler:
        """
        Do the same in a transaction: the version is noted with the handler's work.

        Args:
            handler: Takes a message and a connection, on which it works and does not commit.

        Raises:
            UsageError: The versions are not in a table.
        """
        if not isinstance(self.versions, TableVersions):
            raise UsageError("only versions in a table can be noted in a transaction")
        return guarded(handler, self._in_transaction)

    def in_order(self, handler: Handler, config: OrderConfig | None = None) -> InOrder:
        """
        Let a handler have all versions of a key in order, each once.

        Give it to a subscription with ``manual=True``, for it settles messages by itself:
        early ones stay held until the missing ones have come.

        Args:
            handler: Takes a message.
            config: How many it holds and for how long, and what then.
        """
        return InOrder(handler, (self.version, self.key), self.versions, config)

    # --- around handlers ---------------------------------------------------------------

    @contextmanager
    def _newest(self, message: Any, *rest: Any) -> Iterator[tuple[Any, ...] | None]:
        key, version = as_text(self.key(message)), self.version(message)
        if rest and isinstance(self.versions, TableVersions):
            if self.versions.raise_to(key, version, rest[0]):
                yield rest
            else:
                self.old += 1
                yield SKIP
            return
        with self._hand(key, self._in_hand):
            last = self.versions.last(key)
            if last is not None and version <= last:
                self.old += 1
                yield SKIP
                return
            yield rest
            self.versions.raise_to(key, version)

    @contextmanager
    def _in_transaction(self, message: Any) -> Iterator[tuple[Any, ...] | None]:
        key, version = as_text(self.key(message)), self.version(message)
        versions = self.versions
        assert isinstance(versions, TableVersions)
        with self._hand(threading.get_ident(), self._open):
            with versions.connections.transaction() as connection:
                if versions.raise_to(key, version, connection):
                    yield (connection,)
                    return
            self.old += 1
            yield SKIP

    @contextmanager
    def _hand(self, which: Any, taken: set[Any]) -> Iterator[None]:
        """Put off what would overtake, or wait for, one that is in hand."""
        with self._lock:
            if which in taken:
                raise Requeue(_AGAIN_S, "another one is being handled", failure=False)
            taken.add(which)
        try:
            yield
        finally:
            with self._lock:
                taken.discard(which)
