"""The pages of brokers: all of them, one of them, and draining one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from twisted.web.http import Request

from tinymq.errors import UnknownBroker
from tinymq.stats import ClusterSnapshot
from tinymq.web.base import Base, redirect
from tinymq.web.brokers import BROKER_SORTS, Order, Row, rows, versions
from tinymq.web.format import Times
from tinymq.web.input import MOST_BROKER, choice, integer, query_of, truth
from tinymq.web.port import ClientPage, ClientQuery, TopicQuery
from tinymq.web.render import view_of

_MOST_PAGE: Final = 10**6
#: Topics on one page of a broker.
_TOPICS: Final = 20
#: Clients that a broker's page shows.
_CLIENTS: Final = 10


def find_row(cluster: ClusterSnapshot, times: Times, broker_id: int) -> Row:
    """
    Find a broker by its id.

    Raises:
        UnknownBroker: There is none; the answer is 404.
    """
    for row in rows(cluster, times):
        if row.broker.id == broker_id:
            return row
    raise UnknownBroker(
        f"there is no broker with the id {broker_id}; the list of brokers has all of them"
    )


def order_of(query: Mapping[str, Any]) -> Order:
    """Read in which order brokers should be listed."""
    return Order(choice(query, "sort", BROKER_SORTS, "state"), truth(query, "reverse"))


class BrokerPages(Base):
    """All brokers, one broker, and the plan of draining it."""

    def _row(self, request: Request, broker_id: int) -> tuple[ClusterSnapshot, Row]:
        if broker_id > MOST_BROKER:
            raise UnknownBroker(
                "there is no broker with such an id; the list of brokers has all of them"
            )
        cluster = self._console.cluster()
        times = view_of(request, self._config, cluster.taken_ms).times
        return cluster, find_row(cluster, times, broker_id)

    @Base.app.route("/brokers", methods=["GET"])
    def brokers(self, request: Request) -> bytes:
        """Every broker against its limits."""
        cluster, query = self._console.cluster(), query_of(request)
        order = order_of(query)
        times = view_of(request, self._config, cluster.taken_ms).times
        return self._renderer.page(
            request,
            "brokers.html",
            cluster,
            keep=True,
            silent=None,
            current="brokers",
            query=query,
            asked=order,
            rows=order.of(rows(cluster, times)),
            versions=versions(cluster),
        )

    @Base.app.route("/brokers/<int:broker_id>", methods=["GET"])
    async def broker(self, request: Request, broker_id: int) -> bytes:
        """One broker: figures, limits, what it leads, who is connected to it."""
        cluster, row = self._row(request, broker_id)
        query = query_of(request)
        page = integer(query, "page", 1, _MOST_PAGE) or 1
        asked = TopicQuery(broker=broker_id, page=page, page_size=_TOPICS)
        clients: ClientPage | None = None
        silent: tuple[str, ...] = (row.broker.name,)
        if row.standing.rank:
            clients = await self._console.clients(ClientQuery(broker=broker_id, page_size=_CLIENTS))
            silent = tuple(name for name in clients.silent if name == row.broker.name)
        return self._renderer.page(
            request,
            "broker.html",
            cluster,
            silent=silent,
            current="brokers",
            query=query,
            row=row,
            led=self._console.topics(asked),
            clients=clients,
        )

    # --- draining ------------------------------------------------------------

    async def _drain_plan(self, request: Request, broker_id: int, *, undo: bool) -> bytes:
        cluster, row = self._row(request, broker_id)
        plan = await self._console.drain(broker_id, undo=undo, dry_run=True)
        return self._renderer.page(
            request,
            "plan_drain.html",
            cluster,
            current="brokers",
            query={},
            row=row,
            plan=plan,
        )

    async def _drain(self, request: Request, broker_id: int, *, undo: bool) -> bytes:
        self._form(request, "broker.drain")
        self._row(request, broker_id)
        await self._console.drain(broker_id, undo=undo, dry_run=False)
        done = "undrained" if undo else "drained"
        return redirect(request, f"/brokers/{broker_id}", {"done": done})

    @Base.app.route("/brokers/<int:broker_id>/drain", methods=["GET"])
    async def drain_plan(self, request: Request, broker_id: int) -> bytes:
        """What draining a broker would do. Changes nothing."""
        return await self._drain_plan(request, broker_id, undo=False)

    @Base.app.route("/brokers/<int:broker_id>/drain", methods=["POST"])
    async def drain(self, request: Request, broker_id: int) -> bytes:
        """Give a broker no new partitions any more."""
        return await self._drain(request, broker_id, undo=False)

    @Base.app.route("/brokers/<int:broker_id>/undrain", methods=["GET"])
    async def undrain_plan(self, request: Request, broker_id: int) -> bytes:
        """What taking a broker back would do. Changes nothing."""
        return await self._drain_plan(request, broker_id, undo=True)

    @Base.app.route("/brokers/<int:broker_id>/undrain", methods=["POST"])
    async def undrain(self, request: Request, broker_id: int) -> bytes:
        """Give a broker new partitions again."""
        return await self._drain(request, broker_id, undo=True)
