"""What the routers of a broker's partitions do, for those who look at exchanges."""

from __future__ import annotations

from typing import Final

from tinymq.broker.broker import Broker
from tinymq.node.partitions import topic_key
from tinymq.operation import Operation, Parameter, Result, table
from tinymq.wire.fields import array, text

_SUMMED: Final = ("in_s", "out_s", "unroutable", "pending", "missing")


class Routers:
    """Reports of routers; only partitions that are here count."""

    _broker: Broker

    def routers(self) -> Result:
        """Say of every partition of an exchange how far its copies are, and what is stuck."""
        channels = self._broker.channels
        now = channels.now()
        return {
            "rows": [
                hosted.router.told(now) for hosted in channels.all() if hosted.router is not None
            ]
        }

    def exchanges(self, ids: list[str]) -> Result:
        """Sum up what routers do for some exchanges."""
        channels = self._broker.channels
        now = channels.now()
        found: list[Result] = []
        for topic_id in ids:
            rows = [
                hosted.router.told(now)
                for hosted in channels.hosted_of(topic_key(topic_id))
                if hosted.router is not None
            ]
            if rows:
                found.append(_summed(topic_id, rows))
        return {"exchanges": found}


def _summed(topic_id: str, rows: list[Result]) -> Result:
    stuck: dict[str, Result] = {}
    for row in rows:
        for each in row["stuck"]:
            known = stuck.setdefault(
                each["target"],
                {"target": each["target"], "why": each["why"], "since_ms": each["since_ms"]},
            )
            known["since_ms"] = min(known["since_ms"], each["since_ms"])
            if row["waiting"]:
                known["why"] = f"{each['why']}; nothing more is routed until it does"
    return {
        "id": topic_id,
        **{name: sum(row[name] for row in rows) for name in _SUMMED},
        "lag": sum(row["end"] - row["cursor"] for row in rows),
        # All partitions of an exchange share one table.
        "failed": rows[0]["failed"],
        "stuck": [*stuck.values()],
    }


ROUTER_OPERATIONS: Final[dict[str, Operation]] = table(
    Operation("node.routers", "cluster", False, (), Routers.routers),
    Operation(
        "node.exchanges",
        "cluster",
        False,
        (Parameter("ids", array(text(32), 1024)),),
        Routers.exchanges,
    ),
)
