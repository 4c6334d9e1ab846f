"""The lives of one broker with groups: random acts, kills, power cuts, and a simple model."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

from twisted.internet.defer import Deferred

from tests.broker.groups.model import NOWHERE, Model, among
from tests.broker.lives import LateSyncer, RunningWall
from tests.broker.replaying import check_ledger
from tests.fakes.broker import Answers, BrokerFixture, batch
from tinymq.broker.hosted import Hosted
from tinymq.errors import BY_CODE, WireError
from tinymq.storage.disk import RecordingDisk
from tinymq.storage.powerloss import replay
from tinymq.wire.messages import Commit, CommitReply, Committed, CommittedReply

GROUPS = ("a", "b", "c")
UNDO_MS = 600_000


class Lives:
    """
    All lives of a broker with one partition.

    Args:
        home: Where everything lies.
        rng: What happens.
        sync: The policy of the topic.
        power: Whether the power may be cut.

    Attributes:
        done: What was tried, and how often.
    """

    def __init__(self, home: Path, rng: Random, sync: str, *, power: bool) -> None:
        self.power = power
        self.home = home
        self.rng = rng
        self.sync_policy = sync
        self.done: Counter[str] = Counter()
        self.wall = RunningWall()
        self.model = Model()
        #: The model after each act, from the last on that somebody was told of.
        self.since: list[Model] = [Model()]
        self.told = 0
        self.acts = 0
        self.transaction = 0
        #: The highest position that was told since a group was moved by hand, and how often it was.
        self.highest: dict[str, int] = {}
        self.moves: Counter[str] = Counter()
        self.start(home / "data")

    def start(self, path: Path) -> None:
        """Start a broker."""
        self.path = path
        disk = RecordingDisk(str(self.home / "journal"), str(path), real=False)
        self.syncer = LateSyncer(disk, self.rng)
        self.broker = BrokerFixture(path, disk=disk, syncer=self.syncer, wall=self.wall)
        self.wall.follow(self.broker.clock)
        self.broker.broker.deciding.close()  # what becomes of transactions is said here
        if "t" not in self.broker.meta.registry.by_name:
            self.broker.topic("t", sync=self.sync_policy, undo_ms=UNDO_MS)
            for name in GROUPS:
                self.broker.meta.ensure_group(name)
            self.publish()
        self.settle()

    @property
    def hosted(self) -> Hosted:
        """The place of the positions."""
        return self.broker.broker.channels.hosting(self.broker.partition())

    def mark(self, name: str) -> str:
        """The mark of a group."""
        return self.broker.meta.registry.group(name).mark

    def settle(self) -> None:
        """Let everything arrive on the disk, and its answers."""
        for _ in range(4):
            self.broker.clock.advance(0)
            self.sync()

    def sync(self) -> None:
        """Let what is on its way to the disk arrive there."""
        while self.syncer.groups:
            self.syncer.release()

    # --- what is promised ----------------------------------------------------------------

    def _acted(self) -> Callable[[], None]:
        """Keep the model as it is now; what is returned says that somebody was told of it."""
        self.acts += 1
        number = self.acts
        self.since.append(deepcopy(self.model))

        def told() -> None:
            # What is only written may be lost with the power.
            if number > self.told and (self.sync_policy == "always" or not self.power):
                del self.since[: number - self.told]
                self.told = number

        return told

    # --- what may happen -----------------------------------------------------------------

    def publish(self) -> None:
        """Publish a batch."""
        data = batch(*[b"x"] * self.rng.randint(1, 4))
        answers: Answers = []
        topic = self.broker.meta.describe("t").id
        self.broker.broker.produce(topic, 0, data, answers.append)

    def turn(self) -> None:
        """Let a turn end."""
        self.broker.clock.advance(0)

    def wait(self) -> None:
        """Let time pass."""
        self.broker.clock.advance(self.rng.choice((0.5, 30, 700)))

    def _generation(self, group: str) -> int:
        one = self.model.groups.get(group)
        fence = -1 if one is None else one.fence
        return max(-1, self.rng.choice((-1, fence, fence, fence - 1, fence + 1, fence + 3)))

    def commit(self) -> None:
        """Commit, some of it with a transaction."""
        name, end = self.rng.choice(GROUPS), self.broker.partition().high_watermark
        mark = self.mark(name)
        generation, offset = self._generation(mark), self.rng.randint(0, end + 1)
        note, member = self.rng.choice(("", "n")), self.rng.choice(("", "m1", "m2"))
        identity: tuple[int, int] | None = None
        if self.rng.randrange(3) == 0:
            if self.rng.randrange(2) or not self.transaction:
                self.transaction += 1
            identity = self.transaction, 0
        row = [mark, generation, offset, -1, note, member, self.hosted.now]
        wrong = ""
        if offset > end:
            wrong = "OffsetOutOfRange"
        elif self.model.refuses(mark, generation):
            wrong = "FencedGeneration"
        elif identity is not None:
            self.model.hold(identity, row)
        else:
            self.model.commit(row)
        told = self._acted()
        commit = Commit(
            group=name,
            member=member,
            topics=[(self.broker.meta.describe("t").id, [(0, generation, offset, -1, note)])],
            transaction=identity,
        )
        self.done["commits"] += 1

        def answer(reply: CommitReply | WireError) -> None:
            assert isinstance(reply, CommitReply), reply
            ((_, ((_, error),)),) = reply.topics
            assert (_name(error) if error else "") == wrong
            if not wrong:
                told()
            self.done[f"refused: {wrong}" if wrong else "confirmed"] += 1

        self.broker.broker.committing.commit(commit, answer)

    def committed(self) -> None:
        """Take the partition over, or only look."""
        name = self.rng.choice(GROUPS)
        mark = self.mark(name)
        generation = self._generation(mark)
        allowed = generation < 0 or self.model.take(mark, generation, "m3")
        one = self.model.groups.get(mark)
        expected = [*NOWHERE] if one is None or not allowed else [*one.place]
        wrong = "UnstablePosition" if self.model.unstable(mark) else ""
        wrong = wrong if allowed else "FencedGeneration"
        told, moves = self._acted(), self.moves[mark]
        shares = [(self.broker.meta.describe("t").id, [(0, generation)])]
        self.done["taken over" if generation >= 0 else "looks"] += 1

        def answer(reply: CommittedReply | WireError) -> None:
            assert isinstance(reply, CommittedReply), reply
            ((_, (row,)),) = reply.topics
            _, offset, epoch, note, time, start, end, error = row
            place: list[Any] = [offset, epoch, note, time]
            assert place == expected
            assert (_name(error) if error else "") == wrong
            if allowed:
                assert 0 == start <= end
                if moves == self.moves[mark]:
                    # Nobody sees a position go back, but by hand.
                    assert place[0] >= self.highest.get(mark, -1)
                    self.highest[mark] = place[0]
                told()

        request = Committed(group=name, member="m3", topics=shares)
        self.broker.broker.committing.committed(request, answer)

    def decide(self) -> None:
        """End a transaction, or one that is none."""
        known = [*self.model.held] or [(99, 0)]
        identity, commit = self.rng.choice(known), self.rng.randrange(3) > 0
        self.model.decide(identity, commit)
        told = self._acted()
        self.hosted.positions.decide(identity, commit)
        self.hosted.settled(lambda error: None if error else told())
        self.done["decided"] += 1

    def move(self) -> None:
        """Seek, take that back, or reset."""
        name, act = self.rng.choice(GROUPS), self.rng.choice(("seek", "seek", "undo", "reset"))
        mark, partition = self.mark(name), self.broker.partition()
        end, now = partition.high_watermark, self.hosted.now
        to = self.rng.choice(("earliest", "latest", self.rng.randint(0, end)))
        told = self._move(mark, act, to, end, now)
        where: dict[str, Any] = {"id": None, "partition": None, "from_group": None}
        where |= {"to": to if act == "seek" else None, "positions": None}
        moving = self.broker.node.group_move(name, act, dry_run=False, **where)

        def ended(result: Any) -> None:
            if isinstance(result, dict):
                if told is not None and result["rows"]:
                    told()
                return
            result.trap(WireError)
            assert told is None, result

        Deferred.fromCoroutine(moving).addBoth(ended)
        self.done[act] += 1

    def _move(self, mark: str, act: str, to: Any, end: int, now: int) -> Callable[[], None] | None:
        """Move the model; None if the move is refused."""
        one = self.model.groups.get(mark)
        if one is None:
            return self._acted()
        undoes = act == "undo"
        if undoes and (one.former is None or now >= one.until):
            return self._acted()
        if self.model.unstable(mark):
            return None
        self.highest.pop(mark, None)
        self.moves[mark] += 1
        if undoes:
            assert one.former is not None
            self.model.move(mark, [*one.former], 0, None)
        else:
            offset = {"earliest": 0, "latest": end}.get(to, to)
            place = [*NOWHERE]
            if act == "seek":
                epoch = self.broker.partition().epoch_before(offset)
                place = [offset, epoch, "", now]
            self.model.move(mark, place, now + UNDO_MS, [*one.place])
        return self._acted()

    def delete(self) -> None:
        """Delete a group, which is made anew at once."""
        name = self.rng.choice(GROUPS)
        mark = self.mark(name)
        self.model.forget(mark)
        self._acted()
        self.broker.meta.delete_group(name)
        self.broker.meta.ensure_group(name)
        # The registry knows what was deleted, whatever the ledger says.
        for model in self.since:
            model.forget(mark)
        self.done["deleted"] += 1

    def checkpoint(self) -> None:
        """Keep the next recovery short."""
        self.broker.housekeeping.checkpoint()

    def fold(self) -> None:
        """Let the next batch of the ledger be a snapshot."""
        self.hosted.ledger.behind = True

    def live(self, most: int) -> None:
        """Do this and that."""
        acts = (
            *[self.commit] * 8,
            *[self.committed] * 4,
            *[self.decide] * 2,
            *[self.move] * 3,
            *[self.publish, self.turn, self.sync] * 3,
            *(self.delete, self.checkpoint, self.fold, self.wait),
        )
        for _ in range(self.rng.randint(5, most)):
            self.rng.choice(acts)()
            self.done["steps"] += 1
            if self.rng.randrange(5) == 0:
                self.compare()

    def compare(self) -> None:
        """See that the broker and its ledger know what the model says."""
        assert self.hosted.positions.facts() == self.model.facts()
        self.hosted.written()
        self.settle()
        check_ledger(self.hosted)
        self.done["comparisons"] += 1

    def crash(self, *, power: bool) -> None:
        """Kill the broker, or cut its power, and start it again."""
        self.broker.kill()
        self.done["power cuts" if power else "kills"] += 1
        path = self.path
        if power:
            path = Path(tempfile.mkdtemp(dir=self.home)) / "after"
            replay(str(self.home / "journal"), str(path), self.rng)
            for each in self.path.glob("meta.sqlite*"):
                shutil.copy(each, path)
        self.start(path)
        end = self.broker.partition().log.end_offset
        facts = self.hosted.positions.facts()
        assert among(facts, self.since, end), (facts, [each.facts() for each in self.since])
        # Of what nobody was told it is known now whether it was done.
        self.model = next(each for each in self.since if facts == each.cut(end).facts()).cut(end)
        if power and self.sync_policy != "always":
            self.highest.clear()
        self.since, self.told, self.acts = [deepcopy(self.model)], 0, 0
        self.compare()


def _name(meta: dict[str, Any]) -> str:
    return BY_CODE[meta["e"]].__name__


def play(seed: int, *, power: bool, crashes: int = 2, most: int = 40) -> Counter[str]:
    """
    Play lives of a broker.

    Args:
        seed: What happens.
        power: Whether lives end with a power cut.
        crashes: How many.
        most: Most acts of a life.

    Returns:
        What was done.
    """
    rng = Random(seed)
    sync = rng.choice(("always", "always", "os"))
    home = Path(tempfile.mkdtemp())
    lives = Lives(home, rng, sync, power=power)
    try:
        for left in reversed(range(crashes)):
            lives.live(most)
            lives.crash(power=power and left == 0)
        lives.live(most)
        lives.compare()
        lives.broker.kill()
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return lives.done
