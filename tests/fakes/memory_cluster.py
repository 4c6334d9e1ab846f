"""The brokers and clients of a cluster in memory, as its operations describe them."""

from __future__ import annotations

import fnmatch
from typing import Any

from attrs import Factory, define

from tinymq.errors import InvalidRequest, UnknownBroker


def broker_row(number: int, name: str, **facts: Any) -> dict[str, Any]:
    """Describe a broker; what is not said is that of a quiet one."""
    return {
        "id": number,
        "name": name,
        "role": "broker",
        "zone": "",
        "host": "127.0.0.1",
        "port": 7810 + number,
        "version": "1.0",
        "state": "ready",
        "reason": None,
        "started_ms": 1_750_000_000_000,
        "partitions": 0,
        "bytes": 0,
        "memory": 100 << 20,
        "memory_limit": None,
        "disk_free": 5 << 30,
        "disk_total": 10 << 30,
        "files": 3,
        "files_limit": 512,
        "descriptors": 20,
        "descriptors_limit": None,
        "reactor_lag_ms": 0.25,
        "connections": 0,
        **facts,
    }


def client_row(broker: int, number: int, **facts: Any) -> dict[str, Any]:
    """Describe a client; what is not said is that of a quiet one."""
    return {
        "broker": f"broker-{broker}",
        "broker_id": broker,
        "id": number,
        "client_id": f"client-{number}",
        "address": f"10.0.0.{number % 250}:4000",
        "agent": "tinymq-python/1.0",
        "protocol": "tinymq/1",
        "user": "anonymous",
        "since_ms": 1_750_000_000_000,
        "heard_ms": 1_750_000_001_000,
        "messages_in": 0,
        "messages_out": 0,
        "bytes_in": 0,
        "bytes_out": 0,
        "buffered": 0,
        "pending": 0,
        "waiting": 0,
        "slow_since_ms": None,
        **facts,
    }


@define
class MemoryCluster:
    """
    What `broker.*` and `client.*` operations answer.

    Attributes:
        brokers: Their rows.
        clients: Their rows, by broker and number.
        silent: Names of brokers that do not answer.
        page: Most clients in one answer.
    """

    brokers: list[dict[str, Any]] = Factory(list)
    clients: list[dict[str, Any]] = Factory(list)
    silent: list[str] = Factory(list)
    page: int = 500

    def list(self) -> dict[str, Any]:
        """Give all brokers."""
        return {"brokers": [dict(row) for row in self.brokers]}

    def _broker(self, broker: str) -> dict[str, Any]:
        for row in self.brokers:
            if broker in {str(row["id"]), row["name"]}:
                return row
        raise UnknownBroker(f"there is no broker {broker}")

    def _client(self, broker: str, number: int) -> dict[str, Any]:
        for row in self.clients:
            if (row["broker_id"], row["id"]) == (self._broker(broker)["id"], number):
                return row
        raise InvalidRequest(f"broker {broker} has no client {number}", field="id")

    def info(self, broker: str) -> dict[str, Any]:
        """Describe one broker."""
        row = self._broker(broker)
        return {"broker": dict(row), "ready": row["state"] == "ready", "reason": row["reason"]}

    def drain(self, broker: str, *, undo: bool, dry_run: bool) -> dict[str, Any]:
        """Let a broker get no new partitions, or again."""
        row = self._broker(broker)
        if not dry_run:
            row["state"] = "ready" if undo else "draining"
        return {"broker": row["name"], "draining": not undo, "dry_run": dry_run}

    def search(
        self, broker: str | None, pattern: str, after: str | None, limit: int
    ) -> dict[str, Any]:
        """Give a page of clients."""
        first = tuple(map(int, (after or "0/0").split("/")))
        rows = [
            row
            for row in self.clients
            if (broker is None or self._broker(broker)["id"] == row["broker_id"])
            and fnmatch.fnmatch(row["client_id"], pattern or "*")
            and (row["broker_id"], row["id"]) > first
        ]
        page = rows[: min(limit, self.page)]
        more = len(rows) > len(page)
        last = f"{page[-1]['broker_id']}/{page[-1]['id']}" if more else None
        return {"clients": page, "more": more, "after": last, "silent": self.silent}

    def client(self, broker: str, number: int) -> dict[str, Any]:
        """Describe a client."""
        return {"client": dict(self._client(broker, number))}

    def kick(self, broker: str, number: int, *, dry_run: bool) -> dict[str, Any]:
        """Forget a client."""
        row = self._client(broker, number)
        if not dry_run:
            self.clients.remove(row)
        return {"client": row, "dry_run": dry_run}
