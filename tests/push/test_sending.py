"""One POST to a push endpoint, to servers that behave in every way."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from tests.push.net import OK, Net, Request, Wire, always, answer, closing, never
from tinymq.errors import EndpointRefused
from tinymq.meta.endpoint import Endpoint
from tinymq.outbound import Allowed, parse_target
from tinymq.push.guard import MOST_ANSWER, MOST_HEADS, Guard
from tinymq.push.request import Parcel
from tinymq.push.sending import MOST_READ, Answer, Sender
from tinymq.webhook import new_secret, verify

SECRET = new_secret(bytes(range(32)))
PUBLIC = "93.184.216.34"
OTHER = "1.1.1.1"
WALL = 1_700_000_000_000


def parcel(**changes: Any) -> Parcel:
    """Make a message."""
    facts: dict[str, Any] = {
        "topic": "orders",
        "channel": "mail",
        "partition": 1,
        "offset": 7,
        "attempt": 2,
        "key": b"k",
        "headers": [],
        "value": b"hello",
    }
    return Parcel(**{**facts, **changes})


def sender(net: Net, allow: tuple[str, ...] = (), **changes: Any) -> Sender:
    """Make what sends to http://hook.example/in."""
    net.names.setdefault("hook.example", [[PUBLIC]])
    facts = {"channel": "mail", "url": "http://hook.example/in", "secret": SECRET}
    guard = Guard(net, Allowed.of(allow), net.resolve)
    return Sender(guard, Endpoint(**{**facts, "timeout_ms": 5000, **changes}))


def post(net: Net, sending: Sender, seconds: float = 10.0, **changes: Any) -> Answer:
    """Send a message, and let so much time pass."""
    ends: list[Any] = []
    asking = Deferred.fromCoroutine(sending.post(parcel(**changes), WALL))
    asking.addBoth(ends.append)
    for _ in range(100):
        net.clock.advance(0)
    net.clock.pump([0.1] * round(seconds * 10))
    (end,) = ends
    assert isinstance(end, Answer), end
    return end


def test_what_is_sent() -> None:
    """The body is the value, the headers say what it is, and the signature fits."""
    net = Net(servers={PUBLIC: always(OK)})
    assert post(net, sender(net, headers={"X-Key": "abc"})).ok
    (request,) = net.requests
    assert request.line == "POST /in HTTP/1.1"
    assert request.body == b"hello"
    assert net.dialed == [(PUBLIC, 80)]
    told = verify(request.headers, request.body, SECRET, now=lambda: WALL / 1000)
    assert told == ("orders/1@7", WALL // 1000)
    wanted = {
        "host": "hook.example",
        "content-type": "application/octet-stream",
        "tinymq-topic": "orders",
        "tinymq-channel": "mail",
        "tinymq-partition": "1",
        "tinymq-offset": "7",
        "tinymq-attempt": "2",
        "tinymq-key": "k",
        "x-key": "abc",
    }
    assert {name: request.headers[name] for name in wanted} == wanted


def test_connection_is_kept() -> None:
    """The second request goes over the connection of the first."""
    net = Net(servers={PUBLIC: always(OK)})
    sending = sender(net)
    assert post(net, sending, 1).ok
    assert post(net, sending, 1).ok
    assert (len(net.wires), len(net.requests)) == (1, 2)
    sending.close()
    net.clock.advance(0)
    assert net.open == 0
    assert net.clock.getDelayedCalls() == []


def test_kept_connection_that_was_closed() -> None:
    """A server that closes a kept connection while it is used again costs no failure."""
    behaviours = [always(OK), closing, always(OK)]

    def behave(request: Request, wire: Wire) -> None:
        behaviours.pop(0)(request, wire)

    net = Net(servers={PUBLIC: behave})
    sending = sender(net)
    assert post(net, sending, 1).ok
    assert post(net, sending, 1).ok
    assert len(net.wires) == 2


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (answer("500 Oops", b"no\ndatabase"), "500 Oops: no\ndatabase"),
        (answer("404 Not Found"), "404 Not Found"),
        (answer("304 Not Modified"), "304 Not Modified"),
        (answer("301 Moved", Location="http://hook.example/2"), "301 Moved"),
        (answer("302 Found", Location="http://hook.example/2"), "302 Found"),
        (answer("500 x", b"y" * 999), "500 x: " + "y" * 200),
    ],
)
def test_failures(said: bytes, error: str) -> None:
    """Every status but 200 to 299 is a failure, told with the first of what came with it."""
    net = Net(servers={PUBLIC: always(said)})
    found = post(net, sender(net))
    assert (found.ok, found.error) == (False, error)


