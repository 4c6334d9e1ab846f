"""
The sequence of events: load, kill, start, judge; again and again.

Kills go on over one data folder for a while, each time reading what is new, and
then the whole folder is read once more from its start before a fresh one takes
its place. A power loss has a folder of its own: what the broker wrote and synced
was recorded, and a folder is made from that as a power cut might have left it.
"""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from attrs import frozen

from tinymq.errors import TinyMQError
from tinymq.verify.court import Court
from tinymq.verify.inspector import Inspector
from tinymq.verify.journal import Journal
from tinymq.verify.load import Connect, Load, Scene
from tinymq.verify.numbered import Place
from tinymq.verify.report import Report
from tinymq.verify.watcher import PATIENCE as WATCHER_PATIENCE
from tinymq.verify.watcher import Watcher
from tinymq.verify.workers import Works

#: Kills over one data folder.
KILLS_A_FOLDER: Final = 25
#: One kill in so many comes while the broker is still starting.
_EARLY_ONE_IN: Final = 8
#: Seconds in which a broker that was started again must acknowledge something.
_PATIENCE: Final = 30.0
_GLANCE: Final = 0.005
#: Seconds without a receipt after which a dead broker has nothing more to say.
_DRAIN: Final = 0.1
#: Seconds in which consumers of channels are back at a broker that listens again; they
#: go on for a moment, and leave in good order. What one who is away holds is kept for it.
_BACK: Final = 0.5


class Broker(Protocol):
    """What a trial does to a broker; `BrokerProcess` is one."""

    url: str

    def launch(self) -> None:
        """Start it, and do not wait."""

    def wait(self) -> None:
        """Wait until it listens."""

    def kill(self) -> None:
        """End it as SIGKILL does."""

    def stop(self) -> int:
        """End it as SIGTERM does, and return its exit status."""


class MakeBroker(Protocol):
    """Makes a broker."""

    def __call__(self, data: Path, *, url: str = "", record: Path | None = None) -> Broker:
        """Make one over a data folder; see `BrokerProcess`."""


class CutPower(Protocol):
    """Makes what a power cut would have left of a data folder."""

    def __call__(self, data: Path, record: Path, target: Path, chance: random.Random) -> None:
        """Make a folder; see `tinymq.verify.powercut.cut_power`."""


@frozen(kw_only=True)
class Plan:
    """
    How much is tried.

    Attributes:
        kills: How often the broker is killed.
        power_losses: How many power cuts follow.
        seconds: Longest time of load before each.
        producers: How many threads publish.
        seed: Chance begins here.
        patience: Seconds in which a reader must be told of a power cut.
        channels: Whether there are consumers of channels.
    """

    kills: int = 20
    power_losses: int = 5
    seconds: float = 0.8
    producers: int = 3
    seed: int = 0
    patience: float = WATCHER_PATIENCE
    channels: bool = True


@frozen(kw_only=True)
class Means:
    """
    What a trial works with.

    Attributes:
        folder: Where data folders are made.
        broker: Makes brokers.
        connect: Makes clients.
        cut_power: Makes power cuts.
        tell: Told after each round how far the trial is.
    """

    folder: Path
    broker: MakeBroker
    connect: Connect
    cut_power: CutPower
    tell: Callable[[str], None]


