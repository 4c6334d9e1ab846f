"""Who is connected, and which brokers get new partitions."""

from __future__ import annotations

from twisted.internet.defer import Deferred, gatherResults

from tinymq.console.base import Base
from tinymq.errors import UnknownBroker, WireError
from tinymq.maps import from_map
from tinymq.stats import ClientSnapshot
from tinymq.web.port import ClientPage, ClientQuery, DrainPlan, select_clients


class People(Base):
    """Clients of all brokers, and draining."""

    async def clients(self, query: ClientQuery) -> ClientPage:
        """List clients of all brokers, or of one."""
        known = sorted({self._broker.id, *self._registry().brokers})
        asked = [each for each in known if query.broker in (None, each)]
        silent = [each.name for each in self.board.silent() if query.broker in (None, each.id)]
        found = await gatherResults(
            [Deferred.fromCoroutine(self._clients_of(each, silent)) for each in asked]
        )
        rows = [client for clients in found for client in clients]
        return select_clients(rows, query, tuple(sorted(set(silent))))

    async def _clients_of(self, broker_id: int, silent: list[str]) -> list[ClientSnapshot]:
        connected = self._node.connected
        if broker_id == self._broker.id and connected is not None:
            return connected.clients()
        try:
            result = await self._ask(broker_id, "node.clients", {})
            return from_map(result["clients"], list[ClientSnapshot])
        except (WireError, ValueError):  # an older one may not know the question
            silent.append(self.board.name(broker_id))
            return []

    async def client(self, broker_id: int, client: int) -> ClientSnapshot:
        """Look at one client."""
        self._check_known(broker_id)
        return from_map(await self._ask(broker_id, "node.client", {"id": client}), ClientSnapshot)

    async def kick(self, broker_id: int, client: int, reason: str) -> ClientSnapshot:
        """End a client's connection."""
        self._check_known(broker_id)
        result = await self._operations.run(
            "client.kick", {"broker": str(broker_id), "id": client, "reason": reason}
        )
        return from_map(result["client"], ClientSnapshot)

    def _check_known(self, broker_id: int) -> None:
        if broker_id != self._broker.id and broker_id not in self._registry().known:
            raise UnknownBroker(
                f"there is no broker {broker_id}; the list of brokers has all of them"
            )

    async def drain(self, broker_id: int, undo: bool, dry_run: bool) -> DrainPlan:
        """Give a broker no new partitions any more, or again."""
        result = await self._operations.run(
            "broker.drain", {"broker": str(broker_id), "undo": undo, "dry_run": dry_run}
        )
        registry = self._registry()
        out = registry.draining - {broker_id} if undo else registry.draining | {broker_id}
        return DrainPlan(
            broker_id=broker_id,
            broker=result["broker"]["name"],
            undo=undo,
            applied=not dry_run,
            partitions=result["partitions"],
            takers=tuple(each.name for each in registry.brokers.values() if each.id not in out),
        )
