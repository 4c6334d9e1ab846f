"""Asking before something is lost."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from tinymq.cli.failure import REFUSED, Failed
from tinymq.cli.output import note


def change_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--dry-run``."""
    return click.option("--dry-run", is_flag=True, help="Only say what would happen.")(function)


def yes_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--yes``."""
    return click.option("-y", "--yes", is_flag=True, help="Do not ask; for scripts.")(function)


def confirm(name: str, what: str, *, yes: bool) -> None:
    """
    Let a person type the name of what is about to be lost.

    Args:
        name: To be typed.
        what: What will happen.
        yes: It was already said on the command line.

    Raises:
        Failed: Another name was typed.
        UsageError: Nobody can be asked.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{what}: give --yes, for there is no terminal to ask on")
    note(what)
    typed = click.prompt(f"type {name} to go on", err=True, default="", show_default=False)
    if typed != name:
        raise Failed("the name does not match; nothing was changed", status=REFUSED)
