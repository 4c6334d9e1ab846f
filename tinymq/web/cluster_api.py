"""The JSON API of brokers and clients."""

from __future__ import annotations

from twisted.web.http import Request

from tinymq.stats import ClientSnapshot
from tinymq.web import describe
from tinymq.web.api import ROOT, Api, answer_json
from tinymq.web.broker_pages import find_row, order_of
from tinymq.web.brokers import rows
from tinymq.web.client_pages import client_query, reason_of
from tinymq.web.format import Times
from tinymq.web.input import MOST_BROKER, MOST_OFFSET, BadInput, integer, query_of


def number_of(name: str, text: str, most: int) -> int:
    """
    Read a number that is a part of an address.

    Raises:
        BadInput: It is none; the answer is 404.
    """
    try:
        found = integer({name: text}, name, 0, most)
    except BadInput:
        found = None
    if found is None:
        raise BadInput(name, f"there is no {name} {text[:40]!r}", 404)
    return found


class ClusterApi(Api):
    """The whole API: topics and messages, brokers and clients."""

    # --- brokers -------------------------------------------------------------

    @Api.app.route(f"{ROOT}/brokers", methods=["GET"])
    def brokers(self, request: Request) -> bytes:
        """Every broker, by id unless the query says otherwise."""
        query, cluster = query_of(request), self._console.cluster()
        found = rows(cluster, Times(cluster.taken_ms))
        if query.get("sort"):
            found = order_of(query).of(found)
        return answer_json(request, describe.brokers(cluster, found))

    @Api.app.route(f"{ROOT}/brokers/<name>", methods=["GET"])
    def broker(self, request: Request, name: str) -> bytes:
        """One broker."""
        cluster = self._console.cluster()
        number = number_of("broker", name, MOST_BROKER)
        row = find_row(cluster, Times(cluster.taken_ms), number)
        return answer_json(request, describe.broker_row(row))

    @Api.app.route(f"{ROOT}/brokers/<name>", methods=["POST"])
    async def act_on_broker(self, request: Request, name: str) -> bytes:
        """Carry out ``…/brokers/ID:drain`` or ``…:undrain``."""
        _, dry_run = self._change(request)
        self._json(request)
        asked, _, action = name.rpartition(":")
        if action not in {"drain", "undrain"}:
            raise BadInput("action", "post to …/brokers/ID:drain or …/brokers/ID:undrain")
        number = number_of("broker", asked, MOST_BROKER)
        plan = await self._console.drain(number, undo=action == "undrain", dry_run=dry_run)
        return answer_json(request, describe.drain(plan))

    # --- clients -------------------------------------------------------------

    @Api.app.route(f"{ROOT}/clients", methods=["GET"])
    async def clients(self, request: Request) -> bytes:
        """A page of clients."""
        found = await self._console.clients(client_query(query_of(request)))
        return answer_json(request, describe.client_page(found))

    @Api.app.route(f"{ROOT}/clients/<broker>/<name>", methods=["GET"])
    async def client(self, request: Request, broker: str, name: str) -> bytes:
        """One client."""
        found = await self._client(broker, name)
        return answer_json(request, describe.client(found))

    async def _client(self, broker: str, name: str) -> ClientSnapshot:
        at = number_of("broker", broker, MOST_BROKER)
        number = number_of("client", name, MOST_OFFSET)
        return await self._console.client(at, number)

    @Api.app.route(f"{ROOT}/clients/<broker>/<name>", methods=["POST"])
    async def act_on_client(self, request: Request, broker: str, name: str) -> bytes:
        """Carry out ``…/clients/BROKER/ID:kick``. The answer is the client as it was."""
        _, dry_run = self._change(request)
        reason = reason_of(self._json(request))
        asked, _, action = name.rpartition(":")
        if action != "kick":
            raise BadInput("action", "post to …/clients/BROKER/ID:kick")
        found = await self._client(broker, asked)
        if not dry_run:
            found = await self._console.kick(found.broker_id, found.id, reason)
        return answer_json(
            request, {**describe.client(found), "applied": not dry_run, "reason": reason}
        )
