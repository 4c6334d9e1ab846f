"""The view of what waits."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.broker import LogKeeper
from tinymq.broker.delays.index import Changes, Index, Rebuilt, Row
from tinymq.broker.ports import InlineBackground


def row(number: int, due: int, offset: int | None = None, **more: object) -> Row:
    """Make a row."""
    made = Row(number, due, number if offset is None else offset, 1, 50, 7, None, None)
    return made._replace(**more)  # type: ignore[arg-type]


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    """Return an empty one on the disk."""
    found = Index.open(tmp_path / "delays.db", InlineBackground())
    yield found
    found.close()


def test_pages(index: Index) -> None:
    """Rows come in order of time and id, page by page, of one partition alone."""
    home, _, _ = index.home(b"t" * 16, 0)
    other, _, _ = index.home(b"t" * 16, 1)
    index.apply(home, Changes([row(1, 30), row(2, 10), row(3, 30), row(4, 20)]), 5, 0)
    index.apply(other, Changes([row(1, 5)]), 2, 0)
    first = index.rows(home, None, None, None, 2)
    assert [each.id for each in first] == [2, 4]
    rest = index.rows(home, (first[-1].due, first[-1].id), None, None, 9)
    assert [each.id for each in rest] == [1, 3]
    assert [each.id for each in index.rows(home, (30, 1), 15, 31, 9)] == [3]
    assert [each.id for each in index.rows(home, (5, 0), 20, 30, 9)] == [4]
    assert (index.count(home, 20, 30), index.count(home, None, None)) == (1, 4)
    assert index.totals(home) == (4, 200)


def test_changes(index: Index, tmp_path: Path) -> None:
    """What goes, moves and is copied is so after the next start, with how far that is true."""
    home, _, _ = index.home(b"t" * 16, 0)
    fresh = [row(each, each, schedule="s@1" if each == 3 else None) for each in range(6)]
    assert index.apply(home, Changes(fresh), 6, 0) == 6
    changes = Changes(copied=[row(1, 1, 20)], gone=[0, 99], moved=[(2, 50)])
    assert index.apply(home, changes, 30, 12) == -1
    index.close()
    again = Index.open(tmp_path / "delays.db", InlineBackground())
    assert again.home(b"t" * 16, 0) == (home, 30, 12)
    assert [(each.id, each.due, each.offset) for each in again.rows(home, None, None, None, 9)] == [
        (1, 1, 20),
        (3, 3, 3),
        (4, 4, 4),
        (5, 5, 5),
        (2, 50, 2),
    ]
    assert [each.id for each in again.lying_in(home, 1, 4, 9)] == [2, 3]
    assert [each.id for each in again.lying_in(home, 20, 21, 9)] == [1]
    assert [each.id for each in again.of_schedule(home, "s@1")] == [3]
    assert sorted(again.find(home, [1, 3, 77])) == [1, 3]
    again.close()


def test_forgetting(index: Index) -> None:
    """A partition that is gone is forgotten in steps."""
    home, _, _ = index.home(b"t" * 16, 0)
    index.apply(home, Changes([row(each, each) for each in range(2500)]), 2500, 0)
    assert index.forget(home)
    assert not index.forget(home)
    assert index.homes() == []


def test_damage_while_it_runs(index: Index, logged: LogKeeper) -> None:
    """It is made anew, once and with one warning, and who asked is told to ask again."""
    home, _, _ = index.home(b"t" * 16, 0)
    index.apply(home, Changes([row(1, 1)]), 2, 0)
    told: list[int] = []
    index.broken = lambda: told.append(1)
    index._connection.execute("DROP TABLE waiting")
    with pytest.raises(Rebuilt):
        index.rows(home, None, None, None, 9)
    assert told == [1]
    home, upto, _ = index.home(b"t" * 16, 0)
    assert (upto, index.rows(home, None, None, None, 9)) == (0, [])
    assert len([text for text in logged.texts if "anew" in text]) == 1


def test_a_disk_that_spoils_it_again_and_again(index: Index, logged: LogKeeper) -> None:
    """After some times it is kept in memory, so that nobody asks for ever."""
    for _ in range(6):
        index._connection.execute("DROP TABLE waiting")
        with pytest.raises(Rebuilt):
            index.rows(1, None, None, None, 9)
    assert index._file is None
    assert any("in memory until the next" in text for text in logged.texts)
    assert index.rows(1, None, None, None, 9) == []


def test_where_no_file_can_be(tmp_path: Path, logged: LogKeeper) -> None:
    """It is kept in memory until the next start, and that is said."""
    index = Index.open(tmp_path / "missing" / "delays.db", InlineBackground())
    home, _, _ = index.home(b"t" * 16, 0)
    index.apply(home, Changes([row(1, 1)]), 2, 0)
    assert index.count(home, None, None) == 1
    assert any("cannot be made" in text for text in logged.texts)
    index.close()


def test_another_database(tmp_path: Path, logged: LogKeeper) -> None:
    """A file of somebody else under this name is no view."""
    connection = sqlite3.connect(tmp_path / "delays.db")
    connection.execute("CREATE TABLE t (a)")
    connection.commit()
    connection.close()
    index = Index.open(tmp_path / "delays.db", InlineBackground())
    assert index.homes() == []
    assert any("another kind" in text for text in logged.texts)
    index.close()
