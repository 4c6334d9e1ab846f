"""
What a broker knows of topics, channels and brokers while its MetaServer is elsewhere.

A `Replica` is fed the pages of `meta.watch` and makes the same snapshots of them as the
MetaServer does, by the same code. Its file lets the broker start, and serve what it has,
while the MetaServer cannot be reached: four bytes of magic, a checksum, and in msgpack::

    [1, cursor, revision, [[key, value, lease], ...]]

The file is a cache. One that is missing, torn or damaged is as good as none.

A replica forgets a topic only when it was told that the topic was deleted. What merely
is not told of any more (a MetaServer restored from an old backup), or cannot be read (one
of a newer version), stays as it was, and there is a note of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import attrs
from attrs import define, field

from tinymq.errors import ForeignCluster, MalformedFrame, StateError, StorageError
from tinymq.meta.changes import Changes, Told, told_of
from tinymq.meta.draft import Draft, follow
from tinymq.meta.endpoint import endpoint_key
from tinymq.meta.entries import Entry, Event
from tinymq.meta.observers import Observer, Observers
from tinymq.meta.registry import Registry, Topic, channel_key, group_mark, mark_of
from tinymq.routing import binding_key, exchange_key
from tinymq.storage.disk import Disk
from tinymq.storage.sealed import seal, unseal

_MAGIC: Final = b"TMQR"
_VERSION: Final = 1
_CLUSTER: Final = "cluster"
_NO_CLUSTER: Final = bytes(16)
_MOST_NOTES: Final = 100
#: What there may be ten thousands of.
_LONG: Final = {"topic", "channel", "exchange", "binding"}


def foreign(own: str, other: str) -> ForeignCluster:
    """Make the error of a data folder of one cluster at the MetaServer of another, by their ids."""
    return ForeignCluster(
        f"this data folder belongs to the cluster {own}, and the MetaServer is that of {other}: "
        "set cluster.meta to the right address, or give this broker an empty data folder",
        cluster=own,
        other=other,
    )


@define
class _Whole:
    """Everything, as far as it has been told."""

    cursor: str
    source: str
    rows: dict[str, Told] = field(factory=dict)
    draft: Draft = field(factory=lambda: Draft(Registry()))


class Replica:
    """
    A registry that follows a MetaServer's.

    Attributes:
        registry: The newest snapshot.
        unsaved: Whether it differs from what its file holds.
        strays: Ids of topics that it keeps though the MetaServer does not know them.
        stray_channels: The same of channels of topics that the MetaServer knows: the
            topic's id and the name.
        stray_groups: The same of consumer groups, by name.
    """

    def __init__(self) -> None:
        self.registry = Registry()
        self.unsaved = False
        self.strays: frozenset[bytes] = frozenset()
        self.stray_channels: frozenset[tuple[bytes, str]] = frozenset()
        self.stray_groups: frozenset[str] = frozenset()
        self._cursor = ""
        self._rows: dict[str, Told] = {}
        self._whole: _Whole | None = None
        self._observers = Observers()
        self._notes: list[str] = []
        #: Whether something could not be read: a newer tinymq will want it again.
        self._unread = False

    @property
    def cursor(self) -> str:
        """What to ask the MetaServer with."""
        return self._whole.cursor if self._whole is not None else self._cursor

    @property
    def is_empty(self) -> bool:
        """Whether it was never told anything."""
        return self.registry.cluster == _NO_CLUSTER

    def watch(self, observer: Observer) -> Callable[[], None]:
        """
        Call an observer after every change.

        Returns:
            What ends it.
        """
        return self._observers.add(observer)

    def take_notes(self) -> tuple[str, ...]:
        """Return what somebody should read in the log, once."""
        notes, self._notes = tuple(self._notes), []
        return notes

    # --- following

    def check_cluster(self, cluster: bytes) -> None:
        """
        Make sure that a MetaServer is that of this broker's cluster.

        Raises:
            ForeignCluster: It is another one's.
        """
        own = self.registry.cluster
        if not self.is_empty and cluster != own:
            raise foreign(own.hex(), cluster.hex())

    def apply(self, page: Changes) -> None:
        """
        Take the next page; a new snapshot is there once the last of several is in.

        Raises:
            StateError: It comes from another cluster; nothing was taken.
        """
        for key, value, _ in page.events:
            if key == _CLUSTER:
                self._check_told(value)
        if page.full:
            self._gather(page)
            return
        self._whole = None
        if self.is_empty:
            self._note("the MetaServer told what changed where everything was asked for")
        else:
            self._follow(page)

    def _gather(self, page: Changes) -> None:
        source = ".".join(page.cursor.split(".", 2)[:2])
        if self._whole is None or self._whole.source != source:
            self._whole = _Whole(page.cursor, source)
            self._unread = False
        whole = self._whole
        whole.cursor = page.cursor
        for event in page.events:
            whole.rows[event[0]] = event
            if not self._reuse(whole.draft, event):
                self._read(whole.draft, event, page.revision)
        if not page.more:
            self._whole = None
            self._begin_anew(whole, page)

    def _reuse(self, draft: Draft, event: Told) -> bool:
        """Take what did not change as it is: to decode thousands takes a while."""
        key, _, _ = event
        kind, _, rest = key.partition("/")
        if kind not in _LONG or self._rows.get(key) != event:
            return False
        topic_id, _, name = rest.partition("/")
        if kind in {"exchange", "binding"}:
            return self._reuse_exchange(draft, _bytes(topic_id), name)
        if kind == "channel":
            channel = self.registry.channels_of(_bytes(topic_id)).get(name)
            if channel is not None:
                draft.put_channel(_bytes(topic_id), channel)
            return channel is not None
        topic = self.registry.topics.get(_bytes(topic_id))
        if topic is not None:
            draft.put_topic(topic)
        return topic is not None

    def _reuse_exchange(self, draft: Draft, topic_id: bytes, binding: str) -> bool:
        """Take an exchange as it is, or one of its bindings."""
        exchange = self.registry.exchanges.get(topic_id)
        if exchange is None:
            return False
        if not binding:
            draft.put_exchange(topic_id, attrs.evolve(exchange, bindings={}))
            return True
        found = exchange.bindings.get(binding)
        if found is not None:
            draft.put_binding(topic_id, found)
        return found is not None

    def _check_told(self, value: bytes | None) -> None:
        try:
            self.check_cluster(bytes.fromhex((value or b"").decode()))
        except StateError:
            self._whole = None
            raise
        except ValueError:
            self._whole = None
            raise StateError("the MetaServer's answer names no cluster") from None

    def _follow(self, page: Changes) -> None:
        draft = Draft(self.registry)
        deleted = {key for key, value, _ in page.events if key.startswith("deleted/") and value}
        for event in page.events:
            self._take(draft, event, page.revision, deleted)
        self._finish(draft, page, self._rows)

    def _take(self, draft: Draft, event: Told, revision: int, deleted: set[str]) -> None:
        key, value, _ = event
        if value is None and key.startswith("topic/"):
            topic_id = key.removeprefix("topic/")
            known = draft.knows("deleted", _bytes(topic_id))
            if not known and f"deleted/{topic_id}" not in deleted:
                self._note(f"{key} is said to be gone, but not to be deleted: it is kept")
                return
        if not self._read(draft, event, revision):
            return
        if value is None:
            self._rows.pop(key, None)
        else:
            self._rows[key] = event

    def _begin_anew(self, whole: _Whole, page: Changes) -> None:
        rows, draft = whole.rows, whole.draft
        if _CLUSTER not in rows:
            self._cursor = ""
            self._note("the MetaServer's answer is not whole; what is known is kept")
            return
        strays = []
        stray_channels: set[tuple[bytes, str]] = set()
        for topic_id, topic in self.registry.topics.items():
            if draft.knows("deleted", topic_id):
                continue
            if draft.knows("topics", topic_id):
                stray_channels.update(self._keep_channels(topic, draft, rows))
                continue
            draft.keep_topic(topic)
            for channel in self.registry.channels_of(topic_id).values():
                draft.put_channel(topic_id, channel)
                self._keep_endpoint(topic_id, channel.name, draft)
            if topic_id in self.registry.exchanges:
                draft.put_exchange(topic_id, self.registry.exchanges[topic_id])
            strays.append(topic_id)
            rows.update((key, self._rows[key]) for key in self._keys_of(topic_id, self._rows))
            self._note(f"the MetaServer does not tell of topic {topic.name}: it is kept")
        self.strays = frozenset(strays)
        self.stray_channels = frozenset(stray_channels)
        self.stray_groups = frozenset(self._keep_groups(draft, rows))
        draft.touch(self.registry.topics)
        self._finish(draft, page, rows)

    def _keep_channels(
        self, topic: Topic, draft: Draft, rows: dict[str, Told]
    ) -> Iterator[tuple[bytes, str]]:
        """Keep the channels of a topic that are not told of any more, and yield what they are."""
        for name, channel in self.registry.channels_of(topic.id).items():
            mark = mark_of(topic.id, name, channel.created_ms)
            known = draft.knows("deleted", mark) or draft.has_channel(topic.id, name)
            if known or channel.temporary:
                continue
            draft.put_channel(topic.id, channel)
            self._keep_endpoint(topic.id, name, draft)
            for key in (channel_key(topic.id, name), endpoint_key(topic.id, name)):
                if key in self._rows:
                    rows[key] = self._rows[key]
            self._note(f"the MetaServer does not tell of channel {topic.name}/{name}: it is kept")
            yield topic.id, name

    def _keep_groups(self, draft: Draft, rows: dict[str, Told]) -> Iterator[str]:
        """Keep the groups that are not told of any more, and yield their names."""
        for name, group in self.registry.groups.items():
            if draft.knows("groups", name) or draft.knows("deleted", group_mark(group.mark)):
                continue
            draft.put_group(group)
            if group.store_key in self._rows:
                rows[group.store_key] = self._rows[group.store_key]
            self._note(f"the MetaServer does not tell of group {name}: it is kept")
            yield name

    def _keep_endpoint(self, topic_id: bytes, channel: str, draft: Draft) -> None:
        """Keep where the messages of a channel are sent to, if they are."""
        found = self.registry.endpoints.get((topic_id, channel))
        if found is not None:
            draft.put_endpoint(topic_id, found)

    def _keys_of(self, topic_id: bytes, rows: dict[str, Told]) -> list[str]:
        """Return the keys of a topic, its channels and bindings that are among rows."""
        names = self.registry.channels_of(topic_id)
        keys = [f"topic/{topic_id.hex()}", *(channel_key(topic_id, name) for name in names)]
        keys += [endpoint_key(topic_id, name) for name in names]
        exchange = self.registry.exchanges.get(topic_id)
        if exchange is not None:
            keys.append(exchange_key(topic_id))
            keys.extend(binding_key(topic_id, each) for each in exchange.bindings)
        return [key for key in keys if key in rows]

    def given(self, topic_id: bytes, name: str) -> None:
        """Note that the MetaServer was told of a stray channel."""
        self.stray_channels -= {(topic_id, name)}

    def given_group(self, name: str) -> None:
        """Note that the MetaServer was told of a stray group."""
        self.stray_groups -= {name}

    def _finish(self, draft: Draft, page: Changes, rows: dict[str, Told]) -> None:
        for topic_id in self.strays:
            if draft.knows("deleted", topic_id):
                draft.drop_topic(topic_id)
                for key in self._keys_of(topic_id, rows):
                    del rows[key]
                self.strays -= {topic_id}
        before, after = self.registry, draft.finish(page.revision)
        self.unsaved = self.unsaved or bool(page.events) or page.full
        self._rows, self._cursor, self.registry = rows, page.cursor, after
        if draft.is_changed:
            self._observers.tell(before, after)

    def _read(self, draft: Draft, event: Told, revision: int) -> bool:
        """Carry an event over to a snapshot, if it can be read."""
        key, value, lease = event
        entry = None if value is None else Entry(key, value, revision, revision, 1, lease)
        try:
            follow(draft, Event(key, revision, entry))
        except Exception as error:  # noqa: BLE001 whatever it holds, the rest must go on
            self._note(f"{key[:100]} cannot be read ({error!r:.200}); what was known of it is kept")
            self._unread = True
            return False
        return True

    def _note(self, text: str) -> None:
        if len(self._notes) < _MOST_NOTES:
            self._notes.append(text)

    # --- the file

    def content(self) -> bytes:
        """Return what its file holds."""
        cursor = "" if self._unread else self._cursor
        rows = list(self._rows.values())
        return seal(_MAGIC, [_VERSION, cursor, self.registry.revision, rows])

    def save(self, disk: Disk, path: str) -> None:
        """
        Write its file, as one step.

        Raises:
            StorageFull: There is no space; the old file stays.
            OSError: The disk failed.
        """
        if not self.is_empty:
            disk.replace_file(path, self.content())
        self.unsaved = False

    @classmethod
    def load(cls, disk: Disk, path: str) -> Replica:
        """
        Read its file; without one that can be read, the replica is empty and has a note.

        Args:
            disk: The disk.
            path: The file.
        """
        replica = cls()
        try:
            content = disk.read_file(path)
            if content is not None:
                replica._restore(*unseal(_MAGIC, bytes(content), path))
        except (OSError, StorageError, MalformedFrame, TypeError, ValueError) as error:
            replica = cls()
            replica._note(f"{path} cannot be read ({error}); the MetaServer is asked again")
        return replica

    def _restore(self, version: object, cursor: object, revision: object, rows: Any) -> None:
        if version != _VERSION or not isinstance(cursor, str) or not isinstance(revision, int):
            raise ValueError("it is of another version")
        draft = Draft(Registry())
        events = {event[0]: event for event in map(told_of, rows)}
        for event in events.values():
            self._read(draft, event, revision)
        if _CLUSTER not in events:
            raise ValueError("it names no cluster")
        self.registry = draft.finish(revision)
        self._rows = events
        self._cursor = "" if self._unread else cursor


def _bytes(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""
