"""A reader that lives through a power cut, and must be told when it was ahead of the log."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from tinymq.errors import LogTruncated, TinyMQError
from tinymq.verify.load import TOPICS, Scene
from tinymq.verify.numbered import Place

if TYPE_CHECKING:
    from tinymq.sync import Client, Consumer

#: Seconds of one wait for records.
_GLANCE: Final = 0.05
#: Seconds in which a reader must be told.
PATIENCE: Final = 10.0


class Watcher:
    """
    Reads the topics that may lose their ends, from a thread of its own.

    Attributes:
        told: Where it was told that its position is behind the end of the log.
        broken: What ended the thread early; empty when nothing did.
        positions: Where it will read on.
        news: Held and notified whenever one of these changes.

    Args:
        scene: The broker.
        patience: Seconds in which it must be told.
    """

    def __init__(self, scene: Scene, patience: float = PATIENCE) -> None:
        self.told: set[Place] = set()
        self.broken = ""
        self._scene = scene
        self._patience = patience
        self.positions: dict[Place, int] = {}
        self.news = threading.Condition()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)

    def start(self) -> None:
        """Begin to read; the topics must exist."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stop.set()
        self._thread.join(PATIENCE)

    def await_news(self, positions: Mapping[Place, int], ends: Mapping[Place, int]) -> set[Place]:
        """
        Wait until it was told wherever it was ahead.

        Args:
            positions: Where it would have read on, when the power failed.
            ends: Where the ends of partitions were lost.

        Returns:
            Where it was ahead and heard nothing.
        """
        ahead = {place for place, end in ends.items() if positions.get(place, 0) > end}
        with self.news:
            self.news.wait_for(lambda: ahead <= self.told, self._patience)
            return ahead - self.told

    def _run(self) -> None:
        client = self._scene.connect(self._scene.url)
        try:
            self._watch(client)
        except Exception as error:  # noqa: BLE001 - whatever it is, it belongs in the report
            self.broken = repr(error)
        finally:
            client.close()

    def _watch(self, client: Client) -> None:
        consumer = client.consumer()
        for topic, sync, _ in TOPICS:
            if sync != "always":
                consumer.assign(topic)
        while not self._stop.is_set():
            try:
                self._read(consumer)
            except LogTruncated as error:
                place = Place(str(error.data["topic"]), int(error.data["partition"]))
                consumer.unassign(place.topic, [place.partition])
                with self.news:
                    self.told.add(place)
                    self.news.notify_all()
            except TinyMQError:
                self._stop.wait(_GLANCE)

    def _read(self, consumer: Consumer) -> None:
        batch = consumer.next_batch(_GLANCE)
        if batch is not None:
            with self.news:
                self.positions[Place(batch.topic, batch.partition)] = batch.next_offset
                self.news.notify_all()
