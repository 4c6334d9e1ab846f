"""The page that lists the HTTP API with commands to copy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from attrs import frozen
from twisted.web.http import Request

from tinymq.web.base import Base
from tinymq.web.input import query_of
from tinymq.web.render import origin_of
from tinymq.web.routes import ROUTES, Route

_TITLES: Final = {
    "topic": "Topics",
    "transaction": "Transactions",
    "channel": "Channels",
    "group": "Groups",
    "inflight": "In flight",
    "delayed": "Delayed",
    "schedule": "Schedules",
    "exchange": "Exchanges",
    "binding": "Exchanges",
    "messages": "Messages",
    "message": "Messages",
    "dlq": "Dead letters",
    "push": "Push endpoints",
    "broker": "Brokers",
    "client": "Clients",
    "cluster": "Cluster",
    "lookup": "Lookup mode",
    "pages": "The dashboard's lists",
    "health": "Health",
    "openapi": "This API",
}


@frozen
class Listed:
    """
    A route on the page.

    Attributes:
        route: Which.
        curl: The command that uses it.
        takes: The names of what may be said beside what the command says.
    """

    route: Route
    curl: str
    takes: list[str]


def curl(route: Route, origin: str) -> str:
    """
    Write a command that uses a route, with what is to be replaced in capitals.

    Args:
        route: Which.
        origin: Scheme, host and port.
    """
    address = route.path
    for each in route.in_path:
        address = address.replace(f"{{{each.name}}}", each.name.upper())
    method = "" if route.method == "GET" else f" -X {route.method}"
    command = f"curl{method} '{origin}{address}'"
    if not route.in_body and route.body is None and route.method != "POST":
        return command
    body = route.body or {}
    needed = {each.name: each.check.schema for each in route.in_body if each.required}
    needed |= {name: body["properties"][name] for name in body.get("required", ())}
    inside = ", ".join(f'"{name}": {_place(name, schema)}' for name, schema in needed.items())
    return f"{command} \\\n  -H 'Content-Type: application/json' -d '{{{inside}}}'"


def _place(name: str, schema: Mapping[str, object]) -> str:
    """Write what is to be replaced as JSON has it; in a list several may stand."""
    kinds = {"integer": "{}", "array": "[{}]"}
    return kinds.get(str(schema.get("type")), '"{}"').format(name.upper())


def _optional(route: Route) -> list[str]:
    body: Mapping[str, object] = (route.body or {}).get("properties", {})
    names = [each.name for each in (*route.in_query, *route.in_body) if not each.required]
    names += [name for name in body if name not in (route.body or {})["required"]]
    return list(dict.fromkeys(names))


class ApiPage(Base):
    """What programs can ask for."""

    @Base.app.route("/api", methods=["GET"])
    def api(self, request: Request) -> bytes:
        """Every route with its role, and how to use it from a shell."""
        origin = origin_of(request)
        groups: dict[str, list[Listed]] = {title: [] for title in _TITLES.values()}
        for route in ROUTES.values():
            title = _TITLES[route.name.partition(".")[0]]
            groups[title].append(Listed(route, curl(route, origin), _optional(route)))
        return self._renderer.page(
            request,
            "api.html",
            self._console.cluster(),
            current="api",
            query=query_of(request),
            groups={title: listed for title, listed in groups.items() if listed},
        )
