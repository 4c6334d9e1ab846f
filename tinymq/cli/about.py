"""`tinymq info`, `log-level`, `config` and `version`."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any, Final

import click

import tinymq
from tinymq.cli.confirm import change_options
from tinymq.cli.output import facts, write_json
from tinymq.cli.session import Session, remote
from tinymq.cli.values import human_size, iso

#: Those of `tinymq.logs`, which needs Twisted.
LEVELS: Final = ("debug", "info", "warn", "error", "critical")


@click.command()
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True
)
@remote
def info(session: Session, output: str) -> int:
    """
    Show the broker and whether it is ready.

    The exit status is 1 when it answers but is not ready, such as with a full disk.
    """
    reply = session.operate("broker.info")
    if output == "json":
        write_json(reply)
    else:
        ready = "yes" if reply["ready"] else f"no: {reply.get('reason') or 'unknown'}"
        told = sorted(flat(reply["broker"]).items())
        facts([("ready", ready), ("url", session.url), *told])
    return 0 if reply["ready"] else 1


def flat(found: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Name nested values with dots, and write them for people."""
    pairs: dict[str, str] = {}
    for name, value in found.items():
        if isinstance(value, Mapping):
            pairs |= flat(value, f"{prefix}{name}.")
        elif name.endswith("_ms") and isinstance(value, int) and value > 10**11:
            pairs[prefix + name.removesuffix("_ms")] = iso(value)
        elif name.endswith("bytes") and isinstance(value, int):
            pairs[prefix + name] = human_size(value)
        elif isinstance(value, (list, tuple)):
            pairs[prefix + name] = ", ".join(str(item) for item in value)
        else:
            pairs[prefix + name] = "none" if value is None else str(value)
    return pairs


@click.command("log-level")
@click.argument("level", required=False, type=click.Choice(LEVELS))
@click.option("--broker", metavar="NAME|ID", help="Another broker than the one of the URL.")
@change_options
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True
)
@remote
def log_level(
    session: Session, level: str | None, broker: str | None, dry_run: bool, output: str
) -> None:
    """
    Show or change which log lines the broker writes.

    LEVEL is that of the least important lines. Without it the level is shown;
    after the broker's next start it is that of its configuration again.
    """
    asking = level is None
    reply = session.operate(
        "broker.log_level", level=level or LEVELS[0], broker=broker, dry_run=dry_run or asking
    )
    if asking:
        reply = {"level": reply["before"]}
    if output == "json":
        write_json(reply)
    elif asking:
        click.echo(reply["level"])
    else:
        verb = "would write" if dry_run else "writes"
        click.echo(f"the broker {verb} log lines from {level} on; before from {reply['before']} on")


@click.command()
def config() -> None:
    """Print the default configuration as TOML, with a comment for each setting."""
    from tinymq.configfile import default_toml  # noqa: PLC0415 - only this verb needs it

    click.echo(default_toml(), nl=False)


@click.command()
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True
)
def version(output: str) -> None:
    """Print the version."""
    if output == "json":
        write_json({"tinymq": tinymq.__version__, "python": platform.python_version()})
    else:
        click.echo(f"tinymq {tinymq.__version__}, Python {platform.python_version()}")
