"""The lives of one broker with an exchange: random acts, kills, power cuts, and what must hold."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.broker.lives import LateSyncer
from tests.broker.replaying import check_ledger
from tests.broker.routing.exchanging import bind, make_exchange, publish, records, unbind
from tests.fakes.broker import Answers, BrokerFixture
from tinymq.broker.hosted import Hosted
from tinymq.broker.letters import facts_of
from tinymq.errors import Overloaded
from tinymq.storage.disk import RecordingDisk
from tinymq.storage.powerloss import replay

PARTITIONS = 2
KEYS = (b"0", b"1", b"2", b"3")
TARGETS = ("a", "b", "c")
#: The one that is deleted and made anew.
MORTAL = "c"

#: Ids of the topics that get a key.
State = dict[bytes, frozenset[bytes]]


class Sent(NamedTuple):
    """A record that was published."""

    key: bytes
    source: int
    state: int
    answers: Answers


class Lives:
    """
    All lives of a broker.

    Args:
        home: Where everything lies.
        rng: What happens.
        sync: When what is published is on the disk.

    Attributes:
        done: What was tried, and how often.
    """

    def __init__(self, home: Path, rng: Random, sync: str) -> None:
        self.home = home
        self.rng = rng
        self._sync = sync
        self.done: Counter[str] = Counter()
        self.sent: dict[bytes, Sent] = {}
        self.states: list[State] = []
        #: The state in force when a record was seen to be planned.
        self.planned: dict[bytes, int] = {}
        #: What deleted topics had, by their ids.
        self.buried: dict[bytes, Counter[bytes]] = {}
        self.start(home / "data")

    def start(self, path: Path) -> None:
        """Start a broker."""
        self.path = path
        disk = RecordingDisk(str(self.home / "journal"), str(path), real=False)
        self.syncer = LateSyncer(disk, self.rng)
        self.broker = BrokerFixture(path, disk=disk, syncer=self.syncer)
        meta = self.broker.meta
        if "x" not in meta.registry.by_name:
            make_exchange(meta, self.broker.topic("x", PARTITIONS, sync=self._sync))
            for name, partitions in zip(TARGETS, (2, 1, 1), strict=True):
                self.broker.topic(name, partitions)
            for key in KEYS[:3]:
                bind(meta, "x", self.rng.choice(TARGETS), key.decode())
        self.broker.broker.neighbours.place = (  # type: ignore[method-assign]
            lambda key, partitions: int(key) % partitions
        )
        self.note_state()

    # --- what may happen ---------------------------------------------------------------

    def note_state(self) -> None:
        """Remember what the table says now."""
        registry = self.broker.meta.registry
        bindings = registry.exchange("x").bindings.values()
        state: State = {
            key: frozenset(
                registry.by_name[each.target].id
                for each in bindings
                if (each.terms.key or "").encode() == key and each.target in registry.by_name
            )
            for key in KEYS
        }
        if not self.states or self.states[-1] != state:
            self.states.append(state)

    def publish(self) -> None:
        """Publish some batches."""
        for _ in range(self.rng.randint(1, 3)):
            first, index = len(self.sent), self.rng.randrange(PARTITIONS)
            count = self.rng.choice((1, 1, 3, 20))
            values = [b"%d" % number for number in range(first, first + count)]
            keys = [self.rng.choice(KEYS) for _ in values]
            answers = publish(self.broker, *keys, index=index, values=values)
            state = len(self.states) - 1
            for key, value in zip(keys, values, strict=True):
                self.sent[value] = Sent(key, index, state, answers)
            self.done["records"] += count

    def rebind(self) -> None:
        """Add or remove a binding."""
        meta = self.broker.meta
        bindings = [*meta.registry.exchange("x").bindings]
        if bindings and self.rng.randrange(2):
            unbind(meta, "x", self.rng.choice(bindings))
        else:
            name = self.rng.choice(TARGETS)
            if name in meta.registry.by_name:
                bind(meta, "x", name, self.rng.choice(KEYS).decode())
        self.note_state()
        self.done["rebindings"] += 1

    def delete(self) -> None:
        """Delete a target, or make it anew."""
        meta = self.broker.meta
        if self.rng.randrange(2):
            return
        topic = meta.registry.by_name.get(MORTAL)
        if topic is None:
            self.broker.topic(MORTAL)
        else:
            partition = self.broker.partition(MORTAL)
            written = partition.log.written_offset
            self.buried[topic.id] = Counter()
            if written:
                chunk = partition.log.read(partition.log.start_offset, 1 << 24, written)
                assert chunk is not None
                self.buried[topic.id] = self._values(MORTAL)
            meta.delete_topic(MORTAL)
            self.done["deletions"] += 1
        self.note_state()

    def jam(self) -> None:
        """Let a target take nothing, or something again."""
        name = self.rng.choice(TARGETS)
        if name not in self.broker.meta.registry.by_name:
            return
        partitions = self.broker.meta.describe(name).partitions
        refusals = self.broker.partition(name, self.rng.randrange(partitions)).refusals
        if not refusals.pop("test", None) and self.rng.randrange(2):
            refusals["test"] = Overloaded("it is full")
            self.done["jams"] += 1

    def sync(self) -> None:
        """Let what is on its way to the disk arrive there."""
        while self.syncer.groups:
            self.syncer.release()

    def listen(self) -> None:
        """Let the broker do what it does."""
        self.broker.clock.advance(0)
        self.look()

    def wait(self) -> None:
        """Let time pass."""
        self.broker.wall.now_ms += 2000
        self.broker.clock.advance(2)

    def checkpoint(self) -> None:
        """Keep the next recovery short."""
        self.broker.housekeeping.checkpoint()

    def fold(self) -> None:
        """Let the next batch of the ledger be a snapshot."""
        for hosted in self.hosted():
            hosted.ledger.behind = True

    def hosted(self) -> list[Hosted]:
        """The partitions of the exchange."""
        return self.broker.broker.channels.hosted_of(self.broker.meta.describe("x").id)

    def look(self) -> None:
        """See what is planned by now."""
        for hosted in self.hosted():
            assert hosted.router is not None
            cursor = hosted.router.routes.cursor
            for at, record in enumerate(records(self.broker, "x", hosted.index)):
                value = record.value or b""
                if at >= cursor:
                    self.planned.pop(value, None)
                else:
                    self.planned.setdefault(value, len(self.states) - 1)

    def live(self, most: int) -> None:
        """Do this and that."""
        acts = (
            *[self.publish] * 3,
            *[self.listen] * 8,
            *[self.sync] * 5,
            *[self.jam] * 2,
            *(self.rebind, self.delete, self.wait, self.checkpoint, self.fold),
        )
        for _ in range(self.rng.randint(5, most)):
            self.rng.choice(acts)()
            self.look()
            self.done["steps"] += 1
            if self.rng.randrange(6) == 0:
                self.compare()

    def turns(self, count: int = 6) -> None:
        """Let the broker come to rest."""
        for _ in range(count):
            self.broker.clock.advance(0)
            self.sync()

    def compare(self) -> None:
        """See that the ledgers say what memory knows."""
        self.turns(3)
        for hosted in self.hosted():
            hosted.written()
        self.broker.clock.advance(0)
        for hosted in self.hosted():
            assert hosted.router is not None
            if not hosted.router.routes._fresh:
                check_ledger(hosted)
                self.done["comparisons"] += 1
        self.look()

    # --- the end -------------------------------------------------------------------------

    def crash(self, *, power: bool) -> None:
        """Kill the broker, or cut its power, and start it again."""
        self.broker.kill()
        path = self.path
        self.done["power cuts" if power else "kills"] += 1
        if power:
            path = Path(tempfile.mkdtemp(dir=self.home)) / "after"
            replay(str(self.home / "journal"), str(path), self.rng)
            for each in self.path.glob("meta.sqlite*"):
                shutil.copy(each, path)
        self.start(path)
        self.look()

    def rest(self) -> None:
        """Let everything come to its place."""
        for name in TARGETS:
            if name in self.broker.meta.registry.by_name:
                for index in range(self.broker.meta.describe(name).partitions):
                    self.broker.partition(name, index).refusals.clear()
        for _ in range(200):
            self.turns()
            self.look()
            routers = [hosted.router for hosted in self.hosted() if hosted.router is not None]
            ends = [hosted.partition.high_watermark for hosted in self.hosted()]
            if all(
                not router.routes.pending and router.routes.cursor == end
                for router, end in zip(routers, ends, strict=True)
            ):
                return
            self.wait()
        raise AssertionError(self.broker.node.routers())

    def _values(self, name: str) -> Counter[bytes]:
        partitions = self.broker.meta.describe(name).partitions
        return Counter(
            record.value or b""
            for index in range(partitions)
            for record in records(self.broker, name, index)
        )

    def judge(self) -> None:
        """See that each record is where some state of the table said, once."""
        self.rest()
        registry = self.broker.meta.registry
        arrived = {
            registry.by_name[name].id: self._values(name)
            for name in TARGETS
            if name in registry.by_name
        }
        for found in arrived.values():
            assert max(found.values(), default=0) <= 1, "a copy came twice"
        unroutable, orphans = self._letters()
        for index in range(PARTITIONS):
            stored = [each.value or b"" for each in records(self.broker, "x", index)]
            for value in stored:
                self._judge(value, arrived, unroutable, orphans)
        self._judge_order()
        for value, sent in self.sent.items():
            if sent.answers and not isinstance(sent.answers[0], Exception):
                self.done["acknowledged"] += 1
                assert self._sync != "always" or value in self.planned, f"{value!r} was lost"

    def _letters(self) -> tuple[Counter[bytes], dict[bytes, Counter[bytes]]]:
        """Values that were unroutable, and those for topics that were deleted."""
        unroutable: Counter[bytes] = Counter()
        orphans: defaultdict[bytes, Counter[bytes]] = defaultdict(Counter)
        if "x.unroutable" in self.broker.meta.registry.by_name:
            for index in range(PARTITIONS):
                for record in records(self.broker, "x.unroutable", index):
                    facts = facts_of(record.headers)
                    assert facts.partition == index
                    value = record.value or b""
                    if facts.reason == "unroutable":
                        unroutable[value] += 1
                    else:
                        assert facts.reason == "target_deleted"
                        orphans[bytes.fromhex(facts.text.split()[-1])][value] += 1
        found = [unroutable, *orphans.values()]
        assert all(max(each.values(), default=0) <= 1 for each in found), "a letter came twice"
        self.done["letters"] += sum(each.total() for each in found)
        return unroutable, orphans

    def _judge(
        self,
        value: bytes,
        arrived: dict[bytes, Counter[bytes]],
        unroutable: Counter[bytes],
        orphans: dict[bytes, Counter[bytes]],
    ) -> None:
        sent = self.sent[value]
        there = {topic for topic, found in arrived.items() if found[value]}
        maybe = {topic for topic, found in orphans.items() if found[value]}
        gone = {topic for topic, found in self.buried.items() if found[value]}
        possible = self.states[sent.state : self.planned[value] + 1]
        fits = [
            state
            for state in possible
            if there | maybe <= state[sent.key] <= there | maybe | gone
            and bool(unroutable[value]) is not bool(state[sent.key])
        ]
        self.done["copies"] += len(there)
        assert fits, (
            f"{value!r} of {sent} is in {there}, for the deleted {maybe}, was in {gone}, "
            f"unroutable {unroutable[value]}; possible: {possible}"
        )

    def _judge_order(self) -> None:
        """Records of a key from one partition are in order."""
        for name in TARGETS:
            if name not in self.broker.meta.registry.by_name:
                continue
            for index in range(self.broker.meta.describe(name).partitions):
                lines: defaultdict[tuple[int, bytes], list[int]] = defaultdict(list)
                for record in records(self.broker, name, index):
                    sent = self.sent[record.value or b""]
                    lines[sent.source, sent.key].append(int(record.value or b""))
                assert all(line == sorted(line) for line in lines.values())


def play(
    seed: int, *, power: bool, sync: str = "always", crashes: int = 3, most: int = 40
) -> Counter[str]:
    """
    Live and die some times, and judge.

    Args:
        seed: Decides what happens.
        power: Whether some deaths are power cuts.
        sync: When what is published is on the disk.
        crashes: How often.
        most: Most acts of one life.

    Returns:
        What was done.
    """
    home = Path(tempfile.mkdtemp())
    try:
        lives = Lives(home, Random(seed), sync)
        for _ in range(crashes):
            lives.live(most)
            # The journal is that of the lives before the cut: it is cut once.
            cut = power and not lives.done["power cuts"] and lives.rng.randrange(2) > 0
            lives.crash(power=cut)
        lives.judge()
        lives.broker.kill()
    finally:
        shutil.rmtree(home)
    return lives.done
