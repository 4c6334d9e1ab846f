"""What a member has in hand, and handing it out: messages, batches, and what went wrong."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from math import inf
from typing import Any, NamedTuple

from tinymq.client.core.cluster import Cluster
from tinymq.client.core.consumer import ConsumerCore
from tinymq.client.core.delivered import ConsumerBatch
from tinymq.client.core.fetching import MOVED
from tinymq.client.core.group.handed import GroupBatch, GroupMessage
from tinymq.client.core.group.settings import GroupConfig, Share
from tinymq.client.core.group.share import HeldShare, Stage
from tinymq.client.core.group.tally import Slip, Tally
from tinymq.client.core.group.transactions import ShareRow
from tinymq.client.core.starts import Mark, Place, Start, read_start
from tinymq.errors import TinyMQError, UsageError
from tinymq.wire.records import Record


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


class Hands:
    """
    The shares of a member, and what of them is handed out.

    Args:
        cluster: The brokers.
        config: Settings.
        face: Who takes messages.
        moved: Called with a share and a slip of which something more is done, for
            shares whose tally is watched.

    Attributes:
        reader: What reads.
        face: Who takes messages.
        shares: By topic id and partition.
        by_where: Those whose topic is known, by its name and the partition.
        troubles: What is to be told.
        room: Whether a batch was taken that something else to be fetched has waited for.
        lost: Of shares that went while something was handed out and not committed, what a
            transaction would commit, if one may.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: GroupConfig,
        face: GroupFace,
        moved: Callable[[HeldShare, Slip], None],
    ) -> None:
        self.reader = ConsumerCore(cluster, config, face.wake)
        self.face = face
        self.shares: dict[tuple[bytes, int], HeldShare] = {}
        self.by_where: dict[tuple[str, int], HeldShare] = {}
        self.troubles: deque[TinyMQError] = deque()
        self.room = False
        self.lost: dict[tuple[str, int], ShareRow] = {}
        self._opened: deque[Opened] = deque()
        self._cluster = cluster
        self._config = config
        self._moved = moved

    # --- handing out -----------------------------------------------------------

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
                    return self.face.message(record, slip, index)
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
        found = (self._rest() if self._opened else None) or self._next()
        if found is None:
            return None
        slip = found[1]
        first, slip.handed = slip.handed, slip.count
        return self.face.batch(slip, first)

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
            if self.troubles:
                raise self.troubles.popleft()
            try:
                batch = self.reader.take()
            except MOVED as error:
                if self._made_anew(error):
                    continue
                raise
            if batch is None:
                return None
            self.room = self.reader.fetching.starved
            share = self.by_where[batch.topic, batch.partition]
            slip = self._count(share, batch)
            if slip.count:
                return share, slip

    def _count(self, share: HeldShare, batch: ConsumerBatch) -> Slip:
        tally = share.tally
        if len(batch) and batch.base_offset < tally.end:
            tally.end_here()  # the log was cut, and reading began anew further up
            tally = share.tally = Tally()
        slip = tally.add(batch)
        assert tally.base is not None
        if slip.end.offset - tally.base.offset > self._config.max_ahead:
            tally.watch = tally.watch or partial(self._moved, share)
            share.held = True
            self.hold(share)
        elif tally.watch is None and self._config.commit == "batch":
            tally.watch = partial(self._moved, share)
        return slip

    def _made_anew(self, error: TinyMQError) -> bool:
        """Whether a topic has a successor: of that the coordinator speaks soon."""
        where: Any = [getattr(error, "data", {}).get(name) for name in ("topic", "partition")]
        share = self.by_where.get(tuple(where))
        if share is None:
            return True
        info = self._cluster.metadata.get(share.topic)
        return info is not None and info.id != share.topic_id

    @property
    def waiting(self) -> bool:
        """Whether `take` may have something."""
        if self.troubles or self.reader.waiting:
            return True
        return any(not opened.share.paused for opened in self._opened)

    # --- what is read ----------------------------------------------------------

    @property
    def assigned(self) -> list[tuple[str, int]]:
        """Topic and partition of everything that is read."""
        reads = (Stage.READING, Stage.DRAINING, Stage.CLOSING)
        return sorted(one.where for one in self.shares.values() if one.stage in reads)

    def position(self, topic: str, partition: int) -> Mark:
        """
        Say what is handed out next; its offset is -1 while that is not known.

        Args:
            topic: Name of the topic.
            partition: Number of the partition.
        """
        return self.reached(self.share(topic, partition))

    def reached(self, share: HeldShare) -> Mark:
        """
        Say up to where a share was handed out; the offset is -1 while that is not known.

        Args:
            share: The share.
        """
        if share.stage in (Stage.DRAINING, Stage.CLOSING):
            # Of what was fetched, no more is handed out than was.
            return share.place if isinstance(share.place, Mark) else share.committed or Mark(-1)
        for opened in self._opened:
            slip = opened.slip
            if opened.share is share and slip.handed < slip.count:
                return Mark(slip.offsets[slip.handed], slip.batch.leader_epoch)
        if share.cursor is None:
            return share.committed or Mark(-1)
        return share.cursor.mark

    def pause(self, topic: str, partitions: Iterable[int] | None, now: float) -> None:
        """
        Hand out nothing more of some partitions, as long as they are ours.

        Args:
            topic: Name of the topic.
            partitions: Which; None means all that are read.
            now: The time.
        """
        for share in self.chosen(topic, partitions):
            share.paused = True
            self.hold(share)

    def resume(self, topic: str, partitions: Iterable[int] | None, now: float) -> None:
        """
        Go on after `pause`, or try again after an error, at the same position.

        Args:
            topic: Name of the topic.
            partitions: Which; None means all that are read.
            now: The time.
        """
        for share in self.chosen(topic, partitions):
            share.paused = False
            if share.stage is Stage.READING and not share.held:
                self.reader.resume(topic, [share.partition], now)
        self.face.wake()

    def hold(self, share: HeldShare) -> None:
        """
        Fetch and hand out nothing more of a share for now.

        Args:
            share: The share.
        """
        if share.stage is Stage.READING:
            self.reader.pause(share.topic, [share.partition], self.face.seconds())

    def seek(self, topic: str, partition: int, start: Start, now: float) -> None:
        """
        Go on elsewhere; what was handed out of the partition counts no more.

        Args:
            topic: Name of the topic.
            partition: Number of the partition.
            start: Where.
            now: The time.
        """
        share, place = self.share(topic, partition), read_start(start)
        if share.stage is Stage.OPENING:
            share.place = place
        elif share.stage is Stage.READING:
            self.restart(share, place, now)
        else:
            raise UsageError(f"partition {partition} of {topic} is being given up")

    def restart(self, share: HeldShare, place: Place, now: float) -> None:
        """
        Read a share anew from a place.

        Args:
            share: The share.
            place: Where.
            now: The time.
        """
        share.tally.end_here()
        share.tally = Tally()
        self._drop_opened(share)
        if share.held:
            share.held = False
            if not share.paused:
                self.reader.resume(share.topic, [share.partition], now)
        self.reader.seek(share.topic, share.partition, place, now)

    def begin_again(self, share: HeldShare, start: Mark | None = None) -> None:
        """
        Let a share that is not read begin at what is not done.

        Args:
            share: The share.
            start: What is done from here on counts no more.
        """
        former = share.tally
        former.end_here()
        share.tally = Tally(start or former.floor)
        share.tally.start = start or former.start
        share.place = share.tally.base or share.committed or self._config.place

    def release(self, share: HeldShare, now: float) -> None:
        """
        Hand out on of a share that is held, if what is done has come up.

        Args:
            share: The share.
            now: The time.
        """
        floor, cursor = share.floor, share.cursor
        if floor is None or cursor is None or floor.offset < 0:
            return
        if cursor.position - floor.offset <= self._config.max_ahead // 2:
            share.held = False
            if self._config.commit != "batch":
                share.tally.watch = None
            if not share.paused:
                self.reader.resume(share.topic, [share.partition], now)

    # --- having and not having any more ----------------------------------------

    def watch(self, share: HeldShare) -> None:
        """
        Be told when something more of a share is done.

        Args:
            share: The share.
        """
        share.tally.watch = partial(self._moved, share)

    def stop(self, share: HeldShare) -> None:
        """
        Hand out nothing more of a share; its place is where reading would go on.

        Args:
            share: The share.
        """
        if share.cursor is not None:
            self.reader.leave(share.cursor)
        share.place = self._read_on(share)
        self._drop_opened(share)

    def _read_on(self, share: HeldShare) -> Place | None:
        """Where reading would go on, behind what was handed out."""
        for opened in self._opened:
            if opened.share is share:
                return opened.slip.cut()
        cursor = share.cursor
        if cursor is None:
            return share.place
        return cursor.mark if cursor.position >= 0 else cursor.start

    def go_on(self, share: HeldShare, now: float) -> None:
        """
        Read a share from its place on.

        Args:
            share: The share.
            now: The time.
        """
        assert share.info is not None
        assert share.place is not None
        share.stage = Stage.READING
        share.cursor = self.reader.read(share.info, share.partition, share.place)
        if share.paused or share.held:
            self.hold(share)
        self.reader.link_changed(now)

    def forget_lost(self, row: ShareRow, below: float = inf) -> None:
        """
        Forget what was lost and was part of a transaction that is over.

        The partition may have gone while that was decided. What was handed out behind it
        belongs to another one, and comes again if this one does not count.

        Args:
            row: What the transaction had of a partition.
            below: How far it was handed out for it at most.
        """
        where = row.topic, row.partition
        lost = self.lost.get(where)
        if lost is None or (lost.topic_id, lost.generation) != (row.topic_id, row.generation):
            return
        if lost.offset <= below:
            del self.lost[where]

    def drop(self, share: HeldShare) -> None:
        """
        Have a share no more.

        Args:
            share: The share.
        """
        if self._config.commit == "manual" and share.ahead:
            self.lost.setdefault(share.where, share.row(self.reached(share)))
        share.end()
        if share.cursor is not None:
            self.reader.leave(share.cursor)
        self._drop_opened(share)
        if self.shares.get((share.topic_id, share.partition)) is share:
            del self.shares[share.topic_id, share.partition]
        if self.by_where.get(share.where) is share:
            del self.by_where[share.where]

    def _drop_opened(self, share: HeldShare) -> None:
        for opened in [one for one in self._opened if one.share is share]:
            self._opened.remove(opened)

    def notice(
        self,
        call: Callable[[list[Share]], Any] | None,
        shares: list[HeldShare],
        then: Callable[[], None],
    ) -> None:
        """
        Tell the user of shares, and go on when that is over.

        Args:
            call: His function, or None.
            shares: The shares.
            then: Goes on.
        """
        if call is None:
            then()
        else:
            self.face.call(call, [share.told for share in shares], then)

    def trouble(self, share: HeldShare, error: TinyMQError) -> None:
        """
        Tell the user of what happened to a share.

        Args:
            share: The share.
            error: What happened.
        """
        data = getattr(error, "data", {})
        data.setdefault("topic", share.topic)
        data.setdefault("partition", share.partition)
        self.troubles.append(error)
        self.face.wake()

    def share(self, topic: str, partition: int) -> HeldShare:
        """
        Find a share.

        Args:
            topic: Name of the topic.
            partition: Number of the partition.

        Raises:
            UsageError: It is not assigned.
        """
        share = self.by_where.get((topic, partition))
        if share is None:
            raise UsageError(f"partition {partition} of {topic} is not assigned")
        return share

    def chosen(self, topic: str, partitions: Iterable[int] | None) -> list[HeldShare]:
        """
        Find shares.

        Args:
            topic: Name of the topic.
            partitions: Which; None means all that there are.

        Raises:
            UsageError: One of them is not assigned.
        """
        if partitions is None:
            return [share for share in self.by_where.values() if share.topic == topic]
        return [self.share(topic, number) for number in partitions]
