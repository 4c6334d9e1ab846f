"""
The door of the web side: what is checked before any page is chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from urllib.parse import unquote_to_bytes

from twisted.web.http import Request
from twisted.web.resource import Resource
from typing_extensions import override

from tinymq.web.api import Api
from tinymq.web.assets import packaged
from tinymq.web.config import SiteConfig
from tinymq.web.dashboard import Dashboard
from tinymq.web.port import Console
from tinymq.web.recent import Recent
from tinymq.web.security import header, host_allowed, set_headers

_FOREVER: Final = "public, max-age=31536000, immutable"
_LOOKING: Final = frozenset({b"GET", b"HEAD"})
_METHODS: Final = frozenset({b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE"})


def _plain(request: Request, status: int, text: str) -> bytes:
    request.setResponseCode(status)
    request.setHeader("Content-Type", "text/plain; charset=utf-8")
    return text.encode() + b"\n"


def well_formed(path: bytes) -> bool:
    """
    Whether a path can name anything here.

    Names are one segment each, so an encoded slash names nothing, and neither
    does a NUL, a step upwards, an empty segment or text that is not UTF-8.
    """
    parts = [unquote_to_bytes(part) for part in path.split(b"/")[1:]]
    for part in parts:
        if b"/" in part or b"\0" in part or part in {b".", b".."}:
            return False
        if not part and len(parts) > 1:
            return False
        try:
            part.decode("utf-8")
        except UnicodeDecodeError:
            return False
    return True


class Gate(Resource):
    """
    Sets the headers of every answer, checks the host, and hands over.

    Args:
        console: The broker.
        config: The settings of the web side.
        seconds: The time, as the reactor tells it.
    """

    isLeaf = True  # noqa: N815

    def __init__(self, console: Console, config: SiteConfig, seconds: Callable[[], float]) -> None:
        super().__init__()
        self._recent = Recent(seconds)
        self._config = config
        self._assets = packaged()
        self._api = Api(console, config).app.resource()
        self._pages = Dashboard(console, config, self._recent).app.resource()

    @override
    def render(self, request: Request) -> bytes | int:
        set_headers(request)
        if not host_allowed(request, self._config):
            return _plain(request, 421, "This broker is not called by that name.")
        if request.method not in _METHODS:
            request.setHeader("Allow", b", ".join(sorted(_METHODS)))
            return _plain(request, 405, "This method is not known here.")
        if not well_formed(request.path):
            return _plain(request, 404, "There is nothing at this address.")
        if request.path.startswith(b"/static/"):
            return self._static(request)
        if request.method not in _LOOKING:
            self._recent.forget()
        ready = self._recent.find(request)
        if ready is not None:
            return ready
        to_api = request.path.startswith((b"/api/", b"/-/"))
        pages = self._api if to_api else self._pages
        return pages.render(request)  # type: ignore[arg-type, return-value]

    def _static(self, request: Request) -> bytes:
        asset = self._assets.at(request.path.decode("ascii", "replace"))
        if asset is None:
            return _plain(request, 404, "There is nothing at this address.")
        if request.method not in {b"GET", b"HEAD"}:
            request.setHeader("Allow", "GET, HEAD")
            return _plain(request, 405, "Files can only be read.")
        request.setHeader("Content-Type", asset.media)
        request.setHeader("Cache-Control", _FOREVER)
        request.setHeader("Vary", "Accept-Encoding")
        if "gzip" in (header(request, "accept-encoding") or ""):
            request.setHeader("Content-Encoding", "gzip")
            return asset.packed
        return asset.body
