"""What an operation is: its name, what it takes, who may use it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal

from attrs import frozen

from tinymq.errors import InvalidRequest
from tinymq.wire.fields import I32, I64, Check, boolean, integer, optional, text

#: Who may use an operation; ``cluster`` is for the processes of a cluster among themselves.
Role = Literal["viewer", "operator", "admin", "cluster"]
#: A map that msgpack and JSON can hold.
Result = dict[str, Any]

#: The default of a parameter that has none.
REQUIRED: Final = object()


@frozen
class Parameter:
    """
    A parameter of an operation.

    Attributes:
        name: Its name everywhere.
        check: What it may be.
        default: What a missing one means; without it the parameter is required.
    """

    name: str
    check: Check
    default: Any = REQUIRED


@frozen
class Operation:
    """
    One administrative operation.

    Attributes:
        name: Noun and verb, such as ``topic.create``.
        role: The least role that may use it.
        changes: Whether it changes anything; such a one of people takes ``dry_run``.
        parameters: What it takes.
        run: The method that carries it out.
        caller: Whether the method wants to know who asks, as its first argument.
    """

    name: str
    role: Role
    changes: bool
    parameters: tuple[Parameter, ...]
    run: Callable[..., Result | Awaitable[Result]]
    caller: bool = False

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """
        Check arguments.

        Args:
            given: By name.

        Raises:
            InvalidRequest: One is missing, unknown or wrong; the data's ``field`` names it.
        """
        known = {parameter.name for parameter in self.parameters}
        for name in given:
            if name not in known:
                raise InvalidRequest(
                    f"{self.name} takes {', '.join(sorted(known)) or 'nothing'}, not {name[:40]!r}",
                    field=name[:200],
                )
        found = {}
        for parameter in self.parameters:
            value = given.get(parameter.name, parameter.default)
            if value is REQUIRED:
                raise InvalidRequest(f"{self.name} needs {parameter.name}", field=parameter.name)
            if value is not parameter.default:
                try:
                    value = parameter.check(value)
                except ValueError as reason:
                    raise InvalidRequest(
                        f"{parameter.name} of {self.name} must be {reason}", field=parameter.name
                    ) from None
            found[parameter.name] = value
        return found


NAME: Final = text(1024)
NUMBER: Final = integer(-(1 << 62), I64)

DRY: Final = Parameter("dry_run", boolean, default=False)
WHICH: Final = Parameter("name", NAME)
PARTITION: Final = Parameter("partition", optional(integer(0, I64)), default=None)
#: The id of the topic that is meant, so that one made anew under its name is left alone.
TOPIC: Final = Parameter("id", optional(text(32)), default=None)
BEFORE: Final = (
    Parameter("before", optional(integer(0, I64)), default=None),
    Parameter("before_ms", optional(integer(0, I64)), default=None),
    Parameter("keep", optional(integer(0, I64)), default=None),
)
AFTER: Final = Parameter("after", NAME, default="")
LIMIT: Final = Parameter("limit", integer(1, 500), default=100)
FILTER: Final = Parameter("filter", text(200), default="")


def broker_name(value: Any) -> str:
    """A broker's name or number."""
    if type(value) is int and 0 <= value <= I32:
        return str(value)
    if type(value) is str and len(value.encode("utf-8", "surrogatepass")) <= _MOST_NAME:
        return value
    raise ValueError("a broker's name or number")


_MOST_NAME: Final = 200
#: A broker by its number or its name; without it, the one that is asked.
BROKER: Final = Parameter("broker", optional(broker_name), default=None)
#: A broker that must be said.
THE_BROKER: Final = Parameter("broker", broker_name)


def table(*operations: Operation) -> dict[str, Operation]:
    """Return operations by their names."""
    return {operation.name: operation for operation in operations}
