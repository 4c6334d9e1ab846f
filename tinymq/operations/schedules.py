"""Making, describing, pausing, running and deleting schedules."""

from __future__ import annotations

import base64
import binascii
import fnmatch
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Final

from tinymq.catalog import PUBLIC
from tinymq.cron import MOST_VALUE, Cron
from tinymq.errors import InvalidRequest, ValueTooLarge
from tinymq.meta.registry import Schedule
from tinymq.operation import Operation, Result, table
from tinymq.operations.base import Answers
from tinymq.operations.leaders import Leaders
from tinymq.operations.written import written

#: What only its broker can tell of a schedule.
_TOLD: Final = ("next_ms", "last_ms", "runs", "missed", "error")
#: What may differ when one is given another form, as people know it.
_COMPARED: Final = (
    *("topic", "partition", "cron", "zone", "catch_up", "paused"),
    *("key", "value", "headers"),
)


class Schedules(Leaders):
    """Schedules over all brokers."""

    async def create_schedule(
        self,
        name: str,
        topic: str,
        key: str | None,
        *,
        paused: bool | None,
        dry_run: bool,
        **form: Any,
    ) -> Result:
        """Make a schedule, or give the one of this name another form."""
        self._check_running()
        owner = self.find(topic)
        placed = (key if key is not None else name).encode()
        wanted = Schedule(
            name=name,
            topic_id=owner.id,
            partition=self._broker.neighbours.place(placed, owner.partitions),
            cron=" ".join(form["cron"].split()),
            zone=form["zone"],
            key=None if key is None else key.encode(),
            value=_value(form["value"], form["encoding"]),
            headers=tuple((each, text.encode()) for each, text in form["headers"].items()),
            catch_up=form["catch_up"],
        )
        before = self._registry.schedules.get(name)
        after = self._meta.put_schedule(wanted, paused=paused, dry_run=dry_run)
        if not dry_run and after != before:
            await self._spread(owner)
        shown, silent = await self._describe_schedule(after)
        return {
            "schedule": shown,
            "silent": silent,
            "created": before is None,
            "changes": [] if before is None else self._schedule_changes(before, after),
            "dry_run": dry_run,
        }

    async def schedule_info(self, name: str) -> Result:
        """Describe one schedule with its message and its next times."""
        shown, silent = await self._describe_schedule(self._meta.describe_schedule(name))
        return {"schedule": shown, "silent": silent}

    async def schedules(
        self,
        topic: str | None,
        filter: str,  # noqa: A002 - the API's word
        after: str,
        limit: int,
    ) -> Result:
        """List schedules in order of their names."""
        known = self._registry.schedules
        if topic is not None:
            known = {each.name: each for each in self._registry.schedules_of(self.find(topic).id)}
        names = sorted(name for name in known if not filter or fnmatch.fnmatchcase(name, filter))
        first = bisect_right(names, after)
        page = [known[name] for name in names[first : first + limit]]
        answers = await self._ask_schedules(page)
        more = len(names) > first + limit
        return {
            "schedules": [self._schedule_row(each, answers) for each in page],
            "more": more,
            "after": page[-1].name if more else None,
            "total": len(names),
            "silent": self._silence(answers),
        }

    async def pause_schedule(self, name: str, *, dry_run: bool) -> Result:
        """Let a schedule rest."""
        return await self._pause_schedule(name, paused=True, dry_run=dry_run)

    async def resume_schedule(self, name: str, *, dry_run: bool) -> Result:
        """Let a paused schedule go on."""
        return await self._pause_schedule(name, paused=False, dry_run=dry_run)

    async def _pause_schedule(self, name: str, *, paused: bool, dry_run: bool) -> Result:
        self._check_running()
        before = self._meta.describe_schedule(name)
        after = self._meta.pause_schedule(name, paused=paused, dry_run=dry_run)
        if not dry_run and after != before:
            await self._spread(self._registry.topic_of(after.topic_id))
        shown, silent = await self._describe_schedule(before if dry_run else after)
        changed = after.paused != before.paused
        return {"schedule": shown, "silent": silent, "changed": changed, "dry_run": dry_run}

    async def run_schedule(self, name: str, *, dry_run: bool) -> Result:
        """Send the message of a schedule once, now."""
        self._check_running()
        schedule = self._meta.describe_schedule(name)
        leader = self._registry.topic_of(schedule.topic_id).leader(schedule.partition)
        arguments = {"name": name, "dry_run": dry_run}
        told = await self._ask_alone(leader, "node.schedule_run", arguments)
        return {**told, "dry_run": dry_run}

    async def delete_schedule(self, name: str, *, dry_run: bool) -> Result:
        """Remove a schedule; a broker that is away does it when it is back."""
        self._check_running()
        schedule = self._meta.describe_schedule(name)
        shown, silent = await self._describe_schedule(schedule)
        self._meta.delete_schedule(name, dry_run=dry_run)
        if not dry_run:
            await self._spread(self._registry.topic_of(schedule.topic_id))
        return {"schedule": shown, "silent": silent, "dry_run": dry_run}

    # --- looking ------------------------------------------------------------------

    async def _describe_schedule(self, schedule: Schedule) -> tuple[Result, list[str]]:
        """Describe a schedule whole, and name the brokers that do not answer."""
        answers = await self._ask_schedules([schedule])
        row = self._schedule_row(schedule, answers)
        now = max(self._broker.wall(), schedule.since_ms)
        upcoming = [] if schedule.paused else Cron(schedule.cron, schedule.zone).upcoming(now)
        message = {
            "key": None if schedule.key is None else schedule.key.decode("utf-8", "replace"),
            **written({"value": schedule.value}, "value"),
            "headers": _texts(schedule),
        }
        return {**row, **message, "upcoming": upcoming}, self._silence(answers)

    async def _ask_schedules(self, page: Sequence[Schedule]) -> Answers:
        leaders: dict[int, list[str]] = {}
        for each in page:
            leader = self._schedule_leader(each)
            if leader is not None:
                leaders.setdefault(leader, []).append(each.name)
        names = [each.name for each in page]
        return await self._ask(leaders, "node.schedules", {"names": names})

    def _schedule_leader(self, schedule: Schedule) -> int | None:
        topic = self._registry.topics.get(schedule.topic_id)
        return None if topic is None else topic.leaders[schedule.partition]

    def _schedule_row(self, schedule: Schedule, answers: Answers) -> Result:
        topic = self._registry.topics.get(schedule.topic_id)
        leader = self._schedule_leader(schedule)
        broker = "" if leader is None else self._broker_name(leader)
        cron = Cron(schedule.cron, schedule.zone)
        return {
            "name": schedule.name,
            "topic": "" if topic is None else topic.name,
            "partition": schedule.partition,
            "cron": schedule.cron,
            "zone": schedule.zone,
            "catch_up": schedule.catch_up,
            "paused": schedule.paused,
            "created_ms": schedule.created_ms,
            **self._told_of(schedule, leader, answers),
            "text": cron.text,
            "broker": broker,
        }

    def _told_of(self, schedule: Schedule, leader: int | None, answers: Answers) -> Result:
        """Return what the broker of a schedule says of it; else why it does not."""
        result = answers.results.get(-1 if leader is None else leader, {"schedules": []})
        for row in result["schedules"]:
            if (row["name"], row["created_ms"]) == (schedule.name, schedule.created_ms):
                return {name: row[name] for name in _TOLD}
        why = "its topic is gone"
        if leader is not None:
            name, silence = self._broker_name(leader), answers.silent.get(leader)
            why = f"{name} does not answer: {silence}" if silence else f"{name} has not begun it"
        return {**dict.fromkeys(_TOLD), "error": why}

    def _schedule_changes(self, before: Schedule, after: Schedule) -> list[list[Any]]:
        old, new = self._compared(before), self._compared(after)
        return [[name, old[name], new[name]] for name in _COMPARED if old[name] != new[name]]

    def _compared(self, schedule: Schedule) -> Result:
        topic = self._registry.topics.get(schedule.topic_id)
        return {
            "topic": "" if topic is None else topic.name,
            **{name: getattr(schedule, name) for name in _COMPARED[1:6]},
            "key": None if schedule.key is None else schedule.key.decode("utf-8", "replace"),
            "value": written({"value": schedule.value}, "value")["value"],
            "headers": _texts(schedule),
        }


