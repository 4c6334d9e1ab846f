"""One POST to a push endpoint, and everything that may go wrong with it."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urljoin

from attrs import frozen
from treq.client import HTTPClient
from twisted.internet.defer import CancelledError, Deferred, maybeDeferred, succeed
from twisted.internet.error import ConnectionAborted, ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IConsumer
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.client import Agent, HTTPConnectionPool, ResponseNeverReceived
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent, IBodyProducer, IResponse
from typing_extensions import override
from zope.interface import implementer

from tinymq.meta.endpoint import Endpoint
from tinymq.outbound import Target, parse_target
from tinymq.push.guard import Dialing, Guard
from tinymq.push.request import Parcel, headers_of
from tinymq.push.waiting import retry_after

#: Redirects that are followed: by 307 and 308 alone, which keep method and body.
MOST_REDIRECTS: Final = 3
#: Bytes of an answer that are read, and of those that are told.
MOST_READ: Final = 4096
MOST_TOLD: Final = 200
#: Seconds for the rest of an answer whose status is known.
REST_S: Final = 2.0
#: Seconds that a connection is kept for the next request.
_KEPT_S: Final = 10
_AGENT: Final = "tinymq"
#: Where a request goes is said below treq.
_ANYWHERE: Final = "http://endpoint/"
_KEEPS_METHOD: Final = frozenset({307, 308})


@frozen(kw_only=True)
class Answer:
    """
    How a POST ended.

    Attributes:
        status: The status; None if there was no answer.
        error: What went wrong; empty for a status from 200 to 299.
        body: The beginning of the answer.
        wait_s: How long the endpoint wants to be left alone; None if it said nothing.
        seconds: How long it took.
    """

    status: int | None
    error: str
    body: bytes = b""
    wait_s: float | None = None
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the message was taken."""
        return not self.error


class _Failed(Exception):
    """There was no answer; the text says why."""


@frozen
class Post:
    """
    What is sent where.

    Attributes:
        target: Where to.
        headers: The headers.
        body: The body.
        timeout_s: How long the answer may take.
    """

    target: Target
    headers: Headers
    body: bytes
    timeout_s: float


