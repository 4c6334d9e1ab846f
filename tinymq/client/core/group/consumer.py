"""
The group consumer without I/O: it takes over what it is given, reads it with a
`ConsumerCore`, counts what is done, commits, and gives up what it is to give up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import inf
from typing import Any, Final, NamedTuple

from tinymq.client.core.cluster import Cluster
from tinymq.client.core.consumer import ConsumerCore
from tinymq.client.core.delivered import ConsumerBatch
from tinymq.client.core.fetching import MOVED
from tinymq.client.core.group.asking import Asking, Found, TakeOver
from tinymq.client.core.group.committing import Committed, Committing
from tinymq.client.core.group.dividing import Dividing
from tinymq.client.core.group.handed import GroupBatch, GroupMessage
from tinymq.client.core.group.membership import Membership, Phase
from tinymq.client.core.group.names import TopicNames
from tinymq.client.core.group.settings import GroupConfig, GroupMember, Share
from tinymq.client.core.group.share import HeldShare, Stage
from tinymq.client.core.group.tally import Slip, Tally
from tinymq.client.core.group.transactions import GroupShares, ShareRow
from tinymq.client.core.starts import EARLIEST, WORDS, Mark, Place, Start, read_start
from tinymq.errors import (
    ClosedError,
    FencedGeneration,
    TinyMQError,
    UnknownTopicId,
    UsageError,
)
from tinymq.names import valid_name
from tinymq.wire.messages import NOTE_BYTES, MemberReply, PlanRow, Shares
from tinymq.wire.records import Record

#: Before the coordinator's own patience ends, so that what was lost is known here first.
_SOONER: Final = 0.9
#: Seconds after which taking over is tried again, when a leader refused it.
_AGAIN_S: Final = 5.0

#: Told that something which was asked for is done, or failed.
Told = Callable[[TinyMQError | None], None]


class GroupFace(NamedTuple):
    """
    What a group consumer needs of its face.

    Attributes:
        wake: Called when `take` may have something, or an error.
        soon: Called when `tick` is wanted soon.
        seconds: The time.
        call: Calls a function of the user with shares, and then the last argument, when
            what the function returned has ended.
        message: Makes messages, of a subclass of `GroupMessage`.
        batch: Makes batches, of a subclass of `GroupBatch`.
    """

    wake: Callable[[], None]
    soon: Callable[[], None]
    seconds: Callable[[], float]
    call: Callable[[Callable[[list[Share]], Any], list[Share], Callable[[], None]], None]
    message: Callable[[Record, Slip, int], GroupMessage] = GroupMessage
    batch: Callable[[Slip, int], GroupBatch] = GroupBatch


class Opened:
    """A batch whose records are handed out one by one."""

    __slots__ = ("records", "share", "slip")

    def __init__(self, share: HeldShare, slip: Slip, records: Iterator[Record]) -> None:
        self.share = share
        self.slip = slip
        self.records = records


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
        reader: What reads.
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
        self._face = face
        self._topics = list(topics)
        self._shares: dict[tuple[bytes, int], HeldShare] = {}
        self._by_where: dict[tuple[str, int], HeldShare] = {}
        self._opened: deque[Opened] = deque()
        self._troubles: deque[TinyMQError] = deque()
        #: The id that each topic had when it was last taken over.
        self._ids: dict[str, bytes] = {}
        self._due = False
        self._finished = False
        self._commit_at = inf
        self._again_at = inf
        self._drain_by = inf
        self._ready: list[Told] = []
        self._closing: Callable[[], None] | None = None
        self._leaving = False
        self.reader = ConsumerCore(cluster, config, face.wake)
        self.membership = Membership(cluster, group, wanted, config, self)
        self._names = TopicNames(cluster, self._topics, bool(patterns), self._named)
        self._dividing = Dividing(cluster, config)
        self._committing = Committing(cluster, group, config.deadline_s, self._refused)
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
        while True:
            for opened in self._opened:
                if opened.share.paused:
                    continue
                slip = opened.slip
                record = next(opened.records, None)
                if record is not None:
                    index = slip.handed
                    slip.handed = index + 1
                    return self._face.message(record, slip, index)
                self._opened.remove(opened)
                break
            else:
                found = self._next()
                if found is None:
                    return None
                self._opened.append(Opened(*found, iter(found[1].batch)))

    def take_batch(self) -> GroupBatch | None:
        """
        Take the next batch, if one is ready.

        Raises:
            TinyMQError: As `take`.
        """
        found = self._rest() or self._next()
        if found is None:
            return None
        slip = found[1]
        first, slip.handed = slip.handed, slip.count
        return self._face.batch(slip, first)

    def _rest(self) -> tuple[HeldShare, Slip] | None:
        """Of a batch some of whose records were handed out as messages."""
        for opened in tuple(self._opened):
            if not opened.share.paused:
                self._opened.remove(opened)
                if opened.slip.handed < opened.slip.count:
                    return opened.share, opened.slip
        return None

    def _next(self) -> tuple[HeldShare, Slip] | None:
        """Take a batch that was fetched."""
        while True:
            self._check()
            if self._troubles:
                raise self._troubles.popleft()
            try:
                batch = self.reader.take()
            except MOVED as error:
                if self._made_anew(error):
                    continue
                raise
            if batch is None:
                return None
            share = self._by_where[batch.topic, batch.partition]
            slip = self._count(share, batch)
            if slip.count:
                return share, slip

    def _count(self, share: HeldShare, batch: ConsumerBatch) -> Slip:
        if len(batch) and batch.base_offset < share.tally.end:
            share.tally.end_here()  # the log was cut, and reading began anew further up
            share.tally = Tally()
        tally = share.tally
        slip = tally.add(batch)
        assert tally.base is not None
        if batch.next_offset - tally.base.offset > self.config.max_ahead:
            tally.watch = tally.watch or partial(self._moved, share)
            share.held = True
            self._pause(share)
        elif tally.watch is None and self.config.commit == "batch":
            tally.watch = partial(self._moved, share)
        return slip

    def _made_anew(self, error: TinyMQError) -> bool:
        """Whether a topic has a successor: of that the coordinator speaks soon."""
        where: Any = [getattr(error, "data", {}).get(name) for name in ("topic", "partition")]
        share = self._by_where.get(tuple(where))
        if share is None:
            return True
        info = self._cluster.metadata.get(share.topic)
        return info is not None and info.id != share.topic_id

    @property
    def waiting(self) -> bool:
        """Whether `take` may have something."""
        if self.closed or self.failed is not None or self._troubles or self.reader.waiting:
            return True
        return any(not opened.share.paused for opened in self._opened)

    def more(self, now: float) -> None:
        """
        Fetch on, after something was handed out.

        Args:
            now: The time.
        """
        self.reader.more(now)

    @property
    def heard_at(self) -> float:
        """When a broker last answered."""
        return max(self.reader.fetching.heard_at, self.membership.heard_at)

    @property
    def why(self) -> TinyMQError | None:
        """Why none answers, or None."""
        return self.reader.fetching.why or self.membership.why

    # --- what is read ----------------------------------------------------------

    @property
    def assigned(self) -> list[tuple[str, int]]:
        """Topic and partition of everything that is read."""
        reads = (Stage.READING, Stage.DRAINING, Stage.CLOSING)
        return sorted(one.where for one in self._shares.values() if one.stage in reads)

    def position(self, topic: str, partition: int) -> Mark:
        """
        Say what is handed out next; its offset is -1 while that is not known.

        Args:
            topic: Name of the topic.
            partition: Number of the partition.
        """
        share = self._share(topic, partition)
        for opened in self._opened:
            slip = opened.slip
            if opened.share is share and slip.handed < slip.count:
                return Mark(slip.offsets[slip.handed], slip.batch.leader_epoch)
        if share.cursor is None:
            return share.committed or Mark(-1)
        return share.cursor.mark

    def done_to(self, topic: str, partition: int) -> Mark:
        """
        Say below which offset all is done; -1 while that is not known.

        Args:
            topic: Name of the topic.
            partition: Number of the partition.
        """
        return self._share(topic, partition).floor or Mark(-1)

    def pause(self, topic: str, partitions: Iterable[int] | None, now: float) -> None:
        """
        Hand out nothing more of some partitions, as long as they are ours.

        Args:
            topic: Name of the topic.
            partitions: Which; None means all that are read.
            now: The time.
        """
        for share in self._chosen(topic, partitions):
            share.paused = True
            self._pause(share)

    def resume(self, topic: str, partitions: Iterable[int] | None, now: float) -> None:
        """
        Go on after `pause`, or try again after an error, at the same position.

        Args:
            topic: Name of the topic.
            partitions: Which; None means all that are read.
            now: The time.
        """
        for share in self._chosen(topic, partitions):
            share.paused = False
            if share.stage is Stage.READING and not share.held:
                self.reader.resume(topic, [share.partition], now)
        self._face.wake()

    def _pause(self, share: HeldShare) -> None:
        if share.stage is Stage.READING:
            self.reader.pause(share.topic, [share.partition], self._face.seconds())

    def seek(self, topic: str, partition: int, start: Start, now: float) -> None:
        """
        Go on elsewhere; what was handed out of the partition counts no more.

        Args:
            topic: Name of the topic.
            partition: Number of the partition.
            start: Where.
            now: The time.
        """
        share, place = self._share(topic, partition), read_start(start)
        if share.stage is Stage.OPENING:
            share.place = place
        elif share.stage is Stage.READING:
            self._restart(share, place, now)
        else:
            raise UsageError(f"partition {partition} of {topic} is being given up")

    def _restart(self, share: HeldShare, place: Place, now: float) -> None:
        share.tally.end_here()
        share.tally = Tally()
        self._drop_opened(share)
        if share.held:
            share.held = False
            if not share.paused:
                self.reader.resume(share.topic, [share.partition], now)
        self.reader.seek(share.topic, share.partition, place, now)

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
            chosen = [self._share(*where) for where in positions]
            for share in chosen:
                share.tally.done_to(positions[share.where])
        else:
            chosen = [one for one in self._shares.values() if one.info is not None]
        _put_notes(chosen, note)
        self._committing.commit(chosen, self.membership.id, done, now)

    def _commit_all(self, now: float) -> None:
        self._committing.commit(self._shares.values(), self.membership.id, _never_mind, now)

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
            self._face.soon()

    def _refused(self, share: HeldShare, error: TinyMQError, now: float) -> None:
        """A leader has refused a commit for good."""
        if isinstance(error, FencedGeneration):
            self.fenced([share], error, now)
        elif not isinstance(error, MOVED):
            self._trouble(share, error)

    def fenced(self, shares: list[HeldShare], error: FencedGeneration, now: float) -> None:
        """
        Let go of what somebody else was given, or moved by hand.

        Args:
            shares: The partitions.
            error: What their leader said.
            now: The time.
        """
        self._lose(shares, now)
        fence = error.data.get("generation")
        self.membership.fenced(fence if type(fence) is int else 0, now)

    def shares(self) -> GroupShares:
        """Say what a transaction commits for the group: all that was handed out."""
        self._check_closed()
        rows = []
        for share in self._by_where.values():
            mark = self.position(*share.where)
            known = share.committed
            new = mark.offset >= 0 and (known is None or known.offset != mark.offset)
            if new and share.stage is not Stage.OPENING:
                rows.append(ShareRow(*share.spot, share.generation, *mark, share.note))
        return GroupShares(self.group, self.membership.id, tuple(rows), self)

    def settled(self, shares: GroupShares) -> None:
        """
        Note that a transaction has committed this.

        Args:
            shares: From `shares`.
        """
        for row in shares.rows:
            share = self._alive(row)
            if share is not None:
                share.tally.done_to(row.offset)
                share.committed, share.noted = Mark(row.offset, row.epoch), row.note

    def again(self, shares: GroupShares) -> None:
        """
        Hand out again what a transaction would have committed.

        Args:
            shares: From `shares`.
        """
        for row in shares.rows:
            share = self._alive(row)
            if share is not None and share.stage is Stage.READING:
                floor = share.tally.floor or share.committed
                self._restart(share, floor or self.config.place, self._face.seconds())
            elif share is not None:
                share.tally.end_here()
                share.tally = Tally(share.tally.floor)
                self._soon()

    def give_back(self, item: GroupMessage | GroupBatch, now: float) -> None:
        """
        Hand out again what was not done, to whoever reads the partition then.

        Args:
            item: A message or a batch.
            now: The time.
        """
        share = self._by_where.get((item.topic, item.partition))
        item.let_go()
        if share is None or share.stage is not Stage.READING or item.is_lost:
            return
        self._restart(share, share.tally.floor or self.config.place, now)

    def draining(self, item: GroupMessage | GroupBatch) -> bool:
        """
        Tell whether the partition of something is being given up, or was lost.

        Args:
            item: A message or a batch.
        """
        share = self._by_where.get((item.topic, item.partition))
        return share is None or item.is_lost or share.stage is not Stage.READING

    def _alive(self, row: ShareRow) -> HeldShare | None:
        share = self._shares.get((row.topic_id, row.partition))
        return share if share is not None and share.generation == row.generation else None

    # --- the coordinator's word ------------------------------------------------

    def owned(self) -> Shares:
        """Say all that is read and not given up."""
        topics: dict[bytes, list[tuple[int, int]]] = {}
        for share in self._shares.values():
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
            for key, share in self._shares.items()
            if given.get(key, share.generation) > share.generation
        ]
        self._lose(changed, now)
        self._give_up([one for key, one in self._shares.items() if key not in given], now)
        for key, generation in given.items():
            share = self._shares.get(key)
            if self._closing is not None:
                continue
            if share is None:
                self._shares[key] = HeldShare(*key, generation)
            elif share.stage is Stage.DRAINING:
                self._keep(share, now)
        self._take_over(now)
        self._check_ready()

    def expelled(self, now: float) -> None:
        """
        Give up everything: others may have it.

        Args:
            now: The time.
        """
        self._lose(list(self._shares.values()), now)

    def refused(self, error: TinyMQError, now: float) -> None:
        """
        There will be no member of this kind.

        Args:
            error: Why.
            now: The time.
        """
        self._lose(list(self._shares.values()), now)
        self.failed = error
        self._check_ready()
        self._face.wake()

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

    # --- taking over -----------------------------------------------------------

    def _take_over(self, now: float) -> None:
        """Ask leaders where to go on in what is new."""
        self._again_at = inf
        asked: dict[Any, tuple[int, int]] = {}
        unknown: set[bytes] = set()
        for share in self._shares.values():
            if share.stage is not Stage.TAKING or share.asked:
                continue
            share.info = share.info or self._names.get(share.topic_id)
            if share.info is None:
                unknown.add(share.topic_id)
            else:
                share.asked = True
                asked[share.spot] = (share.partition, share.generation)
        self._names.want(unknown, now)
        if asked:
            question = TakeOver(self.group, self.membership.id)
            Asking(self._cluster, question, self._taken).start(asked, now)

    def _named(self, now: float) -> None:
        self._take_over(now)

    def _taken(self, found: list[Found], now: float) -> None:
        taken: list[HeldShare] = []
        for one in found:
            share = self._shares.get((one.spot.id, one.spot.partition))
            if share is None or share.stage is not Stage.TAKING:
                continue
            if one.error is None:
                taken.append(self._opening(share, one.row))
            elif isinstance(one.error, FencedGeneration):
                self.fenced([share], one.error, now)
            elif isinstance(one.error, MOVED):
                share.end()  # the coordinator will hear of it
                self._shares.pop((share.topic_id, share.partition), None)
            elif not isinstance(one.error, ClosedError):
                share.asked = False
                self._again_at = now + _AGAIN_S
                self._trouble(share, one.error)
        if taken:
            self._notice(self.config.on_assigned, taken, partial(self._open, taken))

    def _opening(self, share: HeldShare, row: Any) -> HeldShare:
        _, offset, epoch, note, _, start, end, _ = row
        share.stage = Stage.OPENING
        share.note = share.noted = note
        before = self._ids.get(share.topic)
        if offset >= 0:
            share.committed = Mark(offset, epoch)
            share.tally = Tally(share.committed)
            share.place = share.committed
        else:
            share.place = self.config.place
            if before not in (None, share.topic_id):
                share.place = WORDS.get(self.config.out_of_range, EARLIEST)
        if before not in (None, share.topic_id) and self.config.out_of_range == "error":
            self._troubles.append(_anew(share, start, end))
            self._face.wake()
        self._ids[share.topic] = share.topic_id
        old = self._by_where.get(share.where)
        if old is not None:
            self._lose([old], self._face.seconds())
        self._by_where[share.where] = share
        return share

    def _open(self, taken: list[HeldShare]) -> None:
        """Read what was taken over, now that the user knows of it."""
        now = self._face.seconds()
        for share in taken:
            if share.stage is not Stage.OPENING or self.closed:
                continue
            assert share.info is not None
            assert share.place is not None
            share.stage = Stage.READING
            if share.place != share.committed:
                share.tally = Tally()
            share.cursor = self.reader.read(share.info, share.partition, share.place)
            if share.paused:
                self._pause(share)
        self.reader.link_changed(now)
        self._check_ready()
        self._soon()

    # --- giving up -------------------------------------------------------------

    def _give_up(self, shares: list[HeldShare], now: float, within_s: float | None = None) -> None:
        """Hand out nothing more, and wait for what was."""
        within_s = self.config.rebalance_s * _SOONER if within_s is None else within_s
        for share in shares:
            if share.stage is Stage.TAKING:
                self._drop(share)
            elif share.stage in (Stage.OPENING, Stage.READING):
                if share.cursor is not None:
                    self.reader.leave(share.cursor)
                share.stage = Stage.DRAINING
                share.until = now + within_s
                self._drain_by = min(self._drain_by, share.until)
                share.tally.watch = partial(self._moved, share)
                self._drop_opened(share)
                self._soon()

    def _keep(self, share: HeldShare, now: float) -> None:
        """Read on after all."""
        if share.cursor is None:
            self._drop(share)  # it was not read yet: taken over once more
            self._shares[share.topic_id, share.partition] = HeldShare(
                share.topic_id, share.partition, share.generation
            )
            return
        assert share.info is not None
        share.stage = Stage.READING
        share.until = inf
        mark = share.cursor.mark if share.cursor.position >= 0 else share.cursor.start
        share.cursor = self.reader.read(share.info, share.partition, mark)
        if share.paused or share.held:
            self._pause(share)
        self.reader.link_changed(now)

    def _drain(self, now: float) -> None:
        """Go on with those whose messages are done, or are not waited for any more."""
        drained, late = [], []
        self._drain_by = inf
        for share in self._shares.values():
            if share.held and share.stage is Stage.READING:
                self._release(share, now)
            if share.stage is not Stage.DRAINING:
                continue
            if not share.tally.open:
                drained.append(share)
            elif now >= share.until:
                late.append(share)
            else:
                self._drain_by = min(self._drain_by, share.until)
        if late and self._closing is None:
            if self.config.commit != "manual":
                self._committing.commit(late, self.membership.id, _never_mind, now)
            self._lose(late, now)
            self.membership.say(now)
        else:
            drained += late
        for share in drained:
            share.stage = Stage.CLOSING
        if drained:
            self._notice(self.config.on_revoked, drained, partial(self._closed, drained))

    def _closed(self, shares: list[HeldShare]) -> None:
        """Commit a last time, now that the user knows."""
        now = self._face.seconds()
        left = [share for share in shares if share.stage is Stage.CLOSING]

        def committed(_: TinyMQError | None) -> None:
            for share in left:
                self._drop(share)
            self.membership.say(self._face.seconds())
            self._soon()

        if self.config.commit == "manual":
            committed(None)
        else:
            self._committing.commit(left, self.membership.id, committed, now)

    def _release(self, share: HeldShare, now: float) -> None:
        """Hand out on, if what is done has come up."""
        floor, cursor = share.floor, share.cursor
        if floor is None or cursor is None or floor.offset < 0:
            return
        if cursor.position - floor.offset <= self.config.max_ahead // 2:
            share.held = False
            if self.config.commit != "batch":
                share.tally.watch = None
            if not share.paused:
                self.reader.resume(share.topic, [share.partition], now)

    def _lose(self, shares: list[HeldShare], now: float) -> None:
        """Others may have these by now."""
        told = [share for share in shares if share.stage not in (Stage.TAKING, Stage.GONE)]
        for share in shares:
            self._drop(share)
        if told:
            self._notice(self.config.on_lost, told, _nothing)
        self._soon()

    def _drop(self, share: HeldShare) -> None:
        share.end()
        if share.cursor is not None:
            self.reader.leave(share.cursor)
        self._drop_opened(share)
        if self._shares.get((share.topic_id, share.partition)) is share:
            del self._shares[share.topic_id, share.partition]
        if self._by_where.get(share.where) is share:
            del self._by_where[share.where]

    def _drop_opened(self, share: HeldShare) -> None:
        for opened in [one for one in self._opened if one.share is share]:
            self._opened.remove(opened)

    # --- the cluster's calls ---------------------------------------------------

    @property
    def wake_at(self) -> float:
        """When `tick` has something to do."""
        if self._due:
            return -inf
        at = min(self.membership.wake_at, self._names.wake_at, self._commit_at)
        return min(at, self._again_at, self._drain_by)

    def tick(self, now: float) -> None:
        """
        Do what is due.

        Args:
            now: The time.
        """
        if self._due or now >= self._drain_by:
            self._due = False
            self._drain(now)
        if self._names.wake_at <= now:
            self._names.tick(now)
        if self._again_at <= now:
            self._take_over(now)
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
        busy = any(share.stage in joining for share in self._shares.values())
        ended = self.failed or (ClosedError("the consumer was closed") if self.closed else None)
        if ended is None and (self.membership.phase is Phase.JOINING or busy):
            return
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
        self._give_up(list(self._shares.values()), now, within_s)
        self._face.wake()
        self._soon()

    def _leave(self, now: float) -> None:
        """Leave, when nothing is left."""
        if self._shares or self._leaving:
            return
        self._leaving = True
        self.membership.leave(lambda _: self._end(), now + self.config.leave_s, now)

    def _end(self) -> None:
        self.closed = True
        self.membership.stop()
        for share in tuple(self._shares.values()):
            self._drop(share)
        self._cluster.remove(self)
        self.reader.close()
        self._check_ready()
        done, self._closing = self._closing, None
        if done is not None:
            done()
        self._face.wake()

    # --- inside ----------------------------------------------------------------

    def _notice(
        self,
        call: Callable[[list[Share]], Any] | None,
        shares: list[HeldShare],
        then: Callable[[], None],
    ) -> None:
        """Tell the user, and go on when that is over."""
        if call is None:
            then()
        else:
            self._face.call(call, [share.told for share in shares], then)

    def _trouble(self, share: HeldShare, error: TinyMQError) -> None:
        data = getattr(error, "data", {})
        data.setdefault("topic", share.topic)
        data.setdefault("partition", share.partition)
        self._troubles.append(error)
        self._face.wake()

    def _share(self, topic: str, partition: int) -> HeldShare:
        self._check_closed()
        share = self._by_where.get((topic, partition))
        if share is None:
            raise UsageError(f"partition {partition} of {topic} is not assigned")
        return share

    def _chosen(self, topic: str, partitions: Iterable[int] | None) -> list[HeldShare]:
        self._check_closed()
        if partitions is None:
            return [share for share in self._by_where.values() if share.topic == topic]
        return [self._share(topic, number) for number in partitions]

    def _check(self) -> None:
        if self.failed is not None:
            raise self.failed
        if self.closed:
            raise ClosedError("the consumer was closed")

    def _check_closed(self) -> None:
        if self.closed and self._closing is None:
            raise ClosedError("the consumer was closed")


def _put_notes(shares: list[HeldShare], note: str | Mapping[tuple[str, int], str] | None) -> None:
    for share in shares:
        text = note if note is None or isinstance(note, str) else note.get(share.where)
        if text is None:
            continue
        if len(text.encode()) > NOTE_BYTES:
            raise UsageError(f"a note has at most {NOTE_BYTES} bytes")
        share.note = text


def _anew(share: HeldShare, start: int, end: int) -> UnknownTopicId:
    return UnknownTopicId(
        f"topic {share.topic} was deleted and made anew: the group goes on with the new one",
        topic=share.topic,
        partition=share.partition,
        start=start,
        end=end,
    )


def _ignore(*_: object) -> None:
    """Do nothing with an answer."""


def _never_mind(_: TinyMQError | None) -> None:
    """Nobody waits for this commit."""


def _nothing() -> None:
    """Nothing is to be done after the user was told."""
