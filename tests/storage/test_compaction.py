"""Compaction of one log, against a dictionary."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.disk import FaultyDisk
from tests.storage.batches import flip, make, reopen, segment_files
from tests.storage.keyed import CONFIG, Keyed, batches, opened, visible
from tinymq.storage.files import FileCache
from tinymq.storage.keymap import KeyMap
from tinymq.storage.log import Log
from tinymq.wire.batch import CONTROL, TRANSACTIONAL, Codec, filler
from tinymq.wire.records import RecordBatch


@pytest.fixture
def keyed(tmp_path: Path) -> Keyed:
    """An empty log of keyed records."""
    return opened(str(tmp_path / "log"))


class TestMap:
    def test_last_offset(self) -> None:
        """A key has the offset that it was put with last, and another key has none."""
        keys = KeyMap(1 << 20)
        for offset in range(3000):
            assert keys.put(b"%d" % (offset % 700), offset)
        assert [keys.get(b"%d" % each) for each in (0, 199, 200, 699)] == [2800, 2999, 2300, 2799]
        assert (keys.get(b"x"), len(keys)) == (-1, 700)

    def test_bound(self) -> None:
        """A table never takes more memory than it may, and says when it is full."""
        keys = KeyMap(100_000)
        count = next(each for each in range(10_000) if not keys.put(b"%d" % each, each))
        assert keys.size <= 100_000
        assert count == len(keys) > 1000
        assert keys.put(b"0", 77_777)
        assert (keys.get(b"0"), keys.get(b"%d" % count)) == (77_777, -1)


class TestRecords:
    def test_files_that_come_out_as_long(self, tmp_path: Path) -> None:
        """Files that would be as long together as the first was are cleaned all the same."""
        for pad in range(60, 80):
            keyed = opened(str(tmp_path / f"log{pad}"))
            for rest in (b"." * pad, b""):
                keyed.put((b"k", b"v" + rest))
                keyed.close_file()
            assert keyed.clean().done.sound
            assert visible(keyed.log) == keyed.expected(2)
            keyed.log.close()

    def test_newest_stays(self, keyed: Keyed) -> None:
        """Of each key the newest record stays, at its offset, with all that belongs to it."""
        for number in range(40):
            keyed.put((b"k%d" % (number % 3), b"v%d" % number), (b"other", b"%d" % number))
        keyed.close_file()
        size = keyed.log.size_bytes

        cleaning = keyed.clean()

        assert visible(keyed.log) == keyed.expected(80)
        assert sorted(visible(keyed.log)) == [74, 76, 78, 79]
        assert keyed.log.size_bytes < size / 4
        assert (cleaning.done.records, cleaning.done.until, cleaning.done.keys) == (76, 80, 4)
        assert (keyed.log.end_offset, keyed.log.segment_count) == (80, 2)

    def test_open_file_stays(self, keyed: Keyed) -> None:
        """What is in the newest file stays, and takes nothing away from the others."""
        keyed.put((b"k", b"1"))
        keyed.put((b"k", b"2"))
        keyed.close_file()
        keyed.put((b"k", b"3"))
        keyed.sync()

        keyed.clean()

        assert sorted(visible(keyed.log)) == [1, 2]

    def test_without_a_key(self, keyed: Keyed) -> None:
        """Records without a key stay: nothing says what is newer."""
        keyed.put((None, b"1"), (b"k", b"1"), (None, None))
        keyed.put((b"k", b"2"))
        keyed.close_file()

        keyed.clean(tombstones=100)

        assert sorted(visible(keyed.log)) == [0, 2, 3]

    def test_nothing_to_do(self, keyed: Keyed) -> None:
        """A file that loses nothing is not written again."""
        for number in range(5):
            keyed.put((b"%d" % number, b"v"))
        keyed.close_file()

        cleaning = keyed.clean()

        assert cleaning.cleaned == []
        assert (cleaning.done.written, cleaning.done.records) == (0, 0)

    def test_tombstones(self, keyed: Keyed) -> None:
        """A record without a value hides the older ones, and goes itself when it may."""
        keyed.put((b"a", b"1"), (b"b", b"1"))
        keyed.put((b"a", None))
        keyed.close_file()

        first = keyed.clean()
        assert sorted(visible(keyed.log)) == [1, 2]
        assert first.done.tombstones == 1

        second = keyed.clean(dirty=3, tombstones=3)
        assert sorted(visible(keyed.log)) == [1]
        assert second.done.tombstones == 0
        assert keyed.clean(dirty=3, tombstones=3).cleaned == []

    def test_memory_is_bounded(self, keyed: Keyed) -> None:
        """Where the keys do not fit, a part of the log is cleaned, and later the next."""
        for number in range(70):
            keyed.put(*((b"%d" % (number * 17 + each), b"%d" % number) for each in range(20)))
        keyed.close_file()
        dirty, rounds = 0, 0
        while dirty < keyed.log.end_offset:
            cleaning = keyed.clean(dirty=dirty, memory=26_000, segment_bytes=9_000)
            assert cleaning.done.memory <= 26_000
            assert cleaning.done.until > dirty
            dirty, rounds = cleaning.done.until, rounds + 1
            found = visible(keyed.log)
            assert found.keys() <= keyed.expected(dirty).keys()
            assert found.keys() >= keyed.expected(keyed.log.end_offset).keys()
        assert rounds > 1

    def test_small_files_become_one(self, keyed: Keyed) -> None:
        """Files that shrink become one, as long as it may be, under the first one's name."""
        for number in range(60):
            keyed.put((b"k%d" % (number % 2), b"x" * 50))
        keyed.close_file()
        before = keyed.log.segment_count

        cleaning = keyed.clean()

        assert before > 6
        assert len(segment_files(keyed.log)) == keyed.log.segment_count == 2
        assert [each.base for each in cleaning.cleaned] == [0]

    def test_a_file_does_not_grow_too_long(self, keyed: Keyed) -> None:
        """What would make a file longer than it may be goes into another one."""
        for number in range(60):
            keyed.put((b"k%d" % (number // 2), b"x" * 50), (b"k%d" % (number // 2), b"x" * 50))
        keyed.close_file()

        keyed.clean()

        sizes = [os.path.getsize(each) for each in segment_files(keyed.log)]
        assert max(sizes) <= CONFIG.segment_bytes
        assert visible(keyed.log) == keyed.expected(120)

    def test_long_runs(self, keyed: Keyed) -> None:
        """Batches that stand for what is gone are no longer than a reader of damage looks."""
        for _ in range(4):
            base = keyed.log.end_offset
            keyed.log.append(filler(base, base + 30_000, 0, 1000), base, base + 29_999, 1000)
        keyed.put((b"k", b"1"))
        keyed.close_file()

        keyed.clean(segment_bytes=1 << 30)

        found = [batch.header for _, batch in batches(keyed.log)]
        assert [each.next_offset - each.base_offset for each in found] == [65536, 54464, 1]
        assert [each.records for each in found] == [0, 0, 1]
        assert keyed.clean(segment_bytes=1 << 30).cleaned == []

    @pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
    def test_codec_stays(self, keyed: Keyed, codec: Codec) -> None:
        """What was compressed is so afterwards."""
        keyed.put((b"a", b"1" * 500), (b"b", b"2" * 500), codec=codec)
        keyed.put((b"a", b"3" * 500), codec=codec)
        keyed.close_file()

        keyed.clean()

        assert visible(keyed.log) == keyed.expected(3)
        assert {batch.header.codec for _, batch in batches(keyed.log)} == {codec}

    def test_unreadable_batch_stays(self, keyed: Keyed) -> None:
        """A sound batch whose columns nobody can read is kept as it is."""
        keyed.put((b"a", b"1"))
        keyed.put((b"a", b"2"))
        base = keyed.log.end_offset
        odd = make(base, 3, 50, keyed.now + 1)
        keyed.log.append(odd, base, base + 2, keyed.now + 1)
        keyed.put((b"a", b"3"))
        keyed.close_file()

        keyed.clean()

        chunk = keyed.log.read(base, 1, keyed.log.end_offset)
        assert chunk is not None
        assert bytes(chunk.data) == odd


class TestDamage:
    def test_left_alone(self, keyed: Keyed) -> None:
        """A damaged file stays byte by byte and is told of; those beside it are cleaned."""
        for number in range(60):
            keyed.put((b"k%d" % (number % 2), b"x" * 50))
        keyed.close_file()
        files = segment_files(keyed.log)
        flip(files[1], 300)
        with open(files[1], "rb") as file:
            before = file.read()

        cleaning = keyed.clean(tombstones=1000)

        with open(files[1], "rb") as file:
            assert file.read() == before
        base = int(os.path.basename(files[1])[:20])
        assert [each.base for each in cleaning.damaged] == [base]
        assert not cleaning.done.sound
        assert len(cleaning.cleaned) == 2

    def test_tombstones_stay_behind_it(self, keyed: Keyed) -> None:
        """What hides a record that could not be removed stays."""
        for _ in range(12):
            keyed.put((b"k", b"x" * 50))
        keyed.put((b"k", None))
        keyed.close_file()
        flip(segment_files(keyed.log)[0], 300)

        keyed.clean(tombstones=1000)

        assert 12 in {record.offset for _, batch in _readable(keyed.log) for record in batch}


def _readable(log: Log) -> list[tuple[int, RecordBatch]]:
    found = []
    for header in log.headers(0):
        chunk = log.read(header.base_offset, 1, log.written_offset)
        assert chunk is not None
        found.append((header.attributes, RecordBatch(bytes(chunk.data))))
    return found


class TestProducers:
    def test_last_batch_stays(self, keyed: Keyed) -> None:
        """The last batch of a producer tells its sequence, though no record of it is left."""
        keyed.put((b"a", b"1"), producer=(7, 0))
        keyed.put((b"a", b"2"), (b"b", b"1"), producer=(7, 0))
        keyed.put((b"a", b"3"), (b"b", b"2"))
        keyed.close_file()

        keyed.clean()

        found = [batch.header for _, batch in batches(keyed.log)]
        kept = [each for each in found if each.producer_id == 7]
        assert [(each.base_offset, each.base_sequence, each.records) for each in kept] == [
            (1, 1, 0)
        ]
        assert kept[0].last_offset_delta == 1
        assert keyed.clean().cleaned == []
        keyed.clean(since=keyed.now + 1)
        assert {batch.header.producer_id for _, batch in batches(keyed.log)} == {-1}


class TestTransactions:
    def test_aborted_records_go(self, keyed: Keyed) -> None:
        """Records of an aborted transaction go, and hide nothing; its end goes the time after."""
        keyed.put((b"a", b"1"))
        keyed.put((b"a", b"2"), producer=(7, 0), transactional=True)
        keyed.end((7, 0), commit=False)
        keyed.put((b"z", b"1"), producer=(7, 1))
        keyed.close_file()

        keyed.clean()
        assert sorted(visible(keyed.log)) == [0, 3]
        ends = [header.attributes & CONTROL for header in keyed.log.headers()]
        assert any(ends)

        keyed.clean()
        assert sorted(visible(keyed.log)) == [0, 3]
        assert not any(header.attributes & CONTROL for header in keyed.log.headers())

    def test_committed_records_are_plain(self, keyed: Keyed) -> None:
        """What was committed needs no end any more; and it counts as newer."""
        keyed.put((b"a", b"1"))
        keyed.put((b"a", b"2"), (b"b", b"2"), producer=(7, 0), transactional=True)
        keyed.put((b"b", b"3"))
        keyed.end((7, 0), commit=True)
        keyed.close_file()

        keyed.clean()

        assert sorted(visible(keyed.log)) == [1, 3]
        records = [each for each in keyed.log.headers() if each.records == 1]
        assert not any(
            each.attributes & TRANSACTIONAL and not each.attributes & CONTROL for each in records
        )

    def test_what_is_known_of_its_producer(self, keyed: Keyed) -> None:
        """Both that a producer was there and that its transaction ended can still be read."""
        keyed.put((b"a", b"2"), producer=(7, 0), transactional=True)
        keyed.end((7, 0), commit=False)
        keyed.put((b"a", b"3"))
        keyed.close_file()

        for _ in range(3):
            keyed.clean()

        found = [each for each in keyed.log.headers() if each.producer_id == 7]
        assert [(each.base_offset, each.records) for each in found][:1] == [(0, 0)]
        assert [bool(each.attributes & TRANSACTIONAL) for each in found] == [False, True]
        assert found[1].attributes & CONTROL

    def test_end_in_the_open_file(self, keyed: Keyed) -> None:
        """How a transaction ended is looked for in the files behind, too."""
        keyed.put((b"a", b"1"))
        keyed.put((b"a", b"2"), producer=(7, 0), transactional=True)
        keyed.close_file()
        keyed.end((7, 0), commit=False)
        keyed.sync()

        keyed.clean()

        assert sorted(visible(keyed.log)) == [0]

    def test_nobody_knows_how_it_ended(self, keyed: Keyed) -> None:
        """A transaction without an end stays as it is, and nothing behind it is cleaned."""
        keyed.put((b"a", b"1"))
        keyed.put((b"a", b"2"))
        keyed.put((b"a", b"3"), producer=(7, 0), transactional=True)
        keyed.put((b"a", b"4"))
        keyed.pending.clear()
        keyed.close_file()

        cleaning = keyed.clean()

        assert cleaning.done.until == 2
        assert [each.base_offset for each in keyed.log.headers() if each.records] == [1, 2, 3]


_KEY = st.sampled_from([None, b"a", b"b", b"c", b"d" * 20])
_VALUE = st.one_of(st.none(), st.binary(max_size=60))
_ROWS = st.lists(st.tuples(_KEY, _VALUE), min_size=1, max_size=6)
_STEP = st.one_of(
    st.tuples(st.just("put"), _ROWS, st.sampled_from([None, 1, 2]), st.sampled_from(Codec)),
    st.tuples(st.just("put"), _ROWS, st.sampled_from([None, 1, 2]), st.sampled_from(Codec)),
    st.tuples(st.just("begin"), _ROWS, st.integers(0, 1)),
    st.tuples(st.just("end"), st.integers(0, 1), st.booleans()),
    st.tuples(st.just("close")),
    st.tuples(st.just("clean"), st.booleans()),
    st.tuples(st.just("reopen")),
)


class Life:
    """A log that is filled, cleaned and opened again, in any order."""

    def __init__(self, path: str) -> None:
        self.keyed = opened(path)
        self.clean_to = self.gone = self.before = 0
        self.epochs = [0, 0]

    def put(self, rows: list[Any], producer: int | None, codec: Codec) -> None:
        """Append a batch."""
        codec = Codec.ZSTD if codec in {Codec.LZ4, Codec.SNAPPY} else codec
        identity = None if producer is None else (producer, 0)
        self.keyed.put(*rows, codec=codec, producer=identity)

    def begin(self, rows: list[Any], producer: int) -> None:
        """Append to a transaction."""
        identity = 10 + producer, self.epochs[producer]
        self.keyed.put(*rows, producer=identity, transactional=True)

    def end(self, producer: int, commit: bool) -> None:
        """End a transaction."""
        self.keyed.end((10 + producer, self.epochs[producer]), commit=commit)
        self.epochs[producer] += 1

    def close(self) -> None:
        """Begin another file."""
        self.keyed.close_file()

    def clean(self, tombstones: bool) -> None:
        """Clean it."""
        self.keyed.sync()
        gone = self.before if tombstones else 0
        done = self.keyed.clean(dirty=self.clean_to, tombstones=gone).done
        assert done.sound
        self.gone = max(self.gone, gone)
        self.before = self.clean_to = max(self.clean_to, done.until)

    def reopen(self) -> None:
        """Open it again, as after a kill."""
        self.keyed.sync()
        self.keyed.log = reopen(self.keyed.log, CONFIG)

    def check(self) -> None:
        """Compare what a reader sees with what must be there."""
        keyed = self.keyed
        keyed.sync()
        found = visible(keyed.log)
        needed = keyed.expected(self.clean_to, self.gone)
        # A file that loses nothing else is not rewritten for what is behind its end.
        assert {offset: found[offset] for offset in needed} == needed
        assert {offset: keyed.rows[offset] for offset in found} == found
        for offset in found.keys() - needed.keys():
            assert keyed.rows[offset].value is None, "an older record of its key is still there"


@given(st.lists(_STEP, max_size=40))
def test_against_a_dictionary(steps: list[tuple[Any, ...]]) -> None:
    """Whatever is appended and cleaned when, the newest of each key is there, and nothing older."""
    with tempfile.TemporaryDirectory() as home:
        life = Life(os.path.join(home, "log"))
        for name, *arguments in steps:
            getattr(life, name)(*arguments)
        life.check()
        reopened = Log.open(FileCache(FaultyDisk()), life.keyed.log.path, CONFIG)
        assert visible(reopened) == visible(life.keyed.log)
        times = [(each.base_offset, each.max_timestamp) for each in reopened.headers()]
        for base, time in times:
            found = reopened.offset_for_time(time)
            assert found is not None
            assert found[0] <= base
            assert found[1] >= time
