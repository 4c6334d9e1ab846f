"""Consumer groups over all brokers: who reads, how far they are, and moving them."""

from __future__ import annotations

import fnmatch
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from tinymq.catalog import PUBLIC
from tinymq.errors import (
    BrokerSilent,
    GroupBusy,
    InvalidRequest,
    NothingToUndo,
    UnknownMember,
)
from tinymq.figures.channels import clear_ms, counted, number
from tinymq.groups.places import coordinator_of
from tinymq.meta.registry import GroupInfo
from tinymq.node.partitions import check_partition
from tinymq.operation import NAME, Operation, Parameter, Result, table
from tinymq.operations.base import SPREAD_SECONDS, Answers, only_one
from tinymq.operations.leaders import Leaders
from tinymq.operations.waiting import until
from tinymq.wire.fields import I64, integer

#: A group that has members and something to read, and commits nothing for so long, is stuck.
_STUCK_MS: Final = 60_000
#: Names of groups, or positions, in one question to a broker: names may be long.
_MOST_ASKED: Final = 200
#: What is told of a plan.
_PLANNED: Final = ("topic", "partition", "before", "after", "skipped", "replayed")
#: Nobody who knows of its members.
_NOBODY: Final[Mapping[str, Any]] = {
    "state": "empty",
    "strategy": "",
    "generation": 0,
    "members": [],
    "shares": [],
    "rebalances": [],
}


