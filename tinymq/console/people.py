"""Who is connected, and which brokers get new partitions."""

from __future__ import annotations

from tinymq.console.base import Base
from tinymq.errors import UnknownBroker
from tinymq.stats import ClientSnapshot
from tinymq.web.port import ClientPage, ClientQuery, DrainPlan, select_clients


class People(Base):
    """Clients of this broker, and draining of any."""

    async def clients(self, query: ClientQuery) -> ClientPage:
        """List clients."""
        return select_clients(self._factory.clients(), query)

    async def client(self, broker_id: int, client: int) -> ClientSnapshot:
        """Look at one client."""
        self._check_here(broker_id)
        return self._factory.client(client)

    async def kick(self, broker_id: int, client: int, reason: str) -> ClientSnapshot:
        """End a client's connection."""
        self._check_here(broker_id)
        return self._factory.kick(client, reason)

    def _check_here(self, broker_id: int) -> None:
        if broker_id != self._broker.id:
            raise UnknownBroker(f"there is no broker {broker_id} here")

    async def drain(self, broker_id: int, undo: bool, dry_run: bool) -> DrainPlan:
        """Give a broker no new partitions any more, or again."""
        result = await self._operations.run(
            "broker.drain", {"broker": str(broker_id), "undo": undo, "dry_run": dry_run}
        )
        registry = self._broker.meta.registry
        out = registry.draining - {broker_id} if undo else registry.draining | {broker_id}
        return DrainPlan(
            broker_id=broker_id,
            broker=result["broker"]["name"],
            undo=undo,
            applied=not dry_run,
            partitions=result["partitions"],
            takers=tuple(each.name for each in registry.brokers.values() if each.id not in out),
        )
