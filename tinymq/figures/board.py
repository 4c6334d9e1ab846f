"""
The partitions of all brokers, as they were last reported.

::

    Reporter ── LocalFeed ──┐           ┌── look(), reported() ── Sampler, Listing
                            ├── Board ──┤
    other brokers ─ Poller ─┘           └── places() ── console, operations

Of a topic that is looked at, the figures of this process' broker are those of this
moment. Who reads all topics hears of a slice of partitions at a look, so that none
takes long: where more move at once, some figures are those of the second before.
What a broker that does not answer said last stays on the board; its partitions
are shown as offline meanwhile. Nothing here looks at live partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from attrs import define

from tinymq.broker.ports import Scheduler, WallClock
from tinymq.figures.reports import Key, Taken, boot_of
from tinymq.stats import BrokerSnapshot, PartitionReport, SilentBroker

if TYPE_CHECKING:
    from tinymq.meta.registry import Registry, Topic

#: A broker that said nothing for so long does not answer.
SILENT_SECONDS: Final = 3.0

_NOTHING: Final = PartitionReport(0, 0, 0)


class Source(Protocol):
    """The broker of this process, which is asked whenever somebody reads."""

    def bring(self) -> bool:
        """Feed a slice of what moved, and tell whether there is another."""

    def bring_topic(self, topic: Topic) -> None:
        """Feed all that moved of one topic."""


class Place(NamedTuple):
    """
    A partition with its broker.

    Attributes:
        topic: Its topic.
        partition: Its number.
        leader: Id of the broker that holds it.
        report: What that said last; zeros when it never said anything.
        reason: Why it is offline; empty when it is not.
    """

    topic: Topic
    partition: int
    leader: int
    report: PartitionReport
    reason: str


class _Row(NamedTuple):
    """
    What was reported.

    Attributes:
        report: The figures.
        broker: Who said it.
        boot: In which of its starts.
        fresh: Whether its counters say what went through since it was last seen;
            else it is the first that is known of a broker that ran before.
    """

    report: PartitionReport
    broker: int
    boot: int
    fresh: bool


@define
class _Peer:
    """
    A broker.

    Attributes:
        name: Its name.
        listen: Where clients reach it.
        heard: When, on the scheduler.
        generation: Up to where its partitions are known.
        complete: The start of it of which all was known once; 0 if there is none.
        snapshot: Its own figures; None before the first.
    """

    name: str
    listen: str
    heard: float
    generation: int = 0
    complete: int = 0
    snapshot: BrokerSnapshot | None = None


class Board:
    """
    What all brokers reported.

    Args:
        registry: Tells which topics and brokers there are.
        scheduler: Measures silence.
        wall: Tells since when.
        own: The broker of this process, which is never silent; 0 if there is none.
    """

    def __init__(
        self,
        registry: Callable[[], Registry],
        scheduler: Scheduler,
        wall: WallClock,
        own: int = 0,
    ) -> None:
        self._registry = registry
        self._scheduler = scheduler
        self._wall = wall
        self.own = own
        #: None where there is no broker in this process.
        self.source: Source | None = None
        self._rows: dict[bytes, dict[int, _Row]] = {}
        self._peers: dict[int, _Peer] = {}
        self._silent: dict[int, SilentBroker] = {}
        self._followers: list[set[Key]] = []
        self._known: Registry | None = None

    # --- in -------------------------------------------------------------------

    def generation(self, broker_id: int) -> int:
        """Up to where a broker's partitions are known; 0 when they are not."""
        peer = self._peers.get(broker_id)
        return 0 if peer is None else peer.generation

    def feed(self, broker_id: int, taken: Taken, snapshot: BrokerSnapshot | None = None) -> None:
        """
        Take what a broker said.

        Args:
            broker_id: Which broker.
            taken: A page of what moved there.
            snapshot: Its own figures; None leaves those that are known.
        """
        peer = self._peers.get(broker_id)
        if peer is None:
            peer = self._peers[broker_id] = _Peer("", "", 0.0)
            self._name(broker_id, peer)
        peer.heard = self._scheduler.seconds()
        if snapshot is not None:
            peer.snapshot, peer.name, peer.listen = snapshot, snapshot.name, snapshot.listen
        boot = boot_of(taken.generation)
        fresh = peer.complete != 0 or broker_id == self.own
        topics = self._registry().topics
        for topic_id, index, report in taken.rows:
            if topic_id in topics:
                rows = self._rows.setdefault(topic_id, {})
                rows[index] = _Row(report, broker_id, boot, fresh)
                self._moved((topic_id, index))
        for topic_id, index in taken.gone:
            self._drop(broker_id, topic_id, index)
        peer.generation = taken.generation
        if not taken.more and peer.complete != boot:
            peer.complete = boot
            self._forget_before(broker_id, boot)

    def _drop(self, broker_id: int, topic_id: bytes, index: int) -> None:
        rows = self._rows.get(topic_id, {})
        if index in rows and rows[index].broker == broker_id:
            del rows[index]
            self._moved((topic_id, index))

    def _forget_before(self, broker_id: int, boot: int) -> None:
        """Forget what a broker said before its last start, and did not say again."""
        old = [
            (topic_id, index)
            for topic_id, rows in self._rows.items()
            for index, row in rows.items()
            if row.broker == broker_id and row.boot != boot
        ]
        for key in old:
            self._drop(broker_id, *key)

    # --- who listens ----------------------------------------------------------

    def follow(self) -> set[Key]:
        """
        Return a set that gets every partition whose figures moved.

        Its owner empties it. What moved so far is in it.
        """
        moved = {(topic_id, index) for topic_id, rows in self._rows.items() for index in rows}
        self._followers.append(moved)
        return moved

    def _moved(self, key: Key) -> None:
        for moved in self._followers:
            moved.add(key)

    # --- out ------------------------------------------------------------------

    def look(self) -> bool:
        """
        Bring everything up to date; call it before reading.

        Returns:
            Whether the broker of this process has more to tell.
        """
        more = self.source is not None and self.source.bring()
        registry = self._registry()
        if registry is not self._known:
            before, self._known = self._known, registry
            if before is None or before.topics is not registry.topics:
                for topic_id in self._rows.keys() - registry.topics.keys():
                    del self._rows[topic_id]
        silent = {each.id: each for each in self._find_silent(registry)}
        changed = silent.keys() ^ self._silent.keys()
        self._silent = silent
        if changed:
            for topic_id, topic in registry.topics.items():
                for index, leader in enumerate(topic.leaders):
                    if leader in changed:
                        self._moved((topic_id, index))
        return more

    def _find_silent(self, registry: Registry) -> Iterator[SilentBroker]:
        now, wall = self._scheduler.seconds(), self._wall()
        leading = {broker for broker, count in registry.led.items() if count > 0}
        for broker_id in sorted((registry.brokers.keys() | leading) - {self.own, 0, -1}):
            peer = self._peers.get(broker_id)
            if peer is None:  # its grace begins now
                peer = self._peers[broker_id] = _Peer("", "", now)
            self._name(broker_id, peer)
            quiet = now - peer.heard
            left = peer.generation and broker_id not in registry.brokers
            if quiet >= SILENT_SECONDS or left:
                since = wall - round(quiet * 1000)
                known = self._silent.get(broker_id)
                yield SilentBroker(
                    id=broker_id,
                    name=peer.name,
                    listen=peer.listen,
                    since_ms=since if known is None else known.since_ms,
                )
        for broker_id in self._peers.keys() - registry.brokers.keys() - leading - {self.own}:
            del self._peers[broker_id]

    def _name(self, broker_id: int, peer: _Peer) -> None:
        info = self._registry().known.get(broker_id)
        if info is not None:
            peer.name, peer.listen = info.name, f"tinymq://{info.host}:{info.port}"
        elif not peer.name:
            peer.name = str(broker_id)

    def silent(self) -> tuple[SilentBroker, ...]:
        """Return the brokers that do not answer, as of the last `look`."""
        return tuple(self._silent.values())

    def silent_leaders(self, topic: Topic) -> tuple[str, ...]:
        """Return the names of a topic's brokers that do not answer, as of the last `look`."""
        if not self._silent:
            return ()
        leaders = set(topic.leaders)
        return tuple(each.name for each in self._silent.values() if each.id in leaders)

    def name(self, broker_id: int) -> str:
        """Return the name of a broker, as far as it is known."""
        peer = self._peers.get(broker_id)
        if peer is not None:
            return peer.name
        info = self._registry().known.get(broker_id)
        return str(broker_id) if info is None else info.name

    def brokers(self) -> dict[int, tuple[BrokerSnapshot, float]]:
        """Return what brokers said of themselves, and how many seconds ago, by id."""
        now = self._scheduler.seconds()
        return {
            broker_id: (peer.snapshot, now - peer.heard)
            for broker_id, peer in sorted(self._peers.items())
            if peer.snapshot is not None
        }

    def report(self, key: Key) -> tuple[PartitionReport, int, bool] | None:
        """
        Return what was last said of a partition.

        Returns:
            The report; who made it; whether its counters tell what went through
            since it was last seen. None when nothing was said.
        """
        row = self._rows.get(key[0], {}).get(key[1])
        return None if row is None else (row.report, row.broker, row.fresh)

    def places(self, topic: Topic) -> list[Place]:
        """
        Return all partitions of a topic, in order, as they are at this moment.

        Args:
            topic: As the registry has it.
        """
        if self.source is not None:
            self.source.bring_topic(topic)
        return self.reported(topic)

    def reported(self, topic: Topic) -> list[Place]:
        """
        Return all partitions of a topic, in order, as they were last reported.

        Args:
            topic: As the registry has it.
        """
        rows = self._rows.get(topic.id, {})
        return [
            self._place(topic, index, leader, rows.get(index))
            for index, leader in enumerate(topic.leaders)
        ]

    def _place(self, topic: Topic, index: int, leader: int, row: _Row | None) -> Place:
        report = _NOTHING if row is None else row.report
        reason, silent = report.failure, self._silent.get(leader)
        if silent is not None:
            reason = not_answering(silent)
        return Place(topic, index, leader, report, reason)


def not_answering(broker: SilentBroker) -> str:
    """
    Say since when a broker does not answer.

    Args:
        broker: Which.
    """
    since = datetime.fromtimestamp(broker.since_ms / 1000, UTC)
    return f"{broker.name} does not answer since {since:%H:%M:%S} UTC"
