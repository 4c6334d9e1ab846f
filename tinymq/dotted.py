"""
Settings that people and programs name with dots.

The field ``retention_ms`` is ``retention.ms`` on the wire, on pages and on the
command line. A value keeps all its settings, so that a new default changes
nothing that exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Self, TypeAlias

import attrs
from attrs import frozen

from tinymq.errors import InvalidRequest
from tinymq.settings import Row, Setting, Value, declared, shown

#: What a setting may be given as.
Given: TypeAlias = str | int | list[str] | tuple[str, ...] | None

#: Fields of each class by external names, once they were asked for.
_KNOWN: Final[dict[type[Any], dict[str, tuple[str, Setting]]]] = {}


@frozen(kw_only=True)
class Dotted:
    """
    Base of settings with dotted names; a frozen value.

    Attributes:
        what: What they are settings of, in one word.
    """

    what: ClassVar[str]

    @classmethod
    def from_mapping(cls, given: Mapping[str, Given], defaults: Self | None = None) -> Self:
        """
        Make a value from external names and values.

        Args:
            given: Dotted names to values or texts. None stands for none where a
                setting allows it, else for the default.
            defaults: What holds for all that is not given.

        Raises:
            InvalidRequest: A name is unknown or a value does not fit; the data
                holds ``field``, and ``allowed`` for a value.
        """
        base = defaults or cls()
        return attrs.evolve(base, **cls._changes(given, base))

    @classmethod
    def from_stored(cls, stored: Mapping[str, Any]) -> Self:
        """Read what `to_mapping` gave, leaving out what this version does not know."""
        known = _known(cls)
        return cls.from_mapping({name: stored[name] for name in stored if name in known})

    def to_mapping(self) -> dict[str, Any]:
        """Return every setting by its external name."""
        return {name: getattr(self, field) for name, (field, _) in _known(type(self)).items()}

    def altered(self, given: Mapping[str, Given], defaults: Self | None = None) -> Self:
        """
        Return this value with changes.

        Args:
            given: As for `from_mapping`.
            defaults: What None stands for where a setting cannot be none.

        Raises:
            InvalidRequest: As `from_mapping`, or the setting is fixed.
        """
        return attrs.evolve(self, **self._changes(given, defaults or type(self)()))

    def rows(self, defaults: Self | None = None) -> tuple[Row, ...]:
        """
        Return the table of all settings, for pages and the command line.

        Args:
            defaults: The defaults in force on the broker.
        """
        base = defaults or type(self)()
        return tuple(
            Row(
                name=name,
                value=shown(getattr(self, field)),
                default=shown(getattr(base, field)),
                text=kind.text,
                allowed=kind.allowed,
            )
            for name, (field, kind) in _known(type(self)).items()
        )

    @classmethod
    def _changes(cls, given: Mapping[str, Given], base: Self) -> dict[str, Any]:
        changes: dict[str, Any] = {}
        for name, value in given.items():
            field, kind = cls._find(name)
            to_default = value is None and not kind.optional
            changes[field] = getattr(base, field) if to_default else _value(name, kind, value)
        return changes

    @classmethod
    def _find(cls, name: object) -> tuple[str, Setting]:
        known = _known(cls)
        if not isinstance(name, str) or name not in known:
            raise InvalidRequest(
                f"unknown {cls.what} setting {str(name)[:40]!r}; there are {', '.join(known)}",
                field=str(name)[:200],
            )
        return known[name]


def _known(group: type[Any]) -> dict[str, tuple[str, Setting]]:
    """Fields and their declarations by external names, in order."""
    found = _KNOWN.get(group)
    if found is None:
        found = _KNOWN[group] = {
            field.replace("_", "."): (field, kind) for field, kind in declared(group).items()
        }
    return found


def _value(name: str, kind: Setting, given: object) -> Value:
    try:
        return kind.parse(given) if isinstance(given, str) else kind.read(given)
    except ValueError:
        raise InvalidRequest(
            f"{name} = {str(given)[:40]!r} is wrong: it must be {kind.allowed}",
            field=name,
            allowed=kind.allowed,
        ) from None
