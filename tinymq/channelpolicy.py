"""
The policy of a channel: how its messages are given out, tried again and given up.

As for topics, a setting is called ``lease.ms`` outside of this process and
``lease_ms`` here, and every table of settings derives from this class. All of
them can be altered while the channel runs: what is in flight keeps its
deadline, all else follows the new policy from then on.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias

import attrs
from attrs import frozen

from tinymq.conditions import Condition
from tinymq.errors import InvalidRequest
from tinymq.names import valid_name
from tinymq.settings import Row, Setting, Value, declared, parse_duration, setting, shown

_SECOND: Final = 1000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_YEAR: Final = 365 * _DAY

#: What a setting may be given as.
Given: TypeAlias = str | int | list[str] | tuple[str, ...] | None


def _delay(text: str) -> int:
    delay = int(parse_duration(text) * _SECOND)
    if delay > _YEAR:
        raise ValueError(f"{text} is longer than a year")
    return delay


@frozen(kw_only=True)
class ChannelPolicy:
    """How a channel treats its messages; a frozen value."""

    order: Literal["none", "key", "strict"] = setting(
        "none",
        "What is given out in the order of the log: nothing for sure, the messages of each key, "
        "or all messages of a partition.",
        choices=("none", "key", "strict"),
    )
    delivery: Literal["at_least_once", "at_most_once"] = setting(
        "at_least_once",
        "Whether a message comes again until it is settled, or counts as settled "
        "before it is given out.",
        choices=("at_least_once", "at_most_once"),
    )
    lease_ms: int = setting(
        _MINUTE,
        "How long a consumer may keep a message before it comes again; clients renew it.",
        unit="milliseconds",
        low=100,
        high=7 * _DAY,
    )
    handler_ms: int | None = setting(
        12 * _HOUR,
        "How long a handler may run, however often its lease is renewed; none is no bound.",
        unit="milliseconds",
        low=100,
        high=_YEAR,
        optional=True,
    )
    attempts: int = setting(
        10,
        "How often a message may fail before it goes to the dead-letter topic.",
        unit="failures",
        low=1,
        high=1_000_000_000,
    )
    backoff: tuple[str, ...] = setting(
        ("1s", "5s", "30s", "2m", "10m"),
        "Delays before a failed message comes again, after the first failure, the second and "
        "so on; the last one stands for all that follow.",
        low=1,
        high=100,
    )
    jitter_percent: int = setting(
        20,
        "By how much a delay of the back-off may be longer, by chance.",
        unit="percent",
        low=0,
        high=100,
    )
    dead_letter: str = setting(
        "",
        "The topic for messages that are given up; empty is the one named after topic and channel.",
        low=0,
        high=200,
    )
    max_length: int | None = setting(
        None,
        "How many unsettled messages a partition of the channel may have; none is no bound.",
        unit="messages",
        low=1,
        high=10**15,
        optional=True,
    )
    overflow: Literal["dead_letter", "refuse"] = setting(
        "dead_letter",
        "What happens beyond max.length: the oldest messages go to the dead-letter topic, "
        "or producers are refused.",
        choices=("dead_letter", "refuse"),
    )
    filter: tuple[str, ...] = setting(
        (),
        "Conditions on headers, all of which a message must meet: name, !name, name=value "
        "or name!=value.",
        low=0,
        high=20,
    )

    def __attrs_post_init__(self) -> None:
        for name, check in (("backoff", lambda: self.delays), ("filter", lambda: self.conditions)):
            try:
                check()
            except ValueError as error:
                raise InvalidRequest(f"{name}: {error}", field=name) from None
        if self.dead_letter:
            valid_name(self.dead_letter)

    @cached_property
    def delays(self) -> tuple[int, ...]:
        """The back-off in milliseconds."""
        return tuple(_delay(text) for text in self.backoff)

    @cached_property
    def conditions(self) -> tuple[Condition, ...]:
        """The filter, ready for use."""
        return tuple(Condition.parse(text) for text in self.filter)

    @property
    def looks(self) -> bool:
        """Whether somebody must look at messages before they are given out."""
        return self.order == "key" or bool(self.filter)

    def delay(self, failures: int, chance: float) -> int:
        """
        Return how long a message waits that failed.

        Args:
            failures: How often it failed by now, at least once.
            chance: From 0 to 1, for the jitter.

        Returns:
            Milliseconds.
        """
        delay = self.delays[min(failures, len(self.delays)) - 1]
        return delay + int(delay * self.jitter_percent / 100 * chance)

    @classmethod
    def from_mapping(
        cls, given: Mapping[str, Given], defaults: ChannelPolicy | None = None
    ) -> ChannelPolicy:
        """
        Make a policy from external names and values.

        Args:
            given: Dotted names to values or texts. None stands for none where a
                setting allows it, else for the default.
            defaults: What holds for all that is not given.

        Raises:
            InvalidRequest: A name is unknown or a value does not fit.
        """
        base = defaults or DEFAULT_POLICY
        return attrs.evolve(base, **_changes(given, base))

    @classmethod
    def from_stored(cls, stored: Mapping[str, Any]) -> ChannelPolicy:
        """Read what `to_mapping` gave, leaving out what this version does not know."""
        return cls.from_mapping({name: stored[name] for name in stored if name in _BY_NAME})

    def to_mapping(self) -> dict[str, Value]:
        """Return every setting by its external name."""
        return {name: getattr(self, field) for name, (field, _) in _BY_NAME.items()}

    def altered(self, given: Mapping[str, Given]) -> ChannelPolicy:
        """
        Return this policy with changes.

        Args:
            given: As for `from_mapping`.

        Raises:
            InvalidRequest: As `from_mapping`.
        """
        return attrs.evolve(self, **_changes(given, DEFAULT_POLICY))

    def rows(self, defaults: ChannelPolicy | None = None) -> tuple[Row, ...]:
        """
        Return the table of all settings, for pages and the command line.

        Args:
            defaults: The defaults in force on the broker.
        """
        base = defaults or DEFAULT_POLICY
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
    field.replace("_", "."): (field, kind) for field, kind in declared(ChannelPolicy).items()
}

DEFAULT_POLICY: Final = ChannelPolicy()


def _changes(given: Mapping[str, Given], base: ChannelPolicy) -> dict[str, Any]:
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
            f"unknown channel setting {str(name)[:40]!r}; there are {known}",
            field=str(name)[:200],
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