def _texts(schedule: Schedule) -> dict[str, str]:
    return {name: value.decode("utf-8", "replace") for name, value in schedule.headers}


def _value(value: str, encoding: str) -> bytes:
    """
    Read a value.

    Raises:
        InvalidRequest: It is not base64, though it should be.
        ValueTooLarge: It is too long.
    """
    try:
        found = base64.b64decode(value, validate=True) if encoding == "base64" else value.encode()
    except (binascii.Error, ValueError):
        raise InvalidRequest("value is not base64", field="value") from None
    if len(found) > MOST_VALUE:
        raise ValueTooLarge(
            f"the value has {len(found)} bytes; a schedule's may have {MOST_VALUE}",
            size=len(found),
            limit=MOST_VALUE,
        )
    return found


SCHEDULE_OPERATIONS: Final[dict[str, Operation]] = table(
    PUBLIC["schedule.create"].by(Schedules.create_schedule),
    PUBLIC["schedule.list"].by(Schedules.schedules),
    PUBLIC["schedule.info"].by(Schedules.schedule_info),
    PUBLIC["schedule.pause"].by(Schedules.pause_schedule),
    PUBLIC["schedule.resume"].by(Schedules.resume_schedule),
    PUBLIC["schedule.run"].by(Schedules.run_schedule),
    PUBLIC["schedule.delete"].by(Schedules.delete_schedule),
)
