"""`tinymq verify-cluster`."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tinymq.cli.failure import REFUSED
from tinymq.cli.output import aligned, facts, note, write_json
from tinymq.cli.progress import progress

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
@click.option("--seed", type=int, help="Repeat the random choices of an earlier run.")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where data folders are made; they stay when something is found.",
)
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True
)
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

    seed = random.SystemRandom().randrange(2**31) if seed is None else seed
    note(f"seed {seed}")
    place = folder or Path(tempfile.mkdtemp(prefix="tinymq-verify-"))
    place.mkdir(parents=True, exist_ok=True)
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
    for problem in report.problems:
        note(f"problem: {problem}")
    if report.held:
        note("every promise was kept")
        return 0
    note(f"error: a promise was broken (hint: the data is in {place})")
    return REFUSED


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
