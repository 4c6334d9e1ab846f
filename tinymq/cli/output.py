"""
The forms of output that every list has.

On a terminal a table; in a pipe the same as aligned lines without colour or
borders. JSON has the keys of the API, plus each time once more as ISO-8601.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import click
from attrs import evolve, frozen

from tinymq.cli.values import human_size, iso, now_ms
from tinymq.names import broker_called
from tinymq.settings import shown

FORMATS: Final = ("table", "wide", "json", "ndjson", "csv", "name")
Row = Mapping[str, Any]


@frozen
class Column:
    """
    One column of a list.

    Attributes:
        title: Its heading; in lower case the name for ``--columns`` and CSV.
        value: What a row has there.
        show: Writes that for people.
        right: Whether it is a number, aligned on the right.
        wide: Whether it is left out of the plain table.
    """

    title: str
    value: Callable[[Row], Any]
    show: Callable[[Any], str] = str
    right: bool = False
    wide: bool = False

    def wider(self) -> Column:
        """Make one like it that the plain table leaves out."""
        return evolve(self, wide=True)

    def text(self, row: Row) -> str:
        """Write a row's value for people."""
        value = self.value(row)
        return "-" if value is None else printable(self.show(value))


def key(name: str) -> Callable[[Row], Any]:
    """Take a row's value of this name."""
    return lambda row: row.get(name)


def printable(text: str) -> str:
    """Escape what would move a terminal's cursor."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def output_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``-o``."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(FORMATS),
        default="table",
        show_default=True,
        help="The form of the output.",
    )(function)


def list_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add what every list has: ``--columns`` and ``-o``."""
    columns = click.option("--columns", default="", metavar="A,B", help="Which columns to show.")
    return columns(output_option(function))


def on_terminal() -> bool:
    """Whether a person reads stdout."""
    return sys.stdout.isatty()


def with_times(value: Any) -> Any:
    """Add to each time in milliseconds (``…_ms``) its ISO-8601 twin without the ending."""
    if isinstance(value, Mapping):
        result = {name: with_times(inner) for name, inner in value.items()}
        for name, inner in value.items():
            if name.endswith("_ms") and isinstance(inner, int) and inner > 10**9:
                result.setdefault(name.removesuffix("_ms"), iso(inner))
        return result
    if isinstance(value, (list, tuple)):
        return [with_times(inner) for inner in value]
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).hex()
    return value


def write_json(value: Any, *, indent: int | None = 2) -> None:
    """Write one JSON document."""
    click.echo(json_text(with_times(value), indent=indent))


def json_text(value: Any, *, indent: int | None = None) -> str:
    r"""
    Write JSON that is readable, and moves no terminal's cursor.

    JSON itself escapes only some of the characters that would; the others can
    stand in its texts alone, where ``\uXXXX`` means the same.
    """
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or character == "\n"
        else json.dumps(character).strip('"')
        for character in text
    )


def human_lines(text: str) -> str:
    """Escape what would move a terminal's cursor, but for the ends of lines."""
    return "\n".join(map(printable, text.split("\n")))


@frozen
class Listing:
    """
    What one verb has to show.

    Attributes:
        rows: The items.
        columns: What tables and CSV show of them.
        document: What JSON shows; all of the API's answer.
        name: Which key of a row is its name.
    """

    rows: Sequence[Row]
    columns: Sequence[Column]
    document: Any = None
    name: str = "name"


def show(listing: Listing, output: str, columns: str = "") -> None:
    """
    Write a list to stdout.

    Args:
        listing: What to show.
        output: One of `FORMATS`.
        columns: Names of columns with commas between; empty for the usual ones.
    """
    if output == "json":
        write_json(list(listing.rows) if listing.document is None else listing.document)
    elif output == "ndjson":
        for row in listing.rows:
            write_json(row, indent=None)
    elif output == "name":
        for row in listing.rows:
            click.echo(_safe(str(row[listing.name])))
    elif output == "csv":
        _write_csv(listing, _chosen(listing.columns, columns, wide=True))
    else:
        _write_table(listing.rows, _chosen(listing.columns, columns, wide=output == "wide"))


