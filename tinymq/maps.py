"""
Frozen values as maps, and back: how they cross between processes.

A newer process may know fields that an older one does not, and says nothing of
those that it no longer knows: unknown ones are passed over, missing ones have
their defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import cattrs

from tinymq.stats import Counters, Rates

Value = TypeVar("Value")


def _row(value: Any, cls: Any) -> Any:
    """Read a named tuple, which stands there as a map or as a list."""
    if isinstance(value, Mapping):
        return cls(**{name: value[name] for name in cls._fields if name in value})
    return cls(*value[: len(cls._fields)])


_CONVERTER: Final = cattrs.Converter()
for _cls in (Counters, Rates):
    _CONVERTER.register_unstructure_hook(_cls, list)
    _CONVERTER.register_structure_hook(_cls, _row)


def to_map(value: Any) -> Any:
    """
    Turn a frozen value into what msgpack can hold.

    Args:
        value: The value, or a list of such.
    """
    return _CONVERTER.unstructure(value)


def from_map(found: Any, cls: type[Value]) -> Value:
    """
    Read what `to_map` gave.

    Args:
        found: Of another process.
        cls: What it must be.

    Raises:
        ValueError: It is not.
    """
    try:
        return _CONVERTER.structure(found, cls)
    except (cattrs.BaseValidationError, TypeError, ValueError, KeyError) as error:
        raise ValueError(f"this is no {cls.__name__}: {found!r:.200}") from error
