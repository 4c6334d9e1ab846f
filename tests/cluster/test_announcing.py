"""What a broker that belongs to nobody tells lookup servers."""

from __future__ import annotations

import msgpack
import pytest

from tinymq.cluster.announcer import parts
from tinymq.meta.lookup import CALL_TOPICS
from tinymq.wire.codec import MAX_META


@pytest.mark.parametrize("length", [6, 200])
def test_many_topics(length: int) -> None:
    """As many topics as there are, however long their names, are told in calls that fit."""
    names = [f"{number:06}".ljust(length, "x") for number in range(1234)]
    calls = list(parts(names, names, replace=True))
    assert calls[0]["replace"]
    assert not any("replace" in call for call in calls[1:])
    for what in ("topics", "gone"):
        cut = [call[what] for call in calls if what in call]
        assert [name for some in cut for name in some] == names
        assert all(len(some) <= CALL_TOPICS for some in cut)
    assert all(len(msgpack.packb(call)) < MAX_META - 2048 for call in calls)


def test_nothing_new() -> None:
    """A call that tells nothing is a sign of life."""
    assert list(parts([], [], replace=False)) == [{"topics": [], "replace": False}]
