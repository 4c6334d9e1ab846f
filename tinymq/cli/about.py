"""`tinymq info`, `config` and `version`."""

from __future__ import annotations

import platform
from typing import Any

import click

import tinymq
from tinymq.cli.output import facts, write_json
from tinymq.cli.session import Session, remote
from tinymq.cli.values import human_size, iso


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
        told = sorted(_flat(reply["broker"]).items())
        facts([("ready", ready), ("url", session.url), *told])
    return 0 if reply["ready"] else 1


def _flat(found: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Name nested values with dots, and write them for people."""
    pairs: dict[str, str] = {}
    for name, value in found.items():
        if isinstance(value, dict):
            pairs |= _flat(value, f"{prefix}{name}.")
        elif name.endswith("_ms") and isinstance(value, int) and value > 10**11:
            pairs[prefix + name.removesuffix("_ms")] = iso(value)
        elif name.endswith("bytes") and isinstance(value, int):
            pairs[prefix + name] = human_size(value)
        elif isinstance(value, (list, tuple)):
            pairs[prefix + name] = ", ".join(str(item) for item in value)
        else:
            pairs[prefix + name] = "-" if value is None else str(value)
    return pairs


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
