"""The settings of the web side, in one frozen value."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Final

from attrs import Factory, frozen
from twisted.web.http import Request

from tinymq.caller import Caller
from tinymq.limits import DEFAULT_LIMITS, Limits

LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})


def peer_of(request: Request) -> str:
    """
    Write where a request came from, as HOST:PORT.

    Args:
        request: Of a page, or of the API.
    """
    address = request.getClientAddress()
    host, port = getattr(address, "host", None), getattr(address, "port", None)
    return str(address) if host is None else f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def anonymous(request: Request) -> Caller:
    """
    Take everybody for anybody, as long as nobody has to say who they are.

    Args:
        request: Of the API.
    """
    return Caller(peer=peer_of(request))


@frozen(kw_only=True)
class SiteConfig:
    """
    What an operator can set about the dashboard.

    Attributes:
        hosts: Names (without port) under which the dashboard may be called.
            Others are refused, so that a foreign page cannot reach it by a
            name of its own that resolves to this address. Empty allows all,
            which is right only for a listener that is not on loopback.
        limits: The broker's limits; a body may be as long as a value.
        max_form: Longest form and JSON body. Longer values are published as
            ``application/octet-stream``.
        header_seconds: Time for the headers of a request.
        body_seconds: Time for its body.
        idle_seconds: How long an idle connection is kept.
        caller: Says who makes a request of the API, and with which role.
        secret: Signs form tokens; a new one each start is fine.
    """

    hosts: frozenset[str] = LOOPBACK
    limits: Limits = DEFAULT_LIMITS
    max_form: int = 1024 * 1024
    header_seconds: float = 10.0
    body_seconds: float = 60.0
    idle_seconds: float = 60.0
    caller: Callable[[Request], Caller] = anonymous
    secret: bytes = Factory(lambda: secrets.token_bytes(32))

    @property
    def max_body(self) -> int:
        """Longest body of any request."""
        return self.limits.payload
