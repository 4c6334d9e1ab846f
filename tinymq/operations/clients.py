"""Connected clients over all brokers."""

from __future__ import annotations

from typing import Any, Final

from tinymq.catalog import PUBLIC
from tinymq.errors import InvalidRequest
from tinymq.operation import Operation, Result, table
from tinymq.operations.base import Base


class Clients(Base):
    """Who is connected, and sending somebody away."""

    async def clients(self, broker: str | None, filter: str, after: str, limit: int) -> Result:  # noqa: A002 - the API's word
        """List clients, slow ones first, then by name and number."""
        registry = self._registry
        asked = (
            [*registry.brokers, self._broker.id] if broker is None else [self._named_broker(broker)]
        )
        answers = await self._ask(asked, "node.clients", {"filter": filter})
        found = [row for result in answers.results.values() for row in result["clients"]]
        found.sort(key=_order)
        place = _place(found, after) if after else None
        page = [row for row in found if place is None or _order(row) > place]
        return {
            "clients": page[:limit],
            "more": len(page) > limit,
            "after": _name(page[limit - 1]) if len(page) > limit else None,
            "total": len(found),
            "silent": self._silence(answers),
        }

    async def client(self, broker: str, id: int) -> Result:  # noqa: A002 - the API's word
        """Describe one client."""
        return {"client": await self._at(broker, "node.client", id=id)}

    async def kick(self, broker: str, id: int, reason: str, *, dry_run: bool) -> Result:  # noqa: A002 - the API's word
        """Tell a client why, and end its connection; it may come back by itself."""
        client = await self._at(broker, "node.kick", id=id, reason=reason, dry_run=dry_run)
        return {"client": client, "dry_run": dry_run}

    async def _at(self, broker: str, operation: str, **arguments: Any) -> Result:
        return await self._ask_alone(self._named_broker(broker), operation, arguments)


def _order(row: Result) -> tuple[bool, str, int, int]:
    return row["slow_since_ms"] is None, row["client_id"], row["broker_id"], row["id"]


def _place(rows: list[Result], after: str) -> tuple[bool, str, int, int]:
    """Where a page ended: ``BROKER/NUMBER`` of its last client."""
    for row in rows:
        if _name(row) == after:
            return _order(row)
    raise InvalidRequest("the client that after names has gone; begin anew", field="after")


def _name(row: Result) -> str:
    """Name a row so that a page can begin behind it."""
    return f"{row['broker_id']}/{row['id']}"


CLIENT_OPERATIONS: Final[dict[str, Operation]] = table(
    PUBLIC["client.list"].by(Clients.clients),
    PUBLIC["client.info"].by(Clients.client),
    PUBLIC["client.kick"].by(Clients.kick),
)
