"""The schedules whose partitions a broker leads: what ran, and running one now."""

from __future__ import annotations

from typing import Final

from twisted.internet.defer import Deferred

from tinymq.broker.broker import Broker
from tinymq.broker.partition import Appended
from tinymq.errors import WireError
from tinymq.operation import DRY, NAME, Operation, Parameter, Result, table
from tinymq.wire.fields import array


class Schedules:
    """What is done with schedules; only those whose partition is here count."""

    _broker: Broker

    def schedules(self, names: list[str]) -> Result:
        """Tell what some schedules did, and what they do next."""
        known = self._broker.meta.registry.schedules
        here = [known[name] for name in names if name in known]
        rows = []
        for schedule in here:
            standing = self._broker.scheduling.standing(schedule)
            if standing is not None:
                rows.append(
                    {
                        "name": schedule.name,
                        "created_ms": schedule.created_ms,
                        "next_ms": standing.next_ms,
                        "last_ms": standing.last_ms,
                        "runs": standing.runs,
                        "missed": standing.missed,
                        "error": standing.error,
                    }
                )
        return {"schedules": rows}

    async def schedule_run(self, name: str, *, dry_run: bool) -> Result:
        """Append the message of a schedule, now."""
        schedule = self._broker.meta.registry.schedule(name)
        partition = self._broker.partition(schedule.topic_id, schedule.partition)
        told: Result = {"topic": partition.topic.name, "partition": partition.index}
        if dry_run:
            return {**told, "offset": None, "time_ms": None}
        done: Deferred[Appended | WireError] = Deferred()
        self._broker.scheduling.run(schedule, done.callback)
        result = await done
        if isinstance(result, WireError):
            raise result
        return {**told, "offset": result.base_offset, "time_ms": result.timestamp}


SCHEDULE_OPERATIONS: Final[dict[str, Operation]] = table(
    Operation(
        "node.schedules",
        "cluster",
        False,
        (Parameter("names", array(NAME, 500)),),
        Schedules.schedules,
    ),
    Operation(
        "node.schedule_run", "cluster", True, (Parameter("name", NAME), DRY), Schedules.schedule_run
    ),
)
