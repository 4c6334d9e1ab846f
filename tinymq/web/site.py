"""
The HTTP server around the pages: deadlines and bounds for each connection.

A peer has so long for the headers and so long for the body, however slowly it
sends; Twisted's own time-out starts anew with every byte. A body that is too
long is read to its end and thrown away, so that the client hears why.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.protocol import connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web import http
from twisted.web.http import HTTPChannel
from twisted.web.server import Request, Site
from typing_extensions import override

from tinymq.web.config import SiteConfig
from tinymq.web.gate import Gate
from tinymq.web.port import Console


class BoundedRequest(Request):
    """A request whose body is not kept when it is longer than allowed."""

    max_body = SiteConfig().max_body
    oversize = False
    _received = 0

    @override
    def gotLength(self, length: int | None) -> None:
        """Learn the length that the headers announce."""
        if length is not None and length > self.max_body:
            self.oversize = True
            length = 0
        super().gotLength(length)

    @override
    def handleContentChunk(self, data: bytes) -> None:
        """Take a piece of the body, or throw it away."""
        self._received += len(data)
        if self._received > self.max_body:
            self.oversize = True
        if not self.oversize:
            super().handleContentChunk(data)

    @override
    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        """
        Begin to answer. Forms are parsed by the pages, with limits, not here.
        """
        assert self.content is not None
        self.content.seek(0)
        self.args = {}
        self.method, self.uri, self.clientproto = command, path, version
        self.path = path.partition(b"?")[0]
        self.parseCookies()
        self.process()


class DeadlineChannel(HTTPChannel):
    """A connection that must deliver headers and body in time."""

    header_seconds = 10.0
    body_seconds = 60.0
    _deadline: IDelayedCall | None = None

    def _expect(self, seconds: float | None) -> None:
        if self._deadline is not None and self._deadline.active():
            self._deadline.cancel()
        self._deadline = None if seconds is None else self.callLater(seconds, self._too_late)

    def _too_late(self) -> None:
        self.forceAbortClient()

    @override
    def connectionMade(self) -> None:
        """Begin to wait for the first headers."""
        super().connectionMade()
        self._expect(self.header_seconds)

    @override
    def lineReceived(self, line: bytes) -> None:
        """Take a line; the first one of a later request starts the clock again."""
        if self._deadline is None:
            self._expect(self.header_seconds)
        super().lineReceived(line)

    @override
    def allHeadersReceived(self) -> None:
        """Now wait for the body."""
        self._expect(self.body_seconds)
        super().allHeadersReceived()

    @override
    def allContentReceived(self) -> None:
        """All is here: no deadline while we work on it."""
        self._expect(None)
        super().allContentReceived()

    @override
    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Forget the deadline."""
        self._expect(None)
        super().connectionLost(reason)


class QuietSite(Site):
    """A site whose requests are no news: a dashboard asks every few seconds."""

    noisy = False
    _log = Logger()

    @override
    def log(self, request: http.Request) -> None:
        """Note one answered request, for who looks for it."""
        self._log.debug(
            "{method} {uri} from {peer}: {status}",
            method=request.method,
            uri=request.uri[:200],
            peer=request.getClientAddress(),
            status=request.code,
        )


def make_site(console: Console, clock: IReactorTime, config: SiteConfig) -> Site:
    """
    Make the server of dashboard and API.

    Args:
        console: The broker.
        clock: Times the deadlines: the reactor.
        config: The settings of the web side.

    Returns:
        A factory to listen with.
    """

    class BoundRequest(BoundedRequest):
        max_body = config.max_body

    class BoundChannel(DeadlineChannel):
        header_seconds = config.header_seconds
        body_seconds = config.body_seconds

    options: dict[str, Any] = {"reactor": clock, "timeout": config.idle_seconds}
    site = QuietSite(Gate(console, config, clock.seconds), requestFactory=BoundRequest, **options)
    site.protocol = BoundChannel  # type: ignore[assignment, method-assign]
    site.displayTracebacks = False
    return site
