"""
The HTTP API, `/api/v1`, and the two health addresses.

The routes of operations are made from the table; what is no operation is written
here. Every change is POST, PUT, PATCH or DELETE and is refused when a foreign page
asks for it. Errors are `application/problem+json`.
"""

from __future__ import annotations

from collections.abc import Mapping

from twisted.web.http import Request

from tinymq.catalog import PUBLIC
from tinymq.operation import Operation
from tinymq.web import describe
from tinymq.web.browsing import MOST_BYTES, wanted
from tinymq.web.input import MOST_OFFSET, BadInput, body_of, integer, media_type, query_of
from tinymq.web.openapi import document
from tinymq.web.page_api import PageApi, number_of
from tinymq.web.publishing import MOST_PARTITION, Wish, from_bytes, from_json
from tinymq.web.routes import ROUTES
from tinymq.web.serving import Serving, answer_json, serve
from tinymq.web.viewers import WINDOW

_RAW = "application/octet-stream"


class Api(PageApi):
    """Everything for programs."""

    # --- health --------------------------------------------------------------

    @serve(ROUTES["health.alive"])
    def healthy(self, request: Request) -> bytes:
        """Say that the reactor turns. Looks at nothing else."""
        request.setHeader("Content-Type", "text/plain; charset=utf-8")
        return b"healthy\n"

    @serve(ROUTES["health.ready"])
    def ready(self, request: Request) -> bytes:
        """Say whether records can be published, and if not, why."""
        reason = self._console.ready()
        request.setHeader("Content-Type", "text/plain; charset=utf-8")
        if reason is None:
            return b"ready\n"
        request.setResponseCode(503)
        request.setHeader("Retry-After", "5")
        return f"not ready: {reason}\n".encode("utf-8", "replace")

    # --- looking -------------------------------------------------------------

    @serve(ROUTES["openapi.info"])
    def openapi(self, request: Request) -> bytes:
        """Describe the API."""
        return answer_json(request, document())

    @serve(ROUTES["cluster.info"])
    def cluster(self, request: Request) -> bytes:
        """The cluster with its brokers."""
        return answer_json(request, describe.cluster(self._console.cluster()))

    # --- messages ------------------------------------------------------------

    @serve(ROUTES["messages.list"])
    async def messages(self, request: Request, name: str) -> bytes:
        """Messages, from where the query says."""
        want = wanted(query_of(request))
        found = await self._console.browse(name, want.partition, want.start, want.limit, MOST_BYTES)
        return answer_json(request, describe.page(found))

    @serve(ROUTES["messages.info"])
    async def message(self, request: Request, name: str, partition: str, offset: str) -> bytes:
        """One message, or a window of it."""
        query = query_of(request)
        skip = integer(query, "skip", 0, MOST_OFFSET) or 0
        length = integer(query, "length", 1, self._config.max_form) or WINDOW
        at = number_of("partition", partition, MOST_PARTITION)
        place = number_of("offset", offset, MOST_OFFSET)
        found = await self._console.message(name, at, place, skip, length)
        return answer_json(request, describe.message(found))

    @serve(ROUTES["messages.publish"])
    async def publish(self, request: Request, name: str) -> bytes:
        """Append one record; answered when it is as durable as the topic promises."""
        wish = self._wish(request, query_of(request))
        at = await self._console.publish(name, *wish.told)
        return answer_json(request, describe.position(name, at), 201)

    def _wish(self, request: Request, query: Mapping[str, str]) -> Wish:
        if media_type(request) == _RAW:
            return from_bytes(body_of(request, self._config.max_body), query)
        if query:
            raise BadInput(next(iter(query)), "with JSON, all arguments stand in the body")
        body = self._json(request)
        return from_json(body, body_of(request, self._config.max_form))


# --- operations ------------------------------------------------------------------


def _serve_operation(operation: Operation) -> None:
    @serve(ROUTES[operation.name])
    async def answer(self: Serving, request: Request, **parts: str) -> bytes:
        return await self.operate(request, operation, parts)


for _operation in PUBLIC.values():
    _serve_operation(_operation)