@pytest.mark.parametrize("status", ["200 OK", "201 Created", "202 Accepted", "299 Fine"])
def test_successes(status: str) -> None:
    """A status from 200 to 299 is a success."""
    net = Net(servers={PUBLIC: always(answer(status))})
    assert post(net, sender(net)).ok


def test_no_answer() -> None:
    """A server that never answers is given up after the time-out, and its connection closed."""
    net = Net(servers={PUBLIC: never})
    found = post(net, sender(net))
    assert (found.status, found.error) == (None, "no answer within 5 s")
    assert found.seconds == pytest.approx(5, abs=0.11)
    assert net.open == 0


def test_closed_without_an_answer() -> None:
    """A server that closes at once is a failure that says so, and is asked once."""
    net = Net(servers={PUBLIC: closing})
    assert post(net, sender(net)).error == "the connection was closed without an answer"
    assert len(net.requests) == 1


def test_nobody_listens() -> None:
    """Where nobody listens, that is what is told."""
    net = Net()
    assert "refused" in post(net, sender(net)).error


def test_garbage() -> None:
    """What is no HTTP is a failure."""
    net = Net(servers={PUBLIC: always(b"SSH-2.0-OpenSSH\r\n\r\n")})
    assert not post(net, sender(net)).ok
    assert net.open == 0


def test_endless_answer() -> None:
    """Of an answer of a gigabyte a few KiB are read; the status counts."""
    pieces = 0

    def flood(request: Request, wire: Wire) -> None:
        nonlocal pieces
        wire.say(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
        while wire.open and pieces < 1000:
            pieces += 1
            wire.say(b"x" * 1000)
            net.clock.advance(0)

    net = Net(servers={PUBLIC: flood})
    assert post(net, sender(net)).ok
    assert pieces * 1000 <= MOST_READ + 2000
    assert net.open == 0


def test_endless_head() -> None:
    """A head that does not end closes the connection after some KiB."""
    pieces = 0

    def flood(request: Request, wire: Wire) -> None:
        nonlocal pieces
        wire.say(b"HTTP/1.1 200 OK\r\n")
        while wire.open and pieces < 1000:
            pieces += 1
            wire.say(b"X-%d: " % pieces + b"x" * 1000 + b"\r\n")
            net.clock.advance(0)

    net = Net(servers={PUBLIC: flood})
    assert not post(net, sender(net)).ok
    assert pieces <= MOST_ANSWER // 1000 + 2


@pytest.mark.parametrize("at_once", [1, 100])
def test_a_flood_of_heads(at_once: int) -> None:
    """Of answers that announce another a few are read, though they are short."""
    said = 0

    def flood(request: Request, wire: Wire) -> None:
        nonlocal said
        while wire.open and said < 2000:
            said += at_once
            wire.say(b"HTTP/1.1 100 Continue\r\n\r\n" * at_once)
            net.clock.advance(0)

    net = Net(servers={PUBLIC: flood})
    assert not post(net, sender(net)).ok
    assert said <= max(at_once, MOST_HEADS + 2)
    assert net.open == 0


def test_heads_before_the_answer() -> None:
    """An answer may be announced, and have empty lines in its body."""
    text = b"\r\n\r\n" * 1000
    said = b"HTTP/1.1 102 Processing\r\n\r\n" * 3
    said += b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text)
    net = Net(servers={PUBLIC: always(said)})
    assert post(net, sender(net)).ok


def test_slow_drip() -> None:
    """A body that drips is not waited for: the status counts, and the connection is closed."""

    def drip(request: Request, wire: Wire) -> None:
        wire.say(b"HTTP/1.1 500 Oops\r\nContent-Length: 1000\r\n\r\n")

        def more() -> None:
            if wire.open:
                wire.say(b"x")
                net.callLater(1, more)

        more()

    net = Net(servers={PUBLIC: drip})
    found = post(net, sender(net))
    assert found.error.startswith("500 Oops: x")
    assert net.open == 0


def test_slow_head() -> None:
    """A head that drips is given up at the time-out, however often something comes."""

    def drip(request: Request, wire: Wire) -> None:
        if wire.open:
            wire.say(b"H" if request.body else b"")
            net.callLater(0.5, drip, request, wire)

    net = Net(servers={PUBLIC: drip})
    assert post(net, sender(net)).error == "no answer within 5 s"


