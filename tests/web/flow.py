"""What waits, comes by the clock, is routed and is pushed, in the fake broker."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final

from attrs import Factory, define

from tinymq import errors
from tinymq.operation import Operation

#: As in `tests.web.fakes`, which imports this module.
NOW: Final = 1_795_962_726_000
Json = dict[str, Any]
MINUTE: Final = 60_000
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR


#: What is asked of one that a console without any does not have.
_OF_ONE: Final = {"schedule.info", "exchange.info", "exchange.test", "delayed.get"}


def delayed_row(topic: str, partition: int, id_: int, due_ms: int, **more: Any) -> Json:
    """Make a waiting message."""
    return {
        "topic": topic,
        "partition": partition,
        "id": id_,
        "channel": None,
        "offset": None,
        "due_ms": due_ms,
        "why": "publish",
        "attempt": 0,
        "schedule": None,
        "key": "ord_48210377",
        "encoding": "string",
        "size": 671,
        "taken_ms": NOW - HOUR,
        **more,
    }


def schedule_row(name: str, topic: str, cron: str, text: str, **more: Any) -> Json:
    """Make a schedule."""
    return {
        "name": name,
        "topic": topic,
        "partition": 0,
        "cron": cron,
        "zone": "UTC",
        "catch_up": "skip",
        "paused": False,
        "next_ms": NOW + 27 * MINUTE,
        "last_ms": NOW - 33 * MINUTE,
        "created_ms": NOW - 9 * DAY,
        "runs": 412,
        "missed": 0,
        "text": text,
        "broker": "mq-1",
        "error": "",
        **more,
    }


def exchange_row(name: str, kind: str, bindings: int, **more: Any) -> Json:
    """Make an exchange."""
    return {
        "name": name,
        "kind": kind,
        "bindings": bindings,
        "dead_letter": f"{name}.unroutable",
        "created_ms": NOW - DAY,
        "failed": 0,
        "in_s": 42.0,
        "out_s": 61.5,
        "unroutable": 0,
        "lag": 0,
        "stuck": [],
        **more,
    }


def binding_row(id_: str, exchange: str, target: str, **more: Any) -> Json:
    """Make a binding."""
    return {
        "id": id_,
        "exchange": exchange,
        "target": target,
        "key": None,
        "headers": [],
        "rule": None,
        "created_ms": NOW - DAY,
        **more,
    }


def endpoint_row(topic: str, channel: str, url: str, **more: Any) -> Json:
    """Make a push endpoint."""
    return {
        "topic": topic,
        "channel": channel,
        "url": url,
        "timeout_ms": 10_000,
        "concurrency": 10,
        "give_up": 20,
        "state": "active",
        "why": "",
        "since_ms": NOW - 3 * DAY,
        "in_flight": 3,
        "delivered": 128_400,
        "failed": 12,
        "delivered_s": 12.4,
        "failed_s": 0.0,
        "last_status": 200,
        "last_error": "",
        "p50_ms": 38,
        "p95_ms": 112,
        "retry_at_ms": None,
        "headers": ["X-Tenant"],
        "set_ms": NOW - 3 * DAY,
        "last_error_ms": None,
        **more,
    }


def _told(row: Json | None, error: type[errors.WireError], text: str) -> Json:
    if row is None:
        raise error(text)
    return row


@define
class FakeFlow:
    """All of it; `calls` records every change that was carried out."""

    waiting: list[Json] = Factory(list)
    schedules: list[Json] = Factory(list)
    exchanges: list[Json] = Factory(list)
    bindings: list[Json] = Factory(list)
    endpoints: list[Json] = Factory(list)
    value: bytes = b'{"order_id":"ord_48210377","total":1249.00}'
    headers: list[list[str]] = Factory(lambda: [["region", "east-2"]])
    calls: list[tuple[Any, ...]] = Factory(list)
    failure: Exception | None = None
    silent: list[str] = Factory(list)

    def active(self, operation: Operation) -> bool:
        """Whether it answers an operation, or leaves that to its console."""
        whole = (self.waiting, self.schedules, self.exchanges, self.endpoints)
        return any(whole) or not (operation.changes or operation.name in _OF_ONE)

    def answer(self, name: str, arguments: Json) -> Json | None:
        """Answer an operation; None if it is not one of these."""
        method: Callable[..., Json] | None = getattr(self, "do_" + name.replace(".", "_"), None)
        if method is None:
            return None
        if self.failure is not None:
            raise self.failure
        return method(**arguments)

    def _did(self, dry_run: bool, *what: Any) -> bool:
        if not dry_run:
            self.calls.append(what)
        return not dry_run

    # --- delayed -------------------------------------------------------------

    def _waiting(self, **asked: Any) -> list[Json]:
        channel = asked.get("channel")
        since, until = asked.get("since_ms"), asked.get("until_ms")
        return sorted(
            (
                row
                for row in self.waiting
                if row["channel"] == channel
                and all(
                    asked.get(key) in (None, row[key])
                    for key in ("topic", "partition", "key", "schedule")
                )
                and (since is None or row["due_ms"] >= since)
                and (until is None or row["due_ms"] < until)
            ),
            key=lambda row: (row["due_ms"], row["id"] or row["offset"] or 0),
        )

    def do_delayed_list(self, limit: int = 100, after: str | None = None, **asked: Any) -> Json:
        """List what waits."""
        rows, first = self._waiting(**asked), int(after or 0)
        more = len(rows) > first + limit
        return {
            "messages": rows[first : first + limit],
            "total": len(rows),
            "more": more,
            "after": str(first + limit) if more else None,
            "silent": self.silent,
        }

    def do_delayed_histogram(self, topic: str | None = None, channel: str | None = None) -> Json:
        """Count by due time."""
        rows = self._waiting(topic=topic, channel=channel)
        edges = [0, *(MINUTE * n for n in (1, 2, 5, 10, 20, 40)), *(HOUR * n for n in (1, 2, 6))]
        edges += [DAY * n for n in (1, 2, 7, 30, 90, 365)]
        ends = [(-HOUR, 0), *pairwise(edges)]
        buckets = [
            {
                "from_ms": NOW + begin,
                "to_ms": NOW + end,
                "messages": sum(begin <= row["due_ms"] - NOW < end for row in rows),
            }
            for begin, end in ends
        ]
        return {
            "buckets": buckets if rows else [],
            "total": len(rows),
            "overdue": sum(row["due_ms"] < NOW for row in rows),
            "next_ms": rows[0]["due_ms"] if rows else None,
            "silent": self.silent,
        }

    def do_delayed_get(self, topic: str, partition: int, id: int) -> Json:  # noqa: A002
        """Look at one."""
        places = ((row["topic"], row["partition"], row["id"]) for row in self.waiting)
        index = next((i for i, p in enumerate(places) if p == (topic, partition, id)), None)
        if index is None:
            raise errors.UnknownDelayed(f"{topic}/{partition}~{id} does not wait any more")
        try:
            value, encoding = self.value.decode(), "string"
        except UnicodeDecodeError:
            value, encoding = base64.b64encode(self.value).decode(), "base64"
        headers = [{"name": n, "value": v, "value_encoding": "string"} for n, v in self.headers]
        more = {"headers": headers, "value": value, "value_encoding": encoding}
        return {"message": {**self.waiting[index], **more}, "state": "waiting"}

    def _settle(
        self, act: str, where: tuple[str, str | None, int], numbers: Sequence[int], **how: Any
    ) -> Json:
        dry_run, due = how.pop("dry_run", False), how.get("due_ms")
        topic, channel, partition = where
        key = "id" if channel is None else "offset"
        known = {
            row[key]: row
            for row in self.waiting
            if (row["topic"], row["channel"], row["partition"]) == (topic, channel, partition)
        }
        done = [each for each in numbers if each in known]
        if self._did(dry_run, act, topic, channel, partition, done, how):
            for each in done:
                if act == "move":
                    known[each]["due_ms"] = due or NOW + (how.get("delay_ms") or 0)
                else:
                    self.waiting.remove(known[each])
        missing = [each for each in numbers if each not in known]
        more = {"due_ms": due or NOW} if act == "move" else {}
        return {"done": done, "missing": missing, "dry_run": dry_run, **more}

    def do_delayed_cancel(self, topic: str, partition: int, ids: list[int], **how: Any) -> Json:
        """Take some away."""
        return self._settle("cancel", (topic, None, partition), ids, **how)

    def do_delayed_now(self, topic: str, partition: int, ids: list[int], **how: Any) -> Json:
        """Let some come now."""
        return self._settle("now", (topic, None, partition), ids, **how)

    def do_delayed_move(self, topic: str, partition: int, ids: list[int], **how: Any) -> Json:
        """Let some come at another time."""
        return self._settle("move", (topic, None, partition), ids, **how)

    def do_channel_wake(
        self, topic: str, name: str, partition: int, offsets: list[int], **how: Any
    ) -> Json:
        """Let retries come now."""
        return self._settle("wake", (topic, name, partition), offsets, **how)

    def do_channel_delay(
        self, topic: str, name: str, partition: int, offsets: list[int], **how: Any
    ) -> Json:
        """Let retries come at another time."""
        return self._settle("move", (topic, name, partition), offsets, **how)

    def do_delayed_apply(
        self,
        act: str,
        topic: str,
        limit: int = 500,
        after: str | None = None,
        dry_run: bool = False,
        **asked: Any,
    ) -> Json:
        """One step over all that match."""
        due_ms, delay_ms = asked.pop("due_ms", None), asked.pop("delay_ms", None)
        # Like a broker: behind the due time of the step before, and to the time of the first.
        at, new = map(int, (after or "0@0").split("@"))
        new = new or due_ms or NOW + (delay_ms or 0)
        rows = [row for row in self._waiting(topic=topic, **asked) if row["due_ms"] > at]
        step = rows[:limit]
        last = step[-1]["due_ms"] if step else 0
        step = [row for row in step if act != "move" or row["due_ms"] != new]
        if self._did(dry_run, "apply", act, topic, len(step), due_ms, delay_ms):
            for row in step:
                if act == "move":
                    row["due_ms"] = new
                else:
                    self.waiting.remove(row)
        more = len(rows) > limit
        return {
            "done": len(step),
            "failed": [],
            "more": more,
            "after": f"{last}@{new}" if more else None,
            "dry_run": dry_run,
        }

    # --- schedules -----------------------------------------------------------

    def _schedule(self, name: str) -> Json:
        found = next((row for row in self.schedules if row["name"] == name), None)
        return _told(found, errors.UnknownSchedule, f"there is no schedule {name[:200]!r}")

    def do_schedule_list(
        self,
        topic: str | None = None,
        filter: str = "",  # noqa: A002
        limit: int = 100,
        after: str | None = None,
    ) -> Json:
        """List them."""
        found = [
            row
            for row in self.schedules
            if topic in (None, row["topic"]) and (filter or "").strip("*") in row["name"]
        ]
        more = len(found) > limit
        return {
            "schedules": found[:limit],
            "more": more,
            "after": found[limit - 1]["name"] if more else None,
            "total": len(found),
            "silent": self.silent,
        }

    def do_schedule_info(self, name: str) -> Json:
        """Describe one."""
        row = self._schedule(name)
        upcoming = [] if row["paused"] else [row["next_ms"] + i * HOUR for i in range(10)]
        return {
            "schedule": {
                **row,
                "key": "report",
                "value": self.value.decode(),
                "value_encoding": "string",
                "headers": dict(self.headers),
                "upcoming": upcoming,
            },
            "silent": self.silent,
        }

    def do_schedule_create(
        self, name: str, topic: str, cron: str, dry_run: bool = False, **more: Any
    ) -> Json:
        """Make one."""
        if topic == "nope":
            raise errors.UnknownTopic("there is no topic 'nope'")
        if len(cron.split()) != 5:
            raise errors.InvalidRequest("cron needs five fields", field="cron")
        row = schedule_row(name, topic, cron, "in words", next_ms=None)
        row["upcoming"] = [NOW + 27 * MINUTE + i * HOUR for i in range(10)]
        if self._did(dry_run, "schedule.create", name, topic, cron, more):
            self.schedules.append({**row, "next_ms": row["upcoming"][0]})
        return {"schedule": row, "created": True, "dry_run": dry_run}

    def _change(self, name: str, what: str, dry_run: bool) -> Json:
        row = self._schedule(name)
        if self._did(dry_run, f"schedule.{what}", name):
            if what in {"pause", "resume"}:
                row["paused"] = what == "pause"
            if what == "delete":
                self.schedules.remove(row)
        return {"schedule": row, "dry_run": dry_run}

    def do_schedule_pause(self, name: str, dry_run: bool = False) -> Json:
        """Pause one."""
        return self._change(name, "pause", dry_run)

    def do_schedule_resume(self, name: str, dry_run: bool = False) -> Json:
        """Let one go on."""
        return self._change(name, "resume", dry_run)

    def do_schedule_delete(self, name: str, dry_run: bool = False) -> Json:
        """Remove one."""
        return self._change(name, "delete", dry_run)

    def do_schedule_run(self, name: str, dry_run: bool = False) -> Json:
        """Run one now."""
        row = self._change(name, "run", dry_run)["schedule"]
        offset = None if dry_run else 7
        return {"topic": row["topic"], "partition": 0, "offset": offset, "dry_run": dry_run}

    # --- exchanges -----------------------------------------------------------

    def _exchange(self, name: str) -> Json:
        found = next((row for row in self.exchanges if row["name"] == name), None)
        return _told(found, errors.UnknownExchange, f"there is no exchange {name[:200]!r}")

    def do_exchange_list(
        self,
        filter: str = "",  # noqa: A002
        limit: int = 100,
        after: str | None = None,
    ) -> Json:
        """List them."""
        found = [row for row in self.exchanges if (filter or "").strip("*") in row["name"]]
        return {
            "exchanges": found[:limit],
            "more": False,
            "after": None,
            "total": len(found),
            "silent": self.silent,
        }

    def do_exchange_info(self, name: str) -> Json:
        """Describe one."""
        rows = [row for row in self.bindings if row["exchange"] == name]
        row = {**self._exchange(name), "partitions": 4, "silent": self.silent}
        return {"exchange": row, "bindings": rows, "more": False}

    def do_exchange_create(
        self, name: str, kind: str, dead_letter: str | None = None, **more: Any
    ) -> Json:
        """Make one."""
        dry_run = more.pop("dry_run", False)
        if not name.replace("-", "").replace(".", "").isalnum():
            raise errors.InvalidName(f"{name!r} is not a name", field="name")
        row = exchange_row(name, kind, 0)
        if self._did(dry_run, "exchange.create", name, kind, dead_letter):
            self.exchanges.append(row)
        return {"exchange": row, "created": True, "dry_run": dry_run}

    def do_exchange_alter(self, name: str, dead_letter: str | None, dry_run: bool = False) -> Json:
        """Change where goes what is unroutable."""
        row = self._exchange(name)
        if self._did(dry_run, "exchange.alter", name, dead_letter):
            row["dead_letter"] = dead_letter
        return {"exchange": row, "dry_run": dry_run}

    def do_exchange_delete(self, name: str, force: bool = False, dry_run: bool = False) -> Json:
        """Remove one."""
        row = self._exchange(name)
        if self._did(dry_run, "exchange.delete", name):
            self.exchanges.remove(row)
        return {"exchange": row, "dry_run": dry_run}

    def do_binding_list(
        self,
        exchange: str | None = None,
        target: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Json:
        """List bindings."""
        found = [
            row
            for row in self.bindings
            if exchange in (None, row["exchange"]) and target in (None, row["target"])
        ]
        first = int(after or 0)
        more = len(found) > first + limit
        return {
            "bindings": found[first : first + limit],
            "more": more,
            "after": str(first + limit) if more else None,
            "total": len(found),
        }

    def do_binding_add(
        self,
        exchange: str,
        target: str,
        key: str | None = None,
        headers: list[str] | None = None,
        rule: str | None = None,
        dry_run: bool = False,
    ) -> Json:
        """Add a binding."""
        self._exchange(exchange)
        if target == exchange:
            raise errors.InvalidRequest("this would go round in a circle", field="target")
        if rule == "(":
            raise errors.InvalidRequest("the rule ends too early", field="rule")
        row = binding_row("0badcafe", exchange, target, key=key, headers=headers or [], rule=rule)
        if self._did(dry_run, "binding.add", exchange, target, key, headers, rule):
            self.bindings.append(row)
        return {"binding": row, "dry_run": dry_run}

    def do_binding_delete(self, exchange: str, id: str, dry_run: bool = False) -> Json:  # noqa: A002
        """Remove a binding."""
        rows = (row for row in self.bindings if (row["exchange"], row["id"]) == (exchange, id))
        found = next(rows, None)
        row = _told(found, errors.UnknownBinding, f"there is no binding {id[:40]!r}")
        if self._did(dry_run, "binding.delete", exchange, id):
            self.bindings.remove(row)
        return {"binding": row, "dry_run": dry_run}

    def do_exchange_test(
        self,
        name: str,
        key: str | None = None,
        headers: Any = None,
        value: str | None = None,
        encoding: str = "string",
    ) -> Json:
        """Tell where a message would go: here, along every binding with its key or none."""
        self._exchange(name)
        kinds = {row["name"] for row in self.exchanges}
        path: list[Json] = []
        targets: list[str] = []
        waiting = [name]
        while waiting:
            here = waiting.pop(0)
            for row in self.bindings:
                if row["exchange"] == here and row["key"] in (None, key):
                    step = {"exchange": here, "binding": row["id"], "target": row["target"]}
                    path.append(step)
                    (waiting if row["target"] in kinds else targets).append(row["target"])
        dead = self._exchange(name)["dead_letter"]
        return {
            "targets": sorted(set(targets)),
            "path": path,
            "unroutable": not targets,
            "dead_letter": dead,
            "failures": [],
        }

    def do_exchange_topology(self, exchange: str | None = None) -> Json:
        """Tell what sends to what."""
        kinds = {row["name"]: row for row in self.exchanges}
        near = {exchange}
        for _ in self.bindings:
            near |= {r["target"] for r in self.bindings if r["exchange"] in near}
        rows = [row for row in self.bindings if exchange is None or row["exchange"] in near]
        edges = [
            {
                "from": row["exchange"],
                "to": row["target"],
                "id": row["id"],
                "label": row["key"] or row["rule"] or "; ".join(row["headers"] or ()),
                "bindings": 1,
                "dead_letter": False,
            }
            for row in rows
        ]
        edges += [
            {
                "from": row["name"],
                "to": row["dead_letter"],
                "id": None,
                "label": "",
                "bindings": 0,
                "dead_letter": True,
            }
            for row in self.exchanges
            if row["dead_letter"] and (exchange is None or row["name"] in near)
        ]
        names = {edge[end] for edge in edges for end in ("from", "to")}
        names |= set(kinds) if exchange is None else {exchange}
        nodes = [
            {
                "name": name,
                "kind": "exchange" if name in kinds else "topic",
                "exchange_kind": kinds[name]["kind"] if name in kinds else None,
                "dead_letter": kinds[name]["dead_letter"] if name in kinds else None,
            }
            for name in sorted(names)
        ]
        return {"nodes": nodes, "edges": edges, "left_out": {"nodes": 0, "edges": 0}}

    # --- push endpoints ------------------------------------------------------

    def _endpoint(self, topic: str, name: str) -> Json:
        rows = (row for row in self.endpoints if (row["topic"], row["channel"]) == (topic, name))
        return _told(next(rows, None), errors.UnknownEndpoint, f"{name} is not pushed anywhere")

    def do_push_list(self, topic: str | None = None, limit: int = 100, **more: Any) -> Json:
        """List them."""
        found = [row for row in self.endpoints if topic in (None, row["topic"])]
        return {
            "endpoints": found[:limit],
            "more": False,
            "after": None,
            "total": len(found),
            "silent": self.silent,
        }

    def do_push_info(self, topic: str, name: str) -> Json:
        """Describe one."""
        return {"endpoint": self._endpoint(topic, name), "silent": self.silent}

    def do_push_set(
        self, topic: str, name: str, url: str, secret: str | None = None, **more: Any
    ) -> Json:
        """Set or alter one."""
        dry_run = more.pop("dry_run", False)
        if not url.startswith("https://"):
            raise errors.EndpointRefused("the address must begin with https://", field="url")
        row = endpoint_row(topic, name, url, delivered=0, failed=0)
        known = [(each["topic"], each["channel"]) for each in self.endpoints]
        made = None if secret or (topic, name) in known else "whsec_bWFkZSB1cA=="
        if self._did(dry_run, "push.set", topic, name, url, secret, more):
            self.endpoints = [
                each for each in self.endpoints if (each["topic"], each["channel"]) != (topic, name)
            ]
            self.endpoints.append(row)
        return {"endpoint": row, "secret": made, "dry_run": dry_run}

    def do_push_pause(self, topic: str, name: str, reason: str = "", dry_run: bool = False) -> Json:
        """Pause one."""
        row = self._endpoint(topic, name)
        if self._did(dry_run, "push.pause", topic, name, reason):
            row.update(state="paused", why=reason)
        return {"endpoint": row, "dry_run": dry_run}

    def do_push_resume(self, topic: str, name: str, dry_run: bool = False) -> Json:
        """Let one go on."""
        row = self._endpoint(topic, name)
        if self._did(dry_run, "push.resume", topic, name):
            row.update(state="active", why="")
        return {"endpoint": row, "dry_run": dry_run}

    def do_push_delete(self, topic: str, name: str, dry_run: bool = False) -> Json:
        """Remove one."""
        row = self._endpoint(topic, name)
        if self._did(dry_run, "push.delete", topic, name):
            self.endpoints.remove(row)
        return {"endpoint": row, "dry_run": dry_run}

    def do_push_test(self, topic: str, name: str, dry_run: bool = False) -> Json:
        """Send one made-up message."""
        self._endpoint(topic, name)
        self._did(dry_run, "push.test", topic, name)
        return {"ok": True, "status": 204, "ms": 41.5, "answer": "thank you", "error": ""}


def _waiting() -> list[Json]:
    rng = random.Random(12)
    found = [delayed_row("orders.created", 3, 4, NOW - 8_000, key=None)]
    for index in range(127):
        due = NOW + int(10 ** rng.uniform(3.2, 9.9))
        topic, parts = ("orders.created", 8) if index % 3 else ("mail.outbound", 3)
        found.append(
            delayed_row(
                topic,
                index % parts,
                17 + index,
                due,
                key=f"ord_{rng.randint(10**7, 10**8)}",
                size=600 + 13 * index,
                taken_ms=NOW - rng.randint(1000, DAY),
            )
        )
    found.append(
        delayed_row(
            "mail.outbound",
            0,
            900,
            NOW + 27 * MINUTE,
            why="schedule",
            schedule="daily-report",
            key="report",
            size=120,
        )
    )
    found += [
        delayed_row(
            "orders.created",
            index % 8,
            0,
            NOW + 9_000 + 4_000 * index,
            id=None,
            channel="billing",
            offset=20_753_000 + index,
            why="retry",
            attempt=index % 5 + 1,
            taken_ms=NOW - 5_000,
        )
        for index in range(64)
    ]
    return found


def flow() -> FakeFlow:
    """Make what the lively cluster has."""
    exchanges = [
        exchange_row("orders.in", "topic", 5, in_s=251.0, out_s=402.5),
        exchange_row("by-region", "headers", 3, in_s=180.2, out_s=180.2),
        exchange_row("alerts", "fanout", 3, in_s=0.4, out_s=1.2),
        exchange_row(
            "vip", "rule", 2, in_s=63.0, out_s=12.1, unroutable=4_120, dead_letter="vip.rest"
        ),
    ]
    bindings = [
        binding_row("a1b2c3d4", "orders.in", "orders.created", key="order.created.#"),
        binding_row("a1b2c3d5", "orders.in", "audit.raw", key="#"),
        binding_row("a1b2c3d6", "orders.in", "by-region", key="order.*.shipped"),
        binding_row("a1b2c3d7", "orders.in", "vip", key="order.created.gold"),
        binding_row("a1b2c3d8", "orders.in", "alerts", key="order.failed.*"),
        binding_row("b1b2c3d4", "by-region", "shipping.eu", headers=["region=eu"]),
        binding_row("b1b2c3d5", "by-region", "shipping.us", headers=["region=us"]),
        binding_row("b1b2c3d6", "by-region", "shipping.rest", headers=["region", "region!=eu"]),
        binding_row("c1b2c3d4", "alerts", "mail.outbound"),
        binding_row("c1b2c3d5", "alerts", "webhooks.out"),
        binding_row("c1b2c3d6", "alerts", "audit.raw"),
        binding_row("d1b2c3d4", "vip", "payments.capture", rule="json.total > 1000.0"),
        binding_row("d1b2c3d5", "vip", "mail.outbound", rule='headers["tier"] == "gold"'),
    ]
    schedules = [
        schedule_row("daily-report", "mail.outbound", "0 15 * * *", "At 15:00"),
        schedule_row(
            "reindex",
            "search.reindex",
            "*/10 * * * *",
            "Every 10 minutes",
            zone="Europe/Berlin",
            next_ms=NOW + 7 * MINUTE + 54_000,
            last_ms=NOW - 126_000,
            runs=10_412,
            missed=3,
        ),
        schedule_row(
            "month-end",
            "payments.capture",
            "0 2 1 * *",
            "At 02:00 on day 1",
            paused=True,
            next_ms=None,
            last_ms=None,
            runs=0,
        ),
        schedule_row(
            "old-sweep", "audit.raw", "30 4 * * 1", "At 04:30 on Monday", error="mq-3 is silent"
        ),
    ]
    endpoints = [
        endpoint_row("orders.created", "fulfilment", "https://wms.example/hooks/tinymq"),
        endpoint_row(
            "mail.outbound",
            "smtp",
            "https://mail.example/in?tenant=7",
            state="paused",
            why="20 failures in a row, the last: connection refused",
            since_ms=NOW - 1_260_000,
            in_flight=0,
            failed=1_204,
            delivered_s=0.0,
            last_status=None,
            last_error="connection refused",
            p50_ms=None,
            p95_ms=None,
        ),
        endpoint_row(
            "payments.capture",
            "ledger",
            "https://ledger.example/v1/events",
            failed=310,
            failed_s=0.6,
            last_status=503,
            last_error="503 Service Unavailable",
            p95_ms=2_950,
            retry_at_ms=NOW + 12_000,
        ),
    ]
    return FakeFlow(_waiting(), schedules, exchanges, bindings, endpoints)


def troubled_flow() -> FakeFlow:
    """Make one with troubles: messages long overdue, and an exchange that is stuck."""
    found = flow()
    found.waiting[0]["due_ms"] = NOW - 260_000
    stuck = {"target": "shipping.eu", "why": "partition 2 is offline", "since_ms": NOW - 400_000}
    found.exchanges[1].update(stuck=[stuck], lag=12_480)
    return found


def hostile_flow(texts: tuple[str, ...]) -> FakeFlow:
    """Make one in which every text that a stranger may set is an attack."""
    found = FakeFlow(value=texts[0].encode(), headers=[[text, text] for text in texts])
    for index, text in enumerate(texts):
        other = texts[(index + 1) % len(texts)]
        found.waiting += [
            delayed_row(text, 0, index, NOW + 5_000, key=text, schedule=text, why="schedule"),
            delayed_row(
                text, 0, 0, NOW + 5_000, id=None, offset=7, channel=text, why="retry", key=text
            ),
        ]
        found.schedules.append(
            schedule_row(text, text, text, text, zone=text, error=text, broker=text)
        )
        stuck = [{"target": other, "why": text, "since_ms": NOW - 90_000}]
        found.exchanges.append(exchange_row(text, "rule", 1, stuck=stuck, dead_letter=other))
        found.bindings.append(
            binding_row(text, text, f"{text}!", key=None, headers=[text], rule=text)
        )
        found.endpoints.append(
            endpoint_row(
                text, text, text, why=text, state="paused", last_error=text, last_status=500
            )
        )
    return found
