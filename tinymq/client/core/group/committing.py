"""Commits on their way: one for a partition at a time, so that none overtakes another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tinymq.client.core.cluster import Cluster
from tinymq.client.core.group.asking import Asking, Commit, Found, Spot
from tinymq.client.core.group.share import HeldShare, Stage
from tinymq.errors import ClosedError, TinyMQError, UsageError
from tinymq.wire.messages import NOTE_BYTES

#: Told that all is committed, or why not.
Committed = Callable[[TinyMQError | None], None]


class Waiter:
    """
    Somebody waits until several partitions are committed.

    Args:
        done: Told once.
    """

    __slots__ = ("_done", "_error", "left")

    def __init__(self, done: Committed) -> None:
        self.left = 1
        self._done = done
        self._error: TinyMQError | None = None

    def told(self, error: TinyMQError | None = None) -> None:
        """
        Note that one of them is, or is not.

        Args:
            error: Why not.
        """
        self._error = self._error or error
        self.left -= 1
        if not self.left:
            self._done(self._error)


class Committing:
    """
    The commits of one member.

    Args:
        cluster: The brokers.
        group: Name of the group.
        deadline_s: How long one is tried.
        failed: Called with a share whose commit was refused, why, and the time.
    """

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        deadline_s: float,
        failed: Callable[[HeldShare, TinyMQError, float], None],
    ) -> None:
        self._cluster = cluster
        self._group = group
        self._deadline_s = deadline_s
        self._failed = failed

    def commit(
        self,
        shares: Iterable[HeldShare],
        member: str,
        done: Committed,
        now: float,
    ) -> None:
        """
        Commit what is done.

        Args:
            shares: Of these partitions.
            member: Who commits.
            done: Told when the leaders have it.
            now: The time.
        """
        waiter = Waiter(done)
        rows: dict[Spot, tuple[int, int, int, int, str]] = {}
        flying: dict[Spot, HeldShare] = {}
        for share in shares:
            mark = share.floor
            if share.flying is not None:
                if share.flying == (mark, share.note):
                    share.waiters.append(waiter)
                elif share.dirty:
                    share.following.append(waiter)
                else:
                    continue
            elif mark is not None and share.dirty:
                share.flying = mark, share.note
                share.waiters = [waiter]
                rows[share.spot] = (share.partition, share.generation, *mark, share.note)
                flying[share.spot] = share
            else:
                continue
            waiter.left += 1
        if rows:
            self._send(rows, flying, member, now)
        waiter.told()

    def _send(
        self,
        rows: dict[Spot, tuple[int, int, int, int, str]],
        flying: dict[Spot, HeldShare],
        member: str,
        now: float,
    ) -> None:
        def told(found: list[Found], now: float) -> None:
            for one in found:
                self._landed(flying[one.spot], member, one.error, now)

        question = Commit(self._group, member)
        Asking(self._cluster, question, told, now + self._deadline_s).start(rows, now)

    def _landed(self, share: HeldShare, member: str, error: TinyMQError | None, now: float) -> None:
        assert share.flying is not None
        (mark, note), share.flying = share.flying, None
        waiters, share.waiters = share.waiters, []
        following, share.following = share.following, []
        if error is None:
            share.committed, share.noted = mark, note
            share.tally.start = mark
        elif not isinstance(error, ClosedError):
            self._failed(share, error, now)
        for waiter in waiters:
            waiter.told(error)
        if not following:
            return
        if share.stage is Stage.GONE:
            for waiter in following:
                waiter.told(error)
            return

        def again(error: TinyMQError | None) -> None:
            for waiter in following:
                waiter.told(error)

        self.commit([share], member, again, now)


def put_notes(shares: list[HeldShare], note: str | Mapping[tuple[str, int], str] | None) -> None:
    """
    Give shares notes that go with their commits.

    Args:
        shares: The shares.
        note: The note of all, or of some by topic and partition; None changes nothing.

    Raises:
        UsageError: One is too long.
    """
    for share in shares:
        text = note if note is None or isinstance(note, str) else note.get(share.where)
        if text is None:
            continue
        if len(text.encode()) > NOTE_BYTES:
            raise UsageError(f"a note has at most {NOTE_BYTES} bytes")
        share.note = text