def test_packed_answer() -> None:
    """An answer that says it is packed is not unpacked."""
    bomb = gzip.compress(b"x" * 3_000_000)
    net = Net(servers={PUBLIC: always(answer("500 x", bomb[:3000], Content_Encoding="gzip"))})
    found = post(net, sender(net))
    assert found.body == bomb[:3000]


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 503 \xff\xfe\r\nRetry-After: \xff\r\nContent-Length: 2\r\n\r\n\xff\xfe",
        b"HTTP/1.1 307 x\r\nLocation: \xff\xfe://\x80\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 307 x\r\nLocation: http://[\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 99999999999999999999 x\r\n\r\n",
        b"HTTP/1.1 500 x\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 500 x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n12345",
        b"HTTP/1.1 500 x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 500 x\r\nTransfer-Encoding: rot13\r\n\r\nzz\r\n",
        b"HTTP/1.1 500 x\r\nno colon here\r\n\r\n",
        b"HTTP/9.9 500 x\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\n\r\n" * 3,
        b"\x16\x03\x01" + bytes(200),
        b"\r\n\r\n",
    ],
)
def test_hostile_bytes(said: bytes) -> None:
    """Whatever bytes a server says, the end is a failure, and the connection is closed."""
    net = Net(servers={PUBLIC: always(said)})
    sending = sender(net)
    found = post(net, sending)
    assert not found.ok
    assert found.error
    sending.close()
    net.clock.pump([0.1] * 20)
    assert net.open == 0
    assert net.clock.getDelayedCalls() == []


def test_what_nobody_asked_for() -> None:
    """A server that goes on talking behind its answer loses the connection, and nothing else."""

    def chatter(request: Request, wire: Wire) -> None:
        wire.say(OK)
        net.callLater(0.5, wire.say, OK + b"more")

    net = Net(servers={PUBLIC: chatter})
    sending = sender(net)
    assert post(net, sending, 2).ok
    assert net.open == 0
    assert post(net, sending, 2).ok
    sending.close()


class TestRedirects:
    """307 and 308 are followed, a few times, and never to where nothing may be sent."""

    def test_followed(self) -> None:
        """The request goes once more, as it was."""
        net = Net(
            names={"two.example": [[OTHER]]},
            servers={
                PUBLIC: always(answer("307 There", Location="http://two.example/b")),
                OTHER: always(OK),
            },
        )
        assert post(net, sender(net, headers={"Authorization": "key"})).ok
        first, second = net.requests
        assert (second.line, second.body) == ("POST /b HTTP/1.1", b"hello")
        assert first.headers["authorization"] == "key"
        assert "authorization" not in second.headers

    def test_too_often(self) -> None:
        """A circle ends."""
        net = Net(servers={PUBLIC: always(answer("308 Here", Location="/in"))})
        assert post(net, sender(net)).error == "it redirects more than 3 times"
        assert len(net.requests) == 4

    @pytest.mark.parametrize(
        "place",
        [
            "http://169.254.169.254/latest/meta-data",
            "http://127.0.0.1:7801/api",
            "http://[::1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://inside.example/",
            "//10.0.0.1/",
        ],
    )
    def test_inside(self, place: str) -> None:
        """A redirect to an address that is not public connects to nothing."""
        net = Net(
            names={"inside.example": [["192.168.1.1"]]},
            servers={PUBLIC: always(answer("307 There", Location=place))},
        )
        assert post(net, sender(net)).error.startswith("nothing is sent to ")
        assert net.dialed == [(PUBLIC, 80)]

    @pytest.mark.parametrize("place", ["", "ftp://x/", "http://u:p@hook.example/", "http://1.1/"])
    def test_nowhere(self, place: str) -> None:
        """What is no URL is a failure."""
        net = Net(servers={PUBLIC: always(answer("307 There", Location=place))})
        found = post(net, sender(net))
        assert not found.ok


