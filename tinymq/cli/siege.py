"""`tinymq verify-cluster`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tinymq.cli.output import aligned, facts, write_json
from tinymq.cli.progress import progress
from tinymq.cli.verifying import FOLDER, OUTPUT, SEED, conclude, prepare

if TYPE_CHECKING:
    from tinymq.verify.clusterreport import ClusterReport
    from tinymq.verify.siege import Siege


@click.command()
@click.option(
    "--rounds",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="How often every case; 0 tries two of them.",
)
@SEED
@FOLDER
@OUTPUT
def verify_cluster(folder: Path | None, output: str, seed: int | None, rounds: int) -> int:
    """
    Kill the processes of a cluster and prove that all go on.

    Starts a MetaServer and three brokers of its own on fresh folders, publishes
    and reads from several threads, and strikes: each broker, the MetaServer, two
    at once, with SIGKILL, SIGTERM and SIGSTOP. What lives must go on without a
    long gap, what is dead must be named, every call must end in time, everything
    must come back by itself, and each acknowledged record must be there exactly
    once. The exit status is 1 when a promise was broken.
    """
    from tinymq.verify.siege import Siege  # noqa: PLC0415 - not needed for --help

    seed, place = prepare(seed, folder)
    report = run(Siege(rounds=rounds, seed=seed), place)
    if output == "json":
        write_json(report.document())
    else:
        facts(report.lines())
        click.echo()
        table = report.table()
        for line in aligned(table, [False, *(True for _ in table[0][1:])]):
            click.echo(line)
        click.echo()
        for text in report.notes:
            click.echo(text)
    return conclude(report, place)


def run(siege: Siege, place: Path) -> ClusterReport:
    """Run a trial with real processes, showing how far it is; tidy up unless it found something."""
    import shutil  # noqa: PLC0415

    from tinymq.verify.matrix import CASES, SHORT_CASES  # noqa: PLC0415
    from tinymq.verify.siege import ClusterTrial  # noqa: PLC0415

    with progress("verifying", siege.rounds * CASES or SHORT_CASES) as advance:
        report = ClusterTrial(siege, place, lambda text: advance(1, text)).run()
    if report.held:
        for name in ("cluster", "intruders"):
            shutil.rmtree(place / name, ignore_errors=True)
    return report
