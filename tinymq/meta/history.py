"""
Who changed what about topics: the last changes of each, beside the topic in the store.

::

    history/ID/N    the change number N of the topic of this id, in eight hex digits

A change is written in the transaction that makes it, so that there is none without the
other. What is done to records (a purge, or taking one back) is noted once it is done.
Brokers are told nothing of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TypeAlias

from attrs import asdict, frozen

from tinymq.meta.entries import Delete, Entry, Put, Write, prefix
from tinymq.meta.following import HISTORY, Following
from tinymq.meta.registry import Topic

#: Changes that are kept of each topic.
MOST_CHANGES: Final = 100
#: Settings that one change names.
_MOST_SETTINGS: Final = 100
#: Bytes of what tells who it was.
_MOST_TEXT: Final = 200

#: A setting, its text before, and its text afterwards; None where there was none.
SettingRow: TypeAlias = tuple[str, str | None, str | None]


@frozen
class Author:
    """
    On whose behalf something is changed.

    Attributes:
        who: Their name; empty if nobody asked for it by name, as on a topic's first use.
        peer: Where they were.
    """

    who: str = ""
    peer: str = ""


#: Nobody in particular: what is made on its first use.
NOBODY: Final = Author()


@frozen(kw_only=True)
class Change:
    """
    One change of a topic.

    Attributes:
        number: Rises with each change of the topic.
        at_ms: When.
        who: Who made it; empty for nobody in particular.
        peer: Where they were.
        act: What was done: created, altered, partitions, purged or undone.
        settings: What is otherwise since then, each with its text before and afterwards.
        note: What was done, in a few words, where settings do not tell it.
    """

    number: int = 0
    at_ms: int
    who: str
    peer: str
    act: str
    settings: tuple[SettingRow, ...] = ()
    note: str = ""

    def encode(self) -> bytes:
        """Return the change as it is stored."""
        facts = asdict(self)
        del facts["number"]
        return json.dumps(facts, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, entry: Entry) -> Change:
        """Read what `encode` gave."""
        facts = json.loads(entry.value)
        rows = tuple((row[0], row[1], row[2]) for row in facts.pop("settings"))
        return cls(**facts, settings=rows, number=int(entry.key.rpartition("/")[2], 16))


class History(Following):
    """Keeps the last changes of each topic."""

    _author: Author = NOBODY

    @contextmanager
    def on_behalf_of(self, author: Author) -> Iterator[None]:
        """
        Say who makes the changes meanwhile. Nothing may be waited for inside.

        Args:
            author: Who.
        """
        before, self._author = self._author, author
        try:
            yield
        finally:
            self._author = before

    def topic_history(self, topic: Topic) -> list[Change]:
        """
        Return the last changes of a topic, the newest first.

        Args:
            topic: Of which.
        """
        entries = self._store.range(*prefix(f"{HISTORY}{topic.id.hex()}/"))
        return [Change.decode(entry) for entry in reversed(entries)]

    def note(self, topic: Topic, act: str, note: str) -> None:
        """
        Note what was done to the records of a topic.

        Args:
            topic: Which; one that is gone by now has no history any more.
            act: What was done.
            note: How much, in a few words.
        """
        if topic.id in self.registry.topics:
            self._write([], self._noted(topic.id, act, note=note), vital=True)

    def _noted(
        self, topic_id: bytes, act: str, rows: tuple[SettingRow, ...] = (), note: str = ""
    ) -> list[Write]:
        """Return what notes a change, for the transaction that makes it."""
        entries = self._store.range(*prefix(f"{HISTORY}{topic_id.hex()}/"))
        last = int(entries[-1].key.rpartition("/")[2], 16) if entries else -1
        change = Change(
            at_ms=self._now_ms(),
            who=self._author.who[:_MOST_TEXT],
            peer=self._author.peer[:_MOST_TEXT],
            act=act,
            settings=rows[:_MOST_SETTINGS],
            note=note,
        )
        old = entries[: max(0, len(entries) + 1 - MOST_CHANGES)]
        key = f"{HISTORY}{topic_id.hex()}/{last + 1:08x}"
        return [*(Delete(each.key) for each in old), Put(key, change.encode())]

    def _history_deletes(self, topic_id: bytes) -> list[Delete]:
        """Return what takes the history of a topic out of the store."""
        entries = self._store.range(*prefix(f"{HISTORY}{topic_id.hex()}/"))
        return [Delete(each.key) for each in entries]


def changed_rows(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[SettingRow, ...]:
    """
    Tell which settings are otherwise.

    Args:
        before: The text of each; of a topic that is new, that of its default.
        after: Likewise, afterwards.
    """
    return tuple(
        (name, before.get(name), text) for name, text in after.items() if text != before.get(name)
    )


def texts_of(topic: Topic) -> dict[str, str]:
    """
    Write the settings of a topic, and its number of partitions, as people read them.

    Args:
        topic: Which.
    """
    settings = {row.name: row.value for row in topic.config.rows()}
    return {"partitions": str(topic.partitions), **settings}
