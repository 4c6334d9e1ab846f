"""Consumer groups, transactions and histories of topics in the fake broker."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any, Final

from attrs import Factory, define

from tinymq import errors
from tinymq.web.groups import GroupPage, GroupQuery, select_groups, shown

#: As in `tests.web.fakes`, which imports this module.
NOW: Final = 1_795_962_726_000
Json = dict[str, Any]
SECOND: Final = 1_000
MINUTE: Final = 60_000
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR


def member(index: int, **changes: Any) -> Json:
    """Make a member."""
    return {
        "id": f"7f3a09c2-e81b-4b7e-9d10-0000000000{index:02}",
        "instance": "",
        "client": f"billing-{index + 1}",
        "address": f"10.0.3.{index + 10}:51{index:03}",
        "since_ms": NOW - 3 * HOUR - index * MINUTE,
        "heard_ms": NOW - 900 - 40 * index,
        "topics": ["orders.created", "payments.*"],
        "partitions": 0,
        "draining": 0,
        "state": "stable",
        **changes,
    }


def position(topic: str, partition: int, lag: int | None, **changes: Any) -> Json:
    """Say how far a group is in a partition."""
    end = 9_280_735 + 1_000 * partition
    return {
        "topic": topic,
        "partition": partition,
        "committed": None if lag is None else end - lag,
        "epoch": 4,
        "note": "",
        "committed_ms": None if lag is None else NOW - 1_200 - 10 * partition,
        "start": 4_811_020,
        "end": end,
        "lag": lag,
        "lag_s": lag / 40 if lag else None,
        "member": "",
        "generation": 31,
        "draining": False,
        "error": "",
        **changes,
    }


@define(kw_only=True)
class FakeGroup:
    """A group: its members, how far it is, and what happened to it."""

    name: str
    state: str = "stable"
    members: list[Json] = Factory(list)
    partitions: list[Json] = Factory(list)
    rebalances: list[Json] = Factory(list)
    trend: float | None = 0.0
    stuck: str = ""
    coordinator: str = "mq-1"
    strategy: str = "cooperative-sticky"
    undo_until: int | None = None
    silent: list[str] = Factory(list)

    def assign(self) -> FakeGroup:
        """Share the partitions out among the members, one after the other."""
        for index, row in enumerate(self.partitions):
            if self.members:
                row["member"] = self.members[index % len(self.members)]["id"]
        for one in self.members:
            held = [row for row in self.partitions if row["member"] == one["id"]]
            one["partitions"] = len(held)
            one["draining"] = sum(row["draining"] for row in held)
        return self

    @property
    def row(self) -> Json:
        """The group in a list."""
        known = [row["lag"] for row in self.partitions if row["lag"] is not None]
        lag = sum(known) or (0 if len(known) == len(self.partitions) else None)
        ages = [row["lag_s"] for row in self.partitions if row["lag_s"] is not None]
        commits = [row["committed_ms"] for row in self.partitions if row["committed_ms"]]
        shrinks = -self.trend if self.trend is not None and self.trend < 0 else None
        return {
            "name": self.name,
            "state": self.state,
            "members": len(self.members),
            "topics": sorted({row["topic"] for row in self.partitions}),
            "partitions": len(self.partitions),
            "lag": lag,
            "lag_s": max(ages, default=None),
            "trend": self.trend,
            "clear_s": lag / shrinks if shrinks and lag is not None else None,
            "coordinator": self.coordinator,
            "strategy": self.strategy,
            "generation": 31,
            "committed_ms": max(commits, default=None),
            "created_ms": NOW - 90 * DAY,
            "stuck": self.stuck,
        }

    @property
    def told(self) -> Json:
        """The group, whole."""
        return {
            "group": self.row,
            "members": self.members,
            "partitions": self.partitions,
            "rebalances": self.rebalances,
            "undo_until_ms": self.undo_until,
            "silent": self.silent,
        }


def change(act: str, ago_ms: int, *settings: tuple[str, str | None, str], **more: Any) -> Json:
    """Make a change of a topic."""
    rows = [{"name": n, "before": b, "after": a} for n, b, a in settings]
    who = {"who": "ops-2", "peer": "10.0.0.7:51000"}
    return {"at_ms": NOW - ago_ms, **who, "act": act, "settings": rows, "note": "", **more}


@define
class FakeCrowd:
    """All groups and transactions; `calls` records every change that was carried out."""

    groups: list[FakeGroup] = Factory(list)
    transactions: list[Json] = Factory(list)
    changes: list[Json] = Factory(list)
    calls: list[tuple[Any, ...]] = Factory(list)
    silent: list[str] = Factory(list)
    failure: Exception | None = None
    #: Operations that cannot be carried out just now.
    untold: set[str] = Factory(set)

    @property
    def rows(self) -> list[Json]:
        """Every group in order."""
        return sorted((group.row for group in self.groups), key=lambda row: row["name"])

    def page(self, query: GroupQuery) -> GroupPage:
        """List groups."""
        if self.failure is not None:
            raise self.failure
        return select_groups(map(shown, self.rows), query, self.silent)

    def find(self, name: str) -> FakeGroup:
        """Find a group."""
        for each in self.groups:
            if each.name == name:
                return each
        raise errors.UnknownGroup(f"there is no group {name[:200]!r}")

    def answer(self, name: str, arguments: Json) -> Json | None:
        """Answer an operation; None if it is not one of these."""
        method: Callable[..., Json] | None = getattr(self, "do_" + name.replace(".", "_"), None)
        if method is None:
            return None
        if self.failure is not None:
            raise self.failure
        if name in self.untold:
            raise errors.StateError("not now")
        return method(**arguments)

    def _did(self, dry_run: bool, *what: Any) -> bool:
        if not dry_run:
            self.calls.append(what)
        return not dry_run

    # --- groups --------------------------------------------------------------

    def do_group_list(self, filter: str = "", topic: str | None = None, **_: Any) -> Json:  # noqa: A002
        """List groups."""
        found = [
            row
            for row in self.rows
            if fnmatchcase(row["name"], filter or "*") and topic in (None, *row["topics"])
        ]
        return {"groups": found, "more": False, "after": None, "silent": self.silent}

    def do_group_info(self, name: str) -> Json:
        """Describe one."""
        return self.find(name).told

    def _move(self, name: str, act: str, after: Callable[[Json], int | None], how: Json) -> Json:
        group, dry_run = self.find(name), how.pop("dry_run", False)
        topic, partition = how.get("topic"), how.get("partition")
        if group.members and not how.get("force"):
            raise errors.GroupBusy(f"{name} has {len(group.members)} members that read")
        plan = []
        for row in group.partitions:
            if topic not in (None, row["topic"]) or partition not in (None, row["partition"]):
                continue
            if row["end"] is None:  # its broker is silent
                continue
            old, new = row["committed"], after(row)
            step = (row["end"] if new is None else new) - (row["end"] if old is None else old)
            plan.append(
                {
                    "topic": row["topic"],
                    "partition": row["partition"],
                    "before": old,
                    "after": new,
                    "skipped": max(0, step),
                    "replayed": max(0, -step),
                }
            )
        if self._did(dry_run, act, name, how):
            group.undo_until = None if act == "undo" else NOW + 10 * MINUTE
        return {
            "plan": plan,
            "done": not dry_run,
            "undo_until_ms": NOW + 10 * MINUTE,
            "dry_run": dry_run,
            "silent": self.silent,
        }

    def do_group_seek(self, name: str, **how: Any) -> Json:
        """Move one."""
        to = how.get("to")
        if how.get("from_group"):
            self.find(how["from_group"])

        def after(row: Json) -> int:
            if to == "latest":
                return int(row["end"])
            if to == "earliest" or to is None or str(to).startswith("@"):
                return int(row["start"])
            at = (row["committed"] or 0) + int(to) if str(to)[0] in "+-" else int(to)
            return int(min(max(at, row["start"]), row["end"]))

        return self._move(name, "seek", after, how)

    def do_group_undo_seek(self, name: str, **how: Any) -> Json:
        """Take it back."""
        if self.find(name).undo_until is None:
            raise errors.NothingToUndo(f"no seek of {name} can be taken back")
        return self._move(name, "undo", lambda row: row["committed"], how)

    def do_group_reset(self, name: str, **how: Any) -> Json:
        """Forget its positions."""
        return self._move(name, "reset", lambda row: None, how)

    def do_group_delete(self, name: str, force: bool = False, dry_run: bool = False) -> Json:
        """Remove one."""
        group = self.find(name)
        if group.members and not force:
            raise errors.GroupBusy(f"{name} has {len(group.members)} members that read")
        if self._did(dry_run, "delete", name, force):
            self.groups.remove(group)
        return {"group": group.row, "dry_run": dry_run}

    def do_group_evict(
        self, name: str, member: str, reason: str = "", dry_run: bool = False
    ) -> Json:
        """Send a member away."""
        group = self.find(name)
        found = next((row for row in group.members if row["id"] == member), None)
        if found is None:
            raise errors.UnknownMember(f"{name} has no member {member[:200]!r}")
        if self._did(dry_run, "evict", name, member, reason):
            group.members.remove(found)
        return {"member": found, "dry_run": dry_run}

    # --- transactions --------------------------------------------------------

    def do_transaction_list(
        self, state: str | None = None, limit: int = 100, after: str = ""
    ) -> Json:
        """List what is under way."""
        found = [
            row
            for row in self.transactions
            if state in (None, row["state"]) and row["transactional_id"] > after
        ]
        page = found[:limit]
        more = len(found) > limit
        last = page[-1]["transactional_id"] if more else None
        return {"transactions": page, "more": more, "after": last, "silent": self.silent}

    def do_transaction_abort(self, transactional_id: str, dry_run: bool = False) -> Json:
        """Abort one."""
        for row in self.transactions:
            if row["transactional_id"] == transactional_id and row["state"] == "open":
                if self._did(dry_run, "abort", transactional_id):
                    row["state"] = "aborting"
                return {"transaction": row, "dry_run": dry_run}
        raise errors.InvalidTransaction(f"{transactional_id[:200]} has no open transaction")

    # --- histories -----------------------------------------------------------

    def do_topic_history(self, name: str, limit: int = 100, after: str = "") -> Json:
        """Tell who changed what."""
        first = int(after or 0)
        more = len(self.changes) > first + limit
        page = self.changes[first : first + limit]
        return {"changes": page, "more": more, "after": str(first + limit) if more else None}


def transaction(name: str, **more: Any) -> Json:
    """Make a transaction."""
    return {
        "transactional_id": name,
        "producer_id": 48_210_377,
        "epoch": 12,
        "state": "open",
        "since_ms": NOW - 2_400,
        "timeout_ms": MINUTE,
        "partitions": [{"topic": "orders.created", "partition": 3}],
        "client": "checkout-2",
        **more,
    }


def _billing() -> FakeGroup:
    """A group in trouble: one partition holds nearly all, its member is silent."""
    lags = (402, 421, 375, 12_712, 388, 404, 371, 427)
    rows = [position("orders.created", index, lag) for index, lag in enumerate(lags)]
    for row in rows:
        row["lag_s"] = row["lag"] / 66
    rows[3] |= {"committed_ms": NOW - 24_000, "note": "batch 48210377"}
    members = [member(index) for index in range(8)]
    members[3] |= {"state": "late", "heard_ms": NOW - 20 * SECOND}
    return FakeGroup(
        name="invoices",
        members=members,
        partitions=rows,
        trend=4.6,
        stuck="billing-4 has not been heard for 20 s",
        rebalances=[
            {
                "at_ms": NOW - 2 * MINUTE,
                "took_ms": 4_100,
                "moved": 3,
                "why": "billing-4 joined",
            },
            {
                "at_ms": NOW - 6 * MINUTE,
                "took_ms": 900,
                "moved": 1,
                "why": "billing-8 left",
            },
            {
                "at_ms": NOW - 5 * HOUR,
                "took_ms": 2_300,
                "moved": 8,
                "why": "mq-1 took the group over from mq-3",
            },
        ],
    ).assign()


def _wide() -> FakeGroup:
    """A group of many members over two hundred partitions, while some of them move."""
    rows = [
        position(topic, index, (index * 7919) % 41 if index % 3 else 0)
        for topic, count in (("clicks.raw", 128), ("orders.created", 8), ("views.raw", 64))
        for index in range(count)
    ]
    members = [member(index, client=f"session-{index + 1:02}") for index in range(24)]
    members[5] |= {"state": "draining"}
    members[7] |= {"instance": "blue-7"}
    group = FakeGroup(
        name="sessionizer",
        state="moving",
        members=members,
        partitions=rows,
        trend=-12.5,
        rebalances=[
            {"at_ms": NOW - 40 * SECOND, "took_ms": None, "moved": 4, "why": "session-24 joined"},
            *(
                {
                    "at_ms": NOW - index * 9 * MINUTE,
                    "took_ms": 1_200 + 80 * index,
                    "moved": 8,
                    "why": f"session-{24 - index:02} joined",
                }
                for index in range(1, 14)
            ),
        ],
    )
    group.assign()
    for row in rows:
        if row["member"] == members[5]["id"]:
            row["draining"] = row["partition"] % 2 == 1
    for row in rows[:2]:
        row["member"] = ""
    for one in members:
        held = [row for row in rows if row["member"] == one["id"]]
        one |= {"partitions": len(held), "draining": sum(row["draining"] for row in held)}
    return group


def crowd() -> FakeCrowd:
    """Make groups in every state."""
    still = [position("payments.capture", index, 120 * (index + 1)) for index in range(6)]
    for row in still:
        row |= {"committed_ms": NOW - 4 * MINUTE, "lag_s": 240.0}
    lost = [position("mail.outbound", index, 40 + index) for index in range(3)]
    lost[1] |= {"committed": 41, "start": 100_000, "lag": None, "lag_s": None}
    lost[2] |= {"end": None, "start": None, "lag": None, "error": "mq-3 does not answer"}
    return FakeCrowd(
        groups=[
            _billing(),
            _wide(),
            FakeGroup(
                name="fraud-check",
                members=[member(index, client=f"fraud-{index}") for index in range(2)],
                partitions=still,
                trend=3.1,
                stuck="nothing was committed for 4 m, while 2,520 messages wait",
                coordinator="mq-2",
            ).assign(),
            FakeGroup(name="mailer", state="empty", partitions=lost, strategy="", trend=None),
            FakeGroup(
                name="archive",
                members=[member(0, client="archive-1")],
                partitions=[position("audit.raw", index, 0) for index in range(3)],
                trend=0.0,
            ).assign(),
            FakeGroup(
                name="replay-2026-11-28",
                state="empty",
                partitions=[position("audit.raw", 0, 0)],
                strategy="range",
            ),
            FakeGroup(
                name="search.indexer",
                state="unknown",
                partitions=[position("search.reindex", 0, 88)],
                coordinator="",
                trend=None,
            ),
        ],
        transactions=[
            transaction(
                "checkout-7",
                since_ms=NOW - 130 * SECOND,
                timeout_ms=15 * MINUTE,
                client="checkout-7",
                partitions=[
                    {"topic": "payments.capture", "partition": 1},
                    {"topic": "orders.created", "partition": 6},
                ],
            ),
            transaction("enrich-1", client="enrich", partitions=[]),
            transaction("enrich-2", state="committing", since_ms=NOW - 120, client="enrich"),
            transaction(
                "ledger",
                state="aborting",
                since_ms=NOW - 61 * SECOND,
                partitions=[{"topic": "payments.capture", "partition": n} for n in range(6)],
            ),
        ],
        changes=[
            change("altered", 27 * MINUTE, ("retention.time", "7 d", "2 d")),
            change("undone", 3 * HOUR, note="the last purge of 2 partitions"),
            change("purged", 3 * HOUR + MINUTE, note="4,120 records of partition 3"),
            change("partitions", 2 * DAY, ("partitions", "4", "8"), who="deploy-bot"),
            change(
                "altered",
                9 * DAY,
                ("segment.bytes", "64 MB", "256 MB"),
                ("retention.time", "14 d", "7 d"),
                who="anonymous",
            ),
            change("created", 270 * DAY, ("partitions", None, "4"), who="", peer="", note=""),
        ],
    )


def hostile_crowd(texts: tuple[str, ...]) -> FakeCrowd:
    """Make groups in which every text that a stranger may set is an attack."""
    groups = []
    for text in texts:
        one = member(0, client=text, instance=text, address=text, topics=[text], id=text)
        row = position(text, 0, 5_000, note=text, error=text)
        lost = position(text, 1, 7, committed=1)
        more = {"at_ms": NOW - MINUTE, "took_ms": None, "moved": 1, "why": text}
        silent = member(1, client=text, state="late", heard_ms=NOW - MINUTE)
        groups.append(
            FakeGroup(
                name=text,
                members=[one, silent],
                partitions=[row, lost],
                rebalances=[more],
                stuck=text,
                strategy=text,
                coordinator=text,
                silent=[text],
            ).assign()
        )
    places = [{"topic": text, "partition": 0} for text in texts]
    return FakeCrowd(
        groups=groups,
        transactions=[
            transaction(text, client=text, partitions=places, since_ms=NOW - HOUR) for text in texts
        ],
        changes=[
            change("altered", MINUTE, (text, text, text), who=text, peer=text, note=text)
            for text in texts
        ],
    )
