"""Groups of verbs that help who mistypes one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

import click
from typing_extensions import override

from tinymq.cli.failure import USAGE

#: What other tools call it.
_ALIASES: Final = {
    "brokers": "node",
    "create": "topic create",
    "delete": "rm",
    "describe": "info",
    "drop": "rm",
    "empty": "purge",
    "get": "consume",
    "list": "ls",
    "nodes": "node",
    "produce": "pub",
    "publish": "pub",
    "read": "consume",
    "remove": "rm",
    "send": "pub",
    "show": "info",
    "start": "up",
    "status": "info",
    "sub": "consume",
    "subscribe": "consume",
    "topics": "topic",
}


def near(name: str, known: Iterable[str]) -> str | None:
    """
    Find the verb that was meant.

    Args:
        name: What was typed.
        known: The verbs that there are.
    """
    verbs = list(known)
    alias = _ALIASES.get(name, "")
    if alias.partition(" ")[0] in verbs:
        return alias
    found = difflib.get_close_matches(name.lower(), verbs, n=1)
    return found[0] if found else None


class Group(click.Group):
    """A group that shows its verbs, and says which may have been meant."""

    @override
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Show the help, as it is, where no verb is given; click would make an error of it."""
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(USAGE)
        return super().parse_args(ctx, args)

    @override
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb, or end with one that is like it."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            guess = near(name, self.list_commands(ctx))
            text = f"there is no command {name!r}" + (f"; did you mean {guess}?" if guess else "")
            raise click.UsageError(text, ctx)
        return super().resolve_command(ctx, args)
