"""The MetaServer in the same process, as a broker sees it."""

from __future__ import annotations

from collections.abc import Callable

from tinymq.broker.ports import Wanted
from tinymq.errors import WireError
from tinymq.meta.observers import Observer
from tinymq.meta.registry import ChannelInfo, GroupInfo, Registry, Topic
from tinymq.meta.server import MetaServer


class LocalDirectory:
    """
    Answers at once.

    Args:
        meta: The MetaServer.
    """

    def __init__(self, meta: MetaServer) -> None:
        self._meta = meta

    @property
    def registry(self) -> Registry:
        """What there is."""
        return self._meta.registry

    def watch(self, observer: Observer) -> Callable[[], None]:
        """Call an observer after every change, once it is durable."""
        return self._meta.watch(observer)

    def ensure_topic(self, name: str, done: Callable[[Topic | WireError], None]) -> None:
        """Make a topic for its first use, where that is allowed."""
        try:
            found: Topic | WireError = self._meta.ensure_topic(name)
        except WireError as error:
            found = error.with_traceback(None)
        done(found)

    def ensure_channel(
        self, topic: str, wanted: Wanted, done: Callable[[ChannelInfo | WireError], None]
    ) -> None:
        """Make a channel for its first use."""
        name, start, temporary = wanted
        try:
            found: ChannelInfo | WireError = self._meta.ensure_channel(
                topic, name, start, temporary=temporary
            )
        except WireError as error:
            found = error.with_traceback(None)
        done(found)

    def ensure_dead_letters(
        self, origin: str, name: str, done: Callable[[Topic | WireError], None]
    ) -> None:
        """Make a topic for dead letters."""
        try:
            found: Topic | WireError = self._meta.ensure_dead_letters(origin, name)
        except WireError as error:
            found = error.with_traceback(None)
        done(found)

    def ensure_group(self, name: str, done: Callable[[GroupInfo | WireError], None]) -> None:
        """Make a consumer group for its first use."""
        try:
            found: GroupInfo | WireError = self._meta.ensure_group(name)
        except WireError as error:
            found = error.with_traceback(None)
        done(found)

    def producer_ids(self, done: Callable[[range | WireError], None]) -> None:
        """Take producer ids that were never given out."""
        try:
            found: range | WireError = self._meta.producer_ids()
        except WireError as error:
            found = error.with_traceback(None)
        done(found)
