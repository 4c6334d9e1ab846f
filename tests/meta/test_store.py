"""The durable table: revisions, transactions, watches and leases, as etcd has them."""

from __future__ import annotations

import random
import shutil
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.meta.fakes import FakeTime
from tinymq.errors import ClosedError, InvalidRequest, StateError, StorageError, StorageFull
from tinymq.meta.entries import Compare, Delete, Entry, Event, Put, prefix
from tinymq.meta.store import Store

ALL = prefix("")


def values(store: Store, revision: int | None = None) -> dict[str, bytes]:
    """Return keys and values, of now or of then."""
    return {entry.key: entry.value for entry in store.range(*ALL, revision)}


def test_an_entry_knows_its_history(store: Store) -> None:
    """A key carries the revisions of its making and last change, and how often it changed."""
    store.put("a", b"1")
    store.put("b", b"1")
    store.put("a", b"2")
    assert store.get("a") == Entry("a", b"2", created=1, modified=3, version=2, lease=0)
    store.delete("a")
    assert store.get("a") is None
    store.put("a", b"3")
    assert store.get("a") == Entry("a", b"3", created=5, modified=5, version=1, lease=0)


def test_reads_at_a_revision(store: Store) -> None:
    """A range can be read as it was at any revision."""
    store.put("a", b"1")
    store.put("b", b"2")
    store.delete("a")
    assert values(store, 0) == {}
    assert values(store, 1) == {"a": b"1"}
    assert values(store, 2) == {"a": b"1", "b": b"2"}
    assert values(store, 3) == values(store) == {"b": b"2"}
    with pytest.raises(InvalidRequest, match="between 0 and 3"):
        store.range(*ALL, 4)


def test_ranges(store: Store) -> None:
    """A range has its first key and not its last; a prefix takes what begins with it."""
    for key in ("a/1", "a/2", "a/3", "b/1", "a0"):
        store.put(key, b"")
    assert [entry.key for entry in store.range("a/1", "a/3")] == ["a/1", "a/2"]
    assert [entry.key for entry in store.range(*prefix("a/"))] == ["a/1", "a/2", "a/3"]
    assert [entry.key for entry in store.range(*prefix("a/"), limit=2)] == ["a/1", "a/2"]


def test_compare_and_write(store: Store) -> None:
    """A transaction writes one side or the other, all of it at one revision."""
    assert store.transact([Compare("a", 0)], [Put("a", b"1"), Put("b", b"1")])
    assert store.revision == 1
    assert not store.transact([Compare("a", 0)], [Put("a", b"2")], [Put("c", b"else")])
    assert values(store) == {"a": b"1", "b": b"1", "c": b"else"}
    assert store.transact([Compare("a", 1), Compare("c", 2)], [Delete("a"), Put("b", b"3")])
    assert values(store) == {"b": b"3", "c": b"else"}
    assert store.revision == 3


def test_what_changes_nothing_is_no_revision(store: Store) -> None:
    """A transaction without an effect leaves the revision alone."""
    assert not store.delete("a")
    assert not store.transact([Compare("a", 5)], [Put("a", b"")])
    assert store.revision == 0


def test_a_refused_transaction_leaves_no_trace(store: Store) -> None:
    """What fails half way is rolled back and heard by nobody."""
    heard: list[tuple[Event, ...]] = []
    store.watch(heard.append, *ALL)
    with pytest.raises(StateError, match="lease 99"):
        store.transact([], [Put("a", b"1"), Put("b", b"1", lease=99)])
    with pytest.raises(ValueError, match="twice"):
        store.transact([], [Put("a", b"1"), Delete("a")])
    with pytest.raises(ValueError, match="empty"):
        store.transact([], [Put("", b"1")])
    assert values(store) == {}
    assert heard == []
    assert store.put("a", b"1") == 1


@given(
    st.lists(
        st.lists(
            st.tuples(st.sampled_from("abcd"), st.none() | st.binary(max_size=3)),
            max_size=3,
            unique_by=lambda write: write[0],
        ),
        max_size=12,
    ),
    st.integers(0, 12),
)
def test_history_as_in_a_model(
    tmp_path_factory: pytest.TempPathFactory,
    writes: list[list[tuple[str, bytes | None]]],
    compacted: int,
) -> None:
    """Every revision reads as a dict would, also after compaction, opening again and replay."""
    file = tmp_path_factory.mktemp("model") / "meta.db"
    store = Store(file)
    model: list[dict[str, bytes]] = [{}]
    for transaction in writes:
        after = dict(model[-1])
        for key, value in transaction:
            if value is None:
                after.pop(key, None)
            else:
                after[key] = value
        store.transact([], [Delete(k) if v is None else Put(k, v) for k, v in transaction])
        if any(v is not None or k in model[-1] for k, v in transaction):
            model.append(after)
    store.compact(compacted)
    store.close()
    store = Store(file)
    assert store.revision == len(model) - 1
    assert store.compacted == min(compacted, store.revision)
    state = dict(model[store.compacted])
    revisions = []
    for revision in range(store.compacted, len(model)):
        assert values(store, revision) == model[revision]

    def replay(events: tuple[Event, ...]) -> None:
        for event in events:
            if event.entry is None:
                state.pop(event.key)
            else:
                state[event.key] = event.entry.value
        revisions.append(events[0].revision)

    store.watch(replay, *ALL, from_revision=store.compacted + 1)
    assert state == model[-1]
    assert revisions == list(range(store.compacted + 1, len(model)))
    store.close()


