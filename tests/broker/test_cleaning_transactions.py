"""Compaction beside transactions: what was aborted counts for nothing, what is open waits."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.broker.transactions.stage import Stage, transactional
from tests.conftest import LONG
from tests.fakes.broker import Answers, batch, only, refused
from tinymq.broker.transactions.opened import Identity
from tinymq.errors import WireError
from tinymq.wire.batch import CONTROL, TRANSACTIONAL, split
from tinymq.wire.records import RecordBatch

#: Key and value.
Row = tuple[bytes, bytes | None]


class Table:
    """
    A topic that is compacted, and the dictionary that it stands for.

    Args:
        path: The data folder.
    """

    def __init__(self, path: Path) -> None:
        self.stage = Stage(path, 1)
        config = {"retention.mode": "compact", "segment.bytes": 4096, "compact.min.dirty": 0}
        self.stage.operate("topic.alter", name="t", config=config)
        self.newest: dict[bytes, tuple[int, bytes | None]] = {}
        self.open: dict[Identity, dict[bytes, tuple[int, bytes | None]]] = {}
        self.sequence = 0

    def put(self, *rows: Row, identity: Identity | None = None) -> None:
        """Publish, in a transaction or without one."""
        values, keys = [value for _, value in rows], [key for key, _ in rows]
        answers: Answers = []
        stage = self.stage
        if identity is None:
            data = batch(*values, keys=keys)
        else:
            sequence = stage.sequences[identity, 0]
            data = transactional(*values, identity=identity, sequence=sequence, keys=keys)
            stage.sequences[identity, 0] += len(rows)
        stage.broker.produce(stage.meta.describe("t").id, 0, data, answers.append)
        stage.settle()
        base = only(answers).base_offset
        into = self.newest if identity is None else self.open.setdefault(identity, {})
        into.update({key: (base + place, value) for place, (key, value) in enumerate(rows)})

    def end(self, identity: Identity, *, commit: bool, name: str = "bank") -> Identity:
        """End a transaction."""
        following = self.stage.end(identity, commit=commit, name=name)
        if commit:
            for key, found in self.open.get(identity, {}).items():
                self.newest[key] = max(found, self.newest.get(key, (-1, None)))
        self.open.pop(identity, None)
        return following

    def clean(self) -> None:
        """Clean what can be cleaned."""
        self.stage.operate("topic.compact", name="t")
        self.stage.settle(1)

    def kill(self) -> None:
        """Kill the broker, and start it again."""
        self.stage.kill()
        sequences = self.stage.sequences
        self.stage = self.stage.again()
        self.stage.sequences = sequences

    @property
    def attributes(self) -> set[int]:
        """What batches with records, and ends of transactions, say of transactions."""
        bits = CONTROL | TRANSACTIONAL
        headers = self.stage.partition().log.headers()
        return {
            each.attributes & bits for each in headers if each.records or each.attributes & bits
        }

    def seen(self) -> dict[bytes, tuple[int, bytes | None]]:
        """What a reader of all that is committed makes of it."""
        partition, found = self.stage.partition(), dict[bytes, tuple[int, bytes | None]]()
        offset = partition.log.start_offset
        while offset < partition.stable_offset:
            chunk = partition.read(offset, 1 << 20, nowait=False)
            assert chunk is not None
            assert chunk.next_offset > offset
            for header, data in split(chunk.data):
                if header.records and not partition.transactions.hides(header):
                    for each in RecordBatch(bytes(data)):
                        assert each.key is not None
                        found[each.key] = each.offset, each.value
            offset = chunk.next_offset
        assert partition.log.report.damaged == ()
        return found


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Return a table without rows."""
    return Table(tmp_path / "data")


def test_open_one(table: Table) -> None:
    """What an open transaction may still replace stays until it has; nothing of it goes."""
    table.put((b"a", b"1"))
    one = table.stage.init()
    table.put((b"a", b"2"), (b"b", b"2"), identity=one)
    table.clean()
    assert table.seen() == {b"a": (0, b"1")}
    table.end(one, commit=True)
    table.clean()
    assert table.seen() == {b"a": (1, b"2"), b"b": (2, b"2")}
    assert TRANSACTIONAL not in table.attributes


