"""`tinymq verify-history`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tinymq.cli.output import facts, write_json
from tinymq.cli.progress import progress
from tinymq.cli.verifying import FOLDER, OUTPUT, SEED, conclude, prepare

if TYPE_CHECKING:
    from tinymq.verify.history.report import HistoryReport
    from tinymq.verify.history.trial import Plan


@click.command()
@click.option(
    "--seconds",
    type=click.FloatRange(1),
    default=60.0,
    show_default=True,
    help="For how long everything is struck.",
)
@SEED
@FOLDER
@OUTPUT
def verify_history(folder: Path | None, output: str, seed: int | None, seconds: float) -> int:
    """
    Strike clients and brokers, and prove what groups promise.

    Starts a MetaServer and three brokers of its own on fresh folders, and processes
    that publish, read as a group, work on a channel, and move records in transactions.
    Clients are killed, stopped and paused, brokers killed, links cut and held. Then
    every record must have been handled by the group, finished on the channel, and
    moved exactly once, in order of each key; no commit may have gone back, and nothing
    of an aborted transaction may have been seen. The exit status is 1 when a promise
    was broken.
    """
    from tinymq.verify.history.trial import Plan  # noqa: PLC0415 - not needed for --help

    seed, place = prepare(seed, folder)
    report = run(Plan(seconds=seconds, seed=seed), place)
    if output == "json":
        write_json(report.document())
    else:
        facts(report.lines())
    return conclude(report, place)


def run(plan: Plan, place: Path) -> HistoryReport:
    """Run a trial with real processes; tidy up unless it found something."""
    import shutil  # noqa: PLC0415

    from tinymq.verify.history.trial import HistoryTrial  # noqa: PLC0415

    with progress("verifying", None) as advance:
        report = HistoryTrial(plan, place, lambda text: advance(0, text)).run()
    if report.held:
        for name in ("cluster", "diaries", "output"):
            shutil.rmtree(place / name, ignore_errors=True)
    return report
