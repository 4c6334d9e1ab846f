"""Kills and power cuts at any moment: what was settled with confirmation never comes back."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from typing_extensions import override

from tests.fakes.broker import Answers, BrokerFixture, HeldSyncer
from tests.fakes.taking import Taken, Taker
from tinymq.broker.channel.places import Places
from tinymq.broker.channel.runs import Runs
from tinymq.broker.channel.surviving import cut_back
from tinymq.broker.partition import Appended
from tinymq.storage.disk import Disk, RecordingDisk
from tinymq.storage.powerloss import replay
from tinymq.storage.sync import sync_group
from tinymq.wire.header import REPLY
from tinymq.wire.messages import FINISH, REQUEUE


class LateSyncer(HeldSyncer):
    """A syncer that syncs when it is told to."""

    def __init__(self, disk: Disk) -> None:
        super().__init__()
        self._disk = disk

    @override
    def release(self, error: OSError | None = None) -> None:
        tickets, done = self.groups.pop(0)
        done(sync_group(self._disk, tickets))


class Life:
    """
    One life of a broker, and what was promised in all of them.

    Args:
        home: Where everything lies.
        rng: What happens.
    """

    def __init__(self, home: Path, rng: Random) -> None:
        self.home = home
        self.rng = rng
        self.published: dict[bytes, Answers] = {}
        #: Values that were finished, confirmed or not, and those confirmed.
        self.tried: set[bytes] = set()
        self.finished: set[bytes] = set()
        self.failures: Counter[bytes] = Counter()
        self.waiting: dict[int, Callable[[], None]] = {}
        self.held: list[Taken] = []
        self.start(home / "data")

    def start(self, path: Path) -> None:
        """Start a broker and subscribe."""
        self.path = path
        disk = RecordingDisk(str(self.home / "journal"), str(path), real=False)
        self.syncer = LateSyncer(disk)
        self.broker = BrokerFixture(path, disk=disk, syncer=self.syncer)
        if "t" not in self.broker.meta.registry.by_name:
            self.broker.topic("t", 2)
            self.broker.meta.create_channel("t", "c", {"attempts": 1000, "backoff": ["0s"]})
        self.connect()

    def connect(self) -> None:
        """Subscribe on a new connection."""
        self.taker = Taker(self.broker)
        self.waiting.clear()
        self.held.clear()
        for _ in range(4):
            self.broker.clock.advance(0)
            self.sync()
        self.taker.subscribe_soon()
        for _ in range(4):
            self.broker.clock.advance(0)
            self.sync()
        self.listen()

    def sync(self) -> None:
        """Let what is on its way to the disk arrive there."""
        while self.syncer.groups:
            self.syncer.release()

    def listen(self) -> None:
        """Read what came."""
        self.taker.run()
        self.held += self.taker.take()
        for number, promised in tuple(self.waiting.items()):
            frame = self.taker.replies.pop(number, None)
            if frame is not None and frame.type & REPLY and frame.type != 0xFF:
                del self.waiting[number]
                promised()

    # --- what may happen ---------------------------------------------------------------

    def publish(self) -> None:
        """Publish a batch."""
        for _ in range(self.rng.randint(1, 3)):
            values = [b"%d" % (len(self.published) + at) for at in range(self.rng.randint(1, 5))]
            answers = self.broker.stage(*values, partition=self.rng.randrange(2))
            self.published.update(dict.fromkeys(values, answers))

    def _some(self) -> list[Taken]:
        count = self.rng.randint(0, min(4, len(self.held)))
        self.rng.shuffle(self.held)
        some, self.held = self.held[:count], self.held[count:]
        return some

    def finish(self) -> None:
        """Finish some messages."""
        some = {each.value or b"": each for each in self._some()}
        self.tried |= some.keys()
        number = self.taker.post(FINISH, *some.values())
        self.waiting[number] = lambda: self.finished.update(some)

    def requeue(self) -> None:
        """Let some messages come again."""
        some = [each for each in self._some() if each.value is not None]
        number = self.taker.post(REQUEUE, *some, d=0)
        self.waiting[number] = lambda: self.failures.update(each.value or b"" for each in some)

    def act(self) -> None:
        """Let people finish or requeue messages that the consumer holds, or once held."""
        index, act = self.rng.randrange(2), self.rng.choice(("finish", "requeue"))
        some = {each.offset: each.value or b"" for each in self._some() if each.partition == index}
        if not some:
            return
        if act == "finish":
            self.tried |= {*some.values()}
        given = {"partition": index, "offsets": list(some), "act": act}
        told = self.broker.operations.run("inflight.settle", {"topic": "t", "name": "c", **given})

        def promised(result: dict[str, Any]) -> None:
            if act == "finish":
                self.finished.update(some[offset] for offset in result["done"])

        Deferred.fromCoroutine(told).addCallback(promised)

    def reconnect(self) -> None:
        """Lose the link."""
        self.taker.connection.lose()
        self.connect()

    def checkpoint(self) -> None:
        """Keep the next recovery short."""
        self.broker.housekeeping.checkpoint()

    def wait(self) -> None:
        """Let time pass."""
        self.taker.run(self.rng.choice((0.1, 5, 15)))

    def live(self) -> None:
        """Do this and that."""
        acts = (
            self.publish,
            self.finish,
            self.finish,
            self.requeue,
            self.act,
            self.listen,
            self.listen,
            self.sync,
            self.sync,
            self.checkpoint,
            self.reconnect,
            self.wait,
        )
        for _ in range(self.rng.randint(5, 30)):
            self.rng.choice(acts)()

    # --- the end -------------------------------------------------------------------------

    def crash(self, *, power: bool) -> None:
        """Kill the broker, or cut its power, and start it again."""
        self.listen_once()
        self.broker.kill()
        path = self.path
        if power:
            path = Path(tempfile.mkdtemp(dir=self.home)) / "after"
            replay(str(self.home / "journal"), str(path), self.rng)
            for each in self.path.glob("meta.sqlite*"):
                shutil.copy(each, path)
        self.start(path)

    def listen_once(self) -> None:
        """Read what was sent before the end."""
        self.taker.read()
        self.held += self.taker.take()
        for number, promised in tuple(self.waiting.items()):
            frame = self.taker.replies.get(number)
            if frame is not None and frame.type & REPLY and frame.type != 0xFF:
                promised()
        self.waiting.clear()

    def rest(self) -> dict[bytes, Taken]:
        """Take everything that is left."""
        found: dict[bytes, Taken] = {}
        quiet = 0
        while quiet < 2:
            self.taker.run(0 if self.held else 12)
            self.sync()
            self.listen()
            quiet = 0 if self.held else quiet + 1
            found.update({each.value or b"": each for each in self.held})
            self.taker.post(FINISH, *self.held)
            self.held.clear()
            self.taker.replies.clear()
            self.taker.credit(len(found) + 200)
        return found


@pytest.mark.parametrize("power", [False, True])
@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=15)
def test_what_was_confirmed_stays_and_all_else_comes(power: bool, seed: int) -> None:
    """Two crashes; then nobody gets what was finished, and somebody all the rest."""
    home = Path(tempfile.mkdtemp())
    try:
        life = Life(home, Random(seed))
        life.live()
        life.crash(power=False)
        life.live()
        life.crash(power=power)
        found = life.rest()
        life.broker.kill()
    finally:
        shutil.rmtree(home)
    stored = {
        value
        for value, answers in life.published.items()
        if answers and isinstance(answers[0], Appended)
    }
    assert not found.keys() & life.finished
    assert stored - life.tried <= found.keys()
    for value, taken in found.items():
        assert taken.failures >= life.failures[value]
        assert taken.attempt > life.failures[value]


def test_what_is_beyond_the_end_of_a_cut_log_is_forgotten() -> None:
    """The offsets will be those of other messages, which nobody has settled."""
    places = Places(20)
    places.ahead = Runs([(25, 30)])

    changed = cut_back(places, 10)

    assert changed
    assert (places.cursor, list(places.ahead)) == (10, [])
    assert not cut_back(places, 10)