class Trial:
    """
    One run of `verify-crash`.

    Attributes:
        report: What was found so far.
    """

    def __init__(self, plan: Plan, means: Means) -> None:
        self.report = Report(plan.seed)
        self._plan = plan
        self._means = means
        self._chance = random.Random(plan.seed)  # noqa: S311 - nothing secret

    def run(self) -> Report:
        """Do everything that was planned, and stop early when the broker does not start."""
        began = time.monotonic()
        try:
            left = self._plan.kills
            while left > 0:
                self._killing(min(left, KILLS_A_FOLDER), self._plan.kills - left)
                left -= KILLS_A_FOLDER
            for number in range(self._plan.power_losses):
                self._power_loss(number)
        except TinyMQError as error:
            self.report.problem(f"{type(error).__name__}: {error}")
        self.report.seconds = time.monotonic() - began
        return self.report

    # --- kills ---------------------------------------------------------------

    def _killing(self, kills: int, before: int) -> None:
        """Kill one broker a number of times over one data folder."""
        folder = self._means.folder / f"kills-{before}"
        broker = self._means.broker(folder)
        broker.launch()
        broker.wait()
        court = Court(self._means.connect, self.report)
        load = Crew(self._scene(broker, court.journal), self._plan)
        load.start()
        try:
            for number in range(before + 1, before + kills + 1):
                self._wait(court.journal)
                self._kill(broker)
                court.hear(broker.url)
                self.report.figures["kills"] += 1
                self._means.tell(f"kill {number}: {court.journal.acknowledged} acknowledged")
            load.join()
            status = broker.stop()
            if status not in {0, -signal.SIGTERM}:
                self.report.problem(f"the broker's exit status after SIGTERM was {status}")
            broker.launch()
            broker.wait()
            self._inspect(load, broker, court.close(broker.url))
        finally:
            load.ask_to_stop()
            broker.kill()
            load.join()
        self._tidy(folder)

    def _kill(self, broker: Broker) -> None:
        broker.kill()
        broker.launch()
        if self._chance.randrange(_EARLY_ONE_IN) == 0:
            time.sleep(self._chance.uniform(0.0, self._plan.seconds))
            broker.kill()
            broker.launch()
        broker.wait()

    def _wait(self, journal: Journal) -> None:
        """Let the load run for a while, but see that it does run."""
        until = time.monotonic() + self._chance.uniform(0.0, self._plan.seconds)
        deadline = time.monotonic() + _PATIENCE
        before = journal.acknowledged
        while time.monotonic() < until or journal.acknowledged == before:
            if time.monotonic() > deadline:
                self.report.problem(f"nothing was acknowledged for {_PATIENCE:.0f} s")
                return
            time.sleep(_GLANCE)

    # --- power losses --------------------------------------------------------

    def _power_loss(self, number: int) -> None:
        """Load a broker, cut its power, and judge what comes up again."""
        folder = self._means.folder / f"power-{number}"
        record = folder.with_suffix(".writes")
        after = folder.with_suffix(".after")
        court = Court(self._means.connect, self.report)
        broker = self._means.broker(folder, record=record)
        broker.launch()
        broker.wait()
        scene = self._scene(broker, court.journal)
        load = Crew(scene, self._plan)
        load.start()
        watcher = Watcher(scene, self._plan.patience)
        watcher.start()
        try:
            self._wait(court.journal)
            broker.kill()
            _settle(court.journal)
            self._means.cut_power(folder, record, after, self._chance)
            court.power_failed()
            positions = dict(watcher.positions)
            broker = self._means.broker(after, url=broker.url)
            load.ask_to_stop()
            broker.launch()
            broker.wait()
            time.sleep(_BACK if load.works else 0.0)
            load.join()
            ends = court.close(broker.url)
            self._judge_watcher(watcher, positions, ends)
            self._inspect(load, broker, ends, after_cut=True)
        finally:
            load.ask_to_stop()
            broker.kill()
            load.join()
            watcher.stop()
        self.report.figures["power_losses"] += 1
        self._means.tell(f"power loss {number + 1}: {court.journal.acknowledged} acknowledged")
        self._tidy(folder, record, after)

    def _judge_watcher(
        self, watcher: Watcher, positions: dict[Place, int], ends: dict[Place, int]
    ) -> None:
        for place in watcher.await_news(positions, ends):
            self.report.problem(
                f"a reader of {place} was ahead of the log ({positions[place]}, cut at "
                f"{ends[place]}) and was not told"
            )
        self.report.figures["truncations_told"] += len(watcher.told)
        if watcher.broken:
            self.report.problem(f"a reader ended with {watcher.broken}")

    def _inspect(
        self, load: Crew, broker: Broker, ends: dict[Place, int], *, after_cut: bool = False
    ) -> None:
        if load.works is None:
            return
        journal = load.works.journal
        Inspector(load.works.books, journal, self.report).close(
            lambda: self._means.connect(broker.url), ends, after_cut=after_cut
        )
        for text in journal.broken:
            self.report.problem(text)

    def _scene(self, broker: Broker, journal: Journal) -> Scene:
        return Scene(broker.url, self._means.connect, journal, self._chance.getrandbits(32))

    def _tidy(self, *paths: Path) -> None:
        """Remove what is not needed any more; after a problem everything stays."""
        logs = [path.with_name(path.name + ".log") for path in paths]
        for log in logs:
            if log.exists():
                told = log.read_bytes()
                self.report.figures["torn_tails"] += told.count(b"cut a torn tail")
                self.report.figures["unsynced_ends"] += told.count(b"cut an unsynced end")
        if not self.report.held:
            return
        for path in (*paths, *logs):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


class Crew:
    """
    All that goes on at a broker: who publishes, and who works on channels.

    Args:
        scene: The broker and the journal.
        plan: How much.

    Attributes:
        works: The channels; None when there are none.
    """

    def __init__(self, scene: Scene, plan: Plan) -> None:
        self._load = Load(scene, plan.producers)
        self.works = Works(scene, plan.producers + 1) if plan.channels else None
        self._all = [each for each in (self._load, self.works) if each is not None]

    def start(self) -> None:
        """Begin."""
        for each in self._all:
            each.start()

    def ask_to_stop(self) -> None:
        """Let whoever publishes end after his present call."""
        for each in self._all:
            each.ask_to_stop()

    def join(self) -> None:
        """Wait until every thread has ended."""
        for each in self._all:
            each.join()


def _settle(journal: Journal) -> None:
    """Wait until every answer that a dead broker still sent has been taken note of."""
    before = -1
    while journal.acknowledged != before:
        before = journal.acknowledged
        time.sleep(_DRAIN)
