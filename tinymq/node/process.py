"""The process of a broker: who it is, whether it is ready, how much it logs."""

from __future__ import annotations

from typing import Final

from tinymq.broker.broker import Broker
from tinymq.catalog.cluster import LEVEL
from tinymq.errors import StateError
from tinymq.figures.vitals import Vitals
from tinymq.logs import Logs
from tinymq.operation import DRY, Operation, Result, table

#: What is told of the process of a broker, as `tinymq.stats.BrokerSnapshot` has it.
_TOLD: Final = (
    *("id", "name", "role", "zone", "version", "pid", "started_ms", "incarnation"),
    *("topics", "partitions", "connections", "slow_clients"),
    *("memory", "memory_limit", "disk_total", "disk_used", "disk_free", "disk_reserve"),
    *("descriptors", "descriptors_limit", "files", "files_limit", "reactor_lag_ms"),
)


class Process:
    """What a broker tells of itself."""

    _broker: Broker
    _logs: Logs | None
    vitals: Vitals

    def info(self) -> Result:
        """Describe the broker against its limits, and whether it takes publishing."""
        broker, looked = self._broker, self.vitals.snapshot()
        facts = {name: getattr(looked, name) for name in _TOLD}
        facts["host"], facts["port"] = broker.address
        facts["bytes"] = broker.load["bytes"]
        return {"broker": facts, "ready": broker.ready is None, "reason": broker.ready}

    def log_level(self, level: str, *, dry_run: bool) -> Result:
        """Change which log lines are written, until the next start."""
        if self._logs is None:
            raise StateError(
                "this broker's log lines are written by somebody else: "
                "the program that it runs in sets their level"
            )
        before = self._logs.level
        if not dry_run:
            self._logs.level = level
        return {"level": level, "before": before, "dry_run": dry_run}


PROCESS_OPERATIONS: Final[dict[str, Operation]] = table(
    Operation("node.info", "cluster", False, (), Process.info),
    Operation("node.log_level", "cluster", True, (LEVEL, DRY), Process.log_level),
)
