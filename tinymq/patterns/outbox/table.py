"""
The tables of an outbox, and the statements that make them.

Rows are told apart and put in order by ``seq``, which the database gives. ``lane`` is a hash
of topic and key: rows of one key are in one lane, one relay at a time has a lane (see
``..._lanes``), so what has the same key stays in order however many relays there are.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from tinymq.errors import UsageError
from tinymq.patterns.sql import Dialect, valid_table

#: The version of the tables that `statements` make; it stands in the name of no table, since
#: later versions add columns and never change the meaning of one.
VERSION: Final = 1
#: The name of the table where none is given.
TABLE: Final = "tinymq_outbox"
#: How many relays can work at the same time; part of the tables' form.
LANES: Final = 16


def statements(dialect: Dialect, table: str = TABLE, version: int = VERSION) -> list[str]:
    """
    Give the statements that make the tables, in order; none does harm where they are there.

    Run them as they are, or put them into a migration.

    Args:
        dialect: For which database.
        table: The name of the table; others begin with it.
        version: For which version of the tables.

    Raises:
        UsageError: The version is unknown, or the name cannot be one.
    """
    if version != VERSION:
        raise UsageError(f"the tables of an outbox have version {VERSION}, not {version!r}")
    name, blob = valid_table(table), dialect.blob
    index = name.replace(".", "_")
    lanes = ", ".join(f"({lane}, '', 0)" for lane in range(LANES))
    messages = ", ".join(
        (
            f"seq {dialect.serial}",
            "id CHAR(32) NOT NULL UNIQUE",
            "topic VARCHAR(200) NOT NULL",
            f"message_key {blob}",
            f"value {blob}",
            f"headers {blob}",
            "lane SMALLINT NOT NULL",
            "due_ms BIGINT",
            "created_ms BIGINT NOT NULL",
            "attempts INTEGER NOT NULL DEFAULT 0",
            "retry_ms BIGINT NOT NULL DEFAULT 0",
            "parked_ms BIGINT",
            "error TEXT",
        )
    )
    leases = "lane SMALLINT PRIMARY KEY, owner CHAR(32) NOT NULL, until_ms BIGINT NOT NULL"
    unsent = f"ON {name} (lane, seq) WHERE parked_ms IS NULL"
    due = f"ON {name} (due_ms) WHERE due_ms IS NOT NULL"
    retried = f"ON {name} (lane, retry_ms) WHERE retry_ms > 0"
    once = "ON CONFLICT DO NOTHING"
    return [
        f"CREATE TABLE IF NOT EXISTS {name} ({messages})",
        f"CREATE INDEX IF NOT EXISTS {index}_unsent {unsent}",
        f"CREATE INDEX IF NOT EXISTS {index}_retried {retried}",
        f"CREATE INDEX IF NOT EXISTS {index}_due {due}",
        f"CREATE TABLE IF NOT EXISTS {name}_lanes ({leases})",
        f"INSERT INTO {name}_lanes (lane, owner, until_ms) VALUES {lanes} {once}",  # noqa: S608
    ]


def lane_of(topic: str, key: bytes | None, message_id: bytes) -> int:
    """
    Tell the lane of a message.

    Args:
        topic: Its topic.
        key: Its key; those without one are spread.
        message_id: Its id.
    """
    what = message_id if key is None else topic.encode() + b"\0" + key
    return blake2b(what, digest_size=2).digest()[0] % LANES
