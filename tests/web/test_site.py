"""The server around the pages: deadlines, bounds, static files, templates."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest
from attrs import evolve
from twisted.internet.address import IPv4Address
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport

import tinymq
from tests.web.client import Client
from tests.web.content import lively
from tinymq.limits import DEFAULT_LIMITS
from tinymq.web import templates
from tinymq.web.assets import FOLDER
from tinymq.web.config import SiteConfig
from tinymq.web.site import DeadlineChannel, make_site

HOST = b"Host: 127.0.0.1\r\n"


class Line:
    """One connection to the server, on a clock that only moves by hand."""

    def __init__(self, config: SiteConfig | None = None) -> None:
        self.clock = Clock()
        site = make_site(lively(), self.clock, config or SiteConfig())
        address = IPv4Address("TCP", "127.0.0.1", 1)
        channel = site.buildProtocol(address)
        assert isinstance(channel, DeadlineChannel)
        self.channel = channel
        self.transport = StringTransport(peerAddress=address)
        channel.makeConnection(self.transport)

    def send(self, data: bytes) -> bytes:
        """Send bytes and take what has come back."""
        self.channel.dataReceived(data)
        answer: bytes = self.transport.value()
        self.transport.clear()
        return answer

    @property
    def closed(self) -> bool:
        """Whether the server has given up on us."""
        return bool(self.transport.disconnected or self.transport.disconnecting)


def test_silent_connection_is_closed() -> None:
    """Who connects and says nothing has ten seconds."""
    line = Line()

    line.clock.advance(9.9)
    assert not line.closed
    line.clock.advance(0.2)
    assert line.closed


def test_trickled_headers_do_not_buy_time() -> None:
    """One header a second keeps Twisted's own time-out away, but not ours."""
    line = Line()
    line.send(b"GET / HTTP/1.1\r\n")

    for index in range(9):
        line.clock.advance(1)
        line.send(b"X-%d: y\r\n" % index)
    assert not line.closed
    line.clock.advance(1.1)

    assert line.closed


def test_trickled_body_does_not_buy_time() -> None:
    """A body has its own deadline, however it is sent."""
    line = Line()
    line.send(b"POST /view HTTP/1.1\r\n" + HOST + b"Content-Length: 1000\r\n\r\n")

    for _ in range(59):
        line.clock.advance(1)
        line.send(b"x")
    assert not line.closed
    line.clock.advance(1.1)

    assert line.closed


def test_connection_is_kept_between_requests_for_a_while() -> None:
    """A second request on the same connection is served; idling ends it."""
    line = Line()
    request = b"GET /-/healthy HTTP/1.1\r\n" + HOST + b"\r\n"

    assert b"healthy" in line.send(request)
    line.clock.advance(30)
    assert b"healthy" in line.send(request)
    line.clock.advance(61)

    assert line.closed


def test_second_request_has_a_deadline_too() -> None:
    """A kept connection cannot be held by half a request."""
    line = Line()
    line.send(b"GET /-/healthy HTTP/1.1\r\n" + HOST + b"\r\n")
    line.clock.advance(5)
    line.send(b"GET / HTTP/1.1\r\n")

    for _ in range(9):
        line.clock.advance(1)
        line.send(b"A: b\r\n")
    assert not line.closed
    line.clock.advance(1.1)

    assert line.closed


@pytest.mark.parametrize(
    "framing",
    [
        b"Content-Length: 2000\r\n\r\n" + b"x" * 2000,
        b"Transfer-Encoding: chunked\r\n\r\n"
        b"3E8\r\n" + b"x" * 1000 + b"\r\n3E8\r\n" + b"x" * 1000 + b"\r\n0\r\n\r\n",
    ],
)
def test_body_over_the_limit_is_answered_without_keeping_it(framing: bytes) -> None:
    """Announced or chunked, a long body is read away and answered with 413."""
    limits = evolve(DEFAULT_LIMITS, value=1, key=1, headers=1, batch=1)
    line = Line(SiteConfig(limits=limits))
    answer = line.send(
        b"POST /api/v1/topics/x/messages HTTP/1.1\r\n"
        + HOST
        + b"Content-Type: application/octet-stream\r\n"
        + framing
    )

    assert answer.startswith(b"HTTP/1.1 413")
    assert b"limit of 1,027 bytes" in answer


def test_lost_connection_leaves_no_timer() -> None:
    """A closed connection holds nothing."""
    line = Line()
    line.channel.connectionLost()

    assert line.clock.getDelayedCalls() == []


def test_static_files_are_kept_for_ever_under_their_hash() -> None:
    """The name changes with the content, so browsers never ask again."""
    client = Client(lively())
    page = client.get("/").text
    address = page.split('rel="stylesheet" href="')[1].split('"')[0]

    plain = client.get(address)

    assert plain.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert plain.headers["content-type"] == "text/css; charset=utf-8"
    assert (FOLDER / "tokens.css").read_bytes() == plain.body
    assert packed_size(address) < len(plain.body)
    assert client.call("POST", address).status == 405


def test_vendored_files_are_what_they_were() -> None:
    """Each file of others matches the sum that was recorded, and has its licence beside it."""
    folder = FOLDER / "vendor"
    lines = (folder / "SHA256SUMS").read_text().splitlines()
    sums = {line[66:]: line[:64] for line in lines}

    assert {p.name for p in folder.iterdir()} - {"SHA256SUMS"} == set(sums)
    for name, expected in sums.items():
        assert expected == sha256((folder / name).read_bytes()).hexdigest()
    for library in ("htmx", "idiomorph", "uplot"):
        assert any(name.startswith(f"{library}-LICENSE") for name in sums)


def packed_size(path: str) -> int:
    """Count the bytes of a compressed answer."""
    request = b"GET %s HTTP/1.0\r\n" % path.encode() + HOST + b"Accept-Encoding: gzip\r\n\r\n"
    head, _, body = Line().send(request).partition(b"\r\n\r\n")
    assert b"Content-Encoding: gzip" in head
    return len(body)


def test_first_page_is_small() -> None:
    """Page, styles and scripts together stay below 80 KB, compressed."""
    text = Client(lively()).get("/").text
    files = {"/static/" + piece.split('"')[0] for piece in text.split('"/static/')[1:]}

    size = sum(map(packed_size, files - {f for f in files if f.endswith(".svg")}))

    assert len(files) >= 5
    assert size + packed_size("/topics/orders.created/messages") < 80_000
    assert size + packed_size("/") < 80_000


def test_refresh_is_small() -> None:
    """What is polled every few seconds stays below 64 KiB, even uncompressed."""
    client = Client(lively())

    for path in ("/", "/topics", "/topics/orders.created"):
        assert len(client.get(path, HX_Request="true").body) < 64 * 1024


def test_own_files_keep_their_size() -> None:
    """Style and script stay small enough to be read."""
    assert (FOLDER / "ui.css").stat().st_size < 16 * 1024
    assert (FOLDER / "work.css").stat().st_size < 8 * 1024
    assert len((FOLDER / "ui.js").read_text().splitlines()) <= 150


def test_templates_are_found_beside_or_inside_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wheel has them inside; a checkout and an editable install beside; else it is said where."""
    package = tmp_path / "tinymq"
    package.mkdir()
    monkeypatch.setattr(tinymq, "__file__", str(package / "__init__.py"))

    with pytest.raises(FileNotFoundError, match="templates"):
        templates.find_templates()
    for place in (tmp_path / "templates", package / "templates"):
        place.mkdir()
        (place / "shell.html").touch()
        assert place == templates.find_templates()