def test_compaction_refuses_the_past(store: Store) -> None:
    """What was compacted is refused, in reads and in watches, with where history begins."""
    for _ in range(3):
        store.put("a", b"")
    store.compact(2)
    store.compact(1)
    with pytest.raises(InvalidRequest):
        store.range(*ALL, 1)
    with pytest.raises(InvalidRequest) as caught:
        store.watch(print, *ALL, from_revision=2)
    assert caught.value.data["oldest"] == 3


def test_watch(store: Store) -> None:
    """A watch hears its range, one call for each revision, past ones first."""
    heard: list[list[tuple[str, int, bytes | None]]] = []

    def listen(events: tuple[Event, ...]) -> None:
        heard.append([(e.key, e.revision, e.entry.value if e.entry else None) for e in events])

    store.put("a/1", b"1")
    store.put("b/1", b"1")
    store.put("a/1", b"2")
    watch = store.watch(listen, *prefix("a/"), from_revision=2)
    store.transact([], [Delete("a/1"), Put("a/2", b"3"), Put("b/1", b"3")])
    store.put("b/1", b"4")
    watch.cancel()
    watch.cancel()
    store.put("a/1", b"5")
    assert heard == [[("a/1", 3, b"2")], [("a/1", 4, None), ("a/2", 4, b"3")]]


def test_a_listener_may_write(store: Store) -> None:
    """What a listener writes is heard by all in the order of revisions, and once."""
    heard: dict[str, list[int]] = {"first": [], "second": [], "late": []}

    def first(events: tuple[Event, ...]) -> None:
        heard["first"].append(events[0].revision)
        if events[0].revision == 2:
            store.put("b", b"")
            store.watch(lambda e: heard["late"].append(e[0].revision), *ALL, from_revision=1)

    store.put("a", b"")
    store.watch(first, *ALL, from_revision=1)
    store.watch(lambda events: heard["second"].append(events[0].revision), *ALL)
    store.put("a", b"")
    assert heard == {"first": [1, 2, 3], "second": [2, 3], "late": [1, 2, 3]}


def test_a_failing_listener_stops_nobody(store: Store) -> None:
    """The write stands, the others hear it, and the writer hears of the failure."""
    heard: list[tuple[Event, ...]] = []

    def fail(_: object) -> None:
        raise LookupError("so")

    store.watch(fail, *ALL)
    store.watch(heard.append, *ALL)
    with pytest.raises(LookupError, match="so"):
        store.put("a", b"1")
    assert len(heard) == 1
    assert values(store) == {"a": b"1"}


def test_leases(store: Store, clock: FakeTime) -> None:
    """Keys live as long as their lease, which renewals lengthen without a write."""
    lease = store.grant(10)
    store.put("a", b"", lease)
    store.put("b", b"")
    before = store.revision
    clock.advance(9)
    store.renew(lease)
    clock.advance(9)
    store.expire()
    assert store.get("a")
    assert store.is_live(lease)
    assert store.revision == before
    clock.advance(1)
    assert not store.is_live(lease)
    with pytest.raises(StateError, match="has ended"):
        store.renew(lease)
    store.expire()
    store.expire()
    assert store.get("a") is None
    assert store.get("b")
    assert store.revision == before + 1


def test_a_revoked_lease(store: Store) -> None:
    """Revoking ends keys at once; a key written since without the lease stays."""
    lease = store.grant(10)
    store.put("a", b"", lease)
    store.put("b", b"", lease)
    store.put("b", b"")
    store.revoke(lease)
    store.revoke(lease)
    assert values(store) == {"b": b""}
    with pytest.raises(StateError):
        store.put("a", b"", lease)