class Sender:
    """
    Sends to one endpoint; keeps connections to it.

    Args:
        guard: Knows which addresses may be.
        endpoint: The endpoint.
    """

    _log = Logger()

    def __init__(self, guard: Guard, endpoint: Endpoint) -> None:
        self._guard = guard
        self._endpoint = endpoint
        self._pool: Any = HTTPConnectionPool(guard.reactor, persistent=True)
        self._pool.maxPersistentPerHost = endpoint.concurrency
        self._pool.cachedConnectionTimeout = _KEPT_S
        self._pool.retryAutomatically = False

    def close(self) -> None:
        """Close the connections that are kept, and keep none any more."""
        self._pool.cachedConnectionTimeout = 0  # of those whose answers are still read
        self._pool.closeCachedConnections()

    async def post(self, parcel: Parcel, wall_ms: int, timeout_s: float | None = None) -> Answer:
        """
        Send a message, and say how that ended; only a cancelled one raises.

        Args:
            parcel: The message.
            wall_ms: The wall clock.
            timeout_s: How long an answer may take, if not as the endpoint says.
        """
        endpoint, seconds = self._endpoint, self._guard.reactor.seconds
        began = seconds()
        until = began + (endpoint.timeout_ms / 1000 if timeout_s is None else timeout_s)
        target = first = parse_target(endpoint.url)
        try:
            for _ in range(MOST_REDIRECTS + 1):
                # What an endpoint wants added, keys perhaps, is for its own server alone.
                extra = endpoint.headers if target.origin == first.origin else {}
                headers = Headers({"User-Agent": [_AGENT]})
                for name, value in headers_of(parcel, endpoint.secret, extra, wall_ms):
                    headers.setRawHeaders(name, [value])
                left = max(until - seconds(), 0.0)
                response = await self._request(Post(target, headers, parcel.body, left))
                if response.code not in _KEEPS_METHOD:
                    return await self._answer(
                        response, began, until, whole=parcel.made_up, wall_ms=wall_ms
                    )
                target = _redirected(target, response)
                await self._rest(response, until)
        except _Failed as failed:
            return Answer(status=None, error=str(failed), seconds=seconds() - began)
        except CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - a message must never be stuck for it
            self._log.failure("a request to {host} failed", host=target.host)
            return Answer(status=None, error=why(error), seconds=seconds() - began)
        return Answer(
            status=None,
            error=f"it redirects more than {MOST_REDIRECTS} times",
            seconds=seconds() - began,
        )

    async def _answer(
        self, response: Any, began: float, until: float, *, whole: bool, wall_ms: int
    ) -> Answer:
        status, took = response.code, self._guard.reactor.seconds() - began
        if 200 <= status < 300 and not whole:
            # It is taken; what else it says can only be that a connection is used again.
            rest = Deferred.fromCoroutine(self._rest(response, until))
            rest.addErrback(lambda failure: self._log.failure("the rest of an answer", failure))
            return Answer(status=status, error="", seconds=took)
        waits = _header(response, b"Retry-After")
        body = await self._rest(response, until)
        if 200 <= status < 300:
            return Answer(status=status, error="", body=body, seconds=took)
        text = body[:MOST_TOLD].decode("utf-8", "replace").strip()
        phrase = bytes(response.phrase)[:60].decode("ascii", "replace")
        said = f"{status} {phrase}".strip()
        return Answer(
            status=status,
            error=f"{said}: {text}" if text else said,
            body=body,
            wait_s=retry_after(waits, wall_ms),
            seconds=took,
        )

    async def _request(self, post: Post) -> Any:
        """
        Send one request, and wait for the head of its answer.

        Raises:
            _Failed: There is none.
        """
        until = self._guard.reactor.seconds() + post.timeout_s
        try:
            return await self._once(post, post.timeout_s)
        except _Stale:
            # The other end closed a kept connection when it was used again: that is nobody's fault.
            left = until - self._guard.reactor.seconds()
            if left <= 0:
                raise _Failed("no answer in time") from None
            try:
                return await self._once(post, left)
            except _Stale as stale:
                raise _Failed(str(stale)) from None

    async def _once(self, post: Post, seconds: float) -> Any:
        dialing = Dialing(self._guard)
        inner = Agent.usingEndpointFactory(self._guard.reactor, dialing, self._pool)
        agent = _Plain(inner, post.target.url.encode("ascii"))
        # One for each request: what an endpoint sets as cookies is forgotten with it.
        client = HTTPClient(agent, data_to_body_producer=_Body)
        asking: Deferred[Any] = maybeDeferred(
            client.request,
            "POST",
            _ANYWHERE,
            headers=post.headers,
            data=post.body,
            allow_redirects=False,
            unbuffered=True,
            reactor=self._guard.reactor,
        )
        late = cut = False

        def give_up() -> None:
            nonlocal late
            late = True
            asking.cancel()

        def cancel(_: Deferred[Any]) -> None:
            nonlocal cut
            cut = True
            asking.cancel()

        # What a cancelled request ends with does not tell who wanted that.
        waiting: Deferred[Any] = Deferred(cancel)
        asking.addBoth(waiting.callback)
        timer = self._guard.reactor.callLater(seconds, give_up)
        try:
            return await waiting
        except Exception as error:
            if late:
                raise _Failed(f"no answer within {post.timeout_s:.3g} s") from error
            if cut:
                raise CancelledError from error
            text = why(error)
            if not dialing.dialed and _was_closed(error):
                raise _Stale(text) from error
            raise _Failed(text) from error
        finally:
            if timer.active():
                timer.cancel()

    async def _rest(self, response: Any, until: float) -> bytes:
        """Read the beginning of a body, for as long as there is time."""
        reading = _Beginning()
        seconds = min(REST_S, max(until - self._guard.reactor.seconds(), 0.05))
        timer = self._guard.reactor.callLater(seconds, reading.stop)
        response.deliverBody(reading)
        try:
            return await reading.done
        finally:
            if timer.active():
                timer.cancel()


class _Stale(_Failed):
    """A connection that was used again was closed by the other end."""


