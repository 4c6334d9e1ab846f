"""Brokers: which there are, how they are, and taking one out of placement."""

from __future__ import annotations

from typing import Final

from tinymq.catalog import PUBLIC
from tinymq.meta.registry import BrokerInfo
from tinymq.operation import Operation, Result, table
from tinymq.operations.base import Answers, Base


class Brokers(Base):
    """The brokers of the cluster."""

    async def brokers(self) -> Result:
        """List the brokers, those that are gone but lead partitions among them."""
        registry = self._registry
        leading = {each: info for each, info in registry.known.items() if registry.led.get(each)}
        known = {**leading, **registry.brokers}
        answers = await self._ask(known, "node.info", {})
        rows = [self._broker_row(info, answers) for _, info in sorted(known.items())]
        return {"brokers": rows, "silent": self._silence(answers)}

    def _broker_row(self, info: BrokerInfo, answers: Answers) -> Result:
        registry, told = self._registry, answers.results.get(info.id)
        row = {
            "id": info.id,
            "name": info.name,
            "role": "broker",
            "zone": info.zone,
            "host": info.host,
            "port": info.port,
            "version": info.version,
            "incarnation": info.incarnation,
            "started_ms": info.started_ms,
            "partitions": registry.led.get(info.id, 0),
            "draining": info.id in registry.draining,
            "state": "draining" if info.id in registry.draining else "ready",
            "reason": None,
        }
        if told is None:
            return {**row, "state": "silent", "reason": answers.silent.get(info.id)}
        row.update(told["broker"])
        if not told["ready"]:
            row.update(state="refusing", reason=told["reason"])
        return row

    async def drain(self, broker: str, *, undo: bool, dry_run: bool) -> Result:
        """Give a broker no new partitions, or give it some again; what it leads stays."""
        broker_id = self._named_broker(broker)
        changed = self._meta.drain(broker_id, undo=undo, dry_run=dry_run)
        return {
            "broker": {"id": broker_id, "name": self._broker_name(broker_id)},
            "partitions": self._registry.led.get(broker_id, 0),
            "draining": not undo,
            "changed": changed,
            "dry_run": dry_run,
        }

    async def broker_info(self, broker: str | None) -> Result:
        """Describe a broker, and whether it takes publishing."""
        return await self._one(broker, "node.info")

    async def log_level(self, level: str, broker: str | None, *, dry_run: bool) -> Result:
        """Change which log lines a broker writes, until its next start."""
        return await self._one(broker, "node.log_level", level=level, dry_run=dry_run)

    async def _one(self, broker: str | None, operation: str, **arguments: object) -> Result:
        """Ask one broker; without a name, the one of this process."""
        broker_id = self._broker.id if broker is None else self._named_broker(broker)
        return await self._ask_alone(broker_id, operation, arguments)


BROKER_OPERATIONS: Final[dict[str, Operation]] = table(
    PUBLIC["broker.list"].by(Brokers.brokers),
    PUBLIC["broker.drain"].by(Brokers.drain),
    PUBLIC["broker.info"].by(Brokers.broker_info),
    PUBLIC["broker.log_level"].by(Brokers.log_level),
)