def test_leases_outlive_the_server(file: Path, clock: FakeTime) -> None:
    """A lease begins anew when the store is opened again, as in etcd."""
    store = Store(file, monotonic=clock)
    lease = store.grant(10)
    store.put("a", b"", lease)
    store.close()
    clock.advance(100)
    store = Store(file, monotonic=clock)
    assert store.is_live(lease)
    clock.advance(10)
    store.expire()
    assert values(store) == {}
    store.close()


def test_durability_settings(store: Store) -> None:
    """A commit is an fsync of a write-ahead log."""
    pragma = {
        name: store._open.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("journal_mode", "synchronous", "locking_mode", "fullfsync")
    }
    assert pragma == {
        "journal_mode": "wal",
        "synchronous": 2,
        "locking_mode": "exclusive",
        "fullfsync": 1,
    }


def test_torn_log(store: Store, file: Path, tmp_path: Path) -> None:
    """Wherever the write-ahead log is cut, what is left is a state that once was."""
    sizes = [0]
    log = file.with_name("meta.db-wal")
    for number in range(8):
        store.put("n", str(number).encode())
        sizes.append(log.stat().st_size)
    chance = random.Random(7)
    for cut in [*sizes[1:], *(chance.randrange(1, sizes[-1]) for _ in range(20))]:
        folder = tmp_path / f"cut{cut}"
        folder.mkdir()
        shutil.copy(file, folder / "meta.db")
        (folder / "meta.db-wal").write_bytes(log.read_bytes()[:cut])
        cut_store = Store(folder / "meta.db")
        acknowledged = sum(1 for size in sizes[1:] if size <= cut)
        if acknowledged:
            assert cut_store.revision >= acknowledged
        entry = cut_store.get("n")
        assert (int(entry.value) if entry else -1) == cut_store.revision - 1
        cut_store.close()
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    "content", [b"not a database at all" * 100, b"SQLite format 3\0" + b"x" * 5000]
)
def test_damage_is_an_error_and_nothing_more(file: Path, content: bytes) -> None:
    """A damaged database is named and left exactly as it is."""
    file.write_bytes(content)
    with pytest.raises(StorageError, match="is damaged") as caught:
        Store(file)
    assert str(file) in str(caught.value)
    assert file.read_bytes() == content


def test_damaged_pages(file: Path) -> None:
    """Damage within a table is found at opening."""
    store = Store(file)
    for number in range(300):
        store.transact([], [Put(f"key{number}", b"x" * 100)])
    store.close()
    content = bytearray(file.read_bytes())
    content[4096 * 3 : 4096 * 6] = b"\xff" * 4096 * 3
    file.write_bytes(content)
    with pytest.raises(StorageError, match="is damaged"):
        Store(file)
    assert file.read_bytes() == content


def test_a_missing_file(file: Path) -> None:
    """Where records are, a missing database is an error and no new beginning."""
    with pytest.raises(StorageError, match="is missing"):
        Store(file, create=False)
    assert not file.exists()


def test_other_databases(file: Path) -> None:
    """A database of somebody else, or of a newer tinymq, is left alone."""
    other = sqlite3.connect(file)
    other.execute("CREATE TABLE t (x)")
    other.close()
    with pytest.raises(StorageError, match="not tinymq's"):
        Store(file)
    file.unlink()
    Store(file).close()
    newer = sqlite3.connect(file)
    newer.execute("PRAGMA user_version = 2")
    newer.close()
    with pytest.raises(StorageError, match="newer tinymq"):
        Store(file)


def test_one_at_a_time(store: Store, file: Path) -> None:
    """A second opener is told that the file is in use."""
    with pytest.raises(StorageError, match="in use by another process"):
        Store(file)
    assert store.put("a", b"") == 1


def test_a_full_disk_heals(store: Store) -> None:
    """A full disk refuses a write as a whole; with space again, all goes on."""
    store.put("a", b"1")
    store._open.execute("PRAGMA max_page_count = 1")
    with pytest.raises(StorageFull):
        store.transact([], [Put("a", b"2"), Put("b", b"x" * 100_000)])
    store._open.execute("PRAGMA max_page_count = 1000000")
    assert values(store) == {"a": b"1"}
    assert store.put("a", b"2") == 2


def test_a_failed_disk_does_not_heal(store: Store) -> None:
    """After another failure nothing is written any more: success would be a guess."""
    store.put("a", b"1")
    store._open.execute("PRAGMA query_only = 1")
    with pytest.raises(StorageError) as first:
        store.put("a", b"2")
    store._open.execute("PRAGMA query_only = 0")
    with pytest.raises(StorageError) as second:
        store.put("a", b"2")
    assert second.value is first.value
    assert values(store) == {"a": b"1"}


def test_closed(store: Store) -> None:
    """A closed store says so."""
    store.close()
    store.close()
    with pytest.raises(ClosedError, match="was closed"):
        store.get("a")
