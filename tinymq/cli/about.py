"""`tinymq info`, `log-level`, `config` and `version`."""

from __future__ import annotations

import platform

import click

import tinymq
from tinymq.cli.operation import Arguments, operation_options
from tinymq.cli.output import facts, flat, write_json
from tinymq.cli.session import Session, remote
from tinymq.config import LOG_LEVELS


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


@click.command("log-level")
@operation_options("broker.log_level", own={"level": "level"})
@click.argument("level", required=False, type=click.Choice(LOG_LEVELS))
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True
)
@remote
def log_level(session: Session, arguments: Arguments, level: str | None, output: str) -> None:
    """
    Show or change which log lines the broker writes.

    LEVEL is that of the least important lines. Without it the level is shown;
    after the broker's next start it is that of its configuration again.
    """
    asking = level is None
    dry_run = arguments.pop("dry_run")
    reply = session.operate(
        "broker.log_level", **arguments, level=level or LOG_LEVELS[0], dry_run=dry_run or asking
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
