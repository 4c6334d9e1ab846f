"""
Fields of messages: what a key of the meta map may hold, and how that is checked.

A check takes a decoded value and returns it, or raises `ValueError` with a text
that completes the sentence "field x must be …". It also says what it takes as JSON
Schema, for those who describe it to programs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol, cast

from attrs import NOTHING, Attribute, field, fields, frozen

from tinymq.errors import InvalidRequest, MalformedFrame
from tinymq.limits import MAX_NESTING

#: What JSON Schema says of a value.
JsonSchema = Mapping[str, Any]

I64: Final = (1 << 63) - 1
I32: Final = (1 << 31) - 1
_WORD: Final = 200


class Check(Protocol):
    """
    A function that takes a value, and says in two ways what it takes.

    It stays a plain function, which costs less to call than an object.

    Attributes:
        must: The sentence that it raises: what a value must be.
        schema: The same for programs, as JSON Schema.
    """

    must: str
    schema: JsonSchema

    def __call__(self, value: Any, /) -> Any:
        """
        Return the value, or what it stands for.

        Raises:
            ValueError: It is not taken; the text is `must`, or says it closer.
        """


def told(must: str, schema: JsonSchema) -> Callable[[Callable[[Any], Any]], Check]:
    """
    Let a function say what it takes.

    Args:
        must: What a value must be.
        schema: The same as JSON Schema.
    """

    def tell(function: Callable[[Any], Any]) -> Check:
        vars(function).update(must=must, schema=schema)
        return cast("Check", function)

    return tell


def narrowed(check: Check, **schema: Any) -> Check:
    """
    Tell programs more closely what a value should be; the check itself stays as it is.

    For bounds that are checked elsewhere, where the error says more.

    Args:
        check: Of the value.
        **schema: What is added to its schema.
    """

    def checked(value: Any) -> Any:
        return check(value)

    return told(check.must, {**check.schema, **schema})(checked)


def integer(low: int, high: int) -> Check:
    """A whole number from `low` to `high`."""
    must = f"a whole number from {low} to {high}"

    @told(must, {"type": "integer", "minimum": low, "maximum": high})
    def check(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise ValueError(must)
        return value

    return check


@told("true or false", {"type": "boolean"})
def boolean(value: Any) -> bool:
    """True or false."""
    if type(value) is not bool:
        raise ValueError(boolean.must)
    return value


def choice(*words: str) -> Check:
    """One of a few words."""
    must = f"one of {', '.join(words)}"

    @told(must, {"type": "string", "enum": list(words)})
    def check(value: Any) -> str:
        if value not in words or type(value) is not str:
            raise ValueError(must)
        return value

    return check


def text(most: int) -> Check:
    """A string of at most `most` bytes of UTF-8."""
    must = f"a string of at most {most} bytes"

    @told(must, {"type": "string", "maxLength": most})
    def check(value: Any) -> str:
        if type(value) is not str or len(value.encode("utf-8", "surrogatepass")) > most:
            raise ValueError(must)
        return value

    return check


def binary(least: int, most: int) -> Check:
    """Bytes, from `least` to `most` of them."""
    size = f"{least}" if least == most else f"{least} to {most}"
    must = f"{size} bytes"

    @told(must, {"type": "string", "contentEncoding": "base64"})
    def check(value: Any) -> bytes:
        if type(value) is not bytes or not least <= len(value) <= most:
            raise ValueError(must)
        return value

    return check


def optional(check: Check) -> Check:
    """Nil, or what `check` takes."""

    @told(f"nil or {check.must}", _or_null(check.schema))
    def checked(value: Any) -> Any:
        return None if value is None else check(value)

    return checked


def _or_null(schema: JsonSchema) -> JsonSchema:
    kinds = schema["type"]
    found = {**schema, "type": [*([kinds] if isinstance(kinds, str) else kinds), "null"]}
    if "enum" in schema:
        found["enum"] = [*schema["enum"], None]
    return found


def array(check: Check, most: int) -> Check:
    """An array of at most `most` items that `check` takes."""
    must = f"an array of at most {most} items"

    @told(must, {"type": "array", "items": check.schema, "maxItems": most})
    def checked(value: Any) -> list[Any]:
        if type(value) not in (list, tuple) or len(value) > most:
            raise ValueError(must)
        return [check(item) for item in value]

    return checked


def row(*checks: Check) -> Check:
    """An array with exactly one item for each check."""
    size = len(checks)
    must = f"an array of {size} items"
    items = [check.schema for check in checks]

    @told(must, {"type": "array", "prefixItems": items, "minItems": size, "maxItems": size})
    def checked(value: Any) -> tuple[Any, ...]:
        if type(value) not in (list, tuple) or len(value) != size:
            raise ValueError(must)
        return tuple([check(item) for check, item in zip(checks, value, strict=True)])

    return checked


@told("a map with string keys", {"type": "object"})
def mapping(value: Any) -> dict[str, Any]:
    """A map with string keys, nested no deeper than anything here needs."""
    if type(value) is not dict or not all(type(key) is str for key in value):
        raise ValueError(mapping.must)
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


@told(
    "a map of names to whole numbers",
    {"type": "object", "additionalProperties": {"type": "integer"}},
)
def counts(value: Any) -> dict[str, int]:
    """A map of names to whole numbers."""
    if type(value) is not dict or not all(
        type(key) is str and type(item) is int for key, item in value.items()
    ):
        raise ValueError(counts.must)
    return value


@told(
    f"a map of strings to strings of at most {_WORD} characters",
    {"type": "object", "additionalProperties": {"type": "string", "maxLength": _WORD}},
)
def words(value: Any) -> dict[str, str]:
    """A map of short strings to short strings."""
    if type(value) is not dict or not all(
        type(word) is str and len(word) <= _WORD for pair in value.items() for word in pair
    ):
        raise ValueError(words.must)
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