def test_aborted_one(table: Table) -> None:
    """An aborted transaction replaces nothing, and cannot be gone on with after a restart."""
    table.put((b"a", b"1"))
    one = table.stage.init()
    table.put((b"a", None), identity=one)
    table.end(one, commit=False)
    for _ in range(3):
        table.clean()
        assert table.seen() == {b"a": (0, b"1")}
    assert TRANSACTIONAL not in table.attributes
    for name in ("producers", "producers.tmp"):
        (Path(table.stage.partition().log.path).parent / name).unlink(missing_ok=True)
    table.kill()
    answers: Answers = []
    late = transactional(b"3", identity=one, sequence=1, keys=[b"a"])
    table.stage.broker.produce(table.stage.meta.describe("t").id, 0, late, answers.append)
    table.stage.settle()
    assert isinstance(refused(answers), WireError)
    assert table.seen() == {b"a": (0, b"1")}


def test_the_end_of_the_log_is_read_at_a_start(table: Table) -> None:
    """A start that looks through a cleaned file, and no other, knows what is behind it, too."""
    table.put((b"a", b"1"))
    table.put((b"a", b"2"))
    partition = table.stage.partition()
    partition.log.close_file()
    one = table.stage.init()
    table.put((b"a", b"3"), identity=one)
    table.stage.housekeeping.checkpoint()
    table.stage.settle()
    table.clean()
    home = Path(partition.log.path).parent
    for name in ("producers", "data/00000000000000000000.index"):
        (home / name).unlink()  # they are not synced
    table.kill()
    assert [*table.stage.partition().transactions.open] == [one]
    assert table.seen() == {b"a": (1, b"2")}


@pytest.mark.parametrize("commit", [True, False])
def test_what_was_decided_and_cleaned_is_not_open_again(table: Table, commit: bool) -> None:
    """A start that knows a transaction as open, of which all signs were cleaned, knows better."""
    one = table.stage.init()
    table.put((b"a", b"1"))
    table.put((b"a", b"2"), (b"b", b"2"), identity=one)
    home = Path(table.stage.partition().log.path).parent
    table.stage.housekeeping.checkpoint()
    old = (home / "producers").read_bytes()
    table.end(one, commit=commit)
    table.put((b"c", b"3"))
    for _ in range(2):
        table.clean()
    (home / "producers").write_bytes(old)  # the younger one was not synced
    table.kill()
    partition = table.stage.partition()
    assert not partition.transactions.open
    assert partition.stable_offset == partition.high_watermark
    assert table.seen() == table.newest


def test_what_is_gone_is_forgotten(table: Table) -> None:
    """Aborted transactions are not remembered for ever in a log that has no end."""
    one = table.stage.init()
    table.put((b"a", b"0"))
    for number in range(10):
        table.put((b"a", b"%d" % number), identity=one)
        one = table.end(one, commit=False)
    table.put((b"b", b"1"))
    for _ in range(2):
        table.clean()
        assert table.seen() == table.newest
    assert not table.stage.partition().transactions.aborted
    table.kill()
    table.put((b"a", b"x"), identity=one)
    table.end(one, commit=False)
    table.clean()
    assert table.seen() == table.newest


@pytest.mark.parametrize("seed", range(60 if LONG else 3))
def test_lives(tmp_path: Path, seed: int) -> None:
    """Whatever is committed, aborted, cleaned and killed when, the table is what was committed."""
    chance, table = Random(seed), Table(tmp_path / "data")
    names = ("bank", "shop")
    identities = {name: table.stage.init(name) for name in names}
    for number in range(120 if LONG else 40):
        name = chance.choice(names)
        rows = [
            (b"k%d" % chance.randrange(6), b"%d." % number * chance.randrange(1, 80))
            for _ in range(chance.randint(1, 4))
        ]
        deed = chance.random()
        if deed < 0.3:
            table.put(*dict(rows).items())
        elif deed < 0.6:
            table.put(*dict(rows).items(), identity=identities[name])
        elif deed < 0.8:
            identities[name] = table.end(identities[name], commit=chance.random() < 0.6, name=name)
        elif deed < 0.95:
            table.clean()
        else:
            table.kill()
    for name in names:
        identities[name] = table.end(identities[name], commit=True, name=name)
    for _ in range(2):
        table.clean()
        assert table.seen() == table.newest
