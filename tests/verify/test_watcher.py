"""The reader that lives through a power cut."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.fakes.memory_broker import MemoryBroker, MemoryClient
from tinymq.verify.journal import Journal
from tinymq.verify.load import Scene, make_topics
from tinymq.verify.numbered import Place
from tinymq.verify.watcher import Watcher

QUICK = Place("quick", 0)


@pytest.fixture
def broker() -> MemoryBroker:
    """Return a broker with the topics of a load, and four records in one that is cut."""
    broker = MemoryBroker()
    make_topics(scene_of(broker))
    for number in range(4):
        broker.append("quick", b"%d" % number)
    return broker


def scene_of(broker: MemoryBroker) -> Scene:
    """Give the scene of a broker."""
    return Scene("", lambda url: cast("Any", MemoryClient(broker)), Journal(), 1)


def test_a_reader_that_was_ahead_is_told(broker: MemoryBroker) -> None:
    """When the end is cut under a reader, it hears of it."""
    watcher = Watcher(scene_of(broker))
    watcher.start()
    with watcher.news:
        assert watcher.news.wait_for(lambda: watcher.positions.get(QUICK) == 4, 10)
    with broker.lock:
        del broker.topics["quick"].partitions[0].records[2:]
    assert watcher.await_news({QUICK: 4}, {QUICK: 2}) == set()
    assert watcher.told == {QUICK}
    watcher.stop()
    assert watcher.broken == ""


def test_a_reader_that_is_not_told(broker: MemoryBroker) -> None:
    """A broker that tells nothing is found out; a reader that was behind expects nothing."""
    watcher = Watcher(scene_of(broker), patience=0.01)
    assert watcher.await_news({QUICK: 4}, {QUICK: 2}) == {QUICK}
    assert watcher.await_news({QUICK: 2}, {QUICK: 2}) == set()


def test_a_reader_that_dies(broker: MemoryBroker) -> None:
    """What ends the reader early is kept."""
    del broker.topics["timed"]
    watcher = Watcher(scene_of(broker))
    watcher.start()
    watcher.stop()
    assert "UnknownTopic" in watcher.broken
