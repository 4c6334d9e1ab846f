"""`tinymq verify-crash`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tinymq.cli.output import facts, write_json
from tinymq.cli.progress import progress
from tinymq.cli.values import DURATION
from tinymq.cli.verifying import FOLDER, OUTPUT, SEED, conclude, prepare

if TYPE_CHECKING:
    from tinymq.verify.report import Report
    from tinymq.verify.trial import Plan


@click.command()
@click.option("--kills", type=click.IntRange(0), default=20, show_default=True)
@click.option("--power-loss", "power_losses", type=click.IntRange(0), default=5, show_default=True)
@click.option(
    "--seconds",
    type=DURATION,
    default=0.8,
    show_default=True,
    help="Longest time of load before each.",
)
@click.option("--producers", type=click.IntRange(1, 64), default=3, show_default=True)
@SEED
@FOLDER
@OUTPUT
def verify_crash(folder: Path | None, output: str, seed: int | None, **amounts: Any) -> int:
    """
    Kill a broker again and again and prove that nothing is lost.

    Starts brokers of its own on fresh folders, publishes from several threads,
    kills the broker with SIGKILL at random moments, starts it again, and reads
    everything: each acknowledged record must be there, in order, exactly once.
    Power cuts are played from a recording of all writes and syncs. The exit
    status is 1 when anything was lost.
    """
    from tinymq.verify.trial import Plan  # noqa: PLC0415 - not needed for --help

    seed, place = prepare(seed, folder)
    plan = Plan(seed=seed, **amounts)
    report = run(plan, place)
    if report.held and folder is None:
        place.rmdir()
    if output == "json":
        write_json(report.document())
    else:
        facts(report.lines())
    return conclude(report, place)


def run(plan: Plan, place: Path) -> Report:
    """Run a trial with real brokers, showing how far it is."""
    from tinymq.verify.clients import connect  # noqa: PLC0415
    from tinymq.verify.powercut import cut_power  # noqa: PLC0415
    from tinymq.verify.process import BrokerProcess  # noqa: PLC0415
    from tinymq.verify.trial import Means, Trial  # noqa: PLC0415

    with progress("verifying", plan.kills + plan.power_losses) as advance:
        means = Means(
            folder=place,
            broker=BrokerProcess,
            connect=connect,
            cut_power=cut_power,
            tell=lambda text: advance(1, text),
        )
        return Trial(plan, means).run()
