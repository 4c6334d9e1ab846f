"""
Runs the benchmarks: `python -m benches --help`.

Every round takes all rows in order, and every row its cases in order, so that
what is compared runs within seconds of each other.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TextIO

from benches import machine, report
from benches.bench import Bench
from benches.programs import Programs
from benches.rabbit import RabbitMQ
from benches.rows import ROWS, Row
from benches.samples import Sample, load, newest
from benches.servers import Beanstalkd, Redis, Server, TinyMQ
from benches.workers import Failed, environment
from tinymq.errors import TinyMQError

#: A case that failed this often is not tried again.
_PATIENCE = 2
_ERRORS = (Failed, TinyMQError, OSError, ValueError, KeyError)
_PROGRAMS = {"redis": "redis-server", "rabbitmq": "rabbitmq-server"}
_FSYNC = {
    "redis": {"redis-always": "always", "redis-everysec": "everysec"},
    "beanstalkd": {"beanstalkd-f0": "-f0", "beanstalkd-f50": "-f50"},
}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benches", description="Measure tinymq.")
    names = ", ".join(row.name for row in ROWS)
    parser.add_argument("--rows", default="", help=f"some of: {names}; otherwise all")
    parser.add_argument("--rounds", type=int, default=3, help="default 3")
    parser.add_argument("--scale", type=float, default=1.0, help="factor for numbers of messages")
    parser.add_argument("--minutes", type=float, default=20, help="begin no row after them")
    parser.add_argument(
        "--peers", default="redis,beanstalkd,rabbitmq", help="some of these, or none"
    )
    parser.add_argument("--scratch", type=Path, default=Path("build/benches"), help="a folder")
    parser.add_argument("--out", type=Path, help="append what was measured, as JSON lines")
    parser.add_argument("--report", type=Path, help="write tables in Markdown; of all of --out")
    parser.add_argument("--only-report", action="store_true", help="measure nothing")
    given = parser.parse_args()
    wanted = [name for name in given.rows.split(",") if name] or [row.name for row in ROWS]
    unknown = set(wanted) - {row.name for row in ROWS}
    if unknown:
        parser.error(f"no such row: {', '.join(sorted(unknown))}; there are {names}")
    if given.only_report and not given.out:
        parser.error("--only-report reads --out")
    given.rows = [row for row in ROWS if row.name in wanted]
    return given


class Session:
    """
    One run of the benchmarks.

    Args:
        given: The options.
        tell: Takes each sample.
    """

    def __init__(self, given: argparse.Namespace, tell: Callable[[Sample], None]) -> None:
        self._given = given
        self._tell = tell
        self._run = time.strftime("%Y-%m-%d %H:%M:%S")
        self._scratch: Path = given.scratch.resolve()
        self._data = self._scratch / "data"
        self._programs = Programs(self._scratch)
        self._servers: dict[str, Server] = {}
        self._until = 0.0
        self._failed: Counter[tuple[str, str, int]] = Counter()

    def measure(self) -> None:
        """Start the servers, take all rounds, and stop the servers."""
        self._until = time.monotonic() + self._given.minutes * 60
        shutil.rmtree(self._data, ignore_errors=True)
        self._data.mkdir(parents=True)
        try:
            self._start()
            for number in range(1, self._given.rounds + 1):
                self._round(number)
        finally:
            for server in self._servers.values():
                server.stop()
            shutil.rmtree(self._data, ignore_errors=True)

    def _start(self) -> None:
        self._add("tinymq", TinyMQ(self._data / "tinymq"))
        for peer in filter(None, self._given.peers.split(",")):
            try:
                self._add_peer(peer)
            except (OSError, KeyError, Failed) as error:
                print(f"\n*** NO {peer.upper()}: its cases are left out: {error}\n", flush=True)
        versions = sorted({each.version for each in self._servers.values()} - {"tinymq"})
        about = "; ".join([machine.facts(), *versions])
        self._tell(Sample(run=self._run, row="machine", case=f"{self._run}: {about}"))

    def _add_peer(self, peer: str) -> None:
        program = self._programs.get(_PROGRAMS.get(peer, peer))
        if peer == "rabbitmq":
            self._add(peer, RabbitMQ(program, self._data / peer))
            return
        for name, fsync in _FSYNC[peer].items():
            kind = Redis if peer == "redis" else Beanstalkd
            self._add(name, kind(program, self._data / name, fsync))

    def _add(self, name: str, server: Server) -> None:
        server.start()
        self._servers[name] = server

    def _round(self, number: int) -> None:
        bench = Bench(
            self._data, self._servers, environment(self._programs.python), self._given.scale
        )
        for row in self._given.rows:
            if row.once and number > 1:
                continue
            began = time.monotonic()
            if began > self._until:
                print(f"*** OUT OF TIME: round {number} leaves out {row.name}", flush=True)
                continue
            probe = machine.probe(self._data)
            self._tell(
                Sample(run=self._run, row="disk", case=row.name, round=number, figures=probe)
            )
            for sample in self._samples(row, bench, number):
                self._tell(sample)
            seconds = time.monotonic() - began
            print(f"    round {number}: {row.name} took {seconds:.0f} s", flush=True)

    def _samples(self, row: Row, bench: Bench, number: int) -> Iterator[Sample]:
        """Take one row; a case that fails is told, and the rest goes on."""
        with closing(row.runs(bench)) as runs:
            while True:
                try:
                    run = next(runs)
                except StopIteration:
                    return
                except _ERRORS as error:
                    yield self._sample(row, number, error=str(error))
                    return
                key = (row.name, run.case, run.size)
                if self._failed[key] >= _PATIENCE:
                    continue
                about = {"case": run.case, "size": run.size, "meaning": run.meaning}
                try:
                    figures = run.measure()
                except _ERRORS as error:
                    self._failed[key] += 1
                    yield self._sample(row, number, error=str(error) or repr(error), **about)
                else:
                    yield self._sample(row, number, figures=figures, **about)

    def _sample(self, row: Row, number: int, **found: object) -> Sample:
        found.setdefault("case", "")
        return Sample(run=self._run, row=row.name, round=number, **found)  # type: ignore[arg-type]


def _show(sample: Sample) -> None:
    if sample.error:
        print(f"{sample.row}: {sample.case}: FAILED: {sample.error}", flush=True)
        return
    shown = [
        f"{name} {report.rate(value) if name.endswith('per_s') else report.number(value)}"
        for name, value in sample.figures.items()
        if name not in ("began", "ended")
    ]
    print(f"{sample.row}: {sample.case} {sample.size or ''}: {', '.join(shown)}", flush=True)


def _measured(given: argparse.Namespace, out: TextIO | None) -> list[Sample]:
    samples: list[Sample] = []

    def tell(sample: Sample) -> None:
        samples.append(sample)
        _show(sample)
        if out is not None:
            out.write(sample.to_line())
            out.flush()

    began = time.monotonic()
    Session(given, tell).measure()
    print(f"all of it took {time.monotonic() - began:.0f} s")
    return samples


def main() -> int:
    """Measure, and write what was asked for."""
    given = _arguments()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
    samples: Sequence[Sample]
    if given.out is None:
        samples = _measured(given, None)
    elif not given.only_report:
        with given.out.open("a", encoding="utf-8") as out:
            samples = _measured(given, out)
        samples = newest(load(given.out))
    else:
        samples = newest(load(given.out))
    text = report.render(samples)
    if given.report is None:
        print(f"\n{text}")
    else:
        report.write(given.report, text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
