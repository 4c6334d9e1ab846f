"""What syncing does, and what a failed one means."""

from __future__ import annotations

import errno
import queue
from collections.abc import Callable, Iterator
from threading import Event

import pytest

from tests.fakes.disk import FaultyDisk
from tests.storage.batches import put
from tests.storage.conftest import MakeLog
from tinymq.errors import PartitionOffline
from tinymq.storage.log import Log, SyncTicket
from tinymq.storage.sync import MOST_FILES, InlineSyncer, PoolSyncer, Results, Syncer


class Pool:
    """A pool syncer whose answers are taken by the test's thread."""

    def __init__(self, disk: FaultyDisk, threads: int = 4) -> None:
        self.calls: queue.SimpleQueue[tuple[Callable[..., None], tuple[object, ...]]] = (
            queue.SimpleQueue()
        )
        self.syncer = PoolSyncer(
            disk, lambda function, *rest: self.calls.put((function, rest)), threads
        )

    def sync(self, logs: list[Log]) -> Results:
        """Sync logs, end their tickets, and give the results."""
        tickets: dict[SyncTicket, Log] = {}
        for log in logs:
            ticket = log.begin_sync()
            assert ticket is not None
            tickets[ticket] = log
        taken: list[Results] = []
        self.syncer.sync(list(tickets), taken.append)
        function, rest = self.calls.get(timeout=10)
        function(*rest)
        (results,) = taken
        for ticket, error in results.items():
            tickets[ticket].end_sync(ticket, error)
        return results


@pytest.fixture
def pool(disk: FaultyDisk) -> Iterator[Pool]:
    """Return a pool that is closed at the end."""
    pool = Pool(disk)
    yield pool
    pool.syncer.close()


def written(new_log: MakeLog, count: int) -> list[Log]:
    """Logs with one written batch each."""
    logs = [new_log(name=f"{place}/data") for place in range(count)]
    for log in logs:
        put(log)
        log.write()
    return logs


@pytest.mark.parametrize("count", [1, 2, MOST_FILES])
def test_few_files_one_by_one(new_log: MakeLog, disk: FaultyDisk, pool: Pool, count: int) -> None:
    """Up to eight files are synced on their own, their folders before."""
    logs = written(new_log, count)
    assert {None} == set(pool.sync(logs).values())
    assert {1} == {log.synced_offset for log in logs}
    assert disk.calls["fdatasync"] == count
    assert disk.calls["syncfs"] == 0
    assert disk.calls["fsync_dir"] >= count


def test_many_files_at_once(new_log: MakeLog, disk: FaultyDisk, pool: Pool) -> None:
    """More are synced by one call for the whole file system."""
    logs = written(new_log, MOST_FILES + 1)
    assert {None} == set(pool.sync(logs).values())
    assert disk.calls["syncfs"] == 1
    assert disk.calls["fdatasync"] == 0
    assert {1} == {log.synced_offset for log in logs}


def test_failed_syncfs_fails_all_and_is_not_used_again(
    new_log: MakeLog, disk: FaultyDisk, pool: Pool
) -> None:
    """Nobody can tell whose bytes are lost, so all logs of the group go offline."""
    disk.failing["syncfs"] = errno.EIO
    logs = written(new_log, MOST_FILES + 1)
    assert all(pool.sync(logs).values())
    assert all(log.offline for log in logs)
    disk.failing.clear()
    others = [new_log(name=f"x{place}/data") for place in range(MOST_FILES + 1)]
    for log in others:
        put(log)
        log.write()
    assert {None} == set(pool.sync(others).values())
    assert disk.calls["syncfs"] == 1
    assert disk.calls["fdatasync"] == MOST_FILES + 1


