"""A browser without a browser: real HTTP bytes to the pages, no port."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import unescape
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

from attrs import frozen
from treq.testing import StubTreq
from twisted.internet.defer import Deferred
from twisted.web.resource import Resource

from tests.web.fakes import FakeConsole
from tinymq.web.config import SiteConfig
from tinymq.web.site import make_site

ORIGIN: Final = "http://127.0.0.1:7801"
T = TypeVar("T")
FORM: Final = "application/x-www-form-urlencoded"
_TOKEN: Final = re.compile(r'name="token" value="([0-9a-f]+)"')


@frozen
class Reply:
    """An answer: status, headers with lower-case names, body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode("utf-8")

    @property
    def shown(self) -> str:
        """The text as a person sees it: no tags, no entities."""
        return unescape(re.sub(r"<[^>]*>", " ", self.text))


def now(deferred: Deferred[T]) -> T:
    """Take the result of a Deferred that has one."""
    found: list[Any] = []
    deferred.addBoth(found.append)
    assert found, "no answer yet"
    if isinstance(found[0], Exception):
        raise found[0]
    assert not hasattr(found[0], "raiseException"), found[0]
    return found[0]  # type: ignore[no-any-return]


class Client:
    """
    Calls the pages; keeps cookies.

    Args:
        console: The broker behind them.
        config: The settings of the web side.
    """

    def __init__(self, console: FakeConsole, config: SiteConfig | None = None) -> None:
        self.console = console
        self._treq: Any = StubTreq(Resource())
        agent = self._treq._agent
        agent._serverFactory = make_site(console, agent._memoryReactor, config or SiteConfig())

    def call(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Send one request and read the whole answer. Redirects are not followed."""
        response: Any = now(
            self._treq.request(
                method,
                ORIGIN + path,
                data=body,
                headers=dict(headers or {}),
                allow_redirects=False,
            )
        )
        self._treq.flush()
        found = {
            name.decode().lower(): b", ".join(values).decode("latin-1")
            for name, values in response.headers.getAllRawHeaders()
        }
        return Reply(response.code, found, now(self._treq.content(response)))

    def get(self, path: str, **headers: str) -> Reply:
        """Look at a page."""
        return self.call("GET", path, headers={k.replace("_", "-"): v for k, v in headers.items()})

    def token(self) -> str:
        """Read the token that forms carry, from a page."""
        match = _TOKEN.search(self.get("/new-topic").text)
        assert match
        return match[1]

    def post(self, path: str, **fields: object) -> Reply:
        """Send a form as a page of ours does."""
        values = {key.replace("__", "."): value for key, value in fields.items()}
        body = urlencode({"token": self.token(), **values}).encode()
        return self.call("POST", path, body, {"Content-Type": FORM, "Origin": ORIGIN})

    def send(self, method: str, path: str, body: bytes, **headers: str) -> Reply:
        """Send JSON as a program does."""
        extra = {k.replace("_", "-"): v for k, v in headers.items()}
        return self.call(method, path, body, {"Content-Type": "application/json", **extra})
