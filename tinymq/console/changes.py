"""Changes of topics: what `tinymq.operations` does, told as plans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tinymq.caller import LOCAL, Caller
from tinymq.console.base import Base
from tinymq.operation import Result
from tinymq.web.port import At, Plan, PlanPart, SettingChange, Since


class Changes(Base):
    """Operations by their names, and making, changing, purging and deleting topics."""

    async def operate(self, name: str, arguments: Mapping[str, Any], caller: Caller) -> Result:
        """Carry out an operation by its name."""
        return await self._operations.run(name, arguments, caller)

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
        result = await self._operations.run(
            "topic.create",
            {"name": name, "partitions": partitions, "config": dict(config), "dry_run": dry_run},
            caller,
        )
        topic = result["topic"]
        made = topic["partitions"]
        count = made if isinstance(made, int) else len(made)
        default = self._broker.config.defaults.to_mapping()
        changes = [
            SettingChange(name=key, before=None, after=_text(value))
            for key, value in topic["config"].items()
            if value != default[key]
        ]
        warnings = () if result["created"] else ("It exists already, with these settings.",)
        return Plan(
            action="create",
            topic=name,
            applied=not dry_run,
            changes=(
                SettingChange(name="partitions", before=None, after=str(count)),
                *changes,
            ),
            warnings=warnings,
        )

    async def alter_topic(
        self,
        name: str,
        config: Mapping[str, str | None],
        *,
        dry_run: bool,
        caller: Caller = LOCAL,
    ) -> Plan:
        """Change settings; None returns one to the broker's default."""
        # For the operation None is "none" where a setting can be that: no limit.
        defaults = self._broker.config.defaults.to_mapping()
        given = {key: defaults.get(key) if to is None else to for key, to in config.items()}
        result = await self._operations.run(
            "topic.alter", {"name": name, "config": given, "dry_run": dry_run}, caller
        )
        return Plan(
            action="alter",
            topic=name,
            applied=not dry_run,
            changes=tuple(
                SettingChange(name=key, before=_text(old), after=_text(new))
                for key, old, new in result["changes"]
            ),
        )

    async def delete_topic(self, name: str, *, dry_run: bool) -> Plan:
        """Remove a topic with all its records."""
        result = await self._operations.run("topic.delete", {"name": name, "dry_run": dry_run})
        return _plan("delete", result["plan"])

    async def purge(
        self,
        topic: str,
        partition: int | None,
        before: At | Since | None,
        *,
        dry_run: bool,
        caller: Caller = LOCAL,
    ) -> Plan:
        """Move the start of the log, so that records before it are gone."""
        arguments: dict[str, Any] = {"name": topic, "partition": partition, "dry_run": dry_run}
        if isinstance(before, At):
            arguments["before"] = before.offset
        elif isinstance(before, Since):
            arguments["before_ms"] = before.ms
        result = await self._operations.run("topic.purge", arguments, caller)
        return _plan("purge", result["plan"], result["undo_until_ms"])

    async def undo_purge(self, topic: str, caller: Caller = LOCAL) -> Plan:
        """Bring back what the last purge took."""
        before = (await self._operations.info(topic))["topic"]
        told = await self._operations.run("topic.undo_purge", {"name": topic}, caller)
        result = told["topic"]
        return Plan(
            action="undo",
            topic=topic,
            applied=True,
            records=result["messages"] - before["messages"],
            bytes=result["bytes"] - before["bytes"],
        )


def _plan(action: Any, result: Result, undo_until_ms: int | None = None) -> Plan:
    parts = tuple(
        PlanPart(
            partition=row["partition"],
            first=row["start"],
            end=row["new_start"],
            records=row["messages"],
            bytes=row["bytes"],
            oldest_ms=row["oldest_ms"],
        )
        for row in result["partitions"]
    )
    oldest = [part.oldest_ms for part in parts if part.oldest_ms is not None]
    return Plan(
        action=action,
        topic=result["topic"],
        applied=not result["dry_run"],
        records=result["messages"],
        bytes=result["bytes"],
        oldest_ms=min(oldest, default=None),
        parts=parts,
        undo_until_ms=undo_until_ms,
    )


def _text(value: object) -> str:
    return "none" if value is None else str(value)
