"""
What an operation is: its name, what it takes and gives, who may use it, and its ways in.

The wire (OPERATE), the HTTP API, its description, the command line and the check
of roles are all made of these values, so that they cannot differ.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal, Protocol

from attrs import evolve, field, frozen

from tinymq.errors import Forbidden, InvalidRequest
from tinymq.wire.fields import (
    I32,
    I64,
    Check,
    JsonSchema,
    boolean,
    integer,
    narrowed,
    optional,
    text,
    told,
)

#: Who may use an operation; ``cluster`` is for the processes of a cluster among themselves.
Role = Literal["viewer", "operator", "admin", "cluster"]
#: Every role may do what those before it may.
ROLES: Final[tuple[Role, ...]] = ("viewer", "operator", "admin", "cluster")
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
        text: What it means, in one sentence, with its unit.
    """

    name: str
    check: Check
    default: Any = REQUIRED
    text: str = ""

    @property
    def required(self) -> bool:
        """Whether it must be given."""
        return self.default is REQUIRED


@frozen
class Http:
    """
    Where an operation is in the HTTP API.

    Attributes:
        method: Such as ``GET``, for what changes nothing.
        path: Below ``/api/v1``; parameters that are a part of it stand in braces.
    """

    method: Literal["GET", "PUT", "POST", "PATCH", "DELETE"]
    path: str


@frozen
class Operation:
    """
    One administrative operation.

    Attributes:
        name: Noun and verb, such as ``topic.create``.
        role: The least role that may use it.
        changes: Whether it changes anything; such a one of people takes ``dry_run``.
        parameters: What it takes.
        run: The method that carries it out; None while nobody does.
        caller: Whether the method wants to know who asks, as its first argument.
        text: What it does, in one sentence.
        http: Where it is in the HTTP API; None for what is not for people.
        cli: The words of the command; None for what is not for people.
        usage: What follows them, where that is not the required parameters.
        result: The fields of what it gives, as JSON Schema; nothing for what is not for people.
    """

    name: str
    role: Role
    changes: bool
    parameters: tuple[Parameter, ...]
    run: Callable[..., Result | Awaitable[Result]] | None = None
    caller: bool = False
    text: str = field(default="", kw_only=True)
    http: Http | None = field(default=None, kw_only=True)
    cli: tuple[str, ...] | None = field(default=None, kw_only=True)
    usage: str | None = field(default=None, kw_only=True)
    result: Mapping[str, JsonSchema] = field(factory=dict, kw_only=True)

    @property
    def public(self) -> bool:
        """Whether it is for people and their programs."""
        return self.role != "cluster"

    @property
    def command(self) -> str:
        """The command line that carries it out, with its arguments in capitals."""
        needed = [each.name.upper() for each in self.parameters if each.required]
        usage = needed if self.usage is None else [self.usage]
        return " ".join(("tinymq", *(self.cli or ()), *usage))

    def by(
        self, run: Callable[..., Result | Awaitable[Result]], *, caller: bool = False
    ) -> Operation:
        """
        Name who carries it out.

        Args:
            run: The method.
            caller: Whether it wants to know who asks.
        """
        return evolve(self, run=run, caller=caller)

    def permit(self, role: Role) -> None:
        """
        Refuse who may not use it.

        Args:
            role: Of the caller.

        Raises:
            Forbidden: The role is too low.
        """
        require(self.role, role, self.name)

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


def require(needed: Role, role: Role, what: str) -> None:
    """
    Refuse a role that is too low.

    Args:
        needed: The least role.
        role: Of the caller.
        what: What they want to do.

    Raises:
        Forbidden: It is too low.
    """
    if ROLES.index(role) < ROLES.index(needed):
        raise Forbidden(
            f"{what} needs the role {needed}; yours is {role}", needed=needed, role=role
        )


NAME: Final = text(1024)
#: So wide that the bounds are named by who knows them; programs hear of the lower one.
NUMBER: Final = narrowed(integer(-(1 << 62), I64), minimum=1)
_WHOLE: Final = integer(0, I64)

DRY: Final = Parameter(
    "dry_run", boolean, default=False, text="Only say what would happen; nothing is changed."
)
WHICH: Final = Parameter("name", NAME, text="Name of the topic.")
PARTITION: Final = Parameter(
    "partition", optional(_WHOLE), default=None, text="Only this partition, by its number."
)
#: The id of the topic that is meant, so that one made anew under its name is left alone.
TOPIC: Final = Parameter(
    "id",
    optional(text(32)),
    default=None,
    text="Id of the topic that is meant, 32 hex digits; one made anew under the name is left.",
)
BEFORE: Final = (
    Parameter(
        "before", optional(_WHOLE), default=None, text="Remove the records before this offset."
    ),
    Parameter(
        "before_ms",
        optional(_WHOLE),
        default=None,
        text="Remove the records before this time, in milliseconds since 1970.",
    ),
    Parameter(
        "keep", optional(_WHOLE), default=None, text="Keep so many records of each partition."
    ),
)
AFTER: Final = Parameter(
    "after", NAME, default="", text="Begin behind this one, the last of the page before."
)
LIMIT: Final = Parameter("limit", integer(1, 500), default=100, text="Most rows of the answer.")
FILTER: Final = Parameter(
    "filter", text(200), default="", text="Only those that are like this pattern, with * and ?."
)
_MOST_NAME: Final = 200


@told(
    "a broker's name or number",
    {"type": ["string", "integer"], "minimum": 0, "maximum": I32, "maxLength": _MOST_NAME},
)
def broker_name(value: Any) -> str:
    """A broker's name or number."""
    if type(value) is int and 0 <= value <= I32:
        return str(value)
    if type(value) is str and len(value.encode("utf-8", "surrogatepass")) <= _MOST_NAME:
        return value
    raise ValueError(broker_name.must)


#: A broker by its number or its name; without it, the one that is asked.
BROKER: Final = Parameter(
    "broker",
    optional(broker_name),
    default=None,
    text="Name or number of a broker; without it, the one that is asked.",
)
#: Likewise, where all brokers are asked.
ANY_BROKER: Final = Parameter(
    "broker",
    optional(broker_name),
    default=None,
    text="Only of the broker with this name or number.",
)
#: A broker that must be said.
THE_BROKER: Final = Parameter("broker", broker_name, text="Name or number of the broker.")


def table(*operations: Operation) -> dict[str, Operation]:
    """Return operations by their names."""
    return {operation.name: operation for operation in operations}


class Nodes(Protocol):
    """The brokers, one by one."""

    def ask(
        self, broker_id: int, operation: str, arguments: Mapping[str, Any]
    ) -> Awaitable[Result]:
        """
        Ask one broker; the one of this process is asked by a plain call.

        Args:
            broker_id: Its number; 0 is this process, if it leads nothing.
            operation: One of ``node.…``.
            arguments: By name.

        Returns:
            What ends with its answer, with its error, or with a `ClientError`
            when it cannot be reached or says nothing for too long.
        """
