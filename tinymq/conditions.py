"""Conditions on the headers of a message, of which a channel's filter is made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, TypeAlias

from attrs import frozen

#: What a condition asks of a header.
Test: TypeAlias = Literal["there", "absent", "equal", "unequal"]

_LONGEST: Final = 500


@frozen
class Condition:
    """
    One condition.

    Attributes:
        name: The header looked at.
        test: What is asked of it.
        value: What it is compared with.
    """

    name: str
    test: Test
    value: bytes = b""

    @classmethod
    def parse(cls, text: str) -> Condition:
        """
        Read a condition.

        Args:
            text: ``name``, ``!name``, ``name=value`` or ``name!=value``.

        Raises:
            ValueError: It names no header.
        """
        name, equals, value = text.partition("=")
        test: Test = "there"
        if equals:
            test = "unequal" if name.endswith("!") else "equal"
            name = name.removesuffix("!")
        elif name.startswith("!"):
            test, name = "absent", name[1:]
        if not name or len(text) > _LONGEST:
            raise ValueError(
                f"{text[:40]!r} is no condition; write name, !name, name=value or name!=value"
            )
        return cls(name, test, value.encode())

    def met(self, headers: Sequence[tuple[str, bytes]]) -> bool:
        """
        Whether headers meet it; of a name that repeats, one is enough.

        Args:
            headers: Names and values.
        """
        values = [value for name, value in headers if name == self.name]
        if self.test == "there":
            return bool(values)
        if self.test == "absent":
            return not values
        return (self.value in values) == (self.test == "equal")


def matches(conditions: Iterable[Condition], headers: Sequence[tuple[str, bytes]]) -> bool:
    """
    Whether headers meet all of several conditions.

    Args:
        conditions: Maybe none.
        headers: Names and values of a message.
    """
    return all(condition.met(headers) for condition in conditions)
