"""Fakes for the tests of the MetaServer."""

from __future__ import annotations

from pathlib import Path

from tinymq.meta.registry import Registry
from tinymq.meta.replica import Replica
from tinymq.meta.server import MetaServer
from tinymq.meta.store import Store


class FakeTime:
    """A clock that moves when told."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        """Return the seconds."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


class QuickStore(Store):
    """A store that waits for no disk."""

    def __init__(self, file: Path) -> None:
        super().__init__(file)
        self._open.execute("PRAGMA synchronous = OFF")


def feed(replica: Replica, server: MetaServer, limit: int = 1 << 20) -> int:
    """Tell a replica all that it does not know, and return in how many pages."""
    for pages in range(1, 10_000):
        page = server.changes(replica.cursor, limit)
        replica.apply(type(page).from_mapping(page.to_mapping()))
        if not (page.more or page.full):
            return pages
    raise AssertionError("there is no end of pages")


def facts(registry: Registry) -> dict[str, object]:
    """Return what a replica must know as the MetaServer does."""
    parts = (
        "cluster",
        "topics",
        "by_name",
        "channels",
        "exchanges",
        "schedules",
        "endpoints",
        "brokers",
        "draining",
        "deleted",
    )
    led = {broker: count for broker, count in registry.led.items() if count}
    return {**{part: getattr(registry, part) for part in parts}, "led": led}
