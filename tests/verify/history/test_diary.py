"""Diaries: what was written before a kill is there, and a line that it cut off is not."""

from __future__ import annotations

from pathlib import Path

from tinymq.verify.history.diary import Diary, Event, all_events, events


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """Events come back with who wrote them, in which of his lives."""
    times = iter([1.5, 2.5, 3.5])
    diary = Diary(tmp_path / "member-2.7", lambda: next(times))
    diary.note("begin", group="g", p=1, o=5)
    diary.note_all("got", [{"p": 1, "o": 5}, {"p": 1, "o": 6}])
    diary.note_all("done", [])
    diary.close()

    assert list(events(tmp_path / "member-2.7")) == [
        Event(1.5, "member-2", 7, "begin", {"group": "g", "p": 1, "o": 5}),
        Event(2.5, "member-2", 7, "got", {"p": 1, "o": 5}),
        Event(2.5, "member-2", 7, "got", {"p": 1, "o": 6}),
    ]


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    """A kill in the middle of a write takes that line alone."""
    path = tmp_path / "a-0.0"
    path.write_text('{"at": 1, "kind": "moved"}\n{"at": 2, "ki')

    assert [each.at for each in events(path)] == [1]


def test_all_events_are_in_order_of_time(tmp_path: Path) -> None:
    """The diaries of all lives are one history."""
    for name, at in (("a-0.0", 3), ("a-0.1", 1), ("b-0.0", 2)):
        (tmp_path / name).write_text(f'{{"at": {at}, "kind": "moved"}}\n')

    assert [(each.actor, each.life) for each in all_events(tmp_path)] == [
        ("a-0", 1),
        ("b-0", 0),
        ("a-0", 0),
    ]
