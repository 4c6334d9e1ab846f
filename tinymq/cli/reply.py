"""Answers of operations on one thing: shown whole, in a sentence, or as a plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from tinymq.cli.confirm import confirm
from tinymq.cli.operation import Arguments
from tinymq.cli.output import Listing, Row, facts, show, write_json
from tinymq.cli.session import Session


def carry_out(
    session: Session,
    operation: str,
    arguments: Arguments,
    question: Callable[[Row], tuple[str, str]] | None,
) -> dict[str, Any]:
    """
    Carry out an operation, after a person has seen what it will do.

    Args:
        session: Where to ask.
        operation: One with ``dry_run``, which is tried first.
        arguments: Of the operation.
        question: Makes of the plan the name to be typed and what will happen; None
            when nobody is to be asked.

    Raises:
        Failed: Another name was typed.
        UsageError: Nobody can be asked.
    """
    if question is not None and not arguments.get("dry_run"):
        plan = session.operate(operation, **{**arguments, "dry_run": True})
        confirm(*question(plan), yes=False)
    return session.operate(operation, **arguments)


def show_whole(
    whole: Listing, pairs: Sequence[tuple[str, str]], parts: Listing, output: str, *, inside: bool
) -> None:
    """
    Show one thing with what is inside it.

    Args:
        whole: The thing, as a list of one.
        pairs: What people are told of it.
        parts: What is inside.
        output: One of the forms of output.
        inside: Whether the parts are wanted.
    """
    if output in {"csv", "ndjson", "name"} and inside:
        show(parts, output)
    elif output not in {"table", "wide"}:
        show(whole, output)
    else:
        facts(pairs)
        if inside or output == "wide":
            click.echo()
            show(parts, output)


def show_done(sentence: str, listing: Listing, output: str) -> None:
    """
    Tell what was done.

    Args:
        sentence: For people.
        listing: What it was done to; its document is all of the answer.
        output: One of the forms of output.
    """
    if output in {"table", "wide"}:
        click.echo(sentence)
    elif output in {"json", "ndjson"}:
        write_json(listing.document, indent=2 if output == "json" else None)
    else:
        show(listing, output)


def show_plan(sentence: str, listing: Listing, output: str) -> None:
    """
    Tell what was done, or would be, part by part.

    Args:
        sentence: For people.
        listing: The parts.
        output: One of the forms of output.
    """
    if output in {"table", "wide"}:
        click.echo(sentence)
    if output != "table":
        show(listing, output)
