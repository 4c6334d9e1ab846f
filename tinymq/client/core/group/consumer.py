"""
The group consumer without I/O: it takes over what it is given, reads it with a
`ConsumerCore`, counts what is done, commits, and gives up what it is to give up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf

from tinymq.client.core.cluster import Cluster
from tinymq.client.core.fetching import MOVED
from tinymq.client.core.group.committing import Committed, Committing, put_notes
from tinymq.client.core.group.dividing import Dividing
from tinymq.client.core.group.giving_up import GivingUp
from tinymq.client.core.group.handed import GroupBatch, GroupMessage
from tinymq.client.core.group.hands import GroupFace, Hands
from tinymq.client.core.group.membership import STABLE, Membership, Phase
from tinymq.client.core.group.settings import GroupConfig, GroupMember
from tinymq.client.core.group.share import HeldShare, Stage
from tinymq.client.core.group.taking_over import TakingOver
from tinymq.client.core.group.tally import Slip
from tinymq.client.core.group.transactions import GroupShares, ShareRow
from tinymq.client.core.starts import Mark, Start
from tinymq.errors import ClosedError, FencedGeneration, TinyMQError, UsageError
from tinymq.names import valid_name
from tinymq.wire.messages import MemberReply, PlanRow, Shares

#: Told that something which was asked for is done, or failed.
Told = Callable[[TinyMQError | None], None]


class GroupCore:
    """
    The group consumer without I/O.

    Args:
        cluster: The brokers.
        group: Name of the group.
        wanted: Names and patterns of topics.
        config: Settings.
        face: Who takes messages.

    Attributes:
        config: Settings.
        group: Name of the group.
        hands: What it has, and handing it out.
        membership: What talks with the coordinator.
        failed: Why there is nothing to take any more, or None.
        closed: Whether it was closed.
    """

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        wanted: tuple[Sequence[str], Sequence[str]],
        config: GroupConfig,
        face: GroupFace,
    ) -> None:
        topics, patterns = wanted
        valid_name(group)
        if not topics and not patterns:
            raise UsageError("a group consumer reads topics or patterns: name at least one")
        self.config = config
        self.group = group
        self.failed: TinyMQError | None = None
        self.closed = False
        self._cluster = cluster
        self._topics = list(topics)
        self._due = False
        self._finished = False
        self._commit_at = inf
        self._end_by = inf
        self._ready: list[Told] = []
        self._closing: Callable[[], None] | None = None
        self._leaving = False
        self.hands = Hands(cluster, config, face, self._moved)
        self.membership = Membership(cluster, group, wanted, config, self)
        self._dividing = Dividing(cluster, config)
        self._committing = Committing(cluster, group, config.deadline_s, self._refused)
        self._taking = TakingOver(
            cluster, self.hands, (self._topics, bool(patterns)), config, self.fenced, self._opened
        )
        self._giving = GivingUp(self.hands, self._committing, self.membership, config, self._soon)
        cluster.add(self)

    def begin(self, now: float) -> None:
        """
        Join.

        Args:
            now: The time.
        """
        if self.config.commit != "manual":
            self._commit_at = now + self.config.commit_s
        if self.config.create_topics:
            for name in self._topics:
                deadline = now + self.config.deadline_s
                self._cluster.topic(name, deadline, _ignore, now, create=True)
        self.membership.join(now)

    # --- taking ----------------------------------------------------------------

    def take(self) -> GroupMessage | None:
        """
        Take the next message, if one is ready.

        Raises:
            TinyMQError: What happened to one partition; its data say which. The others
                go on, this one after `seek` or `resume`.
        """
        if self.closed or self.failed is not None:
            self._check()
        return self.hands.take()

    def take_batch(self) -> GroupBatch | None:
        """
        Take the next batch, if one is ready.

        Raises:
            TinyMQError: As `take`.
        """
        if self.closed or self.failed is not None:
            self._check()
        return self.hands.take_batch()

    @property
    def waiting(self) -> bool:
        """Whether `take` may have something."""
        return self.closed or self.failed is not None or self.hands.waiting

    def more(self, now: float) -> None:
        """
        Fetch on, after something was handed out.

        Args:
            now: The time.
        """
        if self.hands.room:
            self.hands.room = False
            self.hands.reader.more(now)

    @property
    def heard_at(self) -> float:
        """When a broker last answered."""
        return max(self.hands.reader.fetching.heard_at, self.membership.heard_at)

    @property
    def why(self) -> TinyMQError | None:
        """Why none answers, or None."""
        return self.hands.reader.fetching.why or self.membership.why

    # --- what is read ----------------------------------------------------------

    @property
    def assigned(self) -> list[tuple[str, int]]:
        """Topic and partition of everything that is read."""
        return self.hands.assigned

    def position(self, topic: str, partition: int) -> Mark:
        """
        Say what is handed out next; its offset is -1 while that is not known.

        Args:
            topic: Name of the topic.
            partition: Number of the partition.
        """
        self._check_closed()
        return self.hands.position(topic, partition)

    def done_to(self, topic: str, partition: int) -> Mark:
        """
        Say below which offset all is done; -1 while that is not known.

        Args:
            topic: Name of the topic.
            partition: Number of the partition.
        """
        self._check_closed()
        return self.hands.share(topic, partition).floor or Mark(-1)

    def pause(self, topic: str, partitions: Iterable[int] | None, now: float) -> None:
        """
        Hand out nothing more of some partitions, as long as they are ours.

        Args:
            topic: Name of the topic.
            partitions: Which; None means all that are read.
            now: The time.
        """
        self._check_closed()
        self.hands.pause(topic, partitions, now)

    def resume(self, topic: str, partitions: Iterable[int] | None, now: float) -> None:
        """
        Go on after `pause`, or try again after an error, at the same position.

        Args:
            topic: Name of the topic.
            partitions: Which; None means all that are read.
            now: The time.
        """
        self._check_closed()
        self.hands.resume(topic, partitions, now)

    def seek(self, topic: str, partition: int, start: Start, now: float) -> None:
        """
        Go on elsewhere; what was handed out of the partition counts no more.

        Args:
            topic: Name of the topic.
            partition: Number of the partition.
            start: Where.
            now: The time.
        """
        self._check_closed()
        self.hands.seek(topic, partition, start, now)

    # --- done and committed ----------------------------------------------------

    def commit(
        self,
        done: Committed,
        now: float,
        positions: Mapping[tuple[str, int], int] | None = None,
        note: str | Mapping[tuple[str, int], str] | None = None,
    ) -> None:
        """
        Commit what is done.

        Args:
            done: Told when the brokers have it, or why they do not.
            now: The time.
            positions: Count what was handed out of these partitions below these
                offsets as done, and commit only these.
            note: Goes with it until there is another: for all partitions, or for some.
        """
        self._check_closed()
        chosen: list[HeldShare] = []
        if positions is not None:
            chosen = [self.hands.share(*where) for where in positions]
            for share in chosen:
                share.tally.done_to(positions[share.where])
        else:
            chosen = [one for one in self.hands.shares.values() if one.info is not None]
        put_notes(chosen, note)
        self._committing.commit(chosen, self.membership.id, done, now)

    def _commit_all(self, now: float) -> None:
        self._committing.commit(self.hands.shares.values(), self.membership.id, _never_mind, now)

    def _moved(self, share: HeldShare, slip: Slip) -> None:
        """Something more is done in a partition that somebody waits for."""
        if slip.place == slip.count and self.config.commit == "batch":
            self._finished = True
            self._soon()
        if share.stage is Stage.DRAINING or share.held:
            self._soon()

    def _soon(self) -> None:
        if not self._due:
            self._due = True
            self.hands.face.soon()

    def _refused(self, share: HeldShare, error: TinyMQError, now: float) -> None:
        """A leader has refused a commit for good."""
        if share.stage is Stage.GONE:
            return
        if isinstance(error, FencedGeneration):
            self.fenced([share], error, now)
        elif not isinstance(error, MOVED):
            self.hands.trouble(share, error)

    def fenced(self, shares: list[HeldShare], error: FencedGeneration, now: float) -> None:
        """
        Let go of what somebody else was given, or moved by hand.

        Args:
            shares: The partitions.
            error: What their leader said.
            now: The time.
        """
        self._giving.lose(shares)
        fence = error.data.get("generation")
        self.membership.fenced(fence if type(fence) is int else 0, now)

    def shares(self) -> GroupShares:
        """
        Say what a transaction commits for the group: all that was handed out.

        Raises:
            ClosedError: It was closed.
            UsageError: The consumer commits by itself, also what a transaction takes back.
        """
        self._check_closed()
        self.config.check_transactional(self.group)
        rows = []
        for share in self.hands.by_where.values():
            mark = self.hands.reached(share)
            known = share.committed
            new = mark.offset >= 0 and (known is None or known.offset != mark.offset)
            if new and share.stage is not Stage.OPENING:
                rows.append(share.row(mark))
        # What went meanwhile belongs to it, too: the leader says whether it was in time. It
        # comes last, and so stands for its partition if that is ours again.
        rows += self.hands.lost.values()
        return GroupShares(self.group, self.membership.id, tuple(rows), self)

    def settled(self, shares: GroupShares) -> None:
        """
        Note that a transaction has committed this.

        Args:
            shares: From `shares`.
        """
        for row in shares.rows:
            self.hands.forget_lost(row, row.offset)
            share = self._alive(row)
            if share is not None:
                share.tally.done_to(row.offset)
                share.committed, share.noted = Mark(row.offset, row.epoch), row.note
                share.tally.start = share.committed

    def again(self, shares: GroupShares) -> None:
        """
        Hand out again what a transaction would have committed.

        Args:
            shares: From `shares`.
        """
        for row in shares.rows:
            self.hands.forget_lost(row)
            share = self._alive(row)
            if share is None:
                continue
            start = share.tally.start or share.committed
            if share.stage is Stage.READING:
                self.hands.restart(share, start or self.config.place, self.hands.face.seconds())
            else:
                self.hands.begin_again(share, start)
                self._soon()

    def give_back(self, item: GroupMessage | GroupBatch, now: float) -> None:
        """
        Hand out again what was not done, to whoever reads the partition then.

        Args:
            item: A message or a batch.
            now: The time.
        """
        share = self.hands.by_where.get((item.topic, item.partition))
        item.let_go()
        if share is None or share.stage is not Stage.READING or item.is_lost:
            return
        self.hands.restart(share, share.tally.floor or self.config.place, now)

    def draining(self, item: GroupMessage | GroupBatch) -> bool:
        """
        Tell whether the partition of something is being given up, or was lost.

        Args:
            item: A message or a batch.
        """
        share = self.hands.by_where.get((item.topic, item.partition))
        return share is None or item.is_lost or share.stage is not Stage.READING

    def _alive(self, row: ShareRow) -> HeldShare | None:
        share = self.hands.shares.get((row.topic_id, row.partition))
        return share if share is not None and share.generation == row.generation else None

    # --- the coordinator's word ------------------------------------------------

    def owned(self) -> Shares:
        """Say all that is read and not given up."""
        topics: dict[bytes, list[tuple[int, int]]] = {}
        for share in self.hands.shares.values():
            topics.setdefault(share.topic_id, []).append((share.partition, share.generation))
        return list(topics.items())

    def given(self, reply: MemberReply, now: float) -> None:
        """
        Take what the coordinator says.

        Args:
            reply: Its answer.
            now: The time.
        """
        given = {
            (topic_id, partition): generation
            for topic_id, rows in reply.assigned
            for partition, generation in rows
        }
        changed = [
            share
            for key, share in self.hands.shares.items()
            if given.get(key, share.generation) > share.generation
        ]
        self._giving.lose(changed)
        gone = [share for key, share in self.hands.shares.items() if key not in given]
        self._giving.begin(gone, now)
        for key, generation in given.items():
            share = self.hands.shares.get(key)
            if self._closing is not None:
                continue
            if share is None:
                self.hands.shares[key] = HeldShare(*key, generation)
            elif share.stage is Stage.DRAINING:
                self._giving.keep(share, now)
        self._taking.begin(self.group, self.membership.id, now)
        self._check_ready()

    def expelled(self, now: float) -> None:
        """
        Give up everything: others may have it.

        Args:
            now: The time.
        """
        self._giving.lose(list(self.hands.shares.values()))

    def refused(self, error: TinyMQError, now: float) -> None:
        """
        There will be no member of this kind.

        Args:
            error: Why.
            now: The time.
        """
        self._giving.lose(list(self.hands.shares.values()))
        self.failed = error
        self._check_ready()
        self.hands.face.wake()

    def divide(
        self, members: list[GroupMember], done: Callable[[list[PlanRow], float], None], now: float
    ) -> None:
        """
        Divide the partitions of the group, by the user's function.

        Args:
            members: The members.
            done: Told what it decided.
            now: The time.
        """
        self._dividing.divide(members, done, now)

    def _opened(self) -> None:
        self._check_ready()
        self._soon()

    # --- the cluster's calls ---------------------------------------------------

    @property
    def wake_at(self) -> float:
        """When `tick` has something to do."""
        if self._due:
            return -inf
        at = min(self.membership.wake_at, self._commit_at, self._giving.by, self._end_by)
        return at if self._closing is not None else min(at, self._taking.wake_at)

    def tick(self, now: float) -> None:
        """
        Do what is due.

        Args:
            now: The time.
        """
        if now >= self._end_by:
            self._end()
            return
        if self._due or now >= self._giving.by:
            self._due = False
            self._giving.drain(now, closing=self._closing is not None)
        if self._closing is None:
            self._taking.tick(now)
        if self._finished or now >= self._commit_at:
            self._finished = False
            if now >= self._commit_at:
                self._commit_at = now + self.config.commit_s
            self._commit_all(now)
        if self._closing is not None:
            self._leave(now)
        self.membership.tick(now)

    def link_changed(self, now: float) -> None:
        """
        Look whether the coordinator is still there.

        Args:
            now: The time.
        """
        self.membership.link_changed(now)

    def topics_changed(self, now: float) -> None:
        """Do nothing: the coordinator tells what there is to read."""

    def cluster_closed(self, now: float) -> None:
        """
        End.

        Args:
            now: The time.
        """
        self._end()

    # --- the end ---------------------------------------------------------------

    def ready_when(self, told: Told, now: float) -> None:
        """
        Call when all that the member was given is read, or there is none.

        Args:
            told: Told once.
            now: The time.
        """
        self._ready.append(told)
        self._check_ready()

    def _check_ready(self) -> None:
        joining = (Stage.TAKING, Stage.OPENING)
        busy = any(share.stage in joining for share in self.hands.shares.values())
        ended = self.failed or (ClosedError("the consumer was closed") if self.closed else None)
        if ended is None and (self.membership.phase is Phase.JOINING or busy):
            return
        if ended is None and self.membership.state != STABLE and not self.assigned:
            return  # something may come yet
        ready, self._ready = self._ready, []
        for told in ready:
            told(ended)

    def close(self, done: Callable[[], None], within_s: float, now: float) -> None:
        """
        Hand out nothing more, wait for what was, commit, and leave.

        Args:
            done: Called at the end.
            within_s: Seconds for what was handed out.
            now: The time.
        """
        self.closed = True
        self._closing = done
        self._check_ready()
        self._commit_at = inf
        self.membership.want_nothing()
        self._end_by = now + within_s + self.config.leave_s
        self._giving.begin(list(self.hands.shares.values()), now, within_s)
        self.hands.face.wake()
        self._soon()

    def _leave(self, now: float) -> None:
        """Leave, when nothing is left."""
        if self.hands.shares or self._leaving:
            return
        self._leaving = True
        self.membership.leave(lambda _: self._end(), now + self.config.leave_s, now)

    def _end(self) -> None:
        self.closed = True
        self._end_by = inf
        self.membership.stop()
        for share in tuple(self.hands.shares.values()):
            self.hands.drop(share)
        self._cluster.remove(self)
        self.hands.reader.close()
        self._check_ready()
        done, self._closing = self._closing, None
        if done is not None:
            done()
        self.hands.face.wake()

    # --- inside ----------------------------------------------------------------

    def _check(self) -> None:
        if self.failed is not None:
            raise self.failed
        if self.closed:
            raise ClosedError("the consumer was closed")

    def _check_closed(self) -> None:
        if self.closed and self._closing is None:
            raise ClosedError("the consumer was closed")


def _ignore(*_: object) -> None:
    """Do nothing with an answer."""


def _never_mind(_: TinyMQError | None) -> None:
    """Nobody waits for this commit."""