class TestAddresses:
    """A connection goes to an address that was looked at just before, and to no other."""

    @pytest.mark.parametrize("place", ["127.0.0.1", "10.2.3.4", "::1", "169.254.169.254"])
    def test_private(self, place: str) -> None:
        """A name with a private address is refused, and nothing is dialed."""
        net = Net(names={"hook.example": [[place]]})
        assert post(net, sender(net)).error.startswith(f"nothing is sent to hook.example ({place})")
        assert net.dialed == []

    def test_one_of_several(self) -> None:
        """One address that may not be is enough."""
        net = Net(names={"hook.example": [[PUBLIC, "10.0.0.1"]]}, servers={PUBLIC: always(OK)})
        assert not post(net, sender(net)).ok
        assert net.dialed == []

    def test_rebinding(self) -> None:
        """A name that leads elsewhere a moment later is looked at again by the connection."""
        net = Net(names={"hook.example": [[PUBLIC], ["127.0.0.1"]]}, servers={PUBLIC: closing})
        sending = sender(net)
        assert "closed" in post(net, sending).error
        assert "127.0.0.1" in post(net, sending).error
        assert net.dialed == [(PUBLIC, 80)]

    def test_allowed(self) -> None:
        """What the owner allows is connected to."""
        net = Net(names={"hook.example": [["10.0.0.1"]]}, servers={"10.0.0.1": always(OK)})
        assert post(net, sender(net, ("10.0.0.0/8",))).ok

    def test_literal(self) -> None:
        """Addresses in place of names work, those of IPv6 too."""
        net = Net(servers={"2606:4700::1111": always(OK), OTHER: always(OK)})
        assert post(net, sender(net, url="http://[2606:4700::1111]:8080/x?y=%2f")).ok
        assert post(net, sender(net, url=f"http://{OTHER}")).ok
        assert net.dialed == [("2606:4700::1111", 8080), (OTHER, 80)]
        assert [each.line for each in net.requests] == [
            "POST /x?y=%2f HTTP/1.1",
            "POST / HTTP/1.1",
        ]
        assert net.requests[0].headers["host"] == "[2606:4700::1111]:8080"

    def test_next_address(self) -> None:
        """Where one address does not answer the next is tried."""
        net = Net(names={"hook.example": [[OTHER, PUBLIC]]}, servers={PUBLIC: always(OK)})
        assert post(net, sender(net)).ok

    def test_both_kinds(self) -> None:
        """Where all addresses of one kind lead nowhere, one of the other kind is tried."""
        far = [f"2606:4700::{number}" for number in range(1, 9)]
        net = Net(names={"hook.example": [[*far, PUBLIC]]}, servers={PUBLIC: always(OK)})
        assert post(net, sender(net)).ok
        assert len(net.dialed) == 2

    def test_unknown_name(self) -> None:
        """A name without an address is a failure like others."""
        net = Net(names={"hook.example": [[]]})
        assert post(net, sender(net)).error == "the name hook.example has no address"

    def test_check(self) -> None:
        """What is set is looked at once; a name that is not known yet passes."""
        net = Net(names={"in.example": [["10.0.0.1"]]})
        guard = Guard(net, Allowed(), net.resolve)
        ends: list[Any] = []
        for url in ("https://in.example/", "https://new.example/"):
            Deferred.fromCoroutine(guard.check(parse_target(url))).addBoth(ends.append)
        refused, passed = ends
        assert refused.check(EndpointRefused)
        assert passed is None


class TestWaiting:
    """What an endpoint says of when to come back is told."""

    @pytest.mark.parametrize(
        ("said", "seconds"),
        [
            ("7", 7.0),
            ("Tue, 14 Nov 2023 22:14:20 GMT", 60.0),
            ("99999999999999999999", 86_400.0),
            ("-5", None),
            ("soon", None),
            ("0", None),
            ("Tue, 14 Nov 1999 22:14:20 GMT", None),
            ("Tue, 99 Nov 99999 22:14:20 GMT", None),
            ("", None),
            ("1e9", None),
        ],
    )
    def test_retry_after(self, said: str, seconds: float | None) -> None:
        """Seconds and dates count, at most a day; all else is as if nothing was said."""
        net = Net(servers={PUBLIC: always(answer("503 Busy", Retry_After=said))})
        assert post(net, sender(net)).wait_s == seconds


class TestInjection:
    """What a message says cannot become a header of its own."""

    def test_headers(self) -> None:
        """Headers and keys with line ends and other bytes do not fit, and are counted."""
        net = Net(servers={PUBLIC: always(OK)})
        headers = [
            ("good", b"yes"),
            ("bad", b"x\r\nX-Evil: 1"),
            ("na me", b"x"),
            ("x\r\nX-Evil", b"1"),
            ("bin", b"\xff\x00"),
            ("content-type", b"text/plain\r\nX-Evil: 1"),
        ]
        assert post(net, sender(net), headers=headers, key=b"a\r\nX-Evil: 1").ok
        (request,) = net.requests
        assert "x-evil" not in request.headers
        assert request.headers["tinymq-header-good"] == "yes"
        assert request.headers["tinymq-headers-omitted"] == "5"
        assert request.headers["tinymq-key-encoding"] == "base64"
        assert request.headers["content-type"] == "application/octet-stream"
        verify(request.headers, request.body, SECRET, now=lambda: WALL / 1000)

    def test_content_type(self) -> None:
        """A message that says what it is is sent as that; a tombstone has no body and says so."""
        net = Net(servers={PUBLIC: always(OK)})
        sending = sender(net, headers={"Content-Type": "text/plain"})
        post(net, sending, 1, headers=[("Content-Type", b"application/json")])
        post(net, sending, 1, value=None, key=b"\xff" * 5000)
        first, second = net.requests
        assert first.headers["content-type"] == "application/json"
        assert second.headers["content-type"] == "text/plain"
        assert (second.body, second.headers["tinymq-tombstone"]) == (b"", "1")
        assert second.headers["tinymq-key-encoding"] == "omitted"
        assert "tinymq-key" not in second.headers
