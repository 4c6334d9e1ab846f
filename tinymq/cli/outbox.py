"""`tinymq outbox`: publishes what stands in the outbox of a program's database, and shows it."""

from __future__ import annotations

import contextlib
import signal
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from attrs import frozen

from tinymq.cli.failure import Failed
from tinymq.cli.groups import Group
from tinymq.cli.output import Column, Listing, key, list_options, note, show
from tinymq.cli.session import Session, remote
from tinymq.cli.values import DURATION, iso

if TYPE_CHECKING:
    from tinymq.patterns.outbox import Outbox, Relay

PARKED_COLUMNS: Final = (
    Column("ID", key("id")),
    Column("TOPIC", key("topic")),
    Column("ATTEMPTS", key("attempts"), right=True),
    Column("PARKED", key("parked_ms"), iso),
    Column("ERROR", key("error")),
)

_database = click.argument("database", metavar="DATABASE")
_table = click.option("--table", default="tinymq_outbox", show_default=True, help="Its table.")


@frozen
class Base:
    """
    A program's database.

    Attributes:
        outbox: The outbox in it.
        connect: Opens a connection.
    """

    outbox: Outbox
    connect: Callable[[], Any]

    @contextmanager
    def connection(self) -> Iterator[Any]:
        """Lend a connection, and commit."""
        try:
            with closing(self.connect()) as connection:
                yield connection
                connection.commit()
        except Failed:
            raise
        except Exception as error:
            raise Failed(f"the outbox cannot be read: {str(error).strip()}", _HINT) from error


_HINT: Final = "`tinymq outbox tables` prints the statements that make its tables"


def base_of(database: str, table: str) -> Base:
    """
    Find a database.

    Args:
        database: The file of an SQLite database, or a URL of PostgreSQL.
        table: The outbox's table.

    Raises:
        Failed: There is no such file, or no driver.
    """
    from tinymq.patterns.outbox import (  # noqa: PLC0415 - not needed for --help
        POSTGRESQL,
        SQLITE,
        Outbox,
    )

    if database.startswith(("postgresql://", "postgres://")):
        try:
            import psycopg  # noqa: PLC0415 - only who has PostgreSQL has it
        except ImportError as error:
            raise Failed("there is no driver", "pip install 'psycopg[binary]'") from error
        return Base(Outbox(POSTGRESQL, table=table), partial(psycopg.connect, database))
    path = Path(database.removeprefix("sqlite:///"))
    if not path.exists():
        raise Failed(f"there is no file {path}", "DATABASE is a file, or postgresql://...")
    # Commits are seen by all of this process's threads, each with a connection of its own.
    connect = partial(sqlite3.connect, path, timeout=30, check_same_thread=False)
    return Base(Outbox(SQLITE, table=table), connect)


@click.group(cls=Group)
def outbox() -> None:
    """Publish what stands in a program's outbox, and look after it."""


@outbox.command("run")
@_database
@_table
@click.option("--once", is_flag=True, help="End when nothing is left that can be published.")
@click.option("--poll", type=DURATION, default="1s", show_default=True, help="Time between looks.")
@click.option(
    "--park-after",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    help="So often a topic may refuse a message before it is put aside.",
)
@remote
def run(
    session: Session, database: str, table: str, once: bool, poll: float, park_after: int
) -> None:
    """
    Publish messages of an outbox, and delete them, until Ctrl-C or SIGTERM.

    DATABASE is the file of an SQLite database, or a URL: postgresql://USER@HOST/NAME. Several
    of these may run at once.
    """
    from tinymq.patterns.outbox import (  # noqa: PLC0415 - not needed for --help
        ClientWay,
        Relay,
        RelayConfig,
    )

    base = base_of(database, table)
    with base.connection() as connection:
        base.outbox.depth(connection)  # fails at once where there is no outbox
    config = RelayConfig(poll_s=poll, park_after=park_after)
    way = ClientWay(session.client, config.deadline_s)
    with Relay(base.outbox, base.connect, way, config) as relay:
        if once:
            while relay.turn():
                pass
        else:
            with _until_signal(relay):
                relay.run()
    note(f"published {relay.sent} messages" + f", put {relay.parked} aside" * bool(relay.parked))


@contextmanager
def _until_signal(relay: Relay) -> Iterator[None]:
    """Let SIGINT and SIGTERM end it after what it has in hand."""

    def hear(number: int, frame: object) -> None:
        relay.stop()

    before = {each: signal.signal(each, hear) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            with contextlib.suppress(TypeError):  # set by somebody else than Python
                signal.signal(each, handler)


@outbox.command("ls")
@_database
@_table
@list_options
def list_parked(database: str, table: str, columns: str, output: str) -> None:
    """Show how many messages wait, and those that were put aside, with their errors."""
    base = base_of(database, table)
    with base.connection() as connection:
        depth = base.outbox.depth(connection)
        parked = base.outbox.parked(connection)
    oldest = "" if depth.oldest_s is None else f", the oldest for {depth.oldest_s:.0f} s"
    note(f"{depth.waiting} messages wait{oldest}; {depth.parked} were put aside")
    rows = [{**each._asdict(), "key": each.key and each.key.hex()} for each in parked]
    document = {**depth._asdict(), "messages": rows}
    show(Listing(rows, PARKED_COLUMNS, document), output, columns)


@outbox.command("release")
@_database
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@_table
def release(database: str, ids: Sequence[str], table: str) -> None:
    """Let messages that were put aside be tried anew."""
    _each(database, table, ids, "release")


@outbox.command("discard")
@_database
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@_table
def discard(database: str, ids: Sequence[str], table: str) -> None:
    """Delete messages that were put aside."""
    _each(database, table, ids, "discard")


def _each(database: str, table: str, ids: Sequence[str], verb: str) -> None:
    base = base_of(database, table)
    with base.connection() as connection:
        act = getattr(base.outbox, verb)
        wrong = [each for each in ids if not act(connection, each)]
    if wrong:
        raise Failed(
            f"not put aside: {', '.join(wrong)}", "`tinymq outbox ls` lists those that are"
        )


@outbox.command("tables")
@click.argument("kind", type=click.Choice(["sqlite", "postgresql"]))
@_table
def tables(kind: str, table: str) -> None:
    """Print the statements that make the tables of an outbox."""
    from tinymq.patterns.outbox import (  # noqa: PLC0415 - not needed for --help
        POSTGRESQL,
        SQLITE,
        statements,
    )

    for statement in statements(POSTGRESQL if kind == "postgresql" else SQLITE, table):
        click.echo(f"{statement};")