class _Beginning(Protocol):
    """Reads the beginning of a body, and closes the connection if there is more."""

    def __init__(self) -> None:
        self.done: Deferred[bytes] = Deferred(lambda _: self._cut())
        self._data = b""

    @override
    def dataReceived(self, data: bytes) -> None:
        self._data += data[: MOST_READ - len(self._data)]
        if len(self._data) >= MOST_READ:
            self.stop()

    def stop(self) -> None:
        """Read no more."""
        self._cut()
        self._end()

    def _cut(self) -> None:
        if self.transport is not None:
            self.transport.loseConnection()

    @override
    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._end()

    def _end(self) -> None:
        if not self.done.called:
            self.done.callback(self._data)


@implementer(IBodyProducer)
class _Body:
    """
    Writes a value in one piece, which is in memory already.

    Args:
        value: The value.
    """

    def __init__(self, value: bytes) -> None:
        self.length = len(value)
        self._value = value

    def startProducing(self, consumer: IConsumer) -> Deferred[None]:  # noqa: N802 - Twisted's name
        """Write it."""
        consumer.write(self._value)
        return succeed(None)

    def pauseProducing(self) -> None:  # noqa: N802 - Twisted's name
        """Do nothing: it is written."""

    def resumeProducing(self) -> None:  # noqa: N802 - Twisted's name
        """Do nothing: it is written."""

    def stopProducing(self) -> None:  # noqa: N802 - Twisted's name
        """Do nothing: it is written."""


@implementer(IAgent)
class _Plain:
    """
    Takes bodies as they come: a few bytes that unpack to gigabytes stay a few bytes.

    Args:
        agent: What asks.
        uri: What is asked for, byte by byte as it was looked at: others write a URL
            in their own way, and do not know addresses of IPv6.
    """

    def __init__(self, agent: IAgent, uri: bytes) -> None:
        self._agent = agent
        self._uri = uri

    def request(
        self,
        method: bytes,
        uri: bytes,
        headers: Any = None,
        bodyProducer: Any = None,  # noqa: N803
    ) -> Deferred[IResponse]:
        """Ask for nothing packed, and unpack nothing."""
        if headers is not None:
            headers.setRawHeaders("Accept-Encoding", ["identity"])
        asking = self._agent.request(method, self._uri, headers, bodyProducer)

        def plain(response: Any) -> Any:
            response.headers.removeHeader("content-encoding")
            response.headers.removeHeader("set-cookie")
            return response

        return asking.addCallback(plain)


def _redirected(target: Target, response: Any) -> Target:
    """
    Say where an answer leads.

    Raises:
        _Failed: Nowhere.
    """
    try:
        found = parse_target(urljoin(target.url, _header(response, b"Location")[:4000]))
    except ValueError as error:
        raise _Failed(f"{response.code} to where nothing is sent: it must be {error}") from error
    if target.scheme == "https" and found.scheme == "http":
        raise _Failed(f"{response.code} from https to http, which is not followed")
    return found


def _header(response: Any, name: bytes) -> str:
    """Read a header of an answer, whatever bytes it has."""
    found: list[bytes] = response.headers.getRawHeaders(name) or [b""]
    return found[0].decode("latin-1")


def _was_closed(error: Exception) -> bool:
    """Whether a connection ended before anything came over it."""
    return isinstance(error, ResponseNeverReceived) and any(
        reason.check(ConnectionDone, ConnectionLost) for reason in error.reasons
    )


def why(error: BaseException) -> str:
    """
    Say in a few words why there was no answer.

    Args:
        error: What the request ended with.
    """
    for reason in getattr(error, "reasons", None) or ():
        if isinstance(reason, Failure) and not reason.check(CancelledError):
            return why(reason.value or error)
    if isinstance(error, ConnectionDone):
        return "the connection was closed without an answer"
    if isinstance(error, ConnectionAborted):
        return "it answers what is no HTTP, or too long"
    text = " ".join(str(error).split())
    if type(error).__module__.startswith(("OpenSSL", "service_identity")):
        return f"TLS: {text or type(error).__name__}"[:300]
    return (text or type(error).__name__)[:300]
