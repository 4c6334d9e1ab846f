"""An in-memory broker behind the web's port, with lively or hostile content."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping
from typing import Any

from attrs import Factory, define, evolve, field

from tests.web.crowd import FakeCrowd
from tests.web.flow import FakeFlow
from tests.web.queues import FakeQueue, depth
from tinymq import errors
from tinymq.caller import LOCAL, Caller
from tinymq.catalog import PUBLIC
from tinymq.stats import (
    Backlog,
    BrokerSnapshot,
    ClientSnapshot,
    ClusterSnapshot,
    ConfigRow,
    Depth,
    OfflinePartition,
    PartitionSnapshot,
    Rates,
    Series,
    SilentBroker,
    TopicRow,
    TopicSnapshot,
    Trail,
    UndoWindow,
)
from tinymq.web.port import (
    AT_ONCE,
    At,
    ChannelPage,
    ChannelQuery,
    ClientPage,
    ClientQuery,
    DrainPlan,
    GroupPage,
    GroupQuery,
    Headers,
    MessageView,
    Newest,
    Page,
    Plan,
    PlanPart,
    Position,
    RecordView,
    Scanned,
    SettingChange,
    Since,
    Start,
    Times,
    TopicPage,
    TopicQuery,
    select,
    select_clients,
)

#: Sunday, 29 November 2026, 14:32:06 UTC.
NOW = 1_795_962_726_000
DEFAULTS = {
    "retention.time": "7 d",
    "retention.bytes": "none",
    "sync": "always",
    "segment.bytes": "64 MB",
    "message.max.bytes": "16 MB",
    "undo.window": "10 m",
}
GB = 10**9


def curve(seed: int, base: float, count: int = 300, step_ms: int = 2000) -> Series:
    """Draw a lively series that ends about at `base`."""
    rng = random.Random(seed)
    drift, values = 0.0, []
    for index in range(count):
        drift = drift * 0.8 + rng.uniform(-1, 1) * base * 0.03
        values.append(max(0.0, base * (1 + 0.12 * math.sin(index / count * 4.2 - 0.6)) + drift))
    return Series(step_ms, NOW, tuple(values))


def trail(seed: int, rates: Rates, count: int = 300, step_ms: int = 2000) -> Trail:
    """Draw all four curves."""
    return Trail(*(curve(seed + i, rate, count, step_ms) for i, rate in enumerate(rates)))


@define
class FakeRecord:
    """One stored record."""

    time_ms: int
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()


@define(kw_only=True)
class FakePartition:
    """
    A log that begins at `start`.

    Only its last records are held; `earlier` ones before them are made up from
    these when somebody looks, so that a log may be as long as a real one.
    """

    start: int = 0
    earlier: int = 0
    records: list[FakeRecord] = Factory(list)
    bytes: int = 0
    rate: float = 0.0
    offline: str = ""
    purged: int = 0

    @property
    def end(self) -> int:
        """The next offset."""
        return self.start + self.earlier + len(self.records)

    def __getitem__(self, offset: int) -> FakeRecord:
        """Find the record at an offset."""
        index = offset - self.start - self.earlier
        if index >= 0:
            return self.records[index]
        return evolve(self.records[index % len(self.records)], time_ms=self.oldest_ms or 0)

    @property
    def oldest_ms(self) -> int | None:
        """Time of the first record."""
        return self.records[0].time_ms if self.records else None


@define(kw_only=True)
class FakeTopic:
    """A topic with its logs."""

    name: str
    partitions: list[FakePartition]
    config: dict[str, str] = field(factory=dict)
    out: float = 0.0
    undo_until: int | None = None
    extra: dict[int, int] = field(factory=dict)

    @property
    def rates(self) -> Rates:
        """Of all partitions."""
        into = sum(p.rate for p in self.partitions)
        return Rates(into, self.out, into * 927, self.out * 927)


class FakeConsole:
    """
    The port, in memory. `calls` records every change that was carried out.

    Args:
        topics: What it begins with.
    """

    def __init__(self, *topics: FakeTopic) -> None:
        self._topics = {topic.name: topic for topic in topics}
        self.calls: list[tuple[object, ...]] = []
        self.refusing: str | None = None
        self.failure: Exception | None = None
        self.broker = BrokerSnapshot(
            name="mq-1",
            version="0.1.0",
            pid=4711,
            started_ms=NOW - 41 * 86_400_000,
            listen="tcp:7800:interface=127.0.0.1",
            memory=int(5.1 * GB),
            memory_limit=8 * GB,
            disk_total=500 * GB,
            disk_used=301 * GB,
            disk_free=199 * GB,
            disk_reserve=50 * GB,
            descriptors=1902,
            descriptors_limit=16_384,
            reactor_lag_ms=1.4,
            connections=187,
        )
        self.others: tuple[BrokerSnapshot, ...] = ()
        self.silent: tuple[SilentBroker, ...] = ()
        self.connected: list[ClientSnapshot] = []
        self.label = "production"
        self.queue = FakeQueue([])
        self.flow = FakeFlow()
        self.crowd = FakeCrowd()
        #: What channels hold back, by topic and partition.
        self.held: dict[tuple[str, int], dict[str, Any]] = {}

    def _find(self, name: str) -> FakeTopic:
        if self.failure is not None:
            raise self.failure
        if name not in self._topics:
            raise errors.UnknownTopic(f"there is no topic {name[:200]!r}")
        return self._topics[name]

    def _log(self, name: str, partition: int) -> FakePartition:
        logs = self._find(name).partitions
        if partition >= len(logs):
            raise errors.UnknownPartition(f"{name} has {len(logs)} partitions", field="partition")
        return logs[partition]

    # --- looking -------------------------------------------------------------

    def ready(self) -> str | None:
        """Say why publishing is refused."""
        return self.refusing

    @property
    def brokers(self) -> tuple[BrokerSnapshot, ...]:
        """Every broker, each with its part of what there is."""
        led: dict[int, list[FakeTopic]] = {}
        for topic in self._topics.values():
            for index, _ in enumerate(topic.partitions):
                led.setdefault(self._leader(index).id, []).append(topic)
        rates = [t.rates for t in self._topics.values()]
        found = (evolve(self.broker, refusing=self.refusing), *self.others)
        share = len(found) - sum(one.role == "meta" for one in found)
        whole = Rates(*(sum(r[i] for r in rates) / max(1, share) for i in range(4)))
        here = [c.broker_id for c in self.connected]
        own = [c.broker_id for c in self.connected if c.own]
        slow = [c.broker_id for c in self.connected if c.slow_since_ms is not None]
        return tuple(
            evolve(
                one,
                partitions=len(led.get(one.id, [])),
                topics=len({id(topic) for topic in led.get(one.id, [])}),
                rates=Rates() if one.role == "meta" else whole,
                slow_clients=slow.count(one.id),
                connections=here.count(one.id) if here else one.connections,
                own_connections=own.count(one.id),
            )
            for one in found
        )

    def _leader(self, index: int) -> BrokerSnapshot:
        holding = [b for b in (self.broker, *self.others) if b.role != "meta"]
        return holding[index % len(holding)]

    def _silence(self, leader: BrokerSnapshot) -> str:
        silent = any(one.id == leader.id for one in self.silent)
        return f"{leader.name} does not answer." if silent else ""

    def _row(self, topic: FakeTopic) -> TopicRow:
        writes = [p.records[-1].time_ms for p in topic.partitions if p.records]
        return TopicRow(
            name=topic.name,
            partitions=len(topic.partitions),
            messages=sum(p.end - p.start for p in topic.partitions),
            bytes=sum(p.bytes for p in topic.partitions),
            rates=topic.rates,
            last_write_ms=max(writes, default=None),
            offline=len(self._offline(topic)),
            leaders=tuple(self._leader(i).id for i, _ in enumerate(topic.partitions)),
        )

    def _offline(self, topic: FakeTopic) -> list[OfflinePartition]:
        why = [p.offline or self._silence(self._leader(i)) for i, p in enumerate(topic.partitions)]
        return [
            OfflinePartition(topic=topic.name, partition=index, reason=reason)
            for index, reason in enumerate(why)
            if reason
        ]

    def _silent_of(self, topics: Iterable[FakeTopic]) -> tuple[str, ...]:
        held = {self._leader(i).id for topic in topics for i, _ in enumerate(topic.partitions)}
        return tuple(one.name for one in self.silent if one.id in held)

    def _enriched(self, row: TopicRow) -> TopicRow:
        return evolve(row, series=curve(len(row.name), row.rates.messages_in))

    def cluster(self) -> ClusterSnapshot:
        """Look at everything."""
        if self.failure is not None:
            raise self.failure
        rows = [self._row(topic) for topic in self._topics.values()]
        rates = Rates(*(sum(r.rates[i] for r in rows) for i in range(4)))
        offline = [one for topic in self._topics.values() for one in self._offline(topic)]
        by_rate = sorted(rows, key=lambda r: -r.rates.messages_in)[:5]
        return ClusterSnapshot(
            name="prod-east",
            label=self.label,
            taken_ms=NOW,
            brokers=self.brokers,
            silent=self.silent,
            topics=len(rows),
            partitions=sum(r.partitions for r in rows),
            messages=sum(r.messages for r in rows),
            bytes=sum(r.bytes for r in rows),
            offline=tuple(offline[:20]),
            offline_count=len(offline),
            largest=tuple(sorted(rows, key=lambda r: -r.bytes)[:5]),
            busiest=tuple(self._enriched(r) for r in by_rate if r.rates.messages_in),
            rates=rates,
            recent=trail(1, rates),
            long=trail(5, rates, 360, 60_000),
            channels=len(self.queue.channels),
            groups=len(self.crowd.groups),
        )

    def topics(self, query: TopicQuery) -> TopicPage:
        """List topics."""
        found = select(map(self._row, self._topics.values()), query, self._enriched)
        return evolve(found, silent=self._silent_of(self._topics.values()))

    def _partition(self, index: int, log: FakePartition, out: float) -> PartitionSnapshot:
        leader = self._leader(index)
        reason = log.offline or self._silence(leader)
        return PartitionSnapshot(
            index=index,
            leader=leader.name,
            leader_id=leader.id,
            start=log.start,
            end=log.end,
            bytes=log.bytes,
            rates=Rates(log.rate, out, log.rate * 927, out * 927),
            series=curve(index + 40, log.rate),
            oldest_ms=log.oldest_ms,
            last_write_ms=log.records[-1].time_ms if log.records else None,
            state="offline" if reason else "online",
            reason=reason,
        )

    def topic(self, name: str) -> TopicSnapshot:
        """Look at one topic."""
        topic = self._find(name)
        purged = sum(p.purged for p in topic.partitions)
        share = topic.out / len(topic.partitions)
        return TopicSnapshot(
            id="6f1d2c3b4a5968778695a4b3c2d1e0ff",
            name=name,
            created_ms=NOW - 270 * 86_400_000,
            sync="memory" if topic.config.get("sync") == "memory" else "always",
            config=tuple(
                ConfigRow(k, topic.config.get(k, d), d, f"About {k}.", "what there is")
                for k, d in DEFAULTS.items()
            ),
            partitions=tuple(self._partition(i, p, share) for i, p in enumerate(topic.partitions)),
            rates=topic.rates,
            recent=trail(30, topic.rates),
            undo=UndoWindow(until_ms=topic.undo_until, records=purged)
            if topic.undo_until
            else None,
            silent=self._silent_of([topic]),
        )

    async def browse(
        self, topic: str, partition: int | None, start: Start, limit: int, max_bytes: int
    ) -> Page:
        """Read without side effects."""
        logs = self._find(topic).partitions
        chosen = range(len(logs)) if partition is None else [partition]
        views: list[RecordView] = []
        scanned = []
        for number in chosen:
            log = self._log(topic, number)
            first, end = self._range(log, start, limit)
            scanned.append(
                Scanned(
                    partition=number, first=first, end=end, log_start=log.start, log_end=log.end
                )
            )
            views += [self._view(number, offset, log) for offset in range(first, end)]
        newest = isinstance(start, Newest)
        views.sort(key=lambda v: (v.time_ms, v.offset), reverse=newest)
        return Page(records=tuple(views[:limit]), scanned=tuple(scanned))

    def _range(self, log: FakePartition, start: Start, limit: int) -> tuple[int, int]:
        if isinstance(start, Newest):
            return max(log.start, log.end - limit), log.end
        first = log.start
        if isinstance(start, At):
            first = min(max(start.offset, log.start), log.end)
        if isinstance(start, Since):
            later = (i for i, r in enumerate(log.records) if r.time_ms >= start.ms)
            first = log.start + log.earlier + next(later, len(log.records))
        return first, min(log.end, first + limit)

    def _view(self, partition: int, offset: int, log: FakePartition) -> RecordView:
        record = log[offset]
        return RecordView(
            partition=partition,
            offset=offset,
            time_ms=record.time_ms,
            key=record.key and record.key[:1024],
            size=len(record.value or b""),
            headers=record.headers,
            preview=None if record.value is None else record.value[:512],
        )

    async def message(
        self, topic: str, partition: int, offset: int, skip: int, length: int
    ) -> MessageView:
        """Read one record."""
        log = self._log(topic, partition)
        if not log.start <= offset < log.end:
            raise errors.OffsetOutOfRange(f"partition {partition} has no offset {offset}")
        record = log[offset]
        return MessageView(
            topic=topic,
            partition=partition,
            offset=offset,
            time_ms=record.time_ms,
            produced_ms=record.time_ms - 65,
            key=record.key,
            headers=record.headers,
            size=len(record.value or b""),
            skip=skip,
            value=None if record.value is None else record.value[skip : skip + length],
            stored=412,
            codec="zstd",
            batch_records=12,
            leader_epoch=7,
            producer_id=88_214,
            sequence=88_214_006,
            previous=offset - 1 if offset > log.start else None,
            next=offset + 1 if offset + 1 < log.end else None,
        )

    # --- changing ------------------------------------------------------------

    async def publish(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        partition: int | None,
        times: Times = AT_ONCE,
    ) -> Position:
        """Append one record, or have it wait."""
        if self.refusing is not None:
            raise errors.StorageFull(self.refusing)
        if times != AT_ONCE:
            self.calls.append(("publish at", times))
        if due := times.due:
            self._log(topic, partition or 0)
            due_ms = due if due > 0 else NOW - due
            return Position(
                partition=partition or 0, offset=-1, time_ms=NOW, delayed=17, due_ms=due_ms
            )
        log = self._log(topic, partition or 0)
        log.records.append(FakeRecord(NOW, value, key, headers))
        self.calls.append(("publish", topic, value, key, headers, partition))
        astray = key == b"nowhere"
        return Position(
            partition=partition or 0, offset=log.end - 1, time_ms=NOW, unroutable=astray
        )

    async def create_topic(
        self,
        name: str,
        partitions: int | None,
        config: Mapping[str, str],
        *,
        dry_run: bool,
        caller: Caller = LOCAL,
    ) -> Plan:
        """Make a topic."""
        plain = name.replace(".", "").replace("-", "").replace("_", "")
        if not (plain.isalnum() and name.isascii()) or name[0] == ".":
            raise errors.InvalidName(f"{name[:200]!r} is not a name", field="name")
        if len(name) > 200:
            raise errors.InvalidName("a name has at most 200 bytes", field="name")
        self._check(config)
        if name in self._topics:
            raise errors.TopicExists(f"there is a topic {name}", field="partitions")
        if not dry_run:
            self.calls.append(("create", name, partitions, dict(config)))
            logs = [FakePartition() for _ in range(partitions or 1)]
            self._topics[name] = FakeTopic(name=name, partitions=logs, config=dict(config))
        return Plan(action="create", topic=name, applied=not dry_run)

    def _check(self, config: Mapping[str, str | None]) -> None:
        for key in config:
            if key not in DEFAULTS:
                raise errors.InvalidRequest(f"there is no setting {key}", field=f"config.{key}")

    async def alter_topic(
        self,
        name: str,
        config: Mapping[str, str | None],
        *,
        dry_run: bool,
        caller: Caller = LOCAL,
    ) -> Plan:
        """Change settings."""
        topic = self._find(name)
        self._check(config)
        before = {key: topic.config.get(key, DEFAULTS[key]) for key in config}
        if not dry_run:
            self.calls.append(("alter", name, dict(config)))
            for key, value in config.items():
                topic.config.pop(key, None)
                if value is not None:
                    topic.config[key] = value
        return Plan(
            action="alter",
            topic=name,
            applied=not dry_run,
            changes=tuple(
                SettingChange(name=k, before=before[k], after=v) for k, v in config.items()
            ),
        )

    async def delete_topic(self, name: str, *, dry_run: bool) -> Plan:
        """Remove a topic."""
        topic = self._find(name)
        plan = self._removal("delete", topic, dry_run)
        if not dry_run:
            self.calls.append(("delete", name))
            del self._topics[name]
        return plan

    def _removal(self, action: str, topic: FakeTopic, dry_run: bool) -> Plan:
        parts = tuple(
            PlanPart(
                partition=i,
                first=p.start,
                end=p.end,
                records=p.end - p.start,
                bytes=p.bytes,
                oldest_ms=p.oldest_ms,
            )
            for i, p in enumerate(topic.partitions)
        )
        return Plan(
            action="delete" if action == "delete" else "purge",
            topic=topic.name,
            applied=not dry_run,
            records=sum(p.records for p in parts),
            bytes=sum(p.bytes for p in parts),
            oldest_ms=min((p.oldest_ms for p in parts if p.oldest_ms), default=None),
            parts=parts,
            readers=("billing (8 consumers)",) if topic.out else (),
            undo_until_ms=NOW + 600_000 if action == "purge" else None,
        )

    async def purge(
        self,
        topic: str,
        partition: int | None,
        before: At | Since | None,
        *,
        dry_run: bool,
        caller: Caller = LOCAL,
    ) -> Plan:
        """Move the start."""
        found = self._find(topic)
        plan = self._removal("purge", found, dry_run)
        if not dry_run:
            self.calls.append(("purge", topic, partition, before))
            found.undo_until = NOW + 600_000
            for log in found.partitions:
                log.purged = log.end - log.start
                log.start, log.earlier, log.records = log.end, 0, []
        return plan

    async def undo_purge(self, topic: str, caller: Caller = LOCAL) -> Plan:
        """Bring back."""
        found = self._find(topic)
        if found.undo_until is None:
            raise errors.NothingToUndo("no purge of this topic can be undone any more")
        self.calls.append(("undo", topic))
        found.undo_until = None
        return Plan(action="undo", topic=topic, applied=True, records=3)

    # --- brokers and clients -------------------------------------------------

    async def operate(
        self, name: str, arguments: Mapping[str, Any], caller: Caller
    ) -> dict[str, Any]:
        """Note an operation that the table allows; the answer is what was understood."""
        if name not in PUBLIC:
            raise errors.InvalidRequest(f"there is no operation {name}", field="name")
        operation = PUBLIC[name]
        operation.permit(caller.role)
        checked = operation.arguments(arguments)
        whole = dict(arguments) if operation.changes else checked
        answer = self.crowd.answer(name, whole)
        if answer is not None:
            return answer
        answer = self.flow.answer(name, whole) if self.flow.active(operation) else None
        if answer is not None:
            return answer
        answer = self.queue.answer(name, whole) if self.queue.active(name) else None
        if answer is not None:
            return answer
        if name == "topic.info":
            topic = self.topic(checked["name"])
            rows = [
                {"partition": one.index, "held": self.held.get((topic.name, one.index))}
                for one in topic.partitions
            ]
            config = {row.name: row.value for row in topic.config}
            return {"topic": {"partitions": rows, "config": config}}
        if operation.changes and not checked["dry_run"]:
            self.calls.append((name, checked))
        return {"did": name, "arguments": checked}

    async def channels(self, query: ChannelQuery) -> ChannelPage:
        """List channels."""
        if query.topic is not None:
            self._find(query.topic)
        return self.queue.page(query)

    async def backlog(self) -> Backlog:
        """Add up all channels."""
        return self.queue.backlog()

    def lag(self, channel: Mapping[str, Any]) -> Depth:
        """Tell what the lag of a channel was: it grew to what it is, unless nobody looked."""
        if not self.queue.looked:
            return Depth(Series(2000, NOW), Series(60_000, NOW))
        return depth(channel["lag"])

    async def groups(self, query: GroupQuery) -> GroupPage:
        """List groups."""
        return self.crowd.page(query)

    def group_lag(self, told: Mapping[str, Any]) -> Depth:
        """Tell what the lag of a group was: it grew to what it is, unless nobody looked."""
        if not self.queue.looked:
            return Depth(Series(2000, NOW), Series(60_000, NOW))
        return depth(told["group"]["lag"] or 0)

    async def clients(self, query: ClientQuery) -> ClientPage:
        """List the clients of the brokers that answer."""
        silent = {one.id for one in self.silent}
        here = [one for one in self.connected if one.broker_id not in silent]
        return select_clients(here, query, tuple(one.name for one in self.silent))

    async def client(self, broker_id: int, client: int) -> ClientSnapshot:
        """Look at one client."""
        if any(one.id == broker_id for one in self.silent):
            raise errors.BrokerSilent("the broker does not answer")
        for one in self.connected:
            if (one.broker_id, one.id) == (broker_id, client):
                return one
        raise errors.UnknownClient(f"there is no client {broker_id}/{client}")

    async def kick(self, broker_id: int, client: int, reason: str) -> ClientSnapshot:
        """End a connection."""
        found = await self.client(broker_id, client)
        self.connected.remove(found)
        self.calls.append(("kick", broker_id, client, reason))
        return found

    async def drain(self, broker_id: int, undo: bool, dry_run: bool) -> DrainPlan:
        """Take a broker out of placement, or back."""
        found = {one.id: one for one in self.brokers}
        if broker_id not in found:
            raise errors.UnknownBroker(f"there is no broker {broker_id}")
        if not dry_run:
            self.calls.append(("drain", broker_id, undo))
            self.broker, *others = (
                evolve(one, draining=not undo) if one.id == broker_id else one
                for one in (self.broker, *self.others)
            )
            self.others = tuple(others)
        return DrainPlan(
            broker_id=broker_id,
            broker=found[broker_id].name,
            undo=undo,
            applied=not dry_run,
            partitions=found[broker_id].partitions,
            takers=tuple(
                one.name
                for one in found.values()
                if one.role != "meta" and (undo if one.id == broker_id else not one.draining)
            ),
        )
