"""The lives of one broker with channels: random acts, kills, power cuts, and what was promised."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from typing_extensions import override

from tests.broker.replaying import check_ledger
from tests.fakes.broker import Answers, BrokerFixture, HeldSyncer, Wall, batch
from tests.fakes.taking import Taken, Taker
from tinymq.broker.letters import facts_of
from tinymq.broker.mortal import TOLERANCE_MS
from tinymq.broker.partition import Appended
from tinymq.storage.disk import Disk, RecordingDisk
from tinymq.storage.powerloss import replay
from tinymq.storage.sync import sync_group
from tinymq.wire.batch import BatchHeader, split
from tinymq.wire.frames import Bytes
from tinymq.wire.header import REPLY
from tinymq.wire.messages import FINISH, GIVE_BACK, REJECT, REQUEUE, TOUCH, SettleReply
from tinymq.wire.records import Headers, RecordBatch

PARTITIONS = 2
KEYS = 3
#: The name of the channel that delivers at most once.
ONCE = "once"
#: More than anybody is given.
CREDIT = 100_000
#: No test takes so long.
FAR_MS = 1 << 60


class LateSyncer(HeldSyncer):
    """
    A syncer that syncs when it is told to, one of the groups that run beside each other.

    Args:
        disk: The disk.
        rng: Says which one ends first.
    """

    def __init__(self, disk: Disk, rng: Random | None = None) -> None:
        super().__init__()
        self._disk = disk
        self._rng = rng or Random(0)

    @override
    def release(self, error: OSError | None = None) -> None:
        tickets, done = self.groups.pop(self._rng.randrange(len(self.groups)))
        done(sync_group(self._disk, tickets))


class RunningWall(Wall):
    """A wall clock that goes as the clock does, on from where it was in the life before."""

    def __init__(self) -> None:
        super().__init__()
        self._clock = Clock()

    def follow(self, clock: Clock) -> None:
        """Go on with another clock."""
        self.now_ms = self()
        self._clock = clock

    @override
    def __call__(self) -> int:
        return self.now_ms + round(self._clock.seconds() * 1000)


class Lives:
    """
    All lives of a broker.

    Args:
        home: Where everything lies.
        rng: What happens.
        order: Which order the channel keeps.

    Attributes:
        done: What was tried, and how often.
    """

    def __init__(self, home: Path, rng: Random, order: str = "none") -> None:
        self.home = home
        self.rng = rng
        self.order = order
        self.done: Counter[str] = Counter()
        self.published: dict[bytes, Answers] = {}
        #: Values that were finished or rejected, confirmed or not; and those confirmed.
        self.tried: set[bytes] = set()
        self.finished: set[bytes] = set()
        self.rejected: set[bytes] = set()
        self.failures: Counter[bytes] = Counter()
        #: What was delivered at most once.
        self.once: Counter[bytes] = Counter()
        self.seen: set[bytes] = set()
        self.wall = RunningWall()
        #: The time to live of the topic, and when messages expire at the latest.
        self.ttl = rng.choice((None, None, 20_000))
        self.expires: dict[bytes, int] = {}
        self.ttls: dict[bytes, int] = {}
        #: When they may expire at the earliest, over all lives.
        self.soonest: dict[bytes, int] = {}
        #: How much the wall clock is ahead by being set.
        self.stepped = 0
        #: When all was read that had come.
        self.heard = 0
        self.last: dict[tuple[int, int], int] = {}
        self.waiting: dict[tuple[Taker, int], Callable[[SettleReply], None]] = {}
        self.held: list[tuple[Taker, Taken]] = []
        self.start(home / "data")

    def start(self, path: Path) -> None:
        """Start a broker and subscribe."""
        self.path = path
        disk = RecordingDisk(str(self.home / "journal"), str(path), real=False)
        self.syncer = LateSyncer(disk, self.rng)
        self.broker = BrokerFixture(path, disk=disk, syncer=self.syncer, wall=self.wall)
        self.wall.follow(self.broker.clock)
        if "t" not in self.broker.meta.registry.by_name:
            self.broker.topic("t", PARTITIONS, ttl_ms=self.ttl)
            policy: dict[str, str | int | list[str]] = {
                "attempts": 1000,
                "backoff": ["0s"],
                "lease.ms": 8000,
                "order": self.order,
            }
            self.broker.meta.create_channel("t", "c", policy)
            self.broker.meta.create_channel("t", ONCE, {"delivery": "at_most_once"})
        self.connect()

    def connect(self) -> None:
        """Subscribe on new connections."""
        self.takers = [Taker(self.broker) for _ in range(3)]
        self.waiting.clear()
        self.held.clear()
        self._turn()
        for taker in self.takers[:2]:
            taker.subscribe_soon(credit=CREDIT)
        self.takers[2].subscribe_soon(ONCE, credit=CREDIT)
        self._turn()
        self.listen()

    def _turn(self) -> None:
        for _ in range(4):
            self.broker.clock.advance(0)
            self.sync()

    def sync(self) -> None:
        """Let what is on its way to the disk arrive there."""
        while self.syncer.groups:
            self.syncer.release()

    def sync_one(self) -> None:
        """Let one group arrive there, and what runs beside it later."""
        if self.syncer.groups:
            self.done["groups beside others"] += len(self.syncer.groups) > 1
            self.syncer.release()
        self.broker.clock.advance(0)

    def listen(self) -> None:
        """Let the broker do what it does, and read what came."""
        self.broker.clock.advance(0)
        for taker in self.takers:
            taker.run()
        self._hear()

    def _hear(self) -> None:
        """Judge what was delivered, and then keep what was confirmed."""
        for taker in self.takers:
            taker.read()
        heard = [(taker, taken) for taker in self.takers[:2] for taken in taker.take()]
        for taker, taken in sorted(heard, key=lambda each: each[1].lease):  # as they were given out
            self._check(taken)
            self.held.append((taker, taken))
        # These may have waited for the disk since they were given out.
        self.once.update(taken.value or b"" for taken in self.takers[2].take())
        self.heard = self.now
        for (taker, number), promised in tuple(self.waiting.items()):
            frame = taker.replies.pop(number, None)
            if frame is not None:
                del self.waiting[taker, number]
                if frame.type & REPLY and frame.type != 0xFF:
                    promised(SettleReply.from_meta(frame.split()[0]))

    def _check(self, taken: Taken) -> None:
        value = taken.value or b""
        self._check_age(taken)
        assert value not in self.finished | self.rejected, f"{taken} was settled"
        assert taken.failures >= self.failures[value]
        assert taken.attempt > self.failures[value]
        self.done["deliveries"] += 1
        # What expired, and was not known to have by a start with another clock, comes late.
        late = self.done["clock steps"] and value in self.ttls
        if value in self.seen or self.order == "none" or late:
            return
        self.seen.add(value)
        line = (taken.partition, int(value) % KEYS if self.order == "key" else 0)
        assert taken.offset > self.last.get(line, -1), f"{taken} comes behind {self.last[line]}"
        self.last[line] = taken.offset

    def _check_age(self, taken: Taken) -> None:
        """See that it had not expired when all was read before."""
        over = self.expires.get(taken.value or b"")
        slack = TOLERANCE_MS if self.stepped else 0
        assert over is None or over + slack > self.heard, (
            f"{taken} expired at {over}, now {self.now}"
        )

    # --- what may happen ---------------------------------------------------------------

    def publish(self) -> None:
        """Publish some batches."""
        for _ in range(self.rng.randint(1, 3)):
            first = len(self.published)
            numbers = range(first, first + self.rng.randint(1, 5))
            values = [b"%d" % number for number in numbers]
            ttls = [self._ttl() for _ in values] if self.rng.randrange(3) == 0 else None
            for value, ttl in zip(values, ttls or [None] * len(values), strict=True):
                times = [each for each in (ttl, self.ttl) if each is not None]
                if times:
                    self.expires[value] = self.now + min(times)
                    self.ttls[value] = min(times)
                    self.soonest[value] = self.expires[value]
            keys = [b"%d" % (number % KEYS) for number in numbers]
            data = batch(*values, keys=keys, ttls=ttls)
            answers: Answers = []
            topic = self.broker.meta.describe("t").id
            self.broker.broker.produce(topic, self.rng.randrange(2), data, answers.append)
            self.published.update(dict.fromkeys(values, answers))
            self.done["messages"] += len(values)

    def _ttl(self) -> int | None:
        return self.rng.choice((None, 1, 2000, 4000, 10_000, 60_000))

    def _some(self) -> tuple[Taker, dict[bytes, Taken]]:
        """Take some of what one consumer holds."""
        taker = self.rng.choice(self.takers[:2])
        mine = [each for each in self.held if each[0] is taker]
        some = self.rng.sample(mine, self.rng.randint(0, min(10, len(mine))))
        self.held = [each for each in self.held if each not in some]
        return taker, {taken.value or b"": taken for _, taken in some}

    def finish(self) -> None:
        """Finish some messages."""
        self._settle(FINISH, self.finished)

    def reject(self) -> None:
        """Reject a few messages."""
        if self.rng.randrange(4) == 0:
            self._settle(REJECT, self.rejected)

    def _settle(self, verb: int, confirmed: set[bytes]) -> None:
        taker, some = self._some()
        self.tried |= some.keys()
        number = taker.post(verb, *some.values())
        self._promise(taker, number, confirmed.update, some)

    def requeue(self) -> None:
        """Let some messages come again."""
        taker, some = self._some()
        number = taker.post(REQUEUE, *some.values(), d=self.rng.choice((0, 3000, 9000)))
        self._promise(taker, number, self.failures.update, some)

    def give_back(self) -> None:
        """Let somebody else have some messages."""
        taker, some = self._some()
        taker.post(GIVE_BACK, *some.values())

    def act(self) -> None:
        """Let people finish or requeue messages that consumers hold, or once held."""
        for taker in self.takers:
            taker.read()  # what is on its way by now was given out before
        self._hear()
        index, act = self.rng.randrange(PARTITIONS), self.rng.choice(("finish", "requeue"))
        _, held = self._some()
        some = {each.offset: value for value, each in held.items() if each.partition == index}
        if not some:
            return
        if act == "finish":
            self.tried |= {*some.values()}
        given = {"partition": index, "offsets": list(some), "act": act}
        told = self.broker.operations.run("inflight.settle", {"topic": "t", "name": "c", **given})

        finished = self.finished

        def promised(result: dict[str, Any]) -> None:
            if act == "finish":
                finished.update(some[offset] for offset in result["done"])

        Deferred.fromCoroutine(told).addCallback(promised)

    def reschedule(self) -> None:
        """Let people give another time to what waits."""
        index = self.rng.randrange(PARTITIONS)
        hosted = self.broker.broker.channels.hosted(self.broker.meta.describe("t").id, index)
        assert hosted is not None
        waiting = hosted.queue.channels["c"].channel.places.waiting
        offsets = [base for _, base, _, _ in waiting if self.rng.randrange(2)]
        if offsets:
            given = {"topic": "t", "name": "c", "partition": index, "offsets": offsets}
            delay = self.rng.choice((0, 500, 20_000))
            told = self.broker.operations.run("channel.delay", {**given, "delay_ms": delay})
            Deferred.fromCoroutine(told)
            self.done["rescheduled"] += len(offsets)

    def touch(self) -> None:
        """Go on with all that is held."""
        for taker in self.takers[:2]:
            taker.post(TOUCH, *(taken for each, taken in self.held if each is taker))

    def _promise(
        self,
        taker: Taker,
        number: int,
        keep: Callable[[set[bytes]], None],
        some: dict[bytes, Taken],
    ) -> None:
        """Keep what the answer confirms: all but what was late."""

        def promised(reply: SettleReply) -> None:
            late: Counter[int] = Counter()
            for _, lease, bits in reply.late:
                late[lease] |= int.from_bytes(bits, "little")
            keep(
                {
                    value
                    for value, taken in some.items()
                    if not late[taken.lease] >> taken.offset - taken.base & 1
                }
            )
            self.done["settles confirmed"] += reply.done

        self.waiting[taker, number] = promised

    def set_clock(self) -> None:
        """Set the wall clock, which moves nothing while the broker runs."""
        step = self.rng.choice((-3_600_000, -7000, 7000, 3_600_000))
        self.stepped += step
        self.done["clock steps"] += 1
        self.wall.now_ms += step

    def _set_right(self) -> None:
        """Set the wall clock right; a start knows only append times, which may be wrong."""
        self.wall.now_ms -= self.stepped
        self.stepped = 0
        for value, ttl in self.ttls.items():
            answers = self.published[value]
            known = answers[0] if answers else None
            if isinstance(known, Appended):
                self.expires[value] = known.timestamp + ttl
                self.soonest[value] = min(self.soonest[value], self.expires[value])
            else:  # nobody said when it was appended
                self.expires[value] = FAR_MS
                self.soonest[value] *= not self.done["clock steps"]

    @property
    def now(self) -> int:
        """The channels' time."""
        return self.broker.broker.channels.now()

    def reconnect(self) -> None:
        """Lose all links."""
        for taker in self.takers:
            taker.connection.lose()
        self.connect()

    def checkpoint(self) -> None:
        """Keep the next recovery short."""
        self.broker.housekeeping.checkpoint()

    def fold(self) -> None:
        """Let the next batch of the ledger be a snapshot."""
        for hosted in self.broker.broker.channels.hosted_of(self.broker.meta.describe("t").id):
            hosted.ledger.behind = True

    def pause(self) -> None:
        """Give nothing out, or go on."""
        self.broker.meta.pause_channel("t", "c", undo=self.rng.randrange(3) > 0)

    def wait(self) -> None:
        """Let time pass, for some longer than leases last."""
        seconds = self.rng.choice((0.1, 3, 5, 9, 15))
        for taker in self.takers:
            taker.run(seconds / len(self.takers))
        self._hear()

    def live(self, most: int = 40) -> None:
        """Do this and that."""
        acts = (
            *[self.publish] * 2,
            *[self.finish] * 4,
            *[self.requeue] * 2,
            *[self.listen] * 6,
            self.act,
            *[self.reschedule] * 2,
            *[self.sync] * 2,
            *[self.sync_one] * 4,
            *(self.reject, self.give_back, self.touch, self.wait),
            *(self.checkpoint, self.fold, self.pause, self.reconnect, self.set_clock),
        )
        for _ in range(self.rng.randint(5, most)):
            self.rng.choice(acts)()
            self.done["steps"] += 1
            if self.rng.randrange(4) == 0:
                self.compare()

    def compare(self) -> None:
        """See that the ledgers say what memory knows."""
        self._turn()
        for hosted in self.broker.broker.channels.hosted_of(self.broker.meta.describe("t").id):
            hosted.written()
        self._turn()
        for hosted in self.broker.broker.channels.hosted_of(self.broker.meta.describe("t").id):
            check_ledger(hosted)
            self.done["comparisons"] += 1

    # --- the end -------------------------------------------------------------------------

    def crash(self, *, power: bool) -> None:
        """Kill the broker, or cut its power, and start it again."""
        for taker in self.takers:
            taker.read()
        self._hear()
        self.broker.kill()
        self._set_right()
        path = self.path
        self.done["power cuts" if power else "kills"] += 1
        if power:
            path = Path(tempfile.mkdtemp(dir=self.home)) / "after"
            replay(str(self.home / "journal"), str(path), self.rng)
            for each in self.path.glob("meta.sqlite*"):
                shutil.copy(each, path)
        self.start(path)
        self.compare()

    def rest(self) -> set[bytes]:
        """Finish everything that is left, and return what that was."""
        self.broker.meta.pause_channel("t", "c", undo=True)
        found: set[bytes] = set()
        quiet = 0
        while quiet < 2:
            for taker in self.takers:
                taker.run(0 if self.held else 7)
            self.sync()
            self.listen()
            quiet = 0 if self.held else quiet + 1
            for taker in self.takers[:2]:
                mine = {taken.value or b"": taken for each, taken in self.held if each is taker}
                number = taker.post(FINISH, *mine.values())
                self._promise(taker, number, found.update, mine)
            self.held.clear()
            self._turn()
        return found

    def judge(self) -> None:
        """Let everything be finished, and see that no promise was broken."""
        found = self.rest()
        stored = {
            value
            for value, answers in self.published.items()
            if answers and isinstance(answers[0], Appended)
        }
        letters = Counter(self.letters("c"))
        channel = self.broker.operate("channel.info", topic="t", name="c")["channel"]
        assert (channel["lag"], channel["given_up"]) == (0, 0)
        assert stored - self.tried <= found | letters.keys(), "something was lost"
        assert stored - self.tried - found <= self.expires.keys(), "it had no time to live"
        assert not found & letters.keys(), "it expired, and came all the same"
        assert self.rejected <= letters.keys(), "a dead letter was lost"
        assert max(letters.values(), default=0) <= 1, "a dead letter is there twice"
        assert letters.keys() <= (self.tried | self.expires.keys()) - self.finished
        assert max(self.once.values(), default=0) <= 1, "at most once was twice"
        once = Counter(self.letters(ONCE))
        assert max(once.values(), default=0) <= 1, "a dead letter is there twice"
        assert once.keys() <= self.expires.keys() - self.once.keys(), "it was delivered, too"
        self.done["dead letters"] += len(letters)
        self.done["expired"] += len(letters.keys() - self.tried) + len(once)

    def letters(self, channel: str) -> list[bytes]:
        """The values of all dead letters of a channel."""
        target = f"t.{channel}.dead"
        if target not in self.broker.meta.registry.by_name:
            return []
        found: list[bytes] = []
        for index in range(self.broker.meta.describe(target).partitions):
            log = self.broker.partition(target, index).log
            at = log.start_offset
            while at < log.written_offset:
                chunk = log.read(at, 1 << 20, log.written_offset)
                assert chunk is not None
                records = (each for header, data in split(chunk.data) for each in of(data, header))
                found += (self._in_time(value or b"", headers) for value, headers in records)
                at = chunk.next_offset
        return found

    def _in_time(self, value: bytes, headers: Headers) -> bytes:
        """See that a message did not expire before its time."""
        facts = facts_of(headers)
        if facts.reason == "expired":
            slack = TOLERANCE_MS if self.done["clock steps"] else 0
            assert facts.last_ms is not None
            assert facts.last_ms + slack >= self.soonest[value], (
                f"{value!r} expired at {facts.last_ms}, before {self.soonest[value]}"
            )
        return value


def of(data: Bytes, header: BatchHeader) -> Iterator[tuple[bytes | None, Headers]]:
    """Yield values and headers of a batch."""
    return ((each.value, each.headers) for each in RecordBatch(data, header))


def play(seed: int, *, order: str, power: bool, crashes: int = 2, most: int = 40) -> Counter[str]:
    """
    Live and die some times, and judge.

    Args:
        seed: Decides what happens.
        order: Which order the channel keeps.
        power: Whether the last death is a power cut.
        crashes: How often.
        most: Most acts of one life.

    Returns:
        What was done.
    """
    home = Path(tempfile.mkdtemp())
    try:
        lives = Lives(home, Random(seed), order)
        for left in reversed(range(crashes)):
            lives.live(most)
            lives.crash(power=power and left == 0)
        lives.judge()
        lives.broker.kill()
    finally:
        shutil.rmtree(home)
    return lives.done