class Groups(Leaders):
    """Consumer groups over all brokers."""

    async def ensure_group(self, name: str) -> Result:
        """Make a group for its first use at a broker elsewhere."""
        self._check_running()
        self._meta.ensure_group(name)
        return {"revision": self._revision}

    async def keep_group(self, name: str, created_ms: int) -> Result:
        """Take back a group that a broker elsewhere knows, after a backup was restored."""
        self._check_running()
        return {"kept": self._meta.keep_group(name, created_ms)}

    # --- looking ------------------------------------------------------------------

    async def groups(
        self,
        topic: str | None,
        filter: str,  # noqa: A002 - the API's word
        after: str,
        limit: int,
    ) -> Result:
        """List groups in order of their names."""
        known = self._registry.groups
        coordinated, quiet = await self._coordinated()
        names: Collection[str] = known
        if topic is not None:
            names, silent = await self._readers(topic, coordinated)
            quiet |= silent
        wanted = sorted(
            name
            for name in names
            if name in known and (not filter or fnmatch.fnmatchcase(name, filter))
        )
        first = bisect_right(wanted, after)
        page = wanted[first : first + limit]
        told: dict[str, list[Result]] = {}
        for some in _pieces(page):
            answers = await self._ask(self._leading(), "node.group_totals", {"names": some})
            quiet |= {*answers.silent}
            for answer in answers.results.values():
                for row in answer["groups"]:
                    told.setdefault(row["name"], []).append(row)
        rows = [
            self._group_row(known[name], told.get(name, []), coordinated.get(name), quiet)
            for name in page
        ]
        more = len(wanted) > first + limit
        return {
            "groups": rows,
            "more": more,
            "after": page[-1] if more else None,
            "silent": self._named(quiet),
        }

    async def group_info(self, name: str) -> Result:
        """Describe one group with its members, positions and last rebalances."""
        info = self._meta.describe_group(name)
        told, quiet = await self._coordination(name)
        answers = await self._ask(self._leading(), "node.group_partitions", {"name": name})
        rows = _with_shares(answers, told or _NOBODY)
        sums = [_sum_of(name, rows)]
        return {
            "group": self._group_row(info, sums, told, quiet),
            "members": list((told or _NOBODY)["members"]),
            "partitions": [_partition_row(row) for row in rows],
            "rebalances": list((told or _NOBODY)["rebalances"]),
            "undo_until_ms": max(
                (row["undo_until_ms"] for row in rows if row["undo_until_ms"] is not None),
                default=None,
            ),
            "silent": self._named({*answers.silent} | quiet),
        }

    def _leading(self) -> set[int]:
        """The brokers that may have positions: those that lead something."""
        return {broker for broker, many in self._registry.led.items() if many}

    async def _readers(
        self, topic: str, coordinated: Mapping[str, Result]
    ) -> tuple[set[str], set[int]]:
        """Name the groups that read a topic, and who does not say."""
        owner = self.find(topic)
        answers = await self._ask({*owner.leaders}, "node.group_readers", {"topic": owner.id.hex()})
        found = {name for each in answers.results.values() for name in each["names"]}
        found |= {name for name, row in coordinated.items() if topic in row["topics"]}
        return found, {*answers.silent}

    def _coordinator(self, name: str) -> int:
        return coordinator_of(name, self._registry.brokers)

    async def _coordination(self, name: str) -> tuple[Result | None, set[int]]:
        """Ask who looks after the members of a group; None if nobody answers."""
        broker_id = self._coordinator(name)
        if broker_id < 0:
            return None, set()
        answers = await self._ask([broker_id], "node.group", {"name": name})
        answer = answers.results.get(broker_id)
        return answer and (answer["group"] or {**_NOBODY}), {*answers.silent}

    async def _coordinated(self) -> tuple[dict[str, Result], set[int]]:
        """Ask all brokers for the groups whose members they look after."""
        found, quiet = dict[str, Result](), set[int]()
        asked: dict[str, set[int]] = {"": {*self._registry.brokers}}
        while asked:
            after, brokers = asked.popitem()
            answers = await self._ask(brokers, "node.groups", {"after": after})
            quiet |= {*answers.silent}
            for broker_id, answer in answers.results.items():
                rows = answer["groups"]
                found |= {
                    row["name"]: row for row in rows if self._coordinator(row["name"]) == broker_id
                }
                if answer["more"] and rows:
                    asked.setdefault(rows[-1]["name"], set()).add(broker_id)
        return found, quiet

    def _named(self, brokers: Collection[int]) -> list[str]:
        return [self._broker_name(each) for each in sorted(brokers)]

    def _group_row(
        self,
        info: GroupInfo,
        sums: list[Result],
        told: Mapping[str, Any] | None,
        quiet: Collection[int],
    ) -> Result:
        """Describe a group as a whole."""
        found = _sum_up(info.name, sums)
        coordinator = self._coordinator(info.name)
        nobody = coordinator < 0 or coordinator in quiet
        facts: Mapping[str, Any] = _NOBODY if told is None else told
        members = facts["members"]
        count = members if isinstance(members, int) else len(members)
        topics = sorted({*found["topics"], *facts.get("topics", ())})
        partitions = max(found["partitions"], facts.get("partitions", 0))
        # Of a partition that was given out just now, no broker has a position yet.
        unknown = found["unknown"] or partitions > found["partitions"]
        lag = found["lag"] or (None if unknown else 0)
        clear = None if lag is None else clear_ms(lag, found["trend_s"])
        row = {
            "name": info.name,
            "state": "unknown" if nobody else facts["state"],
            "members": count,
            "topics": topics,
            "partitions": partitions,
            "lag": lag,
            "lag_s": _seconds(found["lag_ms"]),
            "trend": found["trend_s"],
            "clear_s": _seconds(clear),
            "coordinator": "" if coordinator < 0 else self._broker_name(coordinator),
            "strategy": facts["strategy"],
            "generation": facts["generation"],
            "committed_ms": found["committed_ms"],
            "created_ms": info.created_ms,
        }
        return {**row, "stuck": self._stuck(row, found) or facts.get("stuck", "")}

    def _stuck(self, row: Result, found: Result) -> str:
        """Say why a group gets no further; empty if nothing is wrong."""
        left = counted(found["lag"], "message")
        wait = "waits" if row["lag"] == 1 else "wait"
        if found["missed"]:
            return f"{counted(found['missed'], 'message')} went before it read them"
        if row["state"] == "unknown" and row["coordinator"]:
            return f"{row['coordinator']}, which looks after its members, does not answer"
        if row["lag"] and found["unstable"]:
            return f"a transaction that moves it is not decided, and {left} {wait}"
        if row["lag"] and row["state"] == "empty":
            return f"nobody reads, and {left} {wait}"
        silent = self._broker.wall() - (row["committed_ms"] or row["created_ms"])
        still = row["lag"] and (row["trend"] or 0) >= 0
        if still and row["state"] == "stable" and silent > _STUCK_MS:
            return f"it has committed nothing for {number(silent // 1000)} s, and {left} {wait}"
        return ""

    # --- moving -------------------------------------------------------------------

    async def seek_group(
        self, name: str, topic: str | None, *, force: bool, dry_run: bool, **where: Any
    ) -> Result:
        """Move a group to another place."""
        goals = {key: where[key] for key in ("to", "from_group", "positions")}
        only_one(**goals)
        if not any(each is not None for each in goals.values()):
            raise InvalidRequest("say where to: to, from_group or positions", field="to")
        if where["from_group"] is not None:
            self._meta.describe_group(where["from_group"])
        if where["positions"] is not None and topic is not None:
            raise InvalidRequest("positions name their topics themselves", field="topic")
        self._check_places(where["positions"] or [])
        return await self._move(name, "seek", topic, where, force=force, dry_run=dry_run)

    def _check_places(self, positions: list[dict[str, Any]]) -> None:
        for row in positions:
            topic = self.find(row["topic"])
            check_partition(topic.name, topic.partitions, row["partition"])

    async def undo_group_seek(self, name: str, *, force: bool, dry_run: bool) -> Result:
        """Take back what the last seek did."""
        told = await self._move(name, "undo", None, {}, force=force, dry_run=dry_run)
        if not told["plan"]:
            raise NothingToUndo(
                f"no seek of group {name} can be taken back: there was none, it was taken back "
                "before, it is too long ago, or the messages are gone"
            )
        return told

    async def reset_group(
        self, name: str, topic: str | None, *, force: bool, dry_run: bool
    ) -> Result:
        """Forget the positions of a group."""
        return await self._move(name, "reset", topic, {}, force=force, dry_run=dry_run)

    async def delete_group(self, name: str, *, force: bool, dry_run: bool) -> Result:
        """Remove a group with its positions."""
        self._check_running()
        told = await self.group_info(name)
        if not force:
            await self._check_free(name, "removed")
        if not dry_run:
            self._meta.delete_group(name)
            await self._spread_to_all()
            if force:
                await self._send_away(name)
        return {"group": told["group"], "dry_run": dry_run}

    async def _move(
        self,
        name: str,
        act: str,
        topic: str | None,
        where: dict[str, Any],
        *,
        force: bool,
        dry_run: bool,
    ) -> Result:
        self._check_running()
        self._meta.describe_group(name)
        brokers = self._leading()
        arguments = {"name": name, "act": act, **where}
        if topic is not None:
            owner = self.find(topic)
            check_partition(topic, owner.partitions, where.get("partition"))
            brokers, arguments["id"] = {*owner.leaders}, owner.id.hex()
        elif where.get("partition") is not None:
            raise InvalidRequest("a partition is one of a topic: say which", field="topic")
        rows, silent = await self._ask_moves(brokers, arguments, dry_run=True)
        if not dry_run:
            self._need_answers(silent)
            if not force:
                await self._check_free(name, "moved")
            rows, silent = await self._ask_moves(brokers, arguments, dry_run=False)
            if force:
                await self._send_away(name, {(row["topic"], row["partition"]) for row in rows})
        rows.sort(key=lambda row: (row["topic"], row["partition"]))
        untils = [row["undo_until_ms"] for row in rows if row["undo_until_ms"] is not None]
        return {
            "plan": [{key: row[key] for key in _PLANNED} for row in rows],
            "done": not dry_run and bool(rows),
            "undo_until_ms": max(untils, default=None),
            "dry_run": dry_run,
            "silent": self._named(silent),
        }

    async def _ask_moves(
        self, brokers: set[int], arguments: dict[str, Any], *, dry_run: bool
    ) -> tuple[list[Result], dict[int, str]]:
        """Have brokers move a group, or tell what that means; and who says nothing, and why."""
        rows, silent = list[Result](), dict[int, str]()
        for some in _pieces(arguments.get("positions") or [None]):
            given = {**arguments, "dry_run": dry_run}
            if some != [None]:
                given["positions"] = some
                brokers = {self.find(row["topic"]).leader(row["partition"]) for row in some}
            answers = await self._ask(brokers, "node.group_move", given)
            rows += (row for each in answers.results.values() for row in each["rows"])
            silent |= answers.silent
        return rows, silent

    def _need_answers(self, silent: Mapping[int, str]) -> None:
        """Refuse to do half of something: every leader must answer."""
        for broker_id, why in silent.items():
            raise BrokerSilent(
                f"{self._broker_name(broker_id)} leads partitions that the group may have read and "
                f"does not answer ({why}); nothing was done, try again when it is back",
                broker=broker_id,
            )

    async def _check_free(self, name: str, done: str) -> None:
        """
        Refuse to move a group under its members.

        Raises:
            GroupBusy: Members are reading, or nobody knows whether some are.
        """
        told, _ = await self._coordination(name)
        if told is None:
            raise GroupBusy(
                f"nobody knows whether members of group {name} are reading, for its coordinator "
                f"does not answer; nothing was {done}: try again, or use force",
                group=name,
            )
        members = len(told["members"])
        if members:
            raise GroupBusy(
                f"group {name} has {counted(members, 'member')} reading; nothing was {done}: stop "
                "them first, or use force, and they go on from where it puts them",
                group=name,
                members=members,
            )

    async def _send_away(self, name: str, places: set[tuple[str, int]] | None = None) -> None:
        """
        Have members that read join anew, so that they go on from where the group is now.

        What they commit is refused already; but one that has nothing to commit would not hear.

        Args:
            name: The group.
            places: Topics and partitions that were moved; all if not given.
        """
        told, _ = await self._coordination(name)
        shares = () if told is None else told["shares"]
        members = {
            member: None
            for share in shares
            for index, (member, *_) in enumerate(share["partitions"])
            if member and (places is None or (share["topic"], index) in places)
        }
        for member in members:
            wanted = {"name": name, "member": member, "reason": "the group was moved by hand"}
            with suppress(UnknownMember):  # it has just gone
                await self._ask([self._coordinator(name)], "node.evict", wanted)

    async def _spread_to_all(self) -> None:
        """Wait until all brokers have heard, so that the answer holds everywhere."""
        revision, live = self._revision, self._meta.registry.brokers
        brokers = {each for each in live if each in self._followed}

        def done() -> bool:
            return all(self._followed.get(each, revision) >= revision for each in brokers)

        await until(self._follow, done, SPREAD_SECONDS, self._broker.scheduler)


