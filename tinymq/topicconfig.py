"""
The settings of one topic.

Outside this process a setting's name has dots: the field ``retention_ms`` is
``retention.ms`` on the wire, on pages and on the command line. A topic keeps
all its settings from its creation on, so that a new default of the broker
changes no topic that exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import attrs
from attrs import frozen

from tinymq.errors import InvalidRequest
from tinymq.limits import KIB, MAX_VALUE_CEILING, MIB
from tinymq.settings import Row, Setting, Value, declared, setting, shown

_MINUTE: Final = 60_000
_DAY: Final = 24 * 60 * _MINUTE
_GIB: Final = 1024 * MIB
_FOREVER: Final = 10_000 * 365 * _DAY
_EXBIBYTE: Final = 1024**6


@frozen(kw_only=True)
class TopicConfig:
    """How a topic keeps its records; a frozen value."""

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
    min_in_sync: int = setting(
        1,
        "Copies that must hold a record before it is acknowledged; 1 until replication exists.",
        unit="copies",
        low=1,
        high=1,
    )

    @classmethod
    def from_mapping(
        cls, given: Mapping[str, str | int | None], defaults: TopicConfig | None = None
    ) -> TopicConfig:
        """
        Make a configuration from external names and values.

        Args:
            given: Dotted names to numbers or texts. None stands for none where
                a setting allows it, else for the default.
            defaults: What holds for all that is not given.

        Raises:
            InvalidRequest: A name is unknown or a value does not fit; the data
                holds ``field``, and ``allowed`` for a value.
        """
        base = defaults or DEFAULT_TOPIC
        return attrs.evolve(base, **_changes(given, base))

    @classmethod
    def from_stored(cls, stored: Mapping[str, Any]) -> TopicConfig:
        """Read what `to_mapping` gave, leaving out what this version does not know."""
        return cls.from_mapping({name: stored[name] for name in stored if name in _BY_NAME})

    def to_mapping(self) -> dict[str, str | int | None]:
        """Return every setting by its external name."""
        return {name: getattr(self, field) for name, (field, _) in _BY_NAME.items()}

    def altered(
        self, given: Mapping[str, str | int | None], defaults: TopicConfig | None = None
    ) -> TopicConfig:
        """
        Return this configuration with changes.

        Args:
            given: As for `from_mapping`.
            defaults: What None stands for where a setting cannot be none.

        Raises:
            InvalidRequest: As `from_mapping`, or the setting is fixed.
        """
        new = attrs.evolve(self, **_changes(given, defaults or DEFAULT_TOPIC))
        if new.storage != self.storage:
            raise InvalidRequest("storage is fixed when a topic is created", field="storage")
        return new

    def rows(self, defaults: TopicConfig | None = None) -> tuple[Row, ...]:
        """
        Return the table of all settings, for pages and the command line.

        Args:
            defaults: The defaults in force on the broker.
        """
        base = defaults or DEFAULT_TOPIC
        return tuple(
            Row(
                name=name,
                value=shown(getattr(self, field)),
                default=shown(getattr(base, field)),
                text=kind.text,
                allowed=kind.allowed,
            )
            for name, (field, kind) in _BY_NAME.items()
        )


_BY_NAME: Final[dict[str, tuple[str, Setting]]] = {
    field.replace("_", "."): (field, kind) for field, kind in declared(TopicConfig).items()
}

DEFAULT_TOPIC: Final = TopicConfig()


def _changes(given: Mapping[str, str | int | None], base: TopicConfig) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    for name, value in given.items():
        field, kind = _find(name)
        to_default = value is None and not kind.optional
        changes[field] = getattr(base, field) if to_default else _value(name, kind, value)
    return changes


def _find(name: object) -> tuple[str, Setting]:
    if not isinstance(name, str) or name not in _BY_NAME:
        known = ", ".join(_BY_NAME)
        raise InvalidRequest(
            f"unknown topic setting {str(name)[:40]!r}; there are {known}", field=str(name)[:200]
        )
    return _BY_NAME[name]


def _value(name: str, kind: Setting, given: object) -> Value:
    try:
        return kind.parse(given) if isinstance(given, str) else kind.read(given)
    except ValueError:
        raise InvalidRequest(
            f"{name} = {str(given)[:40]!r} is wrong: it must be {kind.allowed}",
            field=name,
            allowed=kind.allowed,
        ) from None
