"""The whole of verify-crash on a broker in memory, honest or not."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from typing_extensions import override

from tests.fakes.memory_broker import MemoryBroker, MemoryClient
from tinymq.errors import (
    ConnectionLost,
    InternalError,
    OutOfOrderSequence,
    ShuttingDown,
    UnreachableError,
)
from tinymq.verify.court import Court
from tinymq.verify.report import FIGURES, Report
from tinymq.verify.trial import Means, Plan, Trial
from tinymq.wire.records import Record

Crime = Callable[[MemoryBroker], None]


def none(broker: MemoryBroker) -> None:
    """Keep every promise."""


def records(broker: MemoryBroker, topic: str) -> list[Record]:
    """Give the records of the first partition of a topic that has some."""
    return next(each.records for each in broker.topics[topic].partitions if len(each.records) > 2)


def number(found: list[Record]) -> None:
    """Give the records their offsets anew."""
    for offset, record in enumerate(found):
        found[offset] = record._replace(offset=offset)


def lose_last(broker: MemoryBroker) -> None:
    """Forget the last record."""
    records(broker, "safe").pop()


def lose_first(broker: MemoryBroker) -> None:
    """Forget the first record, and close the gap."""
    found = records(broker, "safe")
    del found[0]
    number(found)


def lose_middle_of_quick(broker: MemoryBroker) -> None:
    """Forget a record in the middle of a topic that may only lose its end."""
    found = records(broker, "quick")
    del found[1]
    number(found)


def lose_end_of_quick(broker: MemoryBroker) -> None:
    """Forget the end of a topic that may lose it in a power cut."""
    del records(broker, "quick")[-2:]


def duplicate(broker: MemoryBroker) -> None:
    """Store the last record twice."""
    found = records(broker, "safe")
    last = found[-1]
    found.append(Record(len(found), last.timestamp, None, last.value, (), None))


def swap(broker: MemoryBroker) -> None:
    """Exchange two records of one producer."""
    found = records(broker, "safe")
    first = found[0].value
    assert first is not None
    name = first.split()[0]
    place = next(
        place
        for place, each in enumerate(found)
        if place and (each.value or b"").split()[0] == name
    )
    other = found[place].value
    found[0], found[place] = found[0]._replace(value=other), found[place]._replace(value=first)


def spoil(broker: MemoryBroker) -> None:
    """Change one byte."""
    found = records(broker, "safe")
    value = found[1].value
    assert value is not None
    found[1] = found[1]._replace(value=value[:-1] + b"!")


def forget_topic(broker: MemoryBroker) -> None:
    """Forget a topic that was made."""
    made = [name for name in broker.topics if name.startswith("made-")]
    del broker.topics[made[0]]


class MemoryProcess:
    """A broker that is killed by becoming unreachable, and commits a crime meanwhile."""

    def __init__(self, broker: MemoryBroker, crime: Crime, url: str, folder: Path) -> None:
        self.url = url or "tinymq://memory"
        self._broker = broker
        self._crime = crime
        self._log = folder.with_name(folder.name + ".log")

    def launch(self) -> None:
        """Answer again."""
        self._log.write_text("cut a torn tail of 7 bytes\n")
        self._broker.down = False

    def wait(self) -> None:
        """Do nothing: it listens at once."""

    def kill(self) -> None:
        """Answer no more, once there was an opportunity for the crime."""
        with self._broker.lock:
            assert self._broker.arrived.wait_for(self._commit, 10)
            self._broker.down = True

    def _commit(self) -> bool:
        try:
            self._crime(self._broker)
        except (LookupError, StopIteration):
            return False
        self._crime = none
        return True

    def stop(self) -> int:
        """End well."""
        self.kill()
        return 0


def attempt(tmp_path: Path, crime: Crime, **plan: Any) -> Report:
    """Run a short trial of a broker that commits a crime once."""
    made: list[MemoryBroker] = []

    def broker(data: Path, *, url: str = "", record: Path | None = None) -> MemoryProcess:
        if not url:
            made.append(MemoryBroker())
        return MemoryProcess(made[-1], crime if not url else none, url, data)

    def cut_power(data: Path, record: Path, target: Path, chance: random.Random) -> None:
        """Nothing: the crime has done it."""

    means = Means(
        folder=tmp_path,
        broker=broker,
        connect=lambda url: cast("Any", MemoryClient(made[-1])),
        cut_power=cut_power,
        tell=lambda text: None,
    )
    given = {"kills": 0, "power_losses": 0, "seconds": 0.05, "seed": 1, "channels": False, **plan}
    return Trial(Plan(**given), means).run()


def test_an_honest_broker(tmp_path: Path) -> None:
    """A broker that keeps its promises is found to keep them, and nothing is left behind."""
    report = attempt(tmp_path, none, kills=2, power_losses=1)
    assert report.problems == []
    assert report.held
    assert report.figures["kills"] == 2
    assert report.figures["power_losses"] == 1
    assert report.figures["recovered"] == report.figures["acknowledged"] > 0
    assert report.figures["topics"] >= 6
    assert report.figures["torn_tails"] > 0
    assert list(tmp_path.iterdir()) == []
    assert set(report.document()) >= {name for name, _ in FIGURES}


@pytest.mark.parametrize(
    ("crime", "figure"),
    [
        (lose_last, "lost"),
        (lose_first, "lost"),
        (duplicate, "duplicated"),
        (swap, "reordered"),
        (spoil, "foreign"),
        (forget_topic, "topics_lost"),
        (lose_middle_of_quick, "lost"),
        (lose_end_of_quick, "lost"),
    ],
)
def test_crimes_at_a_kill(tmp_path: Path, crime: Crime, figure: str) -> None:
    """A kill excuses nothing: each crime is found, told, and its evidence kept."""
    report = attempt(tmp_path, crime, kills=1)
    assert not report.held
    assert report.problems
    if figure not in {"lost", "duplicated"}:
        assert report.figures[figure] > 0
    assert list(tmp_path.iterdir()) != []


@pytest.mark.parametrize(
    "crime", [lose_last, lose_first, duplicate, swap, spoil, forget_topic, lose_middle_of_quick]
)
def test_crimes_at_a_power_loss(tmp_path: Path, crime: Crime) -> None:
    """A power cut excuses nothing of what was synced, and no hole anywhere."""
    assert not attempt(tmp_path, crime, power_losses=1, patience=0.1).held


def test_a_power_loss_excuses_a_lost_end(tmp_path: Path) -> None:
    """A topic that is not synced for each record may lose its end."""
    report = attempt(tmp_path, lose_end_of_quick, power_losses=1)
    assert report.problems == []
    assert report.figures["cut"] > 0


@pytest.mark.parametrize(
    ("topic", "error", "cut", "allowed"),
    [
        ("safe", ConnectionLost(), False, True),
        ("safe", ShuttingDown(), False, True),
        ("safe", InternalError(), False, False),
        ("safe", OutOfOrderSequence(), True, False),
        ("quick", OutOfOrderSequence(), False, False),
        ("quick", OutOfOrderSequence(), True, True),
    ],
)
def test_errors_that_a_death_excuses(
    topic: str, error: Exception, cut: bool, allowed: bool
) -> None:
    """A killed broker excuses lost connections, and a cut end producers that are behind it."""
    report = Report(1)
    court = Court(lambda url: cast("Any", MemoryClient(MemoryBroker())), report)
    court.journal.refuse(topic, error)
    court.journal.broken.extend([] if allowed else ["a thread died"])
    if cut:
        court.power_failed()
    court.close("tinymq://memory")
    assert report.held is allowed
    assert report.figures["refused"] == 1


def test_a_broker_that_does_not_start(tmp_path: Path) -> None:
    """A broker that cannot start ends the trial with a problem."""

    class Dead(MemoryProcess):
        @override
        def wait(self) -> None:
            raise UnreachableError("the broker ended at its start")

    means = Means(
        folder=tmp_path,
        broker=lambda data, *, url="", record=None: Dead(MemoryBroker(), none, url, data),
        connect=lambda url: cast("Any", None),
        cut_power=lambda data, record, target, chance: None,
        tell=lambda text: None,
    )
    report = Trial(Plan(kills=1, power_losses=0, channels=False), means).run()
    assert report.problems == ["UnreachableError: the broker ended at its start"]
