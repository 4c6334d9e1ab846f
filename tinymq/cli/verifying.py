"""What the commands that verify have in common: their options, and how they end."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

import click

from tinymq.cli.failure import REFUSED
from tinymq.cli.output import note

SEED: Final = click.option("--seed", type=int, help="Repeat the random choices of an earlier run.")
FOLDER: Final = click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where data folders are made; they stay when something is found.",
)
OUTPUT: Final = click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True
)


class Found(Protocol):
    """A report."""

    @property
    def held(self) -> bool:
        """Whether every promise was kept."""

    @property
    def problems(self) -> Sequence[str]:
        """What was not."""


def prepare(seed: int | None, folder: Path | None) -> tuple[int, Path]:
    """
    Choose what was not given, and say the seed.

    Args:
        seed: Of the random choices.
        folder: Where data folders are made.

    Returns:
        Both, and the folder is there.
    """
    seed = random.SystemRandom().randrange(2**31) if seed is None else seed
    note(f"seed {seed}")
    place = folder or Path(tempfile.mkdtemp(prefix="tinymq-verify-"))
    place.mkdir(parents=True, exist_ok=True)
    return seed, place


def conclude(report: Found, place: Path) -> int:
    """
    Say what was found.

    Args:
        report: The report.
        place: Where the data is.

    Returns:
        The exit status.
    """
    for problem in report.problems:
        note(f"problem: {problem}")
    if report.held:
        note("every promise was kept")
        return 0
    note(f"error: a promise was broken (hint: the data is in {place})")
    return REFUSED
