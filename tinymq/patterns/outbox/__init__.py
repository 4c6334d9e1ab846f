"""
The outbox: a message is stored in the program's own database, with the work that it tells of.

::

    table.statements         the tables
    outbox.Outbox            writes a message's row, in the caller's transaction
    relay.Relay              takes rows, publishes them, deletes them when the broker has them
    listening.Listener       wakes a relay when PostgreSQL tells of a commit

SQLite and PostgreSQL are tested. Which driver or framework is used does not matter: all that
is needed is a DB-API connection or cursor.
"""

from __future__ import annotations

from tinymq.patterns.outbox.listening import Listener
from tinymq.patterns.outbox.outbox import MESSAGE_ID, Outbox
from tinymq.patterns.outbox.relay import Relay, RelayConfig, Step
from tinymq.patterns.outbox.table import VERSION, statements
from tinymq.patterns.outbox.way import ClientWay, Row, Way
from tinymq.patterns.sql import POSTGRESQL, SQLITE, Dialect

__all__ = [
    "MESSAGE_ID",
    "POSTGRESQL",
    "SQLITE",
    "VERSION",
    "ClientWay",
    "Dialect",
    "Listener",
    "Outbox",
    "Relay",
    "RelayConfig",
    "Row",
    "Step",
    "Way",
    "statements",
]
