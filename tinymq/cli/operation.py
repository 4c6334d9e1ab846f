"""Options of a verb, and whole verbs, from the table of operations."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import click

from tinymq.catalog import PUBLIC
from tinymq.cli.confirm import confirm, yes_option
from tinymq.cli.groups import Group
from tinymq.cli.output import facts, flat, write_json
from tinymq.cli.session import Session, remote
from tinymq.operation import Operation, Parameter

#: Arguments of an operation, by name; those that were not given are left out.
Arguments = dict[str, Any]
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

#: Numbers beyond this are no bounds that help anybody.
_HUGE: Final = 1 << 31
_METAVARS: Final = {"filter": "GLOB", "broker": "NAME|ID", "id": "HEX"}

#: For a list that goes on by itself, page after page.
limit_option = click.option(
    "--limit", type=click.IntRange(1), help="Most rows of the answer.  [default: all]"
)


def operation_options(
    name: str, own: Mapping[str, str] | None = None, shorts: Mapping[str, str] | None = None
) -> Decorator:
    """
    Give a verb the parameters of an operation, but for those that it takes in its own way.

    The verb gets their values as ``arguments``, to be passed on. So a parameter that
    is added to the table is an option of the verb without another line.

    Args:
        name: Of the operation.
        own: For each parameter that the verb takes in its own way, the name of the
            click parameter from which it makes it.
        shorts: A short option for some parameters.
    """
    operation, kept, short = PUBLIC[name], own or {}, shorts or {}
    made = [each for each in operation.parameters if each.name not in kept]

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def verb(*args: Any, **kwargs: Any) -> Any:
            given = {each.name: kwargs.pop(each.name) for each in made}
            arguments = {key: value for key, value in given.items() if value is not None}
            return function(*args, arguments=arguments, **kwargs)

        result: Callable[..., Any] = verb
        for each in reversed(made):
            result = _parameter(each, short.get(each.name))(result)
        covered = {**vars(function).get("covers", {})}
        covered[name] = {each.name: kept.get(each.name, each.name) for each in operation.parameters}
        vars(result)["covers"] = covered
        return result

    return decorate


def _parameter(parameter: Parameter, short: str | None) -> Decorator:
    name, kind = parameter.name, _type_of(parameter)
    if parameter.required:
        return click.argument(name, type=kind, metavar=name.replace("_", "-").upper())
    flags = [f"--{name.replace('_', '-')}", *([short] if short else [])]
    if parameter.check.schema["type"] == "boolean":
        return click.option(
            *flags, name, is_flag=True, default=parameter.default, help=parameter.text
        )
    return click.option(
        *flags,
        name,
        type=kind,
        default=parameter.default,
        metavar=_METAVARS.get(name) if kind is click.STRING else None,
        show_default=bool(parameter.default),
        help=parameter.text,
    )


def _type_of(parameter: Parameter) -> Any:
    schema = parameter.check.schema
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if "enum" in schema:
        return click.Choice([word for word in schema["enum"] if word is not None])
    if "string" in kinds:
        return click.STRING
    if "integer" in kinds:
        low, high = schema.get("minimum", -_HUGE), schema.get("maximum", _HUGE)
        return click.IntRange(low if low > -_HUGE else None, high if high < _HUGE else None)
    return _Json()


class _Json(click.ParamType):  # type: ignore[type-arg,unused-ignore] # generic in new versions only
    """What is neither text nor a number is written as JSON."""

    name = "json"

    def convert(  # type: ignore[explicit-override] # click's own are not marked either
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        """Read it."""
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value)
        except ValueError as error:
            self.fail(f"this is no JSON: {error}", param, ctx)


def command_of(operation: Operation) -> click.Command:
    """
    Make a verb for an operation that has none of its own.

    Args:
        operation: A public one.
    """
    assert operation.cli is not None

    @operation_options(operation.name)
    @click.option(
        "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True
    )
    @remote
    def verb(session: Session, arguments: Arguments, output: str, yes: bool = True) -> None:
        which = " ".join(
            str(arguments[each.name]) for each in operation.parameters if each.required
        )
        if operation.changes and not arguments.get("dry_run"):
            confirm(which or operation.name, operation.text.rstrip("."), yes=yes)
        reply = session.operate(operation.name, **arguments)
        if output == "json":
            write_json(reply)
        else:
            facts(list(flat(reply).items()))

    asking = operation.changes and operation.role == "admin"
    function = yes_option(verb) if asking else verb
    return click.command(operation.cli[-1], help=operation.text)(function)


def missing(words: tuple[str, ...], known: Mapping[str, object]) -> dict[str, click.Command]:
    """
    Make the verbs of operations that have none of their own.

    Args:
        words: The group's.
        known: The verbs that it has.

    Returns:
        By their last words; groups of their own where more words follow.
    """
    found: dict[str, click.Command] = {}
    place = len(words)
    for operation in PUBLIC.values():
        cli = operation.cli or ()
        if cli[:place] != words or len(cli) <= place or cli[place] in known:
            continue
        word = cli[place]
        if len(cli) == place + 1:
            found[word] = command_of(operation)
        elif word not in found:
            inside = missing((*words, word), {})
            found[word] = Group(word, inside, help=f"Operations on {word}.")
    return found


def complete(group: click.Group) -> None:
    """
    Add to a group the verbs of operations that have none of their own.

    Args:
        group: Of the root.
    """
    for name, command in missing((str(group.name),), group.commands).items():
        group.add_command(command, name)