def test_two_groups_do_not_share_an_error(
    new_log: MakeLog, disk: FaultyDisk, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the whole file system is synced for a group, another one asks about its own files."""
    going, go_on = Event(), Event()
    syncfs = disk.syncfs

    def slowly(path: str) -> None:
        going.set()
        assert go_on.wait(10)
        syncfs(path)

    monkeypatch.setattr(disk, "syncfs", slowly)
    logs = written(new_log, 2 * (MOST_FILES + 1))
    tickets = [ticket for log in logs if (ticket := log.begin_sync()) is not None]
    taken: list[Results] = []
    pool.syncer.sync(tickets[: MOST_FILES + 1], taken.append)
    assert going.wait(10)
    pool.syncer.sync(tickets[MOST_FILES + 1 :], taken.append)
    for _ in range(2):
        function, rest = pool.calls.get(timeout=10)
        function(*rest)
        go_on.set()
    assert [{*results.values()} for results in taken] == [{None}, {None}]
    assert (disk.calls["syncfs"], disk.calls["fdatasync"]) == (1, MOST_FILES + 1)
    for ticket, log in zip(tickets, logs, strict=True):
        log.end_sync(ticket)


def test_failed_sync_is_never_repeated(new_log: MakeLog, disk: FaultyDisk, pool: Pool) -> None:
    """A second fsync would succeed without the lost bytes: the log is offline for good."""
    log, other = written(new_log, 2)
    disk.failing["fdatasync"] = errno.EIO
    pool.sync([log])
    assert log.synced_offset == 0
    disk.failing.clear()
    with pytest.raises(PartitionOffline):
        put(log)
    with pytest.raises(PartitionOffline):
        log.write()
    with pytest.raises(PartitionOffline):
        log.checkpoint()
    assert pool.sync([other]) != {}
    assert other.synced_offset == 1


def test_failed_folder_sync(new_log: MakeLog, disk: FaultyDisk, pool: Pool) -> None:
    """A new file whose name may be lost is not acknowledged."""
    (log,) = written(new_log, 1)
    disk.failing["fsync_dir"] = errno.EIO
    pool.sync([log])
    assert isinstance(log.offline, PartitionOffline)
    assert disk.calls["fdatasync"] == 0


def test_no_descriptor_for_a_folder(new_log: MakeLog, disk: FaultyDisk, pool: Pool) -> None:
    """Without a descriptor for the folder the whole file system is synced instead."""
    (log,) = written(new_log, 1)
    disk.failing["fsync_dir"] = errno.EMFILE
    assert {None} == set(pool.sync([log]).values())
    assert log.synced_offset == 1
    assert disk.calls["syncfs"] == 1


def test_writes_during_a_sync_are_not_covered(new_log: MakeLog, disk: FaultyDisk) -> None:
    """What is written after a sync began waits for the next one."""
    (log,) = written(new_log, 1)
    ticket = log.begin_sync()
    assert ticket is not None
    put(log)
    log.write()
    log.end_sync(ticket)
    assert (log.synced_offset, log.written_offset) == (1, 2)
    assert log.checkpoint().end == 1
    log.sync()
    assert log.synced_offset == 2
    assert log.begin_sync() is None


def test_a_sync_covers_what_is_under_way(new_log: MakeLog, disk: FaultyDisk) -> None:
    """A sync while another one is at work waits for the same files: that one may end later."""
    (log,) = written(new_log, 1)
    first = log.begin_sync()
    assert first is not None
    log.sync()
    assert (disk.calls["fdatasync"], log.synced_offset) == (1, 1)
    log.end_sync(first)
    assert log.synced_offset == 1
    assert log.begin_sync() is None
    put(log)
    log.write()
    first = log.begin_sync()
    assert first is not None
    disk.failing["fdatasync"] = errno.EIO
    with pytest.raises(PartitionOffline):
        log.sync()
    log.end_sync(first)
    assert log.synced_offset == 1


def test_a_checkpoint_before_any_sync(new_log: MakeLog) -> None:
    """What was written and never synced is in no checkpoint."""
    log = new_log()
    for _ in range(30):
        put(log)
    log.write()
    point = log.checkpoint()
    assert (point.end, point.segments, point.clean) == (0, (), False)
    log.sync()
    point = log.checkpoint()
    assert (point.end, len(point.segments), point.clean) == (30, 4, True)


def test_inline(new_log: MakeLog, disk: FaultyDisk) -> None:
    """The inline syncer is done when it returns."""
    syncer: Syncer = InlineSyncer(disk)
    logs = written(new_log, 2)
    tickets = {ticket: log for log in logs if (ticket := log.begin_sync()) is not None}

    def done(results: Results) -> None:
        for ticket, error in results.items():
            tickets[ticket].end_sync(ticket, error)

    syncer.sync(list(tickets), done)
    assert {1} == {log.synced_offset for log in logs}
    syncer.close()


def test_sync_at_once(new_log: MakeLog, disk: FaultyDisk) -> None:
    """A failure in a waiting sync takes the log offline as well."""
    (log,) = written(new_log, 1)
    disk.failing["fdatasync"] = errno.EIO
    with pytest.raises(PartitionOffline):
        log.sync()