def _pieces(rows: list[Any]) -> Iterator[list[Any]]:
    """Cut a list so that each piece fits into a question."""
    for first in range(0, len(rows), _MOST_ASKED):
        yield rows[first : first + _MOST_ASKED]


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


def _sum_up(name: str, sums: list[Result]) -> Result:
    """Add up what several brokers told of one group."""
    found: Result = {
        "name": name,
        "topics": sorted({topic for each in sums for topic in each["topics"]}),
        **{
            key: sum(each[key] for each in sums)
            for key in ("partitions", "lag", "missed", "unknown", "unstable")
        },
    }
    trends = [each["trend_s"] for each in sums if each["trend_s"] is not None]
    found["trend_s"] = sum(trends) if trends else None
    for key in ("lag_ms", "committed_ms"):
        found[key] = max((each[key] for each in sums if each[key] is not None), default=None)
    return found


def _sum_of(name: str, rows: list[Result]) -> Result:
    """Add up rows of partitions."""
    sums = [
        {
            **row,
            "topics": [row["topic"]],
            "partitions": 1,
            "lag": row["lag"] or 0,
            "unknown": row["lag"] is None,
        }
        for row in rows
    ]
    return _sum_up(name, sums)


def _with_shares(answers: Answers, told: Mapping[str, Any]) -> list[Result]:
    """Return the rows of all partitions, with who has each, and those that were only given out."""
    rows = {
        (row["topic"], row["partition"]): {**row, "draining": False}
        for answer in answers.results.values()
        for row in answer["partitions"]
    }
    for row in rows.values():
        row["member"] = ""
    for share in told["shares"]:
        for index, (member, generation, draining) in enumerate(share["partitions"]):
            place = share["topic"], index
            row = rows.setdefault(place, _untold(*place))
            row.update(member=member, draining=draining)
            row["generation"] = max(generation, row["generation"])
    return [row for _, row in sorted(rows.items())]


