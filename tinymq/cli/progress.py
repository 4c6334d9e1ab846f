"""A progress bar on stderr, for people only."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

#: Told how much more is done, and what is going on.
Advance = Callable[[float, str], None]


def _ignore(amount: float, text: str) -> None:
    """Show nothing."""


@contextlib.contextmanager
def progress(title: str, total: float | None) -> Iterator[Advance]:
    """
    Show how far long work is; nothing at all when stderr is no terminal.

    Args:
        title: What is being done.
        total: How much there is, or None when that is not known.
    """
    if not sys.stderr.isatty():
        yield _ignore
        return
    from rich.console import Console  # noqa: PLC0415 - only people wait for it
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total, note="")

        def advance(amount: float, text: str) -> None:
            bar.update(task, advance=amount, note=text)

        yield advance
