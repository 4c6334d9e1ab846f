"""
What changed in the MetaServer's store, told to brokers and to watchers, page by page.

A broker's replica asks with the cursor of the last page it was given. As long as the
store's history reaches back to there, and it is the same history, the answer is what
changed since; otherwise it is everything, as of one revision. A cursor is opaque to
whoever carries it::

    HISTORY.REVISION            all up to this revision is known
    HISTORY.REVISION.KEY        in the middle of everything, as of this revision

Each start of a MetaServer is a history of its own: its store may be a backup, whose
revisions say something else than those that its replicas have seen.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from attrs import frozen
from typing_extensions import override

from tinymq.errors import InvalidRequest, MalformedFrame
from tinymq.meta.entries import Entry, Event, prefix
from tinymq.meta.store import Store

#: A key, its value or None when it was deleted, and the lease it lives by.
Told = tuple[str, bytes | None, int]

#: Bytes of keys and values in a page; one revision is never cut in two.
PAGE_BYTES: Final = 256 * 1024

#: What brokers need to know; all else is the MetaServer's own.
TOLD: Final = (
    *("binding/", "broker/", "channel/", "cluster", "deleted/", "drain/", "exchange/"),
    *("group/", "push/", "schedule/", "topic/"),
)

_OVERHEAD: Final = 16
_STEP: Final = 500


def told_of(row: Any) -> Told:
    """
    Read one event as it came over the wire or from a file.

    Raises:
        MalformedFrame: It is none.
    """
    match row:
        case [str() as key, bytes() | None as value, int() as lease]:
            return key, value, lease
    raise MalformedFrame(f"{str(row)[:100]} is no event")


@frozen(kw_only=True)
class Changes:
    """
    One page of what changed.

    Attributes:
        cursor: What to ask with next.
        revision: The revision that one is at after this page.
        full: It belongs to a telling of everything, not of what changed.
        more: There is another page, now.
        events: Keys and their values.
    """

    cursor: str
    revision: int
    full: bool
    more: bool
    events: tuple[Told, ...]

    def to_mapping(self) -> dict[str, Any]:
        """Return the page as it travels."""
        return {
            "cursor": self.cursor,
            "revision": self.revision,
            "full": self.full,
            "more": self.more,
            "events": [list(event) for event in self.events],
        }

    @classmethod
    def from_mapping(cls, given: Mapping[str, Any]) -> Changes:
        """
        Read what `to_mapping` gave.

        Raises:
            MalformedFrame: It is no page.
        """
        match given:
            case {
                "cursor": str() as cursor,
                "revision": int() as revision,
                "full": bool() as full,
                "more": bool() as more,
                "events": list() | tuple() as rows,
            }:
                events = tuple(map(told_of, rows))
                return cls(cursor=cursor, revision=revision, full=full, more=more, events=events)
        raise MalformedFrame("the MetaServer's answer holds no page of changes")


@frozen
class Described:
    """
    One change as people see it.

    Attributes:
        what: "topic", "channel" or "broker".
        name: Its name; of a channel that of its topic, a slash, and its own.
        change: "made", "changed" or "gone".
    """

    what: str
    name: str
    change: str


@frozen
class _Cursor:
    history: str
    revision: int
    after: str = ""

    @classmethod
    def read(cls, text: str) -> _Cursor:
        """Read a cursor; what is none stands for the beginning."""
        history, _, rest = text.partition(".")
        revision, _, after = rest.partition(".")
        if not (revision.isascii() and revision.isdigit()) or len(revision) > _OVERHEAD:
            return cls("", 0)
        return cls(history, int(revision), after)

    @override
    def __str__(self) -> str:
        parts = [self.history, str(self.revision), self.after]
        return ".".join(part for part in parts if part)


class Teller:
    """
    Tells what changed.

    Args:
        store: The store.
        history: The name of this history, another one for each start.
    """

    def __init__(self, store: Store, history: str) -> None:
        self._store = store
        self._history = history

    def changes(self, cursor: str = "", limit: int = PAGE_BYTES) -> Changes:
        """
        Return the page after a cursor.

        Args:
            cursor: That of the page before; empty for everything.
            limit: About so many bytes at most.
        """
        at, known = _Cursor.read(cursor), self.knows(cursor)
        if known and not at.after:
            return self._since(at.revision, limit)
        revision = at.revision if known else self._store.revision
        return self._all(revision, at.after if known else "", limit)

    def knows(self, cursor: str) -> bool:
        """
        Say whether a cursor is of this history: who has another has to hear everything anew.

        Args:
            cursor: That of the page before.
        """
        at, store = _Cursor.read(cursor), self._store
        return at.history == self._history and store.compacted <= at.revision <= store.revision

    def _since(self, revision: int, limit: int) -> Changes:
        told: list[Told] = []
        more = False
        reached = revision
        for events in self._store.history(revision + 1):
            if limit <= 0:
                more = True
                break
            page = [_told(event.key, event.entry) for event in events if _is_told(event.key)]
            limit -= sum(map(_size, page))
            told += page
            reached = events[0].revision
        reached = reached if more else self._store.revision
        cursor = str(_Cursor(self._history, reached))
        return Changes(cursor=cursor, revision=reached, full=False, more=more, events=tuple(told))

    def _all(self, revision: int, after: str, limit: int) -> Changes:
        told: list[Told] = []
        more = False
        for entry in self._entries(revision, after):
            if limit <= 0:
                more = True
                break
            told.append(_told(entry.key, entry))
            limit -= _size(told[-1])
            after = entry.key
        cursor = str(_Cursor(self._history, revision, after if more else ""))
        return Changes(cursor=cursor, revision=revision, full=True, more=more, events=tuple(told))

    def _entries(self, revision: int, after: str) -> Iterator[Entry]:
        for text in TOLD:
            first, end = prefix(text)
            first = max(first, after + "\0")
            while first < end:
                entries = self._store.range(first, end, revision, _STEP)
                yield from entries
                if len(entries) < _STEP:
                    break
                first = entries[-1].key + "\0"

    def described(self, revision: int) -> list[Described]:
        """
        Return which topics, channels and brokers are others than they were at a revision.

        Raises:
            InvalidRequest: The history does not reach back to it, or not yet there;
                the data holds the oldest and the newest that it knows.
        """
        store = self._store
        if not store.compacted <= revision <= store.revision:
            raise InvalidRequest(
                f"the history goes from revision {store.compacted} to {store.revision}; "
                "look at everything anew",
                field="revision",
                oldest=store.compacted,
                newest=store.revision,
            )
        changed = _keys(event for events in store.history(revision + 1) for event in events)
        found = (self._describe(what, key, revision) for what, key in changed)
        return [each for each in found if each is not None]

    def _describe(self, what: str, key: str, revision: int) -> Described | None:
        before, now = self._store.get(key, revision), self._store.get(key)
        newest = now or before
        if newest is None:  # made and gone in between
            return None
        name = self._channel_name(key) if what == "channel" else json.loads(newest.value)["name"]
        change = "made" if before is None else "gone" if now is None else "changed"
        return None if name is None else Described(what, name, change)

    def _channel_name(self, key: str) -> str | None:
        """Name a channel with its topic; None if that is gone, which is told by itself."""
        _, topic_id, name = key.split("/")
        topic = self._store.get(f"topic/{topic_id}")
        return None if topic is None else f"{json.loads(topic.value)['name']}/{name}"


def _keys(events: Iterable[Event]) -> Sequence[tuple[str, str]]:
    """Return the keys that people are told of: those that events are about, each once, in order."""
    found: dict[tuple[str, str], None] = {}
    for event in events:
        kind, _, rest = event.key.partition("/")
        if kind in {"topic", "channel", "broker"}:
            found[kind, event.key] = None
        elif kind == "drain":
            found["broker", f"broker/{rest}"] = None
    return tuple(found)


def _is_told(key: str) -> bool:
    return key.startswith(TOLD) and not key.startswith("cluster/")


def _told(key: str, entry: Entry | None) -> Told:
    return (key, entry.value, entry.lease) if entry is not None else (key, None, 0)


def _size(told: Told) -> int:
    key, value, _ = told
    return _OVERHEAD + len(key) + len(value or b"")
