"""What all routes of the API share: who may come in, and how errors are told."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from klein import Klein
from twisted.python.failure import Failure
from twisted.web.http import Request
from twisted.web.iweb import IRequest

from tinymq.operation import Operation, require
from tinymq.web.arguments import arguments_of
from tinymq.web.base import Answer, Refused
from tinymq.web.config import SiteConfig
from tinymq.web.input import json_of
from tinymq.web.port import Console
from tinymq.web.render import deliver
from tinymq.web.routes import Route
from tinymq.web.security import foreign

#: What answers a request: a method that is given the parts of the address that vary.
Handler = Callable[..., bytes | Awaitable[bytes]]
H = TypeVar("H", bound=Handler)


def answer_json(request: Request, value: object, status: int = 200) -> bytes:
    """
    Answer with JSON. Whole numbers are written out, however long they are.

    Args:
        request: What is answered.
        value: What is written.
        status: The status code.
    """
    request.setResponseCode(status)
    request.setHeader("Content-Type", "application/json")
    return deliver(request, json.dumps(value, separators=(",", ":")).encode("ascii") + b"\n")


class Serving:
    """
    The Klein app of the API, and the check of who comes in.

    Args:
        console: The broker.
        config: The settings of the web side.
    """

    app = Klein()

    def __init__(self, console: Console, config: SiteConfig) -> None:
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

    def admit(self, request: Request, route: Route) -> None:
        """
        Let a caller in who may use a route, and who was not sent by a foreign page.

        Raises:
            Forbidden: The role is too low.
            Refused: A page of another site asks for a change.
        """
        caller = self._config.caller(request)
        require(route.role, caller.role, route.name)
        reason = foreign(request) if route.changes else None
        if reason:
            raise Refused(f"Nothing was changed: {reason}.")

    async def operate(
        self, request: Request, operation: Operation, parts: Mapping[str, str]
    ) -> bytes:
        """
        Carry out an operation.

        Args:
            request: Has its arguments.
            operation: Which.
            parts: Those arguments that are a part of the address.
        """
        arguments = arguments_of(operation, request, parts, self._config.max_form)
        caller = self._config.caller(request)
        result = await self._console.operate(operation.name, arguments, caller)
        made = result.get("created") and not result.get("dry_run")
        return answer_json(request, result, 201 if made else 200)

    def _json(self, request: Request) -> dict[str, Any]:
        return json_of(request, self._config.max_form)


def serve(route: Route) -> Callable[[H], H]:
    """
    Let a method answer a route, for those who are let in.

    Args:
        route: Of the table.
    """
    path = route.path.replace("{", "<").replace("}", ">")

    def decorate(method: H) -> H:
        async def answer(self: Serving, request: Request, **parts: str) -> bytes:
            self.admit(request, route)
            found = method(self, request, **parts)
            return await found if inspect.isawaitable(found) else found

        Serving.app.route(path, methods=[route.method], endpoint=route.name)(answer)
        return method

    return decorate
