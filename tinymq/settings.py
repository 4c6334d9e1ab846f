"""
What a setting is: a field of a frozen attrs class that knows its text and range.

A group of settings is an attrs class whose fields are made by `setting`. From
that one declaration come the check at construction, the reading of texts from
files, environment and requests, and every table that shows settings to people.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal, TypeAlias

import attrs
from attrs import frozen

from tinymq.errors import ConfigError

#: What a setting holds.
Value: TypeAlias = bool | int | str | tuple[str, ...] | None

Kind: TypeAlias = Literal["bool", "int", "text", "list"]

_KEY: Final = "setting"
_KINDS: Final[dict[type, Kind]] = {bool: "bool", int: "int", str: "text", tuple: "list"}
_WORDS: Final = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}
_DIGITS: Final = 20
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
#: One part of a duration.
DURATION_TEXT: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)
_POWERS: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
#: Units of settings: how many of them are a second.
_TIMES: Final = {"milliseconds": 1000, "seconds": 1}
#: A longer text is no number of anything.
_LONGEST: Final = 40


def parse_duration(text: str) -> float:
    """
    Read a duration.

    Args:
        text: Such as ``250ms``, ``10m``, ``1h30m``, or a bare number of seconds.

    Returns:
        Seconds.

    Raises:
        ValueError: It is no duration.
    """
    if re.fullmatch(r"\d{1,20}(\.\d{1,20})?", text):
        return float(text)
    parts = DURATION_TEXT.findall(text)
    if (
        len(text) > _LONGEST
        or not parts
        or "".join(number + unit for number, unit in parts) != text
    ):
        raise ValueError(f"{text[:_LONGEST]!r} is no duration; write 250ms, 30s, 10m, 1h30m or 7d")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def parse_size(text: str) -> int:
    """
    Read a size.

    Args:
        text: Such as ``512``, ``64KiB``, ``64k`` (both 65536) or ``1.5M``.

    Returns:
        Bytes.

    Raises:
        ValueError: It is no size.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None or len(text) > _LONGEST:
        raise ValueError(f"{text[:_LONGEST]!r} is no size; write 512, 64KiB or 10M")
    return int(float(match[1]) * 1024 ** _POWERS[match[2].lower()])


@frozen(kw_only=True)
class Setting:
    """
    The declaration of one setting.

    Attributes:
        text: One sentence that says what it does.
        kind: What it holds.
        unit: Of a number, in the plural.
        low: Smallest number, or shortest text.
        high: Largest number, or longest text.
        choices: The texts allowed, when there are only these.
        optional: Whether it may be none.
    """

    text: str
    kind: Kind
    unit: str = ""
    low: int = 0
    high: int = 0
    choices: tuple[str, ...] = ()
    optional: bool = False

    @property
    def allowed(self) -> str:
        """What may be given, in words."""
        words = {
            "bool": "true or false",
            "int": f"a whole number from {self.low} to {self.high} {self.unit}".rstrip(),
            "text": f"a text of {self.low} to {self.high} characters",
            "list": f"a list of {self.low} to {self.high} texts",
        }[self.kind]
        words = " or ".join(self.choices) or words
        return f"{words}, or none" if self.optional else words

    def fits(self, value: object) -> bool:
        """Whether a value has the type and lies in the range."""
        if value is None:
            return self.optional
        kind = _KINDS.get(type(value))
        if kind != self.kind:
            return False
        if isinstance(value, str):
            if self.choices:
                return value in self.choices
            return value.isprintable() and self.low <= len(value) <= self.high
        if isinstance(value, tuple):
            texts = all(isinstance(item, str) and item.isprintable() for item in value)
            return texts and self.low <= len(value) <= self.high
        return isinstance(value, int) and (kind == "bool" or self.low <= value <= self.high)

    def read(self, given: object) -> Value:
        """
        Return the value that a typed source gave, such as TOML.

        Raises:
            ValueError: It does not fit; the text says what would.
        """
        if self.optional and given == "none":
            given = None
        if self.kind == "int" and isinstance(given, str):
            given = self._counted(given)
        if self.kind == "list" and isinstance(given, str):
            given = (given,)
        value = tuple(given) if isinstance(given, list) else given
        if not self.fits(value):
            raise ValueError(self.allowed)
        return value  # type: ignore[return-value]

    def parse(self, text: str) -> Value:
        """
        Return the value that a text stands for, such as one of the environment.

        Raises:
            ValueError: It does not fit; the text says what would.
        """
        text = text.strip()
        given: object = text
        if self.kind == "list":
            given = text.split()
        elif self.kind == "bool":
            given = _WORDS.get(text.lower())
        elif self.kind == "int" and _is_number(text):
            given = int(text)
        return self.read(given)

    def _counted(self, text: str) -> object:
        """Read a number with a unit, such as ``7d`` or ``1 GiB``; others stay as they are."""
        text = "".join(text.split())
        if text[-1:].isdigit() or text == "":
            return text
        try:
            if self.unit == "bytes":
                return parse_size(text)
            if self.unit in _TIMES:
                amount = round(parse_duration(text) * _TIMES[self.unit], 6)
                return int(amount) if amount.is_integer() else text
        except ValueError:
            pass
        return text


def _is_number(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS


def setting(default: Value, text: str, **facts: Any) -> Any:
    """
    Declare a field of a group.

    Args:
        default: The value when none is given.
        text: One sentence that says what it does.
        facts: Fields of `Setting`; `kind` is taken from the default if it is
            not given.
    """
    declared = Setting(text=text, **{"kind": _KINDS.get(type(default), "int"), **facts})
    return attrs.field(default=default, validator=_check, metadata={_KEY: declared})


def _check(_: Any, attribute: attrs.Attribute[Any], value: object) -> None:
    declared = of(attribute)
    if not declared.fits(value):
        raise ConfigError(f"{attribute.name} = {value!r} is wrong: it must be {declared.allowed}")


def of(attribute: attrs.Attribute[Any]) -> Setting:
    """Return the declaration behind an attrs field."""
    declared = attribute.metadata[_KEY]
    assert isinstance(declared, Setting)
    return declared


def declared(group: type[Any]) -> dict[str, Setting]:
    """Return the settings of a group, by field name, in order."""
    return {field.name: of(field) for field in attrs.fields(group)}


def shown(value: Value) -> str:
    """Return a value as people read and write it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return " ".join(value)
    return "none" if value is None else str(value)


@frozen(kw_only=True)
class Row:
    """
    One line of a table of settings.

    Attributes:
        name: The name by which people set it.
        value: The value in force.
        default: The value when nobody says anything.
        text: What it does.
        allowed: What may be given.
    """

    name: str
    value: str
    default: str
    text: str
    allowed: str

    @property
    def changed(self) -> bool:
        """Whether the value in force is not the default."""
        return self.value != self.default
