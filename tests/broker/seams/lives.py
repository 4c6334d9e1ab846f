"""
Lives of one compacted topic with a dedup window, on which everything happens at once.

Plain, transactional and delayed publishes, a channel, a group, purges and their undoing,
cleanings, kills, power cuts, clock steps and cut links; beside it a simple model of what
was promised.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from random import Random
from typing import Any

from tinymq.client import Delayed
from tinymq.errors import TinyMQError
from tinymq.testing import InProcessBroker
from tinymq.wire.batch import split
from tinymq.wire.records import RecordBatch

DEDUP_MS = 120_000
KEYS = 6
NAMES = ("bank", "shop")


class Life:
    """
    One life.

    Args:
        broker: The broker.
        seed: Decides everything.

    Attributes:
        done: What was tried, and how often.
    """

    def __init__(self, broker: InProcessBroker, seed: int) -> None:
        self.broker = broker
        self.chance = Random(seed)
        self.done: Counter[str] = Counter()
        self.number = 0
        #: What is there for certain, by offset: key and value.
        self.rows: dict[int, tuple[bytes, bytes | None]] = {}
        #: The offset of each value.
        self.at: dict[bytes, int] = {}
        #: Values that may come or not, as nobody heard what became of them.
        self.unsure: set[bytes] = set()
        #: Values of transactions that were aborted, which nobody may ever see.
        self.aborted: set[bytes] = set()
        #: Values of the open transaction of each producer.
        self.open: dict[str, list[tuple[bytes, bytes, int]]] = {}
        #: Ids with the offset of their first record, and when that was.
        self.ids: dict[str, tuple[int, int]] = {}
        #: Ids and values of records in transactions.
        self.named: set[tuple[str, bytes | None]] = set()
        self.keys: dict[bytes, bytes] = {}
        self.delayed: set[bytes] = set()
        #: Keys that may have been erased.
        self.doubtful: set[bytes] = set()
        self.handled: set[int] = set()
        self.seen: dict[int, bytes | None] = {}
        #: Below it nothing need be there; and where it was before each purge.
        self.start = 0
        self.former: list[tuple[int, int]] = []
        self.position = -1
        self.stepped = False
        #: Whether old records go, whatever becomes of their keys.
        self.limited = self.chance.randrange(4) == 0
        limits: dict[str, Any] = {"retention_mode": "compact"}
        if self.limited:
            limits = {"retention_mode": "compact_limits", "retention_ms": 150_000}
        broker.create_topic(
            "t",
            **limits,
            segment_bytes=4096,
            compact_min_dirty=self.chance.choice([0, 30]),
            compact_tombstone_ms=self.chance.choice([0, 60_000]),
            dedup_ms=DEDUP_MS,
            undo_ms=60_000,
            sync="always",
        )
        self._connect()

    def _connect(self) -> None:
        self.client = self.broker.client()
        self.producer = self.client.producer()
        self.transactional = {name: self.client.transactional(name) for name in NAMES}
        self.subscription = self.client.subscription("t", "c")
        self.group = self.client.group("g", ["t"])
        self.holding: list[Any] = []
        self.transactions: dict[str, Any] = {}

    # --- what may happen ------------------------------------------------------------

    def _row(self) -> tuple[bytes, bytes]:
        self.number += 1
        key = b"k%d" % self.chance.randrange(KEYS)
        value = b"%d" % self.number + b"." * self.chance.randrange(300)
        self.keys[value] = key
        return key, value

    def _took(self, offset: int, key: bytes, value: bytes) -> None:
        assert self.rows.get(offset, (key, value)) == (key, value)
        self.rows[offset] = key, value
        self.at[value] = offset
        self.unsure.discard(value)

    def publish(self) -> None:
        """Publish some records, some of them again."""
        for _ in range(self.chance.randint(1, 6)):
            key, value = self._row()
            name = f"id{self.number}"
            again = self.ids and self.chance.random() < 0.25
            if again:
                name = self.chance.choice([*self.ids])
            first = self.ids.get(name)
            age = None if first is None else self.broker.wall_ms - first[1]
            self.unsure.add(value)
            try:
                told = self.broker.run(self.producer.send("t", value, key=key, id=name))
            except TinyMQError:
                self.done["refused"] += 1
                continue
            if told.duplicate:
                assert first is not None, f"{name} is told as a repeat"
                # One that a transaction committed and compaction made plain may be known, too.
                there = self.rows.get(told.offset, (b"", None))[1]
                assert told.offset == first[0] or (name, there) in self.named, (told, first)
                self.unsure.discard(value)
                self.aborted.add(value)
                self.done["repeats"] += 1
                continue
            if age is not None and not self.stepped:
                assert age >= DEDUP_MS, f"{name} was stored again after {age} ms"
            self._took(told.offset, key, value)
            if self.chance.random() < 0.15:
                self._erase(key)
            self.ids[name] = told.offset, self.broker.wall_ms
            self.done["published"] += 1

    def _erase(self, key: bytes) -> None:
        """Publish a record without a value."""
        try:
            told = self.broker.run(self.producer.send("t", None, key=key))
        except TinyMQError:
            self.doubtful.add(key)
        else:
            self.rows[told.offset] = key, None
            self.done["erased"] += 1

    def batch(self) -> None:
        """Publish a batch, of which some are repeats."""
        rows = [self._row() for _ in range(self.chance.randint(2, 8))]
        names = [f"b{value[:6]!r}" for _, value in rows]
        old = [*self.ids]
        for at in range(len(names)):
            if old and self.chance.random() < 0.4:
                names[at] = self.chance.choice(old)
        self.unsure |= {value for _, value in rows}
        with suppress(TinyMQError):
            self.broker.run(
                self.producer.send_batch(
                    "t", [value for _, value in rows], keys=[key for key, _ in rows], ids=names
                )
            )
        self.done["batches"] += 1
        # Where they are is found by reading.
        for name in names:
            self.ids.pop(name, None)

    def delay(self) -> None:
        """Publish a message that comes later."""
        key, value = self._row()
        with suppress(TinyMQError):
            told = self.broker.run(
                self.producer.send("t", value, key=key, delay=self.chance.choice([1, 20, 90]))
            )
            if isinstance(told, Delayed):
                self.delayed.add(value)
                self.done["delayed"] += 1
        self.unsure.add(value)

    def transact(self) -> None:
        """Send in a transaction, and commit or abort it."""
        name = self.chance.choice(NAMES)
        tx = self.transactions.get(name)
        if tx is None:
            with suppress(TinyMQError):
                tx = self.transactions[name] = self.transactional[name].begin()
                self.open[name] = []
        if tx is None:
            self.transactional[name] = self.client.transactional(name)
            return
        try:
            for _ in range(self.chance.randint(0, 3)):
                key, value = self._row()
                self.unsure.add(value)
                self.open[name].append((key, value, -1))
                same = self.chance.choice([*self.ids]) if self.ids else None
                if same is not None:
                    self.named.add((same, value))
                waiting = tx.send("t", value, key=key, id=same)
                if waiting is not None and hasattr(waiting, "addErrback"):
                    waiting.addErrback(lambda _: None)
            self.broker.run(tx.flush(), 60)
        except (TinyMQError, TimeoutError):
            self._over(name, None)
            return
        if self.chance.random() < 0.6:
            commit = self.chance.random() < 0.6
            try:
                self.broker.run(tx.commit() if commit else tx.abort(), 60)
            except (TinyMQError, TimeoutError):
                self._over(name, None)
            else:
                self._over(name, commit)

    def _over(self, name: str, commit: bool | None) -> None:
        rows = self.open.pop(name, [])
        del self.transactions[name]
        if commit is True:
            self.done["committed"] += 1
            self.delayed |= {value for _, value, _ in rows}  # it must be seen somewhere
        elif commit is False:
            self.done["aborted"] += 1
            self.aborted |= {value for _, value, _ in rows}
            self.unsure -= self.aborted
        else:
            with suppress(TinyMQError, TimeoutError):
                self.broker.run(self.transactional[name].close(), 60)
            self.transactional[name] = self.client.transactional(name)

    def take(self) -> None:
        """Take some messages, and settle them in one way or another."""
        for _ in range(self.chance.randint(1, 10)):
            with suppress(TinyMQError, TimeoutError):
                message = self.broker.run(self.subscription.next(0.5))
                if message is None:
                    break
                self._saw(message.offset, message.key, message.value)
                fate = self.chance.random()
                if fate < 0.6:
                    message.finish()
                elif fate < 0.8:
                    message.requeue(self.chance.choice([0, 5, 40]))
                else:
                    self.holding.append(message)
        while self.holding and self.chance.random() < 0.5:
            with suppress(TinyMQError):
                self.holding.pop(0).finish()

    def _saw(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        if value is None:
            assert self.rows.get(offset, (key, None)) == (key, None)
            self.rows[offset] = key or b"", None
            return
        assert value not in self.aborted, f"{value!r} at {offset} was aborted, or a repeat"
        assert self.keys[value] == key
        assert self.at.setdefault(value, offset) == offset
        self._took(offset, self.keys[value], value)
        self.done["seen"] += 1

    def read(self) -> None:
        """Read on as a member of the group."""
        for _ in range(self.chance.randint(1, 10)):
            with suppress(TinyMQError, TimeoutError):
                message = self.broker.run(self.group.next(0.5))
                if message is None:
                    break
                self._saw(message.offset, message.key, message.value)
                self.handled.add(message.offset)
                message.done()
        if self.chance.random() < 0.5:
            with suppress(TinyMQError, TimeoutError):
                self.broker.run(self.group.commit(), 30)

    def wait(self) -> None:
        """Let time pass."""
        self.broker.advance(self.chance.choice([1, 5, 40, 130]))

    def clean(self) -> None:
        """Have it cleaned now."""
        self.broker.run(self.client.admin.operate("topic.compact", name="t"))
        self.broker.advance(1)
        self.done["cleaned"] += 1

    def purge(self) -> None:
        """Purge some, or take a purge back."""
        operate = self.client.admin.operate
        if self.former and self.chance.random() < 0.6:
            with suppress(TinyMQError):
                self.broker.run(operate("topic.undo_purge", name="t"))
                self.start = self._start()
                self.done["undone"] += 1
            self.former = []
        elif self.chance.random() < 0.4:
            top = max(self.rows, default=0)
            with suppress(TinyMQError):
                self.broker.run(
                    operate("topic.purge", name="t", before=self.chance.randint(0, top))
                )
                self.former.append((self.start, 0))
                self.start = self._start()
                self.done["purged"] += 1

    def _start(self) -> int:
        return int(self._partition().log.start_offset)

    def _partition(self) -> Any:
        rooms = self.broker._running
        (topic,) = (each for each in rooms.broker.meta.registry.topics.values() if each.name == "t")
        return rooms.broker.partition(topic.id, 0)

    def kill(self) -> None:
        """Kill the broker, and start it again."""
        self.broker.kill()
        self.broker.restart()
        self._restarted("kills")

    def power(self) -> None:
        """Cut the power, and start it again."""
        self.broker.power_cut(self.chance.randrange(1 << 30))
        self.broker.restart()
        self._restarted("power cuts")

    def stop(self) -> None:
        """Stop it in order, and start it again."""
        self.broker.restart()
        self._restarted("stops")

    def _restarted(self, what: str) -> None:
        self.done[what] += 1
        self.start = self._start()

    def cut(self) -> None:
        """Cut all links."""
        self.broker.cut()
        self.done["links cut"] += 1

    def step(self) -> None:
        """Set the wall clock."""
        by = self.chance.choice([-30_000, 30_000])
        self.broker.set_wall(self.broker.wall_ms + by)
        self.stepped = True
        self.done["clock steps"] += 1

    # --- judging ------------------------------------------------------------------

    def records(self) -> dict[int, tuple[bytes, bytes | None]]:
        """What a reader of all that is committed sees."""
        partition, found = self._partition(), dict[int, tuple[bytes, bytes | None]]()
        offset = partition.log.start_offset
        while offset < partition.stable_offset:
            chunk = partition.read(offset, 1 << 20, nowait=False)
            assert chunk.next_offset > offset
            for header, data in split(chunk.data):
                if header.records and not partition.transactions.hides(header):
                    for each in RecordBatch(bytes(data)):
                        if each.offset >= offset:
                            found[each.offset] = each.key or b"", each.value
            offset = chunk.next_offset
        return found

    def check(self, *, last: bool = False) -> None:
        """Compare what is there with what was published."""
        partition = self._partition()
        start, stable = partition.log.start_offset, partition.stable_offset
        found = self.records()
        for offset, (key, value) in found.items():
            assert offset >= start
            self._saw(offset, key, value)
        newest: dict[bytes, int] = {}
        for offset, (key, _) in self.rows.items():
            if start <= offset < stable:
                newest[key] = max(offset, newest.get(key, -1))
        for key, offset in newest.items():
            if self.rows[offset][1] is not None:
                gone = key not in self.doubtful
                assert offset in found or not gone, f"the newest of {key!r}, {offset}, is gone"
            elif offset not in found:
                older = [at for at, (each, _) in found.items() if each == key and at < offset]
                assert not older, f"what was erased of {key!r} came back at {older}"
        assert not partition.log.report.damaged
        if last:
            assert stable == partition.high_watermark, "something stays open"
            missing = {value for value in self.delayed if value not in self.at}
            if self.done["purged"] == 0 and not self.limited:
                for value in missing:
                    key = self.keys[value]
                    assert key in newest, f"{value!r} never came"
        self.done["checks"] += 1

    def end(self) -> None:
        """Let everything come to its end."""
        for name in [*self.transactions]:
            self._over(name, None)
        self.broker.advance(200)
        self.check()
        self.clean()
        self.clean()
        self.broker.advance(100)
        self.check(last=True)
        found = self.records()
        closed = {key for key, _ in found.values()}
        assert len(found) == len(closed), "old ones are left"
        with suppress(TinyMQError, TimeoutError):
            self.broker.run(self.subscription.close(), 60)
        with suppress(TinyMQError, TimeoutError):
            self.broker.run(self.group.close(), 60)
        subscription = self.broker.client().subscription("t", "c")
        taken = set()
        while (message := self.broker.run(subscription.next(100))) is not None:
            self._saw(message.offset, message.key, message.value)
            taken.add(message.offset)
            message.finish()
        if self.done["purged"] or self.limited:
            # Whoever was behind is told so, and moved by people.
            seek = self.broker.client().admin.operate
            self.broker.run(seek("group.seek", name="g", to="earliest", force=True))
        group = self.broker.client().group("g", ["t"])
        while (found_one := self.broker.run(group.next(100))) is not None:
            self._saw(found_one.offset, found_one.key, found_one.value)
            self.handled.add(found_one.offset)
            found_one.done()
        self.broker.run(group.commit())
        missed = {*found} & {*self.records()} - self.handled
        assert not missed, f"the group never saw {missed}"
        told: Any = self.broker.run(self.broker.client().admin.operate("group.info", name="g"))
        (row,) = told["partitions"]
        assert row["lag"] == 0, row
        told = self.broker.run(
            self.broker.client().admin.operate("channel.info", topic="t", name="c")
        )
        self.done["ended"] += 1


ACTS = {
    "publish": 8,
    "batch": 3,
    "transact": 8,
    "delay": 2,
    "take": 4,
    "read": 4,
    "wait": 3,
    "clean": 4,
    "purge": 1,
    "kill": 1,
    "power": 1,
    "stop": 1,
    "cut": 1,
    "step": 0.5,
}


def play(seed: int, steps: int) -> Counter[str]:
    """
    Live, die and judge.

    Args:
        seed: Decides what happens.
        steps: Acts.

    Returns:
        What was done.
    """
    with InProcessBroker(seed=seed) as broker:
        life = Life(broker, seed)
        for _ in range(steps):
            (name,) = life.chance.choices([*ACTS], [*ACTS.values()])
            getattr(life, name)()
            life.done["steps"] += 1
            if life.chance.random() < 0.3:
                life.check()
        life.end()
        return life.done
