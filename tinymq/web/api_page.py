"""The page that lists the HTTP API with commands to copy."""

from __future__ import annotations

from typing import Final

from attrs import frozen
from twisted.web.http import Request

from tinymq.web.base import Base
from tinymq.web.input import query_of
from tinymq.web.render import origin_of
from tinymq.web.routes import ROUTES, Route

_TITLES: Final = {
    "topic": "Topics",
    "messages": "Messages",
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
    """A route, and the command that uses it."""

    route: Route
    curl: str


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
    if not route.in_body and route.body is None:
        return command
    names = [each.name for each in route.in_body if each.required]
    names += (route.body or {}).get("required", [])
    inside = ", ".join(f'"{name}": "{name.upper()}"' for name in names)
    return f"{command} \\\n  -H 'Content-Type: application/json' -d '{{{inside}}}'"


class ApiPage(Base):
    """What programs can ask for."""

    @Base.app.route("/api", methods=["GET"])
    def api(self, request: Request) -> bytes:
        """Every route with its role, and how to use it from a shell."""
        origin = origin_of(request)
        groups: dict[str, list[Listed]] = {title: [] for title in _TITLES.values()}
        for route in ROUTES.values():
            title = _TITLES[route.name.partition(".")[0]]
            groups[title].append(Listed(route, curl(route, origin)))
        return self._renderer.page(
            request,
            "api.html",
            self._console.cluster(),
            current="api",
            query=query_of(request),
            groups=groups,
        )
