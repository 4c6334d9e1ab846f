"""
Handling a message that comes twice, too early, or at the wrong moment.

::

    identity.message_id      what a message is known by
    seen.SeenStore           each message once, by a table of ids with a Bloom filter in front
    versions.VersionGuard    of each key only newer versions, or all of them in order
    machine.StateGuard       only messages that an entity's state allows; others come again

Each gives decorators for handlers, of subscriptions and of group consumers; handlers are plain
functions, coroutine functions, or return Deferreds. They can be put on top of each other.
"""

from __future__ import annotations

from tinymq.patterns.idempotence.bloom import BloomFilter
from tinymq.patterns.idempotence.identity import by_key, header, message_id, number_header, place
from tinymq.patterns.idempotence.machine import MemoryStates, StateConfig, StateGuard, TableStates
from tinymq.patterns.idempotence.ordering import Gap, InOrder, OrderConfig
from tinymq.patterns.idempotence.seen import SeenConfig, SeenStore
from tinymq.patterns.idempotence.versions import MemoryVersions, TableVersions, VersionGuard
from tinymq.patterns.sql import POSTGRESQL, SQLITE, Dialect

__all__ = [
    "POSTGRESQL",
    "SQLITE",
    "BloomFilter",
    "Dialect",
    "Gap",
    "InOrder",
    "MemoryStates",
    "MemoryVersions",
    "OrderConfig",
    "SeenConfig",
    "SeenStore",
    "StateConfig",
    "StateGuard",
    "TableStates",
    "TableVersions",
    "VersionGuard",
    "by_key",
    "header",
    "message_id",
    "number_header",
    "place",
]