def _chosen(columns: Sequence[Column], names: str, *, wide: bool) -> list[Column]:
    if not names:
        return [column for column in columns if wide or not column.wide]
    known = {column.title.lower(): column for column in columns}
    chosen = []
    for name in names.split(","):
        if name.strip().lower() not in known:
            raise click.UsageError(f"there is no column {name!r}; there are {', '.join(known)}")
        chosen.append(known[name.strip().lower()])
    return chosen


def _write_csv(listing: Listing, columns: Sequence[Column]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow([column.title.lower() for column in columns])
    for row in listing.rows:
        writer.writerow([_safe(_raw(column, row)) for column in columns])


def _safe(value: Any) -> Any:
    """Give a text to a program as it is, and to a terminal so that it cannot move the cursor."""
    return printable(value) if isinstance(value, str) and on_terminal() else value


def _raw(column: Column, row: Row) -> Any:
    """Give a value as programs want it: numbers as they are, times in ISO-8601."""
    value = column.value(row)
    if value is None:
        return ""
    return iso(value) if column.show is iso else value


def _write_table(rows: Sequence[Row], columns: Sequence[Column]) -> None:
    if on_terminal():
        _rich_table(rows, columns)
        return
    cells = [[column.title for column in columns]]
    cells += [[column.text(row) for column in columns] for row in rows]
    for line in aligned(cells, [column.right for column in columns]):
        click.echo(line)


def aligned(cells: Sequence[Sequence[str]], right: Sequence[bool]) -> Iterable[str]:
    """Put cells under one another, two spaces between the columns."""
    widths = [max(len(line[place]) for line in cells) for place in range(len(right))]
    for line in cells:
        padded = (
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, right, strict=True)
        )
        yield "  ".join(padded).rstrip()


def _rich_table(rows: Sequence[Row], columns: Sequence[Column]) -> None:
    from rich import box  # noqa: PLC0415 - only people wait for it
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column.title, justify="right" if column.right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(column.text(row)) for column in columns))
    Console().print(table)


def facts(pairs: Sequence[tuple[str, str]]) -> None:
    """Write names and values under one another."""
    for line in aligned([(name, printable(value)) for name, value in pairs], [False, False]):
        click.echo(line)


def _counts_bytes(name: str) -> bool:
    return name.endswith("bytes") or name.startswith(("memory", "disk_"))


def flat(found: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Name nested values with dots, and write them for people."""
    pairs: dict[str, str] = {}
    for name, value in found.items():
        if isinstance(value, Mapping):
            pairs |= flat(value, f"{prefix}{name}.")
        elif name.endswith("_ms") and isinstance(value, int) and value > 10**11:
            pairs[prefix + name.removesuffix("_ms")] = iso(value)
        elif isinstance(value, int) and _counts_bytes(name):
            pairs[prefix + name] = human_size(value)
        elif isinstance(value, float):
            pairs[prefix + name] = f"{value:.1f}"
        elif isinstance(value, (list, tuple)):
            pairs[prefix + name] = ", ".join(str(item) for item in value)
        else:
            pairs[prefix + name] = "none" if value is None else str(value)
    return pairs


def tell_passed(at: int | None) -> None:
    """Say that a time is over, for seconds taken as milliseconds, or another year, look alike."""
    if at is not None and at <= now_ms():
        note(f"{iso(at)} has passed: what is to come then comes at once")


def note(text: str) -> None:
    """Tell a person something that is not part of the output."""
    click.echo(human_lines(text), err=True)


def tell_silent(found: Row) -> None:
    """Say which brokers did not answer, so that nobody takes a part for the whole."""
    for name in found.get("silent") or ():
        note(f"{broker_called(name)} does not answer; what it holds is not counted")


def counted(number: int, noun: str) -> str:
    """Write a number of things."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def written(value: Any) -> str:
    """Write the value of a setting as it came over the wire."""
    return shown(tuple(value) if isinstance(value, list) else value)
