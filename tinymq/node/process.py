"""The process of a broker: who it is, whether it is ready, how much it logs."""

from __future__ import annotations

from typing import Final

from tinymq.broker.broker import Broker
from tinymq.catalog.cluster import LEVEL
from tinymq.errors import StateError
from tinymq.logs import Logs
from tinymq.operation import DRY, Operation, Result, table


class Process:
    """What a broker tells of itself."""

    _broker: Broker
    _logs: Logs | None

    def info(self) -> Result:
        """Describe the broker, and whether it takes publishing."""
        broker = self._broker
        return {
            "broker": {
                "id": broker.id,
                "name": broker.config.broker.name,
                "host": broker.address[0],
                "port": broker.address[1],
                "topics": len(broker.meta.registry.topics),
                "partitions": len(broker.partitions()),
            },
            "ready": broker.ready is None,
            "reason": broker.ready,
        }

    def log_level(self, level: str, *, dry_run: bool) -> Result:
        """Change which log lines are written, until the next start."""
        if self._logs is None:
            raise StateError("this broker's log lines are written by somebody else")
        before = self._logs.level
        if not dry_run:
            self._logs.level = level
        return {"level": level, "before": before, "dry_run": dry_run}


PROCESS_OPERATIONS: Final[dict[str, Operation]] = table(
    Operation("node.info", "cluster", False, (), Process.info),
    Operation("node.log_level", "cluster", True, (LEVEL, DRY), Process.log_level),
)
