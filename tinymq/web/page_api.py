"""What the dashboard's lists show, for programs: any order, page by page, with rates."""

from __future__ import annotations

from twisted.web.http import Request

from tinymq.web import describe
from tinymq.web.broker_pages import find_row, order_of
from tinymq.web.brokers import rows
from tinymq.web.channel_pages import channel_query
from tinymq.web.client_pages import client_query
from tinymq.web.format import Times
from tinymq.web.group_pages import group_query
from tinymq.web.input import MOST_BROKER, MOST_OFFSET, BadInput, integer, query_of
from tinymq.web.pages import topic_query
from tinymq.web.routes import ROUTES
from tinymq.web.serving import Serving, answer_json, serve


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


class PageApi(Serving):
    """Topics, brokers and clients as the dashboard has them."""

    @serve(ROUTES["pages.topics"])
    def topics(self, request: Request) -> bytes:
        """A page of topics."""
        asked = topic_query(query_of(request))
        return answer_json(request, describe.topic_page(self._console.topics(asked)))

    @serve(ROUTES["pages.topic"])
    def topic(self, request: Request, name: str) -> bytes:
        """One topic."""
        return answer_json(request, describe.topic(self._console.topic(name)))

    @serve(ROUTES["pages.channels"])
    async def channels(self, request: Request) -> bytes:
        """A page of channels."""
        asked = channel_query(query_of(request))
        return answer_json(request, describe.listed(await self._console.channels(asked)))

    @serve(ROUTES["pages.groups"])
    async def groups(self, request: Request) -> bytes:
        """A page of consumer groups."""
        asked = group_query(query_of(request))
        return answer_json(request, describe.listed(await self._console.groups(asked)))

    @serve(ROUTES["pages.brokers"])
    def brokers(self, request: Request) -> bytes:
        """Every broker, by id unless the query says otherwise."""
        query, cluster = query_of(request), self._console.cluster()
        found = rows(cluster, Times(cluster.taken_ms))
        order = order_of(query)
        if query.get("sort"):
            found = order.of(found)
        elif order.reverse:
            found = found[::-1]
        return answer_json(request, describe.brokers(cluster, found))

    @serve(ROUTES["pages.broker"])
    def broker(self, request: Request, broker: str) -> bytes:
        """One broker."""
        cluster = self._console.cluster()
        number = number_of("broker", broker, MOST_BROKER)
        row = find_row(cluster, Times(cluster.taken_ms), number)
        return answer_json(request, describe.broker_row(row))

    @serve(ROUTES["pages.clients"])
    async def clients(self, request: Request) -> bytes:
        """A page of clients."""
        found = await self._console.clients(client_query(query_of(request)))
        return answer_json(request, describe.client_page(found))

    @serve(ROUTES["pages.client"])
    async def client(self, request: Request, broker: str, id: str) -> bytes:  # noqa: A002 - the API's word
        """One client."""
        at = number_of("broker", broker, MOST_BROKER)
        number = number_of("client", id, MOST_OFFSET)
        return answer_json(request, describe.client(await self._console.client(at, number)))
