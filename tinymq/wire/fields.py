"""
Fields of messages: what a key of the meta map may hold, and how that is checked.

A check takes a decoded value and returns it, or raises `ValueError` with a text
that completes the sentence "field x must be …".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from attrs import NOTHING, Attribute, field, fields, frozen

from tinymq.errors import InvalidRequest, MalformedFrame
from tinymq.limits import MAX_NESTING

Check = Callable[[Any], Any]

I64: Final = (1 << 63) - 1
I32: Final = (1 << 31) - 1
_WORD: Final = 200


def integer(low: int, high: int) -> Check:
    """A whole number from `low` to `high`."""

    def check(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return value

    return check


def boolean(value: Any) -> bool:
    """True or false."""
    if type(value) is not bool:
        raise ValueError("true or false")
    return value


def choice(*words: str) -> Check:
    """One of a few words."""

    def check(value: Any) -> str:
        if value not in words or type(value) is not str:
            raise ValueError(f"one of {', '.join(words)}")
        return value

    return check


def text(most: int) -> Check:
    """A string of at most `most` bytes of UTF-8."""

    def check(value: Any) -> str:
        if type(value) is not str or len(value.encode("utf-8", "surrogatepass")) > most:
            raise ValueError(f"a string of at most {most} bytes")
        return value

    return check


def binary(least: int, most: int) -> Check:
    """Bytes, from `least` to `most` of them."""

    def check(value: Any) -> bytes:
        if type(value) is not bytes or not least <= len(value) <= most:
            size = f"{least}" if least == most else f"{least} to {most}"
            raise ValueError(f"{size} bytes")
        return value

    return check


def optional(check: Check) -> Check:
    """Nil, or what `check` takes."""

    def checked(value: Any) -> Any:
        return None if value is None else check(value)

    return checked


def array(check: Check, most: int) -> Check:
    """An array of at most `most` items that `check` takes."""

    def checked(value: Any) -> list[Any]:
        if type(value) not in (list, tuple) or len(value) > most:
            raise ValueError(f"an array of at most {most} items")
        return [check(item) for item in value]

    return checked


def row(*checks: Check) -> Check:
    """An array with exactly one item for each check."""

    def checked(value: Any) -> tuple[Any, ...]:
        if type(value) not in (list, tuple) or len(value) != len(checks):
            raise ValueError(f"an array of {len(checks)} items")
        return tuple(check(item) for check, item in zip(checks, value, strict=True))

    return checked


def mapping(value: Any) -> dict[str, Any]:
    """A map with string keys, nested no deeper than anything here needs."""
    if type(value) is not dict or not all(type(key) is str for key in value):
        raise ValueError("a map with string keys")
    level: list[Any] = [value]
    for _ in range(MAX_NESTING):
        level = [
            item
            for holder in level
            for item in (holder.values() if type(holder) is dict else holder)
            if type(item) in (dict, list)
        ]
        if not level:
            return value
    raise ValueError(f"a map nested at most {MAX_NESTING} deep")


def counts(value: Any) -> dict[str, int]:
    """A map of names to whole numbers."""
    if type(value) is not dict or not all(
        type(key) is str and type(item) is int for key, item in value.items()
    ):
        raise ValueError("a map of names to whole numbers")
    return value


def words(value: Any) -> dict[str, str]:
    """A map of short strings to short strings."""
    if type(value) is not dict or not all(
        type(word) is str and len(word) <= _WORD for pair in value.items() for word in pair
    ):
        raise ValueError(f"a map of strings to strings of at most {_WORD} characters")
    return value


TOPIC_ID: Final = binary(16, 16)
OFFSET: Final = integer(0, I64)
POSITION: Final = integer(-1, I64)
EPOCH: Final = integer(-1, I32)
PARTITION: Final = integer(0, I32)


def wire(key: str, check: Check, *, default: Any = NOTHING) -> Any:
    """
    Declare a field of a message.

    Args:
        key: Its short key in the meta map.
        check: What it may hold.
        default: What a missing key means; without one the key is required.
    """
    return field(default=default, metadata={"key": key, "check": check})


class Row(NamedTuple):
    """One field: its long name, its key in the map, its check, and its default if it has one."""

    name: str
    key: str
    check: Check
    default: Any


@frozen
class Schema:
    """How one class of messages is read from and written to a meta map."""

    rows: tuple[Row, ...]

    @classmethod
    def of(cls, message: type[Any]) -> Schema:
        """Collect the fields that were declared with `wire`."""
        return cls(tuple(_row(attribute) for attribute in fields(message)))

    def read(
        self, meta: dict[str, Any], error: type[InvalidRequest | MalformedFrame]
    ) -> dict[str, Any]:
        """
        Check a meta map.

        Args:
            meta: The map; unknown keys are ignored.
            error: What to raise: the request or the reply is to blame.

        Returns:
            The fields by their long names.
        """
        found = {}
        for name, key, check, default in self.rows:
            value = meta.get(key, NOTHING)
            if value is NOTHING:
                if default is NOTHING:
                    raise error(f"field {name} ({key}) is missing", field=name)
                found[name] = default
                continue
            try:
                found[name] = check(value)
            except ValueError as reason:
                raise error(f"field {name} ({key}) must be {reason}", field=name) from None
        return found

    def write(self, message: Any) -> dict[str, Any]:
        """
        Build the meta map of a message; fields at their default are left out.

        Args:
            message: An instance of the class.
        """
        meta = {}
        for name, key, _check, default in self.rows:
            value = getattr(message, name)
            if value == default:
                continue
            meta[key] = value
        return meta


def _row(attribute: Attribute[Any]) -> Row:
    return Row(
        attribute.name,
        attribute.metadata["key"],
        attribute.metadata["check"],
        attribute.default,
    )
