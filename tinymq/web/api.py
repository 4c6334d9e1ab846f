"""
The JSON API, `/api/v1`, and the two health addresses.

Every change is POST, PUT, PATCH or DELETE, takes ``?dry_run=true``, and is
refused when a foreign page asks for it. Errors are `application/problem+json`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from klein import Klein
from twisted.python.failure import Failure
from twisted.web.http import Request
from twisted.web.iweb import IRequest

from tinymq.web import describe
from tinymq.web.actions import purge_of
from tinymq.web.base import Answer, Refused
from tinymq.web.browsing import MOST_BYTES, wanted
from tinymq.web.config import WebConfig
from tinymq.web.input import (
    MOST_OFFSET,
    BadInput,
    body_of,
    integer,
    json_of,
    media_type,
    query_of,
    text,
    truth,
)
from tinymq.web.pages import topic_query
from tinymq.web.port import Console
from tinymq.web.publishing import Wish, from_bytes, from_json
from tinymq.web.render import deliver
from tinymq.web.security import foreign
from tinymq.web.viewers import WINDOW

ROOT: Final = "/api/v1"
_RAW: Final = "application/octet-stream"


def answer_json(request: Request, value: object, status: int = 200) -> bytes:
    """
    Answer with JSON.

    Args:
        request: What is answered.
        value: What is written.
        status: The status code.
    """
    request.setResponseCode(status)
    request.setHeader("Content-Type", "application/json")
    return deliver(request, json.dumps(value, separators=(",", ":")).encode("ascii") + b"\n")


class Api:
    """
    Topics, messages and publishing for programs.

    Args:
        console: The broker.
        config: The settings of the web side.
    """

    app = Klein()

    def __init__(self, console: Console, config: WebConfig) -> None:
        self._console = console
        self._config = config

    @app.handle_errors(Exception)
    def failed(self, request: IRequest, failure: Failure) -> bytes:
        """Answer an error as `application/problem+json`."""
        assert isinstance(request, Request)
        answer = Answer.to(request, failure)
        problem: dict[str, object] = {
            "type": f"urn:tinymq:{answer.kind}",
            "title": answer.title,
            "status": answer.status,
            "detail": answer.detail,
        }
        if answer.field:
            problem["field"] = answer.field
        body = answer_json(request, problem, answer.status)
        request.setHeader("Content-Type", "application/problem+json")
        return body

    def _change(self, request: Request) -> tuple[dict[str, str], bool]:
        """
        Check where a change comes from.

        Returns:
            The query, and whether only the plan is wanted.
        """
        reason = foreign(request)
        if reason:
            raise Refused(f"Nothing was changed: {reason}.")
        query = query_of(request)
        return query, truth(query, "dry_run")

    def _json(self, request: Request) -> dict[str, Any]:
        return json_of(request, self._config.max_form)

    # --- health --------------------------------------------------------------

    @app.route("/-/healthy", methods=["GET"])
    def healthy(self, request: Request) -> bytes:
        """Say that the reactor turns. Looks at nothing else."""
        request.setHeader("Content-Type", "text/plain; charset=utf-8")
        return b"healthy\n"

    @app.route("/-/ready", methods=["GET"])
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

    @app.route(f"{ROOT}/cluster", methods=["GET"])
    def cluster(self, request: Request) -> bytes:
        """The cluster with its brokers."""
        return answer_json(request, describe.cluster(self._console.cluster()))

    @app.route(f"{ROOT}/topics", methods=["GET"])
    def topics(self, request: Request) -> bytes:
        """A page of topics."""
        asked = topic_query(query_of(request))
        return answer_json(request, describe.topic_page(self._console.topics(asked)))

    @app.route(f"{ROOT}/topics/<name>", methods=["GET"])
    def topic(self, request: Request, name: str) -> bytes:
        """One topic."""
        return answer_json(request, describe.topic(self._console.topic(name)))

    @app.route(f"{ROOT}/topics/<name>/partitions", methods=["GET"])
    def partitions(self, request: Request, name: str) -> bytes:
        """The partitions of a topic."""
        found = self._console.topic(name).partitions
        return answer_json(request, {"items": [describe.partition(one) for one in found]})

    @app.route(f"{ROOT}/topics/<name>/messages", methods=["GET"])
    async def messages(self, request: Request, name: str) -> bytes:
        """Messages, from where the query says."""
        want = wanted(query_of(request))
        found = await self._console.browse(name, want.partition, want.start, want.limit, MOST_BYTES)
        return answer_json(request, describe.page(found))

    @app.route(
        f"{ROOT}/topics/<name>/partitions/<int:partition>/messages/<int:offset>", methods=["GET"]
    )
    async def message(self, request: Request, name: str, partition: int, offset: int) -> bytes:
        """One message, or a window of it."""
        query = query_of(request)
        skip = integer(query, "skip", 0, MOST_OFFSET) or 0
        length = integer(query, "length", 1, self._config.max_form) or WINDOW
        if partition > MOST_OFFSET or offset > MOST_OFFSET:
            raise BadInput("offset", "there is no message with such an offset", 404)
        found = await self._console.message(name, partition, offset, skip, length)
        return answer_json(request, describe.message(found))

    # --- changing ------------------------------------------------------------

    def _wish(self, request: Request, query: Mapping[str, str]) -> Wish:
        if media_type(request) == _RAW:
            return from_bytes(body_of(request, self._config.max_body), query)
        body = self._json(request)
        return from_json(body, body_of(request, self._config.max_form))

    @app.route(f"{ROOT}/topics/<name>/messages", methods=["POST"])
    async def publish(self, request: Request, name: str) -> bytes:
        """Append one record; answered when it is as durable as the topic promises."""
        query, _ = self._change(request)
        wish = self._wish(request, query)
        at = await self._console.publish(name, wish.value, wish.key, wish.headers, wish.partition)
        return answer_json(request, describe.position(at), 201)

    @app.route(f"{ROOT}/topics/<name>", methods=["PUT"])
    async def create(self, request: Request, name: str) -> bytes:
        """Make a topic. The same request again changes nothing."""
        _, dry_run = self._change(request)
        body = self._json(request)
        count = integer(body, "partitions", 1, self._config.limits.partitions)
        config = {key: value or "" for key, value in _settings(body).items()}
        plan = await self._console.create_topic(name, count, config, dry_run=dry_run)
        return answer_json(request, describe.plan(plan), 201 if plan.applied else 200)

    @app.route(f"{ROOT}/topics/<name>", methods=["PATCH"])
    async def alter(self, request: Request, name: str) -> bytes:
        """Change settings of a topic; null returns one to its default."""
        _, dry_run = self._change(request)
        config = _settings(self._json(request))
        plan = await self._console.alter_topic(name, config, dry_run=dry_run)
        return answer_json(request, describe.plan(plan))

    @app.route(f"{ROOT}/topics/<name>", methods=["DELETE"])
    async def delete(self, request: Request, name: str) -> bytes:
        """Delete a topic with all its records."""
        _, dry_run = self._change(request)
        plan = await self._console.delete_topic(name, dry_run=dry_run)
        return answer_json(request, describe.plan(plan))

    @app.route(f"{ROOT}/topics/<name>", methods=["POST"])
    async def act(self, request: Request, name: str) -> bytes:
        """Carry out ``…/topics/NAME:purge`` or ``…:undo``."""
        _, dry_run = self._change(request)
        topic, _, verb = name.rpartition(":")
        body = self._json(request)
        if verb == "purge":
            partition, before = purge_of(body)
            plan = await self._console.purge(topic, partition, before, dry_run=dry_run)
        elif verb == "undo":
            if dry_run:
                raise BadInput("dry_run", "undo has no dry run")
            plan = await self._console.undo_purge(topic)
        else:
            raise BadInput("action", "post to …/topics/NAME:purge or …/topics/NAME:undo")
        return answer_json(request, describe.plan(plan))


def _settings(body: Mapping[str, Any]) -> dict[str, str | None]:
    """Read the member ``config``: an object of strings, whole numbers and nulls."""
    given = body.get("config", {})
    if not isinstance(given, dict):
        raise BadInput("config", "config must be an object")
    found: dict[str, str | None] = {}
    for name, value in given.items():
        if value is None:
            found[name] = None
        elif type(value) is int:
            found[name] = str(value)
        else:
            found[name] = text({f"config.{name}": value}, f"config.{name}")
    return found
