"""How far a log was cleaned, and when."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.disk import FaultyDisk
from tests.storage.batches import flip
from tinymq.storage.cleanliness import NAME, Cleanliness, load, save
from tinymq.storage.tasks import Done

DAY = 86_400_000


def after(clean: Cleanliness, until: int, now: int, *, sound: bool = True) -> Cleanliness:
    """A cleaning up to an offset."""
    return clean.after(Done(until, 1, sound, 1, 1, 1, 1, 1), 0, 0, now, DAY)


def test_file(tmp_path: Path) -> None:
    """It is read as it was written; a damaged file is as none."""
    clean = after(after(Cleanliness(), 100, 5), 200, 9)
    save(FaultyDisk(), str(tmp_path), clean)
    assert load(FaultyDisk(), str(tmp_path)) == clean
    flip(str(tmp_path / NAME), 12)
    assert load(FaultyDisk(), str(tmp_path)) == Cleanliness()
    assert load(FaultyDisk(), str(tmp_path / "none")) == Cleanliness()


def test_tombstones(tmp_path: Path) -> None:
    """They may go a day after a cleaning read them and all that is older."""
    clean = after(after(Cleanliness(), 100, 1000), 200, 2000)
    assert clean.tombstones_below(DAY + 999, DAY) == 0
    assert clean.tombstones_below(DAY + 1000, DAY) == 100
    assert clean.tombstones_below(DAY + 2000, DAY) == 200


def test_a_cleaning_that_could_not_read_all() -> None:
    """It lets no tombstone go."""
    clean = after(Cleanliness(), 100, 1000, sound=False)
    assert (clean.until, clean.tombstones_below(10 * DAY, DAY)) == (100, 0)


def test_purge_taken_back() -> None:
    """What comes back was never looked at, so all counts as dirty; a cut log does, too."""
    clean = Cleanliness().after(Done(100, 0, True, 1, 1, 1, 1, 1), 0, 50, 1000, DAY)
    assert clean.seen(50, 100) == clean
    assert clean.seen(60, 100) == clean
    assert (clean.seen(49, 100).until, clean.seen(49, 100).rounds) == (0, ())
    assert clean.seen(50, 99).until == 0


@given(st.lists(st.integers(1, DAY // 3), min_size=1, max_size=200))
def test_often(pauses: list[int]) -> None:
    """However often it is cleaned, little is remembered, and tombstones go within two days."""
    clean, now, until = Cleanliness(), 0, 0
    times: list[tuple[int, int]] = []
    for pause in pauses:
        now, until = now + pause, until + 10
        clean = after(clean, until, now)
        times.append((until, now))
        found = clean.tombstones_below(now, DAY)
        assert len(clean.rounds) <= 16
        allowed = max((below for below, when in times if when <= now - DAY), default=0)
        late = max((below for below, when in times if when <= now - 2 * DAY), default=0)
        assert late <= found <= allowed
