"""The consumer groups that read the partitions that a broker leads: how far, and moving them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tinymq.broker.broker import Broker
from tinymq.broker.groups.figures import Standing
from tinymq.broker.groups.moving import Step, move, step, target, undone
from tinymq.broker.groups.positions import NONE
from tinymq.broker.hosted import Hosted
from tinymq.catalog.groups import group_place, group_positions
from tinymq.meta.registry import GroupInfo
from tinymq.node.hosting import when_safe
from tinymq.node.partitions import topic_key
from tinymq.node.turns import Turns
from tinymq.operation import DRY, NAME, PARTITION, Operation, Parameter, Result, table
from tinymq.wire.fields import array, choice, optional, text

#: Groups that are asked about at once.
MOST_GROUPS: Final = 500
#: What can be done to positions.
ACTS: Final = ("seek", "undo", "reset")

#: Seconds for which logs are looked into for one answer, and until the next one begins.
_AGING_SECONDS: Final = 0.01
_AGING_PAUSE: Final = 0.05


class Groups:
    """What is done with groups; only partitions that are here count."""

    _broker: Broker
    #: Until when logs are looked into for the age of messages.
    _looking_until = 0.0

    async def group_totals(self, names: list[str], topic: str | None) -> Result:
        """Sum up how far some groups are, those that have a place in some partition here."""
        wanted = self._wanted_groups(names)
        turns, rows = Turns(self._broker.scheduler), dict[str, Result]()
        places = self._broker.channels.all()
        if topic is not None:
            places = self._broker.channels.hosted_of(topic_key(topic))
        for hosted in places:
            if turns.over:
                await turns.next()
            for mark in wanted.keys() & hosted.positions.known.keys():
                name = wanted[mark]
                row = rows.setdefault(name, _nothing(name))
                self._add_group(row, hosted, mark)
        return {"groups": list(rows.values())}

    async def group_readers(self, topic: str) -> Result:
        """Name the groups that have a place in a topic."""
        known = self._broker.meta.registry.groups
        marks = {
            mark
            for hosted in self._broker.channels.hosted_of(topic_key(topic))
            for mark in hosted.positions.known
        }
        names = (mark.rpartition("@")[0] for mark in marks)
        return {"names": sorted(name for name in names if name in known)}

    async def group_partitions(self, name: str) -> Result:
        """Tell how far a group is in each partition here."""
        mark, turns, rows = self._group_of(name).mark, Turns(self._broker.scheduler), list[Result]()
        for hosted in self._group_places(mark):
            if turns.over:
                await turns.next()
            rows.append(self._group_partition(hosted, mark))
        return {"partitions": rows}

    def _group_of(self, name: str) -> GroupInfo:
        return self._broker.meta.registry.group(name)

    def _wanted_groups(self, names: list[str]) -> dict[str, str]:
        """Return the names of groups that are known here, by their marks."""
        known = self._broker.meta.registry.groups
        return {known[name].mark: name for name in names if name in known}

    def _group_places(self, mark: str) -> Iterator[Hosted]:
        for hosted in self._broker.channels.all():
            if mark in hosted.positions.known:
                yield hosted

    def _add_group(self, row: Result, hosted: Hosted, mark: str) -> None:
        standing = hosted.group_figures.standing(mark)
        name = hosted.partition.topic.name
        if name not in row["topics"]:
            row["topics"].append(name)
        row["partitions"] += 1
        row["lag"] += standing.lag or 0
        row["unknown"] += standing.lag is None
        row["missed"] += standing.missed
        row["unstable"] += standing.unstable
        if standing.trend_s is not None:
            row["trend_s"] = (row["trend_s"] or 0) + standing.trend_s
        times = {"lag_ms": self._group_age(hosted, mark, standing)}
        times["committed_ms"] = _time(standing.position.place.time)
        for key, found in times.items():
            if found is not None:
                row[key] = max(found, row[key] or 0)

    def _group_partition(self, hosted: Hosted, mark: str) -> Result:
        standing = hosted.group_figures.standing(mark)
        position = standing.position
        offset, epoch, note, time = position.place
        return {
            "topic": hosted.partition.topic.name,
            "partition": hosted.index,
            "committed": None if offset == NONE else offset,
            "epoch": epoch,
            "note": note,
            "committed_ms": _time(time),
            "start": standing.start,
            "end": standing.end,
            "lag": standing.lag,
            "lag_ms": self._group_age(hosted, mark, standing),
            "trend_s": standing.trend_s,
            "member": position.member if position.taken else "",
            "generation": position.fence,
            "missed": standing.missed,
            "cut": position.cut,
            "unstable": standing.unstable,
            "undo_until_ms": None if undone(hosted, position) is None else position.until,
            "failure": _failure(hosted),
        }

    def _group_age(self, hosted: Hosted, mark: str, standing: Standing) -> int | None:
        """Say how old the oldest message behind a position is; no long list is waited for."""
        if not standing.lag:
            return None
        seconds = self._broker.scheduler.seconds()
        if seconds > self._looking_until + _AGING_PAUSE:
            self._looking_until = seconds + _AGING_SECONDS
        cheaply = seconds > self._looking_until
        # A channel has no space in its name.
        found = hosted.aging.appended(f"group {mark}", standing.unread, cheaply=cheaply)
        return None if found is None else max(0, self._broker.wall() - found)

    # --- moving -----------------------------------------------------------------------

    async def group_move(self, name: str, act: str, *, dry_run: bool, **where: Any) -> Result:
        """Move a group, take that back, or forget its positions; tell what that means."""
        mark = self._group_of(name).mark
        steps = self._steps(mark, act, **where)
        if not dry_run:
            for one in steps:
                one.hosted.positions.check_stable(mark)
            for one in steps:
                if act == "undo":
                    one.hosted.positions.take_back(mark, one.hosted.now)
                else:
                    move(one, mark)
                one.hosted.mark()
        rows = [_step_row(one, act) for one in steps]
        if dry_run:
            return {"rows": rows}
        return {"rows": await when_safe([one.hosted for one in steps], rows)}

    def _steps(self, mark: str, act: str, **where: Any) -> list[Step]:
        if where["positions"] is not None:
            return self._steps_to(mark, where["positions"])
        name = where["from_group"]
        other = None if name is None else self._group_of(name).mark
        found = []
        for hosted in self._moved_groups(other or mark, where["id"], where["partition"], act):
            position = hosted.positions.of(mark)
            if act == "undo":
                one = undone(hosted, position)
            elif act == "reset":
                one = step(hosted, position, None)
            else:
                goal = where["to"] if other is None else _offset(hosted, other)
                after = goal
                if goal is not None:
                    after = target(hosted.partition, goal, _offset(hosted, mark))
                one = None if after is None else step(hosted, position, after)
            if one is not None:
                found.append(one)
        return found

    def _moved_groups(
        self, mark: str, topic_id: str | None, partition: int | None, act: str
    ) -> Iterator[Hosted]:
        """Yield where a group is moved: where it is, or in all of a topic that is named."""
        if topic_id is None:
            yield from [*self._group_places(mark)]
            return
        topic = self._broker.meta.registry.topic_of(topic_key(topic_id))
        for each in self._broker.partitions_of(topic):
            if partition not in (None, each.index):
                continue
            if act == "seek":
                yield self._broker.channels.hosting(each)
                continue
            hosted = self._broker.channels.hosted(*each.key)
            if hosted is not None and mark in hosted.positions.known:
                yield hosted

    def _steps_to(self, mark: str, positions: list[dict[str, Any]]) -> list[Step]:
        found, topics = [], self._broker.meta.registry.by_name
        for row in positions:
            topic = topics.get(row["topic"])
            if topic is None:
                continue
            partition = self._broker.held(topic.id, row["partition"])
            if partition is not None:
                hosted = self._broker.channels.hosting(partition)
                after = target(partition, row["offset"], None)
                found.append(step(hosted, hosted.positions.of(mark), after))
        return found


def _nothing(name: str) -> Result:
    return {
        "name": name,
        "topics": [],
        "partitions": 0,
        "lag": 0,
        "lag_ms": None,
        "trend_s": None,
        "committed_ms": None,
        "missed": 0,
        "unknown": 0,
        "unstable": 0,
    }


def _offset(hosted: Hosted, mark: str) -> int | None:
    place = hosted.positions.of(mark).place.offset
    return None if place == NONE else place


def _time(ms: int) -> int | None:
    return None if ms == NONE else ms


def _failure(hosted: Hosted) -> str:
    failure = hosted.partition.failure or hosted.ledger.failure
    return "" if failure is None else failure.text


def _step_row(one: Step, act: str) -> Result:
    partition = one.hosted.partition
    window = partition.topic.config.undo_ms
    until = one.hosted.now + window if window else None
    return {
        "topic": partition.topic.name,
        "partition": partition.index,
        "before": one.before,
        "after": one.after,
        "skipped": one.skipped,
        "replayed": one.replayed,
        "undo_until_ms": None if act == "undo" else until,
    }


_NAME: Final = Parameter("name", NAME)

GROUP_OPERATIONS: Final[dict[str, Operation]] = table(
    Operation(
        "node.group_totals",
        "cluster",
        False,
        (
            Parameter("names", array(NAME, MOST_GROUPS)),
            Parameter("topic", optional(text(32)), default=None),
        ),
        Groups.group_totals,
    ),
    Operation(
        "node.group_readers",
        "cluster",
        False,
        (Parameter("topic", text(32)),),
        Groups.group_readers,
    ),
    Operation("node.group_partitions", "cluster", False, (_NAME,), Groups.group_partitions),
    Operation(
        "node.group_move",
        "cluster",
        True,
        (
            _NAME,
            Parameter("act", choice(*ACTS)),
            Parameter("id", optional(text(32)), default=None),
            PARTITION,
            Parameter("to", optional(group_place), default=None),
            Parameter("from_group", optional(NAME), default=None),
            Parameter("positions", optional(group_positions), default=None),
            DRY,
        ),
        Groups.group_move,
    ),
)