def _untold(topic: str, partition: int) -> Result:
    """Of a partition that was given out, and of which its broker tells nothing."""
    return {
        "topic": topic,
        "partition": partition,
        **dict.fromkeys(("committed", "committed_ms", "start", "end", "lag", "lag_ms", "trend_s")),
        "epoch": -1,
        "generation": -1,
        "note": "",
        "missed": 0,
        "cut": -1,
        "unstable": False,
        "undo_until_ms": None,
        "failure": "",
        "draining": False,
    }


_TOLD: Final = (
    *("topic", "partition", "committed", "epoch", "note", "committed_ms", "start", "end", "lag"),
    *("member", "generation", "draining"),
)


def _partition_row(row: Result) -> Result:
    kept = {key: row[key] for key in _TOLD}
    return {**kept, "lag_s": _seconds(row["lag_ms"]), "error": _error(row)}


def _error(row: Result) -> str:
    """Say what is wrong with a position."""
    if row["failure"]:
        return str(row["failure"])
    if row["missed"]:
        many = counted(row["missed"], "message")
        verb = "was" if row["missed"] == 1 else "were"
        return f"{many} before offset {row['start']} {verb} removed before the group read them"
    if row["cut"] >= 0:
        return (
            f"it was at offset {row['cut']} before the log was cut back to {row['committed']} "
            "at an unclean stop"
        )
    return "a transaction that moves it is not decided yet" if row["unstable"] else ""


GROUP_OPERATIONS: Final[dict[str, Operation]] = table(
    PUBLIC["group.list"].by(Groups.groups),
    PUBLIC["group.info"].by(Groups.group_info),
    PUBLIC["group.seek"].by(Groups.seek_group),
    PUBLIC["group.undo_seek"].by(Groups.undo_group_seek),
    PUBLIC["group.reset"].by(Groups.reset_group),
    PUBLIC["group.delete"].by(Groups.delete_group),
    Operation(
        "meta.ensure_group", "cluster", True, (Parameter("name", NAME),), Groups.ensure_group
    ),
    Operation(
        "meta.keep_group",
        "cluster",
        True,
        (Parameter("name", NAME), Parameter("created_ms", integer(0, I64))),
        Groups.keep_group,
    ),
)
