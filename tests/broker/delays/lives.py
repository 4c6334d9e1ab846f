"""
Lives of a broker with messages that are not due yet, each ended by a kill or a power cut.

Whatever is published, cancelled, moved and synced when, and whatever the wall clock does: every
message comes exactly once, never early, never lost, and never after its cancel was answered.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path
from random import Random

from attrs import define, field

from tests.broker.delays.stage import Stage
from tests.broker.lives import LateSyncer
from tests.fakes.broker import Answers, Wall
from tinymq.broker.delays.index import INDEX_FILE
from tinymq.broker.partition import Appended
from tinymq.errors import WireError
from tinymq.storage.disk import RecordingDisk
from tinymq.storage.log import Log, LogConfig
from tinymq.storage.powerloss import replay

#: Delays in milliseconds: now, soon, about where memory ends, and far.
DELAYS = (0, 1, 9, 500, 3000, 30_000, 60_000, 110_000, 119_999, 120_001, 200_000, 10**6, 10**8)


@define(eq=False)
class Sent:
    """
    A message.

    Attributes:
        number: What it is told by: its value.
        dues: When it may come: the last that was confirmed, and those that may be true.
        answers: What its producer was told.
        place: Its place in the batch.
        cancelled: Whether a cancel was confirmed; None while one may have been.
        seen: How often readers saw it.
        came: Whether they saw it in an earlier life.
    """

    number: int
    dues: list[int]
    answers: Answers
    place: int
    cancelled: bool | None = field(default=False)
    seen: int = field(default=0)
    came: bool = field(default=False)

    @property
    def id(self) -> int | None:
        """Its delay id, once that is known."""
        if self.answers and isinstance(self.answers[0], Appended):
            return self.answers[0].base_offset + self.place
        return None


class DelayLives:
    """
    All lives of a broker.

    Args:
        home: Where everything lies.
        rng: What happens.
        config: Settings of the topic.

    Attributes:
        done: What was tried, and how often.
    """

    def __init__(self, home: Path, rng: Random, config: dict[str, str] | None = None) -> None:
        self.home = home
        self.rng = rng
        self.config = config or {}
        self.done: Counter[str] = Counter()
        self.sent: list[Sent] = []
        self.wall = Wall()
        #: The last moment of the life before, until what it left was looked at.
        self.latest = 0
        self.sequences: Counter[int] = Counter()
        self.repeats: list[
            tuple[tuple[int, ...], tuple[bytes, ...], tuple[int, int, int], int]
        ] = []
        self.start(home / "data")

    def start(self, path: Path) -> None:
        """Start a broker."""
        self.path = path
        self.offset = 0
        disk = RecordingDisk(str(self.home / "journal"), str(path), real=False)
        self.syncer = LateSyncer(disk, self.rng)
        self.stage = Stage(path, self.config, disk=disk, syncer=self.syncer, wall=self.wall)
        for sent in self.sent:
            sent.came = sent.came or sent.seen > 0
            sent.seen = 0
        # What was on its way to the disk was due by the clock of the life before.
        self.look()
        self.latest = 0
        self.turn()

    def turn(self) -> None:
        """Let the broker do what it does, and let all come to the disk."""
        for _ in range(4):
            self.stage.broker.clock.advance(0)
            self.sync()
        self.look()

    def sync(self) -> None:
        """Let what is on its way to the disk arrive there."""
        while self.syncer.groups:
            self.syncer.release()

    def look(self) -> None:
        """Judge what readers see."""
        partition, now = self.stage.broker.partition(), max(self.stage.now, self.latest)
        while self.offset < partition.high_watermark:
            found = self.stage.broker.fetch(("t", 0, self.offset), max_wait_ms=0)
            following = found.rows[0][3]
            for value in found.values:
                sent = self.sent[int(value or b"")]
                sent.seen += 1
                assert sent.seen == 1, f"{sent} comes twice"
                if not sent.came:
                    assert now >= min(sent.dues), f"{sent} comes {min(sent.dues) - now} ms early"
                    assert sent.cancelled is not True, f"{sent} was cancelled"
                    self.done["released"] += 1
            self.offset = following

    # --- what may happen ---------------------------------------------------------------

    def publish(self) -> None:
        """Publish some messages, some as an idempotent producer."""
        count = self.rng.randint(1, 4)
        now = self.stage.now
        delays = [self.rng.choice(DELAYS) for _ in range(count)]
        same = self.rng.randrange(2) == 0
        if same:
            delays = delays[:1] * count
        dues = tuple(-delay if delay and self.rng.randrange(2) else now + delay for delay in delays)
        first = len(self.sent)
        values = tuple(b"%d" % (first + each) for each in range(count))
        producer = self.rng.choice((-1, 5, 6))
        sequence = (producer, 0, self.sequences[producer]) if producer >= 0 else (-1, -1, -1)
        answers = self.stage.stage(dues, *values, producer=sequence)
        if producer >= 0:
            self.sequences[producer] += count
            self.repeats.append((dues, values, sequence, first))
        for place in range(count):
            self.sent.append(Sent(first + place, [now + delays[place]], answers, place))
        self.done["published"] += count

    def repeat(self) -> None:
        """Send a batch again, as a producer that did not hear the answer."""
        if not self.repeats:
            return
        dues, values, sequence, first = self.repeats[-1]
        if sequence[2] + len(values) != self.sequences[sequence[0]]:
            return
        sent = self.sent[first]
        answers = self.stage.stage(dues, *values, producer=sequence)
        now = self.stage.now

        def heard(one: Sent) -> None:
            # After a crash it may be the first of its kind, and its delay begins now.
            one.answers = answers
            if one.dues and dues[one.place] < 0:
                one.dues.append(now - dues[one.place])

        if sent.id is None:
            for place in range(len(values)):
                heard(self.sent[first + place])
        self.done["repeats"] += 1

    def _some(self) -> list[Sent]:
        """Choose some messages whose ids are known, some of which have come."""
        known = [sent for sent in self.sent if sent.id is not None]
        waiting = [sent for sent in known if not sent.seen and sent.cancelled is False]
        chosen = waiting if waiting and self.rng.randrange(5) else known
        return self.rng.sample(chosen, min(len(chosen), self.rng.randint(1, 3)))

    def cancel(self) -> None:
        """Cancel some messages."""
        some = {sent.id: sent for sent in self._some() if sent.cancelled is not True}
        doubtful = [sent for sent in some.values() if sent.cancelled is None]
        for sent in some.values():
            sent.cancelled = None

        def told(found: list[int] | WireError) -> None:
            assert isinstance(found, list), found
            self.look()
            for number, sent in some.items():
                if number in found:
                    assert not sent.seen, f"{sent} came, and was cancelled"
                    sent.cancelled = True
                    self.done["cancelled"] += 1
                elif sent not in doubtful:
                    sent.cancelled = False

        if some:
            self._delays.cancel([each for each in some if each is not None], told)

    def move(self) -> None:
        """Let some messages come at another time, or now."""
        some = {sent.id: sent for sent in self._some() if sent.cancelled is False}
        due = self.stage.now + self.rng.choice(DELAYS)
        for sent in some.values():
            sent.dues.append(due)

        def told(found: list[int] | WireError) -> None:
            assert isinstance(found, list), found
            self.look()
            for number, sent in some.items():
                if number in found:
                    sent.dues[:] = [due]
                    self.done["moved"] += 1

        if some:
            self._delays.move([each for each in some if each is not None], due, told)

    @property
    def _delays(self):  # type: ignore[no-untyped-def]
        return self.stage.broker.broker.delaying.opened(self.stage.broker.partition())

    def wait(self) -> None:
        """Let time pass."""
        self.stage.wait(self.rng.choice((0.01, 0.1, 1, 5, 40, 70, 200)), step=60)
        self.look()

    def step_clock(self) -> None:
        """Set the wall clock."""
        self.wall.now_ms += self.rng.choice((-3_600_000, -1000, 1000, 3_600_000))
        self.done["clock steps"] += 1

    def list_all(self) -> None:
        """Look at all that waits: nothing that was confirmed is missing."""
        if self.stage.broker.broker.delaying.of(self.stage.broker.partition()) is None:
            return
        rows: dict[int, int] = {}
        after = ""
        while True:
            page = self.stage.broker.operate("delayed.list", topic="t", limit=3, after=after)
            rows.update({row["id"]: row["due_ms"] for row in page["messages"]})
            if not page["more"]:
                break
            after = page["after"]
        self.look()
        for sent in self.sent:
            if sent.id is None or sent.cancelled is None or len(sent.dues) > 1:
                continue
            if sent.cancelled or sent.seen:
                assert sent.id not in rows, f"{sent} is listed"
            elif sent.dues[0] > self.stage.now + 10:
                assert rows.get(sent.id) == sent.dues[0], f"{sent} is listed as {rows.get(sent.id)}"
        self.done["listed"] += len(rows)

    def begin_anew(self) -> None:
        """Let the index turn out to be damaged."""
        delays = self.stage.broker.broker.delaying.of(self.stage.broker.partition())
        if delays is not None:
            delays.index._begin_anew()
            self.done["indexes made anew"] += 1

    def _shrink(self) -> None:
        """Cut the log into small files, and let go of them as soon as that can be done."""
        delays = self.stage.broker.broker.delaying.of(self.stage.broker.partition())
        if delays is not None and isinstance(delays.log, Log):
            delays.log.config = LogConfig(segment_bytes=600)
            delays.freeing.least = 0

    def checkpoint(self) -> None:
        """Keep the next recovery short."""
        self.stage.broker.housekeeping.checkpoint()

    def live(self, most: int) -> None:
        """Do this and that."""
        acts = (
            *[self.publish] * 5,
            *[self.sync] * 4,
            *[self.turn] * 2,
            *[self.wait] * 4,
            *(self.repeat, self.cancel, self.move, self.list_all),
            *(self.checkpoint, self.step_clock, self.begin_anew),
        )
        for _ in range(self.rng.randint(5, most)):
            self.rng.choice(acts)()
            self._shrink()
            if self.rng.randrange(2):
                self.stage.broker.clock.advance(0)
            self.done["steps"] += 1

    # --- the end -------------------------------------------------------------------------

    def crash(self, *, power: bool) -> None:
        """Kill the broker, or cut its power, and start it again."""
        self.look()
        self.latest = self.stage.now
        file = self.path / INDEX_FILE
        kept = [each for each in (file, file.with_name(f"{INDEX_FILE}-wal")) if each.exists()]
        kept = [each.rename(self.home / each.name) for each in kept]
        if delays := self.stage.broker.broker.delaying.of(self.stage.broker.partition()):
            self.done["copies"] += delays.freeing.copied
            self.done["files freed"] += delays.freeing.removed
        self.stage.broker.kill()
        for each in kept:
            each.replace(self.path / each.name)
        self.done["power cuts" if power else "kills"] += 1
        path = self.path
        if power:
            path = Path(tempfile.mkdtemp(dir=self.home)) / "after"
            replay(str(self.home / "journal"), str(path), self.rng)
            names = ["meta.sqlite*"] + [f"{INDEX_FILE}*"] * self.rng.randrange(2)
            for name in names:
                for each in self.path.glob(name):
                    shutil.copy(each, path)
        elif self.rng.randrange(4) == 0:
            file.unlink(missing_ok=True)
            file.with_name(f"{INDEX_FILE}-wal").unlink(missing_ok=True)
        self.start(path)
        for sent in self.sent:
            assert sent.seen or not sent.came, f"{sent} was there"

    def judge(self) -> None:
        """Let everything come, and see that no promise was broken."""
        for _ in range(8):
            self.turn()
            self.stage.wait(self.rng.choice((61, 100, 300)), step=50)
        for _ in range(3):
            self.stage.wait(2 * 10**5 + 3600, step=10**5)
            self.turn()
        for sent in self.sent:
            if sent.id is not None and sent.cancelled is False:
                assert sent.seen == 1, f"{sent} was lost"
        delays = self.stage.broker.broker.delaying.of(self.stage.broker.partition())
        if delays is not None:
            assert delays.memory.count == 0
            assert len(delays.memory.wheel) == 0


def play(seed: int, *, power: bool, crashes: int = 2, most: int = 40) -> Counter[str]:
    """
    Live and die some times, and judge.

    Args:
        seed: Decides what happens.
        power: Whether the last death is a power cut.
        crashes: How often.
        most: Most acts of one life.

    Returns:
        What was done.
    """
    home = Path(tempfile.mkdtemp())
    try:
        rng = Random(seed)
        # Other policies promise nothing for the case of a power cut.
        policy = "always" if power else rng.choice(("always", "os", "interval"))
        lives = DelayLives(home, rng, {"sync": policy})
        for left in reversed(range(crashes)):
            lives.live(most)
            lives.crash(power=power and left == 0)
        lives.live(most)
        lives.judge()
        lives.stage.broker.kill()
    finally:
        shutil.rmtree(home)
    return lives.done
