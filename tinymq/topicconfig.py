"""
The settings of one topic.

A topic keeps all its settings from its creation on, so that a new default of
the broker changes no topic that exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from attrs import frozen
from typing_extensions import override

from tinymq.dotted import Dotted, Given
from tinymq.errors import InvalidRequest
from tinymq.limits import KIB, MAX_VALUE_CEILING, MIB
from tinymq.settings import setting

_MINUTE: Final = 60_000
_DAY: Final = 24 * 60 * _MINUTE
_GIB: Final = 1024 * MIB
_FOREVER: Final = 10_000 * 365 * _DAY
_EXBIBYTE: Final = 1024**6
_COMPACTING: Final = ("compact", "compact_limits")
#: What `dedup.by` begins with, if it names a header.
HEADER_RULE: Final = "header:"
_RULES: Final = "id or header:NAME"


@frozen(kw_only=True)
class TopicConfig(Dotted):
    """How a topic keeps its records; a frozen value."""

    what = "topic"

    storage: Literal["disk", "memory"] = setting(
        "disk",
        "Where records are kept; memory loses them at a stop, and is fixed at creation.",
        choices=("disk", "memory"),
    )
    sync: Literal["always", "interval", "os"] = setting(
        "always",
        "When a publish is acknowledged: after fdatasync, or once written and synced "
        "at intervals, or once written and synced when the system likes.",
        choices=("always", "interval", "os"),
    )
    sync_interval_ms: int = setting(
        200,
        "With sync = interval: the longest time that written records wait for their sync.",
        unit="milliseconds",
        low=1,
        high=_MINUTE,
    )
    retention_ms: int | None = setting(
        7 * _DAY,
        "How long records are kept at least, by append time; none keeps them for ever.",
        unit="milliseconds",
        low=1,
        high=_FOREVER,
        optional=True,
    )
    retention_bytes: int | None = setting(
        None,
        "How many bytes a partition may hold before its oldest segments go; none is no bound.",
        unit="bytes",
        low=1,
        high=_EXBIBYTE,
        optional=True,
    )
    retention_mode: Literal["limits", "settled", "compact", "compact_limits"] = setting(
        "limits",
        "Whether records stay as long as the limits say, or go as soon as every channel has "
        "settled them (without channels the limits hold), or the newest of each key stays for "
        "ever, or that one as long as the limits say.",
        choices=("limits", "settled", "compact", "compact_limits"),
    )
    compact_min_dirty: int = setting(
        50,
        "With compaction: share of a partition's closed files that was never cleaned, from which "
        "on cleaning is worth it.",
        unit="percent",
        low=0,
        high=100,
    )
    compact_lag_ms: int = setting(
        0,
        "With compaction: how long records stay at least, though a newer one has their key.",
        unit="milliseconds",
        low=0,
        high=_FOREVER,
    )
    compact_tombstone_ms: int = setting(
        _DAY,
        "With compaction: how long a record without a value stays, from when everything older "
        "of its key was cleaned away.",
        unit="milliseconds",
        low=0,
        high=_FOREVER,
    )
    ttl_ms: int | None = setting(
        None,
        "How long messages wait for the consumers of channels, from their append on; what is "
        "older goes to the dead-letter topic; none is no bound.",
        unit="milliseconds",
        low=1,
        high=_FOREVER,
        optional=True,
    )
    hold_max_ms: int | None = setting(
        14 * _DAY,
        "How old records may become that a channel has not settled, whatever retention says; "
        "none is no bound.",
        unit="milliseconds",
        low=0,
        high=_FOREVER,
        optional=True,
    )
    hold_max_bytes: int | None = setting(
        None,
        "How many bytes a partition may hold for such records; none is no bound but the disk's.",
        unit="bytes",
        low=0,
        high=_EXBIBYTE,
        optional=True,
    )
    hold_then: Literal["dead_letter", "refuse", "drop"] = setting(
        "dead_letter",
        "What happens beyond that: what is not settled goes to the channel's dead-letter topic, "
        "or producers are refused, or it is dropped and counted.",
        choices=("dead_letter", "refuse", "drop"),
    )
    segment_bytes: int = setting(
        128 * MIB,
        "Size at which a log starts a new file; retention works in whole files.",
        unit="bytes",
        low=4 * KIB,
        high=2 * _GIB - 1,
    )
    max_value_bytes: int = setting(
        16 * MIB,
        "Longest value that may be published.",
        unit="bytes",
        low=1,
        high=MAX_VALUE_CEILING,
    )
    memory_bytes: int = setting(
        64 * MIB,
        "With storage = memory: how many bytes a partition may hold; the oldest go first.",
        unit="bytes",
        low=64 * KIB,
        high=64 * _GIB,
    )
    undo_ms: int = setting(
        10 * _MINUTE,
        "How long a purge can be undone.",
        unit="milliseconds",
        low=0,
        high=30 * _DAY,
    )
    dedup_ms: int | None = setting(
        None,
        "How long the id of a message is known, from its first append on: the same id again is "
        "answered with the place of the first; none is no window.",
        unit="milliseconds",
        low=1,
        high=_FOREVER,
        optional=True,
    )
    dedup_by: str = setting(
        "id",
        "What the id is: id for the message ids that producers give, or header:NAME for the "
        "bytes of a header.",
        low=2,
        high=200,
    )
    min_in_sync: int = setting(
        1,
        "Copies that must hold a record before it is acknowledged; 1 until replication exists.",
        unit="copies",
        low=1,
        high=1,
    )

    def __attrs_post_init__(self) -> None:
        """
        Check what depends on more than one setting.

        Raises:
            InvalidRequest: The settings do not go together.
        """
        if self.compacts and self.storage == "memory":
            raise InvalidRequest(
                f"retention.mode = {self.retention_mode} needs storage = disk",
                field="retention.mode",
            )

    @property
    def compacts(self) -> bool:
        """Whether of each key only the newest record is kept."""
        return self.retention_mode in _COMPACTING

    @property
    def limits(self) -> tuple[int | None, int | None]:
        """How long records are kept, and how many bytes of them, as the mode has it."""
        if self.retention_mode == "compact":
            return None, None
        return self.retention_ms, self.retention_bytes

    @classmethod
    @override
    def _changes(cls, given: Mapping[str, Given], base: TopicConfig) -> dict[str, Any]:
        changes = super()._changes(given, base)
        rule = changes.get("dedup_by", "id")
        if rule != "id" and not (rule.startswith(HEADER_RULE) and rule != HEADER_RULE):
            raise InvalidRequest(
                f"dedup.by = {rule!r:.60} is wrong: it must be {_RULES}",
                field="dedup.by",
                allowed=_RULES,
            )
        return changes

    @override
    def altered(
        self, given: Mapping[str, Given], defaults: TopicConfig | None = None
    ) -> TopicConfig:
        """
        Return this configuration with changes.

        Raises:
            InvalidRequest: As `from_mapping`, or the setting is fixed.
        """
        new = super().altered(given, defaults)
        if new.storage != self.storage:
            raise InvalidRequest("storage is fixed when a topic is created", field="storage")
        return new


DEFAULT_TOPIC: Final = TopicConfig()
