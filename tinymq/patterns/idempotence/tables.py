"""A table with one value for each key of a guard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinymq.errors import UsageError
from tinymq.patterns.sql import Connection, Connections, Dialect, valid_table


class KeyTable:
    """
    The table, and connections to it.

    Args:
        connect: Opens a connection, which does not commit by itself.
        dialect: The kind of database.
        guard: Whose keys they are: each guard has its own.
        form: The name of the table, and the type of the value.
        paramstyle: What the driver wants, if not what the dialect's usual one does.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        dialect: Dialect,
        guard: str,
        form: tuple[str, str],
        paramstyle: str | None = None,
    ) -> None:
        if not guard or len(guard) > 100:
            raise UsageError("the name of a guard has 1 to 100 characters")
        self.guard = guard
        name, self._kind = form
        self.table = valid_table(name)
        self.connections = Connections(connect, dialect, paramstyle)

    def create(self, connection: Connection) -> None:
        """
        Make the table, where it is not there. It is not committed here.

        Args:
            connection: A connection or a cursor.
        """
        self.run(
            connection,
            f"CREATE TABLE IF NOT EXISTS {self.table} (guard VARCHAR(100) NOT NULL, "
            f"entity VARCHAR(160) NOT NULL, value {self._kind} NOT NULL, "
            "PRIMARY KEY (guard, entity))",
        )

    def run(self, connection: Connection, statement: str, values: tuple[Any, ...] = ()) -> Any:
        """Carry out a statement, and return the cursor."""
        return self.connections.statements.run(connection, statement, values)

    def read(self, key: str, connection: Connection | None = None) -> Any:
        """
        Read the value of a key, None if it has none.

        Args:
            key: The key.
            connection: Where; otherwise in a transaction of its own.
        """
        if connection is None:
            with self.connections.transaction() as own:
                return self.read(key, own)
        found = self.run(
            connection,
            f"SELECT value FROM {self.table} WHERE guard = ? AND entity = ?",  # noqa: S608
            (self.guard, key),
        ).fetchone()
        return None if found is None else found[0]

    def close(self) -> None:
        """Close the connections."""
        self.connections.close()
