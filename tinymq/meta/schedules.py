"""
The MetaServer's operations on schedules: which messages come again and again, and when.

What has run is not known here but kept by the broker of a schedule's partition.
"""

from __future__ import annotations

from typing import Final

import attrs

from tinymq.cron import CATCH_UPS, MOST_VALUE, Cron
from tinymq.errors import (
    InvalidName,
    InvalidRequest,
    Overloaded,
    UnknownTopic,
    ValueTooLarge,
)
from tinymq.meta.channels import Channels
from tinymq.meta.entries import Compare, Delete, Put
from tinymq.meta.registry import Schedule, Topic
from tinymq.names import valid_name

#: Most schedules, and bytes of all their messages: every broker keeps them in memory.
MOST_SCHEDULES: Final = 10_000
MOST_BYTES: Final = 64 * 1024 * 1024
#: Most bytes of the headers of one.
MOST_HEADERS: Final = 8192


class Schedules(Channels):
    """The operations on schedules."""

    #: When the last schedule was made or let go on. Brokers tell a schedule from one that
    #: had its name before by that time, so no two are of the same millisecond.
    _last_scheduled_ms = 0

    def describe_schedule(self, name: str) -> Schedule:
        """
        Return a schedule by its name.

        Args:
            name: The name.

        Raises:
            InvalidName: It cannot be a name.
            UnknownSchedule: There is none.
        """
        return self.registry.schedule(valid_name(name))

    def put_schedule(
        self, wanted: Schedule, *, paused: bool | None = None, dry_run: bool = False
    ) -> Schedule:
        """
        Make a schedule, or give the one of this name another form.

        Args:
            wanted: As it shall be; its times are set here.
            paused: Whether it rests; None leaves one that exists as it is.
            dry_run: Check everything and return what would be, but write nothing.

        Returns:
            The schedule as it is afterwards.

        Raises:
            InvalidName, InvalidRequest, ValueTooLarge: Something of it is wrong.
            UnknownTopic: There is no such topic.
            Overloaded: There are as many schedules as there may be, or too large ones.
        """
        before = self.registry.schedules.get(valid_name(wanted.name))
        self._check_schedule(wanted)
        now = self._schedule_time()
        rests = (before is not None and before.paused) if paused is None else paused
        new = attrs.evolve(
            wanted,
            paused=rests,
            created_ms=now if before is None else before.created_ms,
            since_ms=now if before is None else before.since_ms,
        )
        if before is not None and _begins_anew(before, new):
            new = attrs.evolve(new, since_ms=now)
        if new != before and not dry_run:
            self._write_schedule(before, new)
        return new

    def pause_schedule(self, name: str, *, paused: bool, dry_run: bool = False) -> Schedule:
        """
        Let a schedule rest, or go on with the next time that comes.

        Args:
            name: The schedule.
            paused: Whether it rests.
            dry_run: Check everything and return what would be, but write nothing.

        Raises:
            UnknownSchedule: There is none.
        """
        before = self.describe_schedule(name)
        new = attrs.evolve(before, paused=paused)
        if new == before:
            return before
        new = attrs.evolve(new, since_ms=self._schedule_time())
        if not dry_run:
            self._write_schedule(before, new)
        return new

    def delete_schedule(self, name: str, *, dry_run: bool = False) -> Schedule:
        """
        Delete a schedule and return what it was.

        Args:
            name: The schedule.
            dry_run: Check everything and return what would go, but write nothing.

        Raises:
            UnknownSchedule: There is none.
        """
        schedule = self.describe_schedule(name)
        if not dry_run:
            self._write([], [Delete(schedule.store_key)], vital=True)
        return schedule

    def _write_schedule(self, before: Schedule | None, new: Schedule) -> None:
        compared = [Compare(new.store_key, 0)] if before is None else []
        self._write(compared, [Put(new.store_key, new.encode())])
        self._last_scheduled_ms = max(self._last_scheduled_ms, new.created_ms, new.since_ms)

    def _schedule_time(self) -> int:
        return max(self._now_ms(), self._last_scheduled_ms + 1)

    def _schedule_deletes(self, topic: Topic) -> list[Delete]:
        """Return what takes all schedules of a topic out of the store."""
        return [Delete(each.store_key) for each in self.registry.schedules_of(topic.id)]

    def _check_schedule(self, wanted: Schedule) -> None:
        topic = self.registry.topics.get(wanted.topic_id)
        if topic is None:
            raise UnknownTopic("the topic of this schedule is gone", topic="")
        topic.leader(wanted.partition)
        if len(wanted.name) > self._config.limits.name:
            raise InvalidName(
                f"the name {wanted.name[:40]!r}... has {len(wanted.name)} bytes, and limits.name "
                f"allows {self._config.limits.name}",
                length=len(wanted.name),
            )
        try:
            Cron.parse(wanted.cron, wanted.zone)
        except ValueError as error:
            field = "zone" if "time zone" in str(error) else "cron"
            raise InvalidRequest(str(error), field=field) from None
        if wanted.catch_up not in CATCH_UPS:
            raise InvalidRequest(f"catch_up is one of {', '.join(CATCH_UPS)}", field="catch_up")
        self._check_sizes(topic, wanted)

    def _check_sizes(self, topic: Topic, wanted: Schedule) -> None:
        most = min(MOST_VALUE, topic.config.max_value_bytes)
        if len(wanted.value) > most:
            raise ValueTooLarge(
                f"the value has {len(wanted.value)} bytes; a schedule for {topic.name} "
                f"may have {most}",
                size=len(wanted.value),
                limit=most,
            )
        size = sum(len(name.encode()) + len(value) for name, value in wanted.headers)
        if size > MOST_HEADERS:
            raise InvalidRequest(
                f"the headers have {size} bytes, and {MOST_HEADERS} are allowed", field="headers"
            )
        others = [each for each in self.registry.schedules.values() if each.name != wanted.name]
        if len(others) >= MOST_SCHEDULES:
            raise Overloaded(
                f"there are {MOST_SCHEDULES} schedules, the most there may be; delete some",
                limit=MOST_SCHEDULES,
            )
        if sum(each.size for each in others) + wanted.size > MOST_BYTES:
            raise Overloaded(
                f"the messages of all schedules would have more than {MOST_BYTES} bytes; "
                "make some smaller: a message may name where its data is",
                limit=MOST_BYTES,
            )


def _begins_anew(before: Schedule, new: Schedule) -> bool:
    """Whether runs count from now on: times before are not those of the new form."""
    facts = ("topic_id", "partition", "cron", "zone", "paused")
    return any(getattr(before, name) != getattr(new, name) for name in facts)
