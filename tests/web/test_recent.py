"""Fragments that several tabs ask for are written once a second."""

from __future__ import annotations

from typing import Any

import pytest
from typing_extensions import override

from tests.web.client import Client
from tests.web.content import lively
from tests.web.fakes import FakeConsole
from tinymq.stats import ClusterSnapshot
from tinymq.web.config import SiteConfig
from tinymq.web.recent import FRESH_SECONDS, Recent
from tinymq.web.site import make_site

FRAGMENT = {"HX_Request": "true"}


class Counted:
    """A client of a cluster that counts how often it is looked at, with its clock."""

    def __init__(self) -> None:
        lively_one = lively()
        counted = self
        self.looks = 0

        class Counting(FakeConsole):
            @override
            def cluster(self) -> ClusterSnapshot:
                counted.looks += 1
                return lively_one.cluster()

        console = Counting(*lively_one._topics.values())
        console.others, console.connected = lively_one.others, lively_one.connected
        self.client = Client(console)
        self.clock: Any = self.client._treq._agent._memoryReactor

    def get(self, path: str, **headers: str) -> tuple[int, bytes, int]:
        """Look at a page: status, body, and how often the cluster was looked at for it."""
        before = self.looks
        reply = self.client.get(path, **headers)
        return reply.status, reply.body, self.looks - before


@pytest.fixture(name="counted")
def make_counted() -> Counted:
    """Make a counted client."""
    return Counted()


@pytest.mark.parametrize("path", ["/", "/topics", "/topics/orders.created", "/brokers", "/clients"])
def test_second_tab_costs_no_look(counted: Counted, path: str) -> None:
    """What was written a moment ago is sent again, byte for byte, and no longer."""
    first = counted.get(path, **FRAGMENT)
    assert first[2] > 0

    assert counted.get(path, **FRAGMENT) == (200, first[1], 0)
    counted.clock.advance(FRESH_SECONDS)
    assert counted.get(path, **FRAGMENT)[2] > 0


def test_kept_fragment_has_its_headers(counted: Counted) -> None:
    """Type, compression and tag are those of the first answer; a known tag saves the body."""
    first = counted.client.get("/topics", Accept_Encoding="gzip", **FRAGMENT)
    again = counted.client.get("/topics", Accept_Encoding="gzip", **FRAGMENT)
    tag = first.headers["etag"]
    known = counted.client.get("/topics", Accept_Encoding="gzip", If_None_Match=tag, **FRAGMENT)

    for name in ("content-type", "etag", "cache-control", "vary"):
        assert again.headers[name] == first.headers[name]
    assert again.body == first.body
    assert (known.status, known.body) == (304, b"")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"HX_Request": "true", "Cookie": "tinymq-zone=Asia/Tokyo"},
        {"HX_Request": "true", "Host": "localhost:7801"},
    ],
)
def test_other_looks_are_written_anew(counted: Counted, headers: dict[str, str]) -> None:
    """Whole pages, other zones and other names of this server never share an answer."""
    counted.get("/topics", **FRAGMENT)

    assert counted.get("/topics", **headers)[2] > 0


def test_other_addresses_are_written_anew(counted: Counted) -> None:
    """The query is a part of what is asked."""
    counted.get("/topics", **FRAGMENT)

    assert counted.get("/topics?sort=bytes", **FRAGMENT)[2] > 0


def test_change_forgets(counted: Counted) -> None:
    """After a change nothing older than it is shown."""
    token = counted.client.token()
    assert token
    counted.get("/topics", **FRAGMENT)
    counted.client.send("PUT", "/api/v1/topics/made", b"{}")

    assert counted.get("/topics", **FRAGMENT)[2] > 0


def test_fragments_with_a_token_are_not_shared(counted: Counted) -> None:
    """A form belongs to one person, so its page is written for each."""
    counted.client.console._topics["orders.created"].undo_until = 2**41
    path = "/topics/orders.created"
    assert b'name="token"' in counted.get(path, **FRAGMENT)[1]

    assert counted.get(path, **FRAGMENT)[2] > 0


def test_errors_and_messages_are_not_kept(counted: Counted) -> None:
    """Only pages that a browser may keep are kept here."""
    for path in ("/topics?page=x", "/topics/orders.created/messages"):
        counted.client.get(path, **FRAGMENT)
    assert counted.get("/topics/orders.created/messages", **FRAGMENT)[2] > 0


def test_what_is_kept_is_bounded() -> None:
    """Many addresses within a second do not pile up."""
    counted = Counted()
    site = make_site(counted.client.console, counted.clock, SiteConfig())
    recent = site.resource._recent
    assert isinstance(recent, Recent)
    agent = counted.client._treq._agent
    agent._serverFactory = site
    for number in range(130):
        counted.client.get(f"/brokers?x={number}", **FRAGMENT)

    assert 0 < len(recent._answers) <= 64
