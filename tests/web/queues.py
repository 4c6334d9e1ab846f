"""Channels of the fake broker: what operations on them would answer."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

from attrs import Factory, define, evolve

from tinymq import errors
from tinymq.channelpolicy import DEFAULT_POLICY, ChannelPolicy
from tinymq.stats import Backlog, Depth, Series
from tinymq.web.channels import TROUBLED, ChannelPage, ChannelQuery, select_channels

#: As in `tests.web.fakes`, which imports this module.
NOW: Final = 1_795_962_726_000
Json = dict[str, Any]
_RATES: Final = ("delivered_s", "finished_s", "requeued_s", "timed_out_s", "published_s")
_TOTALS: Final = (
    "delivered",
    "redelivered",
    "finished",
    "requeued",
    "rejected",
    "timed_out",
    "lost",
    "given_up",
    "expired",
    "skipped",
    "late",
)


@define(kw_only=True)
class FakeChannel:
    """
    A channel.

    Attributes:
        topic: Its topic.
        name: Its name.
        lag: Messages that are not settled, by partition.
        ready: How many of all can be given out.
        in_flight: How many are in hand.
        waiting: How many wait.
        members: Who is subscribed.
        rates: In the order of `_RATES`.
        why: Causes and sentences.
    """

    topic: str
    name: str
    lag: list[int] = Factory(lambda: [0])
    in_flight: int = 0
    waiting: int = 0
    members: list[Json] = Factory(list)
    rates: tuple[float | None, ...] = (0.0,) * 5
    trend: float | None = 0.0
    expired_s: float | None = 0.0
    state: str = "idle"
    why: list[tuple[str, str]] = Factory(list)
    policy: ChannelPolicy = DEFAULT_POLICY
    paused: Json | None = None
    undo_until: int | None = None
    silent: list[str] = Factory(list)
    offline: dict[int, str] = Factory(dict)
    temporary: bool = False
    start: Any = "earliest"

    @property
    def row(self) -> Json:
        """The channel in a list."""
        lag = sum(self.lag)
        shrinks = -self.trend if self.trend is not None and self.trend < 0 else None
        return {
            "topic": self.topic,
            "name": self.name,
            "created_ms": NOW - 9 * 86_400_000,
            "start": self.start,
            "config": self.policy.to_mapping(),
            "paused": self.paused,
            "temporary": self.temporary,
            "group": self.name.partition("@")[0],
            "instance": self.name.partition("@")[2],
            "ready": max(0, lag - self.in_flight - self.waiting),
            "in_flight": self.in_flight,
            "waiting": self.waiting,
            "parked": 0,
            "given_up": 0,
            "lag": lag,
            "consumers": len(self.members),
            "rates": {**dict(zip(_RATES, self.rates, strict=True)), "expired_s": self.expired_s},
            "totals": {key: 1000 * (10 - i) for i, key in enumerate(_TOTALS)},
            "lag_ms": 192_000 if lag else None,
            "trend_s": self.trend,
            "clear_ms": round(lag / shrinks * 1000) if shrinks else None,
            "state": "paused" if self.paused else self.state,
            "why": [{"cause": cause, "text": text} for cause, text in self.why],
        }

    @property
    def info(self) -> Json:
        """The channel with its partitions."""
        row = self.row
        return {
            **row,
            "dead_letter": f"{self.topic}.{self.name}.dead",
            "undo_until_ms": self.undo_until,
            "partitions": [self._partition(i, lag) for i, lag in enumerate(self.lag)],
            "silent": self.silent,
        }

    def _partition(self, index: int, lag: int) -> Json:
        if index in self.offline:
            place = {"partition": index, "leader": "mq-3", "leader_id": 3, "state": "offline"}
            told = self._known(index, lag)
            return {**dict.fromkeys(told), **place, "reason": self.offline[index]}
        return self._known(index, lag)

    def _known(self, index: int, lag: int) -> Json:
        paced = {"rates", "totals", "trend_s", "clear_ms"}
        whole = {key: value for key, value in self.row.items() if key in paced}
        return {
            **whole,
            "partition": index,
            "leader": f"mq-{index % 3 + 1}",
            "leader_id": index % 3 + 1,
            "state": "online",
            "reason": "",
            "ready": lag,
            "in_flight": self.in_flight // len(self.lag),
            "waiting": self.waiting // len(self.lag),
            "parked": 0,
            "given_up": 0,
            "lag": lag,
            "consumers": len(self.members),
            "floor": 9_280_000 + index,
            "cursor": 9_280_735 + index,
            "end": 9_280_735 + index + lag,
            "paused": bool(self.paused),
            "next_due_ms": NOW + 9_000 if self.waiting else None,
            "undo_until_ms": self.undo_until,
            "why": "",
            "lag_ms": 192_000 if lag else None,
        }


def member(index: int, **changes: Any) -> Json:
    """Make a consumer."""
    return {
        "broker": "mq-1",
        "broker_id": 1,
        "client": 1000 + index,
        "client_id": f"billing-{index + 1}",
        "address": f"10.0.3.{index + 10}:51{index:03}",
        "agent": "tinymq-python/0.4",
        "partitions": [0, 1, 2, 3],
        "credit": 22,
        "in_flight": 78,
        "oldest_ms": 1900,
        "delivered": 18_220 + index,
        "finished": 18_100,
        "requeued": 12,
        "timed_out": 0,
        "finished_s": 35.2,
        "slow_since_ms": None,
        "slow": "",
        "absent_until_ms": None,
        **changes,
    }


def depth(now: int) -> Depth:
    """Make the history of a queue that grew to what it is."""
    values = tuple(now * (0.2 + 0.8 * max(0, i - 90) / 209) for i in range(300))
    return Depth(Series(2000, NOW, values), Series(60_000, NOW, values))


@define
class FakeQueue:
    """All channels; `calls` records every change that was carried out."""

    channels: list[FakeChannel]
    calls: list[tuple[Any, ...]] = Factory(list)
    silent: tuple[str, ...] = ()
    held: list[Json] = Factory(list)
    queues: list[Json] = Factory(list)
    letters: dict[str, list[Json]] = Factory(dict)
    fixed: list[Json] = Factory(list)
    failure: Exception | None = None
    looked: bool = True

    @property
    def rows(self) -> list[Json]:
        """Every channel in order."""
        if self.fixed:
            return self.fixed
        found = (channel.row for channel in self.channels)
        return sorted(found, key=lambda row: (row["topic"], row["name"]))

    def page(self, query: ChannelQuery) -> ChannelPage:
        """List channels."""
        return select_channels(self.rows, query, self.silent)

    def backlog(self) -> Backlog:
        """Add all up."""
        rows = sorted(self.rows, key=lambda row: -row["lag"])
        bad = [row for row in rows if row["state"] in TROUBLED and row["lag"]]
        return Backlog(
            taken_ms=NOW,
            channels=len(rows),
            **{
                key: sum(row[key] for row in rows)
                for key in ("ready", "in_flight", "waiting", "given_up")
            },
            worst=tuple(row for row in rows if row["lag"])[:5],
            latest=max((r for r in rows if r["lag_ms"]), key=lambda r: r["lag_ms"], default=None),
            troubled=tuple(bad),
            troubled_count=len(bad),
            silent=self.silent,
            ready_depth=depth(sum(row["ready"] for row in rows)) if self.looked else None,
            in_flight_depth=depth(sum(row["in_flight"] for row in rows)) if self.looked else None,
            dead_letters=sum(row["messages"] for row in self.queues),
            dead_queues=tuple((q["target"], q["messages"]) for q in self.queues if q["messages"]),
        )

    def find(self, topic: str, name: str) -> FakeChannel:
        """Find a channel."""
        for each in self.channels:
            if (each.topic, each.name) == (topic, name):
                return each
        raise errors.UnknownChannel(f"the topic {topic} has no channel {name[:200]!r}")

    # --- operations ----------------------------------------------------------

    def active(self, name: str) -> bool:
        """Whether it answers an operation, or leaves that to its console."""
        return bool(self.channels) or name == "message.life"

    def answer(self, name: str, arguments: Json) -> Json | None:
        """Answer an operation; None if it is not one of these."""
        method: Callable[..., Json] | None = getattr(self, "do_" + name.replace(".", "_"), None)
        if method is None:
            return None
        if self.failure is not None:
            raise self.failure
        return method(**arguments)

    def do_channel_info(self, topic: str, name: str) -> Json:
        """Describe one."""
        return {"channel": self.find(topic, name).info}

    def do_channel_members(self, topic: str, name: str) -> Json:
        """List who is subscribed."""
        return {"members": self.find(topic, name).members, "silent": []}

    def do_channel_create(
        self,
        topic: str,
        name: str,
        config: Json,
        start: Any = None,
        temporary: bool = False,
        dry_run: bool = False,
    ) -> Json:
        """Make one."""
        if not name.replace("-", "").replace(".", "").isalnum():
            raise errors.InvalidName(f"{name!r} is not a name", field="name")
        policy = ChannelPolicy.from_mapping(config)
        made = FakeChannel(topic=topic, name=name, policy=policy, temporary=temporary)
        made.start = start or ("latest" if temporary else "earliest")
        if not dry_run:
            self.calls.append(("create", topic, name, config, start))
            self.channels.append(made)
        return {"channel": made.info, "created": True, "dry_run": dry_run}

    def do_channel_alter(self, topic: str, name: str, config: Json, dry_run: bool = False) -> Json:
        """Change settings."""
        found = self.find(topic, name)
        old, after = found.policy.to_mapping(), found.policy.altered(config)
        new = after.to_mapping()
        if not dry_run:
            self.calls.append(("alter", topic, name, config))
            found.policy = after
        changes = [[key, old[key], new[key]] for key in new if old[key] != new[key]]
        return {"channel": found.info, "changes": changes, "dry_run": dry_run}

    def do_channel_pause(
        self,
        topic: str,
        name: str,
        until_ms: int | None = None,
        reason: str = "",
        undo: bool = False,
        dry_run: bool = False,
    ) -> Json:
        """Pause or let go on."""
        found = self.find(topic, name)
        if not dry_run:
            self.calls.append(("pause", topic, name, until_ms, reason, undo))
            pause = {"since_ms": NOW - 60_000, "until_ms": until_ms, "reason": reason}
            found.paused = None if undo else pause
        return {"channel": found.info, "changed": True, "dry_run": dry_run}

    def do_channel_seek(self, topic: str, name: str, dry_run: bool = False, **where: Any) -> Json:
        """Move one."""
        found = self.find(topic, name)
        rows = [
            {
                "partition": i,
                "cursor": 9_280_735,
                "new_cursor": 9_280_735 + lag,
                "skipped": lag,
                "revived": 0,
                "lost": 3,
                "undo_until_ms": NOW + 600_000,
            }
            for i, lag in enumerate(found.lag)
        ]
        if not dry_run:
            self.calls.append(("seek", topic, name, where))
            found.undo_until = NOW + 600_000
        sums = {key: sum(row[key] for row in rows) for key in ("skipped", "revived", "lost")}
        facts = {"topic": topic, "channel": name, "silent": [], "dry_run": dry_run}
        return {"plan": {**facts, "partitions": rows, **sums}}

    do_channel_empty = do_channel_seek

    def do_channel_undo_seek(self, topic: str, name: str) -> Json:
        """Take it back."""
        found = self.find(topic, name)
        self.calls.append(("undo_seek", topic, name))
        found.undo_until = None
        return {"channel": found.info, "undone": [0], "dry_run": False}

    def do_channel_delete(self, topic: str, name: str, dry_run: bool = False) -> Json:
        """Remove one."""
        found = self.find(topic, name)
        if not dry_run:
            self.calls.append(("delete", topic, name))
            self.channels.remove(found)
        return {"channel": found.info, "dry_run": dry_run}

    def do_channel_peek(
        self,
        topic: str,
        name: str,
        partition: int | None,
        state: str,
        limit: int,
        after: Any,
    ) -> Json:
        """Look at messages."""
        found = self.find(topic, name)
        rng = random.Random(3)
        states = ("in_flight", "waiting", "ready", "ready", "parked", "given_up")
        messages = [
            {
                "partition": i % len(found.lag),
                "offset": 20_766_200 + i,
                "state": states[i % len(states)],
                "attempt": i % 3,
                "failures": i % 2,
                "due_ms": NOW + 4000 if i % 6 == 1 else None,
                "deadline_ms": NOW + 9000 if i % 6 == 0 else None,
                "time_ms": NOW - 1000 * i,
                "key": None if i % 5 == 4 else f"ord_{rng.randint(10**7, 10**8)}",
                "key_encoding": "string",
                "size": 900 + i,
                "preview_encoding": "string",
                "preview": '{"order_id":"ord_48210377","currency":"EUR"}',
            }
            for i in range(24)
        ]
        wanted = [m for m in messages if state in ("any", m["state"])]
        wanted = [m for m in wanted if partition in (None, m["partition"])]
        return {"messages": wanted[:limit], "more": True, "after": "3/20766224", "silent": []}

    # --- messages in flight --------------------------------------------------

    def do_inflight_list(self, limit: int, after: str | None, **asked: Any) -> Json:
        """List what consumers hold."""
        rows = [
            row
            for row in self.held
            if asked["topic"] in (None, row["topic"])
            and asked["channel"] in (None, row["channel"])
            and asked["client"] in (None, row["client_id"])
            and row["attempt"] >= asked["attempts"]
            and NOW - row["since_ms"] >= asked["older_ms"]
        ]
        first = int(after or 0)
        more = len(rows) > first + limit
        return {
            "messages": rows[first : first + limit],
            "more": more,
            "after": str(first + limit) if more else None,
            "total": len(rows),
            "silent": [],
        }

    def do_inflight_settle(
        self,
        topic: str,
        name: str,
        partition: int,
        offsets: list[int],
        act: str,
        dry_run: bool = False,
        **how: Any,
    ) -> Json:
        """Decide about some."""
        held = {
            row["offset"]
            for row in self.held
            if (row["topic"], row["channel"], row["partition"]) == (topic, name, partition)
        }
        done = [each for each in offsets if each in held]
        if not dry_run:
            self.calls.append(("settle", topic, name, partition, done, act, how))
            self.held = [
                row
                for row in self.held
                if row["offset"] not in done or (row["topic"], row["channel"]) != (topic, name)
            ]
        missing = [each for each in offsets if each not in held]
        return {"done": done, "missing": missing, "dry_run": dry_run}

    # --- dead letters --------------------------------------------------------

    def do_dlq_list(self, topic: str | None, filter: str, after: str, limit: int) -> Json:  # noqa: A002
        """List the topics of dead letters."""
        found = [
            row
            for row in self.queues
            if topic is None or topic in row["topics"]
            if filter.strip("*") in row["target"]
        ]
        return {"queues": found, "more": False, "after": None, "total": len(found), "silent": []}

    def _letters(self, target: str, wanted: Json, after: str) -> list[Json]:
        if target not in {row["target"] for row in self.queues}:
            raise errors.UnknownTopic(f"there is no topic {target[:200]!r}")
        places = wanted.get("offsets")
        return [
            row
            for row in self.letters.get(target, [])
            if all(wanted.get(key) in (None, row[key]) for key in ("topic", "channel", "reason"))
            and (wanted.get("text") or "") in row["text"]
            and (not places or f"{row['partition']}:{row['offset']}" in places)
            and row["offset"] > int(after.rpartition(":")[2] or -1)
        ]

    def do_dlq_messages(self, target: str, limit: int, after: str, **wanted: Any) -> Json:
        """Look at dead letters."""
        found = self._letters(target, wanted, after)
        groups: dict[tuple[str, ...], int] = {}
        for row in found:
            key = tuple(row[each] for each in ("reason", "topic", "channel", "text"))
            groups[key] = groups.get(key, 0) + 1
        more = len(found) > limit
        last = found[:limit][-1] if found else None
        return {
            "groups": [
                {"reason": r, "topic": t, "channel": c, "text": x, "count": n}
                for (r, t, c, x), n in sorted(groups.items(), key=lambda one: -one[1])
            ],
            "messages": found[:limit],
            "scanned": len(found),
            "more": more,
            "after": f"{last['partition']}:{last['offset']}" if more and last else None,
            "silent": [],
        }

    def do_dlq_redrive(
        self, target: str, limit: int, after: str = "", dry_run: bool = False, **wanted: Any
    ) -> Json:
        """Send some back."""
        found = self._letters(target, wanted, after)
        step = found[:limit]
        failed = [row for row in step if not row["topic"]]
        if not dry_run:
            self.calls.append(("redrive", target, len(step), wanted.get("to", "dropped")))
            gone = [row for row in step if row not in failed]
            self.letters[target] = [row for row in self.letters[target] if row not in gone]
        more = len(found) > limit
        return {
            "done": len(step) - len(failed),
            "skipped": 0,
            "failed": [
                {"partition": row["partition"], "offset": row["offset"], "why": "no origin"}
                for row in failed
            ],
            "loops": sum(row["loop"] for row in step),
            "more": more,
            "after": f"{step[-1]['partition']}:{step[-1]['offset']}" if more else None,
            "silent": [],
            "dry_run": dry_run,
        }

    do_dlq_drop = do_dlq_redrive

    # --- one message ---------------------------------------------------------

    def do_message_life(self, topic: str, partition: int, offset: int) -> Json:
        """Tell what channels did with it."""
        names = [channel.name for channel in self.channels if channel.topic == topic]
        at = NOW - 3_300
        if not names:
            return {"events": [], "channels": [], "since_ms": None, "more": False}

        def event(after: int, what: str, attempt: int, who: str | None, text: str = "") -> Json:
            return {
                "channel": names[0],
                "time_ms": at + after,
                "what": what,
                "attempt": attempt,
                "client_id": who,
                "text": text,
            }

        events = [
            event(625, "delivered", 1, "billing-7"),
            event(1_625, "timed_out", 1, "billing-7", "no answer in 1 s"),
            event(2_638, "delivered", 2, "billing-2"),
            event(2_679, "finished", 2, "billing-2"),
        ]
        states = ("settled", "in_flight", "waiting")
        return {
            "events": events,
            "channels": [{"channel": name, "state": states[i % 3]} for i, name in enumerate(names)],
            "since_ms": NOW - 86_400_000,
            "more": False,
        }


def holding() -> list[Json]:
    """Make messages in the hands of consumers, the oldest first."""
    rng = random.Random(8)
    ages = sorted((rng.uniform(1, 59.5) for _ in range(70)), reverse=True)
    return [
        {
            "topic": "orders.created",
            "channel": "billing" if index % 5 else "fulfilment",
            "partition": 3 if index < 12 else index % 8,
            "offset": 20_753_545 + 3 * index,
            "broker": "mq-1",
            "broker_id": 1,
            "client": 1006 if index < 12 else 1000 + index % 6,
            "client_id": "billing-7" if index < 12 else f"billing-{index % 6 + 1}",
            "address": "10.0.3.16:51006",
            "attempt": index % 3 + 1,
            "failures": index % 3,
            "since_ms": NOW - 60_000 if index == 0 else NOW - int(age * 1000),
            "deadline_ms": NOW if index == 0 else NOW - int(age * 1000) + 60_000,
            "lease_ms": 60_000,
            "state": "timed_out" if index == 0 else "in_flight",
            "size": 600 + 13 * index if index % 7 else None,
            "key": f"ord_{rng.randint(10**7, 10**8)}",
            "key_encoding": "string",
        }
        for index, age in enumerate(ages)
    ]


def dead(target: str, count: int, text: str = "") -> list[Json]:
    """Make dead letters."""
    texts = (
        "ValueError: total must not be negative: -12.50",
        "ConnectionError: bank.example refused (111)",
        "",
    )
    reasons = ("failed", "failed", "timeout", "rejected", "lost")
    return [
        {
            "partition": 0,
            "offset": index,
            "topic": text or ("orders.created" if index % 40 != 7 else ""),
            "origin_partition": 3,
            "origin_offset": 20_766_200 + index,
            "channel": text or "billing",
            "reason": text or reasons[index % 5],
            "text": text or texts[index % 5 % 3],
            "attempts": 8,
            "failures": 8,
            "client": text or "billing-7",
            "first_ms": NOW - 9_000_000 + index,
            "last_ms": NOW - 4_000_000 + 9000 * index,
            "hops": 1,
            "redriven": int(index % 9 == 4),
            "loop": index % 9 == 4,
            "key": text or "ord_48210377",
            "key_encoding": "string",
            "size": 671,
            "preview": text or '{"order_id":"ord_48210377"}',
            "preview_encoding": "string",
        }
        for index in range(count)
    ]


def queue_of(target: str, topic: str, channel: str | None, messages: int, **more: Any) -> Json:
    """Make a topic of dead letters."""
    return {
        "target": target,
        "topics": [topic],
        "channel": channel,
        "messages": messages,
        "oldest_ms": NOW - 4_000_000 if messages else None,
        "newest_ms": NOW - 90_000 if messages else None,
        "per_s": 0.4 if messages else 0.0,
        "kept": 0,
        "kept_why": "",
        "parking": False,
        "loop": "",
        **more,
    }


def work() -> FakeQueue:
    """Make the channels of the lively cluster: one falls behind, one is stuck, one is paused."""
    slow = member(
        6,
        in_flight=100,
        credit=0,
        finished_s=0.5,
        timed_out=72,
        slow="2.1 s a message; the others take 41 ms",
        slow_since_ms=NOW - 900_000,
        oldest_ms=58_000,
    )
    crew = [member(i) for i in range(8)]
    crew[6] = slow
    strict = evolve(DEFAULT_POLICY, order="key", attempts=8)
    return FakeQueue(
        [
            FakeChannel(
                topic="orders.created",
                name="billing",
                lag=[402, 421, 375, 12712, 388, 404, 371, 427],
                in_flight=642,
                waiting=1204,
                members=crew,
                rates=(248.5, 246.4, 2.1, 1.2, 251.0),
                trend=4.6,
                state="stuck",
                policy=strict,
                why=[
                    ("slow_consumer", "billing-7 is slow: 2.1 s a message, the other seven 41 ms"),
                    ("partition_skew", "partition 3 holds 82 % of the lag (12,712 of 15,500)"),
                    ("waiting", "1,204 messages wait for their next attempt, the first in 9 s"),
                ],
            ),
            FakeChannel(
                topic="orders.created",
                name="fulfilment",
                lag=[3] * 8,
                in_flight=24,
                members=[member(i, client_id=f"pick-{i}", in_flight=8) for i in range(3)],
                rates=(251.0, 251.2, 0.0, 0.0, 251.0),
                trend=-0.2,
                state="consuming",
            ),
            FakeChannel(
                topic="orders.created",
                name="search-index",
                lag=[1500] * 8,
                members=[member(1, client_id="index-1")],
                rates=(310.0, 309.0, 0.0, 0.0, 251.0),
                trend=-58.0,
                state="consuming",
            ),
            FakeChannel(
                topic="payments.capture",
                name="ledger",
                lag=[60, 0, 0, 40, 0, 0],
                rates=(0.0, 0.0, 0.0, 0.0, 4.1),
                trend=4.1,
                state="no_consumers",
                why=[("no_consumers", "nobody is subscribed")],
            ),
            FakeChannel(
                topic="media.resize",
                name="thumbs",
                lag=[7, 2, 1],
                members=[member(0, client_id="thumbs-1", in_flight=0)],
                rates=(None,) * 5,
                expired_s=None,
                trend=None,
                state="paused",
                paused={"since_ms": NOW - 3_600_000, "until_ms": None, "reason": "new codec"},
                why=[("paused", "paused since 13:32:06 UTC: new codec")],
            ),
            FakeChannel(topic="audit.raw", name="tail@laptop-7", temporary=True, lag=[0] * 3),
            FakeChannel(topic="mail.outbound", name="smtp", lag=[0, 0, 0], state="idle"),
        ],
        held=holding(),
        queues=[
            queue_of("orders.created.billing.dead", "orders.created", "billing", 342),
            queue_of(
                "payments.dead",
                "payments.capture",
                None,
                7,
                topics=["payments.capture", "mail.outbound", "media.resize"],
                kept=12,
                kept_why="payments.dead takes no messages: its partition 2 is offline",
            ),
            queue_of("mail.outbound.smtp.dead", "mail.outbound", "smtp", 0),
        ],
        letters={
            "orders.created.billing.dead": dead("orders.created.billing.dead", 342),
            "payments.dead": dead("payments.dead", 7),
        },
    )


def hostile_work(texts: tuple[str, ...]) -> FakeQueue:
    """Make channels in which every text that a stranger may set is an attack."""
    found = []
    for text in texts:
        one = FakeChannel(
            topic=text,
            name=text,
            lag=[5],
            in_flight=1,
            members=[member(0, client_id=text, broker=text, address=text, agent=text, slow=text)],
            rates=(1.0,) * 5,
            state="stuck",
            why=[("poison", text), (text, text)],
            paused={"since_ms": NOW, "until_ms": None, "reason": text},
        )
        found.append(one)
    held = [
        {
            **row,
            **dict.fromkeys(("topic", "channel", "broker", "client_id", "address", "key"), text),
        }
        for row, text in zip(holding(), texts, strict=False)
    ]
    queues = [queue_of(text, text, text, 3, kept=1, kept_why=text, loop=text) for text in texts]
    return FakeQueue(
        found, held=held, queues=queues, letters={text: dead(text, 3, text) for text in texts}
    )
