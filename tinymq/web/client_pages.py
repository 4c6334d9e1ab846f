"""The pages of clients: all of them, one of them, and ending its connection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from twisted.web.http import Request

from tinymq.errors import UnknownClient
from tinymq.stats import ClientSnapshot
from tinymq.web.base import Answer, Base, redirect
from tinymq.web.brokers import MISSING
from tinymq.web.input import (
    MOST_BROKER,
    MOST_OFFSET,
    BadInput,
    choice,
    integer,
    query_of,
    text,
    truth,
)
from tinymq.web.lists import CLIENT_SORTS, MAX_PAGE_SIZE, ClientQuery

_MOST_PAGE: Final = 10**6
#: Longest reason of a kick, in characters: a sentence, not an essay.
MOST_REASON: Final = 200


def client_query(query: Mapping[str, Any]) -> ClientQuery:
    """Read which clients a list should show."""
    return ClientQuery(
        name=text(query, "name").strip(),
        broker=integer(query, "broker", 0, MOST_BROKER),
        sort=choice(query, "sort", CLIENT_SORTS, "slow"),
        reverse=truth(query, "reverse"),
        page=integer(query, "page", 1, _MOST_PAGE) or 1,
        page_size=integer(query, "page_size", 1, MAX_PAGE_SIZE) or 50,
        own=truth(query, "own"),
    )


def reason_of(fields: Mapping[str, Any]) -> str:
    """Read why a client is kicked; may be empty."""
    reason = text(fields, "reason").strip()
    if len(reason) > MOST_REASON:
        raise BadInput("reason", f"a reason has at most {MOST_REASON} characters")
    return reason


class ClientPages(Base):
    """All clients, one client, and the plan of kicking it."""

    @Base.app.route("/clients", methods=["GET"])
    async def clients(self, request: Request) -> bytes:
        """Who is connected; first those that take no more."""
        query = query_of(request)
        asked = client_query(query)
        found = await self._console.clients(asked)
        return self._renderer.page(
            request,
            "clients.html",
            self._console.cluster(),
            keep=True,
            silent=found.silent,
            effect=MISSING,
            client_count=found.total_count if asked.broker is None else None,
            current="clients",
            query=query,
            asked=asked,
            found=found,
        )

    async def _client(self, broker_id: int, client: int) -> ClientSnapshot:
        if broker_id > MOST_BROKER or client > MOST_OFFSET:
            raise UnknownClient(
                "there is no client of such a number; find it in the list of clients"
            )
        return await self._console.client(broker_id, client)

    @Base.app.route("/clients/<int:broker_id>/<int:client>", methods=["GET"])
    async def client(self, request: Request, broker_id: int, client: int) -> bytes:
        """One client: what goes through it, and what waits."""
        found = await self._client(broker_id, client)
        return self._renderer.page(
            request,
            "client.html",
            self._console.cluster(),
            keep=True,
            current="clients",
            query=query_of(request),
            client=found,
        )

    def _kick_plan(
        self,
        request: Request,
        client: ClientSnapshot,
        values: Mapping[str, str],
        error: Answer | None = None,
    ) -> bytes:
        return self._renderer.page(
            request,
            "plan_kick.html",
            self._console.cluster(),
            current="clients",
            query={},
            client=client,
            values=values,
            most=MOST_REASON,
            error=error,
        )

    @Base.app.route("/clients/<int:broker_id>/<int:client>/kick", methods=["GET"])
    async def kick_plan(self, request: Request, broker_id: int, client: int) -> bytes:
        """What kicking a client would do. Changes nothing."""
        return self._kick_plan(request, await self._client(broker_id, client), {})

    @Base.app.route("/clients/<int:broker_id>/<int:client>/kick", methods=["POST"])
    async def kick(self, request: Request, broker_id: int, client: int) -> bytes:
        """End a client's connection."""
        form = self._form(request, "client.kick")
        found = await self._client(broker_id, client)
        try:
            reason = reason_of(form)
        except BadInput as error:
            request.setResponseCode(error.status)
            return self._kick_plan(request, found, form, Answer(error))
        try:
            await self._console.kick(broker_id, client, reason)
        except UnknownClient:
            return redirect(request, "/clients", {"done": "gone"})
        return redirect(request, "/clients", {"done": "kicked"})
