"""The pages of brokers and clients, placement, and what pages say when figures are partial."""

from __future__ import annotations

import re

import pytest
from attrs import evolve
from typing_extensions import override

from tests.web.client import Client
from tests.web.content import lively, troubled
from tests.web.crowd import FakeCrowd
from tests.web.fakes import GB, FakeConsole, FakePartition, FakeTopic
from tests.web.fleet import connected, inner, silenced, slowed, three
from tests.web.flow import FakeFlow
from tests.web.queues import FakeQueue
from tinymq.errors import UnknownClient
from tinymq.stats import ClientSnapshot
from tinymq.web.port import ClientPage, ClientQuery


@pytest.fixture(name="client")
def make_client() -> Client:
    """Make a client of a lively cluster."""
    return Client(lively())


@pytest.fixture(name="sick")
def make_sick() -> Client:
    """Make a client of a cluster with problems."""
    return Client(troubled())


def order_of(text: str, *names: str) -> list[str]:
    """Read in which order the rows of some names stand in the first table."""
    return [
        name for name in re.findall(r'<th scope="row".*?<a[^>]*>([^<]*)', text) if name in names
    ]


# --- brokers -----------------------------------------------------------------


def test_brokers_are_listed_against_their_limits(client: Client) -> None:
    """Name, id, role, zone, version, limits, partitions, clients and state of each."""
    shown = client.get("/brokers").shown

    for part in (
        "id 1 · all · eu-1a",
        "id 2 · broker · eu-1b",
        "0.3.0",
        "301 of 500 GB",
        "of 4,096",
    ):
        assert part in shown
    assert "1,902" in shown
    assert "1.4 ms" in shown
    assert shown.count("Ready") == 3
    assert "versions run" not in shown


def test_brokers_with_problems_are_named_first(sick: Client) -> None:
    """Silent, refusing and warned brokers lead the list, each with its reason."""
    reply = sick.get("/brokers")

    assert order_of(reply.text, "mq-1", "mq-2", "mq-3") == ["mq-2", "mq-1", "mq-3"]
    for part in (
        "since 14:29:51 UTC",
        "below the reserve of 50 GB",
        "Draining too",
        "2 versions run",
    ):
        assert part in reply.shown
    assert "0.3.0 on mq-1, mq-2; 0.2.1 on mq-3" in reply.shown


def test_brokers_are_sorted_as_the_address_says(client: Client) -> None:
    """The order is in the address and named in the head of the column."""
    reply = client.get("/brokers?sort=disk&reverse=true")

    assert order_of(reply.text, "mq-1", "mq-2", "mq-3") == ["mq-1", "mq-3", "mq-2"]
    assert 'aria-sort="descending"' in reply.text
    assert client.get("/brokers?sort=colour").status == 400


def test_no_broker_says_what_to_do() -> None:
    """A MetaServer without brokers says how one is started."""
    console = FakeConsole()
    console.broker = evolve(console.broker, id=0, role="meta")
    client = Client(console)

    assert "MetaServer, holds no partitions" in client.get("/brokers/0").shown
    assert "/brokers/0/drain" not in client.get("/brokers/0").text


def test_broker_that_was_never_heard_is_shown() -> None:
    """Only its name and address are known, and the page says so without made up figures."""
    console = lively()
    console.silent = (silenced(evolve(three()[1], id=8, name="mq-8"), 3600),)
    client = Client(console)

    assert "mq-8" in client.get("/brokers").shown
    shown = client.get("/brokers/8").shown
    assert "Silent since 13:32:06 UTC, for 1 h." in shown
    assert "Published" not in shown
    assert "mq-8" in client.get("/").shown


def test_broker_shows_what_it_leads_and_who_is_there(client: Client) -> None:
    """Limits, facts, partitions by topic, and its clients with the way to all of them."""
    reply = client.get("/brokers/2")

    for part in (
        "13",
        "of 7 topics",
        "tinymq://10.0.2.2:7800",
        "1, 4, 7, 10",
        "All 21",
        "1.2 s ago",
    ):
        assert part in reply.shown
    assert 'href="/topics/clicks.raw/partitions"' in reply.text
    assert 'href="/clients?broker=2"' in reply.text
    assert "tinymq node info mq-2" in reply.shown
    assert "search.reindex" not in reply.shown


def test_topics_of_a_broker_are_paged() -> None:
    """Many topics are cut in pages that the address names."""
    topics = [FakeTopic(name=f"t.{i:03}", partitions=[FakePartition()]) for i in range(45)]
    client = Client(FakeConsole(*topics))

    reply = client.get("/brokers/1?page=3")

    assert "Page 3 of 3" in reply.shown
    assert "t.044" in reply.shown
    assert "t.039" not in reply.shown


def test_silent_broker_says_what_that_means(sick: Client) -> None:
    """Its clients are not known, its figures are old, and nothing moves."""
    shown = sick.get("/brokers/2").shown

    assert "mq-2 does not answer" in shown
    assert "Silent since 14:29:51 UTC, for 2 m 15 s." in shown
    assert "Not known while it does not answer" in shown


def test_refusing_broker_says_why(sick: Client) -> None:
    """The reason stands on its page."""
    assert "mq-1 refuses to publish" in sick.get("/brokers/1").shown


@pytest.mark.parametrize("path", ["/brokers/9", "/brokers/99999999999999", "/brokers/9/drain"])
def test_unknown_broker_is_404(client: Client, path: str) -> None:
    """A broker that is not there is said so."""
    assert client.get(path).status == 404


def test_drain_is_planned_done_and_taken_back(client: Client) -> None:
    """The plan says that nothing moves; both ways are one form each."""
    plan = client.get("/brokers/2/drain").shown
    assert "Nothing moves." in plan
    assert "go to mq-1, mq-3." in plan
    assert "tinymq node drain mq-2" in plan
    assert client.console.calls == []

    done = client.post("/brokers/2/drain")
    page = client.get(done.headers["location"])
    assert "The broker gets no new partitions." in page.shown
    assert "Take back…" in page.shown
    assert "mq-2 is draining and gets no new partitions." in client.get("/").shown
    assert "Nothing would change" in client.get("/brokers/2/drain").shown

    assert "gets new partitions again" in client.get("/brokers/2/undrain").shown
    back = client.post("/brokers/2/undrain")
    assert "The broker gets new partitions again." in client.get(back.headers["location"]).shown
    assert client.console.calls == [("drain", 2, False), ("drain", 2, True)]


def test_draining_the_last_one_warns() -> None:
    """When nobody would be left, the plan says so in red."""
    client = Client(FakeConsole())

    assert "No broker is left that takes new partitions." in client.get("/brokers/1/drain").shown


def test_overview_shows_some_of_many_brokers() -> None:
    """Fifty brokers are a few rows, the worst first, and a link to all."""
    console = lively()
    second = console.others[0]
    many = tuple(evolve(second, id=i, name=f"b{i}") for i in range(2, 51))
    console.others = (*many[:-1], evolve(many[-1], draining=True))
    reply = Client(console).get("/")

    assert "All 50" in reply.shown
    assert reply.text.count('href="/brokers/') == 8
    assert 'href="/brokers/50"' in reply.text


# --- clients -----------------------------------------------------------------


def test_slow_clients_come_first(sick: Client) -> None:
    """Who takes no more leads the list, the longest first, with the time."""
    reply = sick.get("/clients")

    names = re.findall(r'<a href="/clients/\d+/\d+" title="([^"]*)"', reply.text)
    assert names[:3] == ["billing-1", "archive-1", "archive-2"]
    assert "Slow since 14:26:54" in reply.shown
    assert "2 take no more" in reply.shown


def test_clients_are_filtered_sorted_and_paged(client: Client) -> None:
    """The address holds the whole state of the list."""
    reply = client.get(
        "/clients?name=BILLING&broker=1&sort=client_id&reverse=true&page_size=2&page=2"
    )

    assert "3 to 4 of 4" in reply.shown
    assert "Page 2 of 2" in reply.shown
    assert "checkout" not in reply.text
    assert "--broker 1 --filter '*BILLING*'" in reply.shown
    assert "No client matches" in client.get("/clients?name=nobody").shown


@pytest.mark.parametrize(
    "query", ["page=0", "sort=colour", "broker=x", "broker=-1", "page_size=501", "reverse=maybe"]
)
def test_odd_wishes_for_clients_are_refused(client: Client, query: str) -> None:
    """Odd input is 400, on the page as in the API."""
    assert client.get(f"/clients?{query}").status == 400
    assert client.get(f"/api/v1/pages/clients?{query}").status == 400


def test_nobody_connected_says_so() -> None:
    """An empty list is a sentence."""
    assert "Nobody is connected" in Client(FakeConsole()).get("/clients").shown


def test_client_shows_what_goes_through_and_what_waits(sick: Client) -> None:
    """Rates, totals, buffer, and why a slow client is a problem."""
    shown = sick.get("/clients/1/1000").shown

    for part in ("billing-1", "10.0.4.20:40000", "tinymq/1", "1.0 MB wait for it", "5 m 12 s"):
        assert part in shown
    assert "nobody was asked" in shown


def test_client_without_a_name_has_a_page() -> None:
    """A client need not say who it is."""
    console = lively()
    console.connected = [evolve(connected(console.brokers)[0], client_id="", agent="", user="ana")]
    client = Client(console)

    assert "unnamed" in client.get("/clients").shown
    shown = client.get("/clients/1/1000").shown
    assert "unnamed client" in shown
    assert "ana" in shown


@pytest.mark.parametrize("place", ["1/7", "9/1000", "1/99999999999999999999", "99999999999/1"])
def test_unknown_client_is_404(client: Client, place: str) -> None:
    """A connection that is gone is said so."""
    assert client.get(f"/clients/{place}").status == 404
    assert client.get(f"/clients/{place}/kick").status == 404


def test_client_of_a_silent_broker_is_503(sick: Client) -> None:
    """Nothing is claimed of clients that nobody can ask about."""
    assert sick.get("/clients/2/1001").status == 503


def test_kick_is_planned_and_done(client: Client) -> None:
    """The plan says that the client may come back; the reason goes with the kick."""
    plan = client.get("/clients/1/1000/kick").shown
    assert "may come back by itself" in plan
    assert "tinymq clients kick 1/1000 --reason" in plan
    assert client.console.calls == []

    done = client.post("/clients/1/1000/kick", reason="  too many connections ")

    assert client.console.calls == [("kick", 1, 1000, "too many connections")]
    assert "The client was kicked" in client.get(done.headers["location"]).shown
    assert client.get("/clients/1/1000").status == 404


def test_reason_of_a_kick_is_bounded(client: Client) -> None:
    """A reason that is too long comes back with a word beside the field."""
    reply = client.post("/clients/1/1000/kick", reason="x" * 201)

    assert reply.status == 400
    assert "at most 200 characters" in reply.shown
    assert client.console.calls == []


def test_kick_of_a_client_that_just_left_says_so() -> None:
    """Between the plan and the kick it may have gone."""

    class Leaving(FakeConsole):
        @override
        async def kick(self, broker_id: int, client: int, reason: str) -> ClientSnapshot:
            """Find nobody."""
            raise UnknownClient("it has left")

    console = Leaving()
    console.connected = connected(console.brokers)[:1]
    client = Client(console)

    done = client.post("/clients/1/1000/kick")

    assert "had left before" in client.get(done.headers["location"]).shown


# --- placement and partial figures --------------------------------------------


def test_what_retention_waits_for_is_told() -> None:
    """The channel that is behind is named, with how much is kept for it, and who is refused."""
    console = lively()
    row = {"channel": "late", "offset": 1039, "bytes": 519_134, "since_ms": 0, "refusing": True}
    console.held[("clicks.raw", 1)] = row
    client = Client(console)

    shown = client.get("/topics/clicks.raw/partitions").shown

    assert "519.1 KB would be gone by now" in shown
    assert "1,039" in shown
    assert "Refused" in shown
    assert "Retention waits" not in client.get("/topics/orders.created/partitions").shown


def test_partitions_say_where_they_are(client: Client) -> None:
    """Each leader is a link with its zone; a summary stands above."""
    reply = client.get("/topics/orders.created/partitions")

    assert "8 partitions on 3 brokers in 3 zones" in reply.shown
    assert "eu-1b" in reply.shown
    assert 'href="/brokers/3"' in reply.text
    assert "1, 4, 7" in reply.shown


def test_hot_broker_is_marked() -> None:
    """A broker that carries far more than its share has the sign for it."""
    console = lively()
    for log in console._topics["orders.created"].partitions[::3]:
        log.rate *= 5

    text = Client(console).get("/topics/orders.created/partitions").text

    assert 'class="fl w"' in text.split("caption")[0]
    assert re.search(r'<span class="st warn">.*?2\.\d', text)


def test_partitions_of_a_dead_broker_are_named(sick: Client) -> None:
    """One sentence with the reason and the numbers, not one for each partition."""
    reply = sick.get("/topics/clicks.raw/partitions")

    assert "4 partitions are offline: 1, 4, 7, 10" in reply.shown
    assert "mq-2 does not answer." in reply.shown
    assert "4 offline" in reply.shown


@pytest.mark.parametrize(
    "path", ["/", "/topics", "/brokers", "/brokers/2", "/topics/clicks.raw", "/clients"]
)
def test_partial_figures_are_said_first(sick: Client, path: str) -> None:
    """Every page whose figures are partial names the silent broker and since when."""
    for headers in ({}, {"HX_Request": "true"}):
        reply = sick.get(path, **headers)
        assert "mq-2 does not answer since 14:29:51 UTC" in reply.shown
        assert 'id="partial" data-short="mq-2 silent"' in reply.text
    assert "14:32:06 UTC, mq-2 silent" in sick.get(path).shown


@pytest.mark.parametrize("path", ["/topics/search.reindex", "/new-topic", "/brokers/1"])
def test_whole_figures_have_no_banner(sick: Client, path: str) -> None:
    """Where the silent broker does not matter, nothing is said of it."""
    assert 'id="partial"' not in sick.get(path).text


def test_search_finds_brokers_and_clients(client: Client) -> None:
    """One kind of match is a redirect; several are a page with all of them."""
    assert client.get("/find?q=mq-3").headers["location"] == "/brokers/3"
    assert client.get("/find?q=billing-2").headers["location"] == "/clients?name=billing-2"
    reply = client.get("/find?q=search")
    assert reply.status == 200
    assert "search.reindex" in reply.shown
    assert "search-index-1" in reply.shown
    assert 'href="/clients?name=search"' in reply.text


def test_navigation_counts_clients_and_brokers(client: Client) -> None:
    """The rail has both, with how many there are."""
    text = client.get("/clients").text

    assert re.search(
        r'<a href="/clients" aria-current="page">.*?<span id="n-clients">64</span>', text
    )
    assert re.search(r'<a href="/brokers">.*?<span id="n-brokers">3</span>', text)


@pytest.mark.parametrize("path", ["/", "/brokers", "/clients", "/clients?own=true", "/topics"])
@pytest.mark.parametrize("headers", [{}, {"HX_Request": "true"}])
def test_clients_are_counted_alike_everywhere(path: str, headers: dict[str, str]) -> None:
    """Menu, figures and list count the same clients; a refresh brings the menu's count along."""
    console = troubled()
    console.connected += inner(console.brokers)

    reply = Client(console).get(path, **headers)

    assert re.search(r'<span id="n-clients"[^>]*>43</span>', reply.text)
    assert ("hx-swap-oob" in reply.text) == bool(headers)
    if path == "/":
        assert re.search(r"Clients</dt><dd[^>]*><span>43<", reply.text)
    elif path != "/topics":
        assert "43 clients" in reply.shown


def test_what_the_clients_page_counts_is_newer() -> None:
    """A broker that did not answer the page's question has no clients in the menu either."""

    class Late(FakeConsole):
        @override
        async def clients(self, query: ClientQuery) -> ClientPage:
            return evolve(await super().clients(query), total_count=7, silent=("mq-3",))

    console = Late()
    console.connected = connected([console.broker])

    text = Client(console).get("/clients").text

    assert '<span id="n-clients">7</span>' in text
    assert "7 clients" in text


def test_the_clusters_own_connections_are_marked() -> None:
    """They are left out until the switch is set, and say then what they are."""
    console = lively()
    console.connected += inner(console.brokers)
    client = Client(console)

    usual = client.get("/clients")
    every = client.get("/clients?own=true&page_size=500")

    assert "tinymq-meta" not in usual.text
    assert "4 of the cluster's own left out" in usual.shown
    assert '<input type="checkbox" name="own" value="true">' in usual.text
    assert (every.shown.count("tinymq-meta"), every.shown.count("tinymq-broker")) == (2, 2)
    assert every.text.count(">cluster</span>") == 4
    assert "4 of the cluster's own besides" in every.shown
    assert '<input type="checkbox" name="own" value="true" checked>' in every.text
    assert "a process of the cluster itself" in client.get("/clients/2/10001").shown
    assert "1 of the cluster's own" in client.get("/clients?broker=2").shown


def test_fresh_cluster_has_no_clients() -> None:
    """Only its own processes are connected: that is said, with a way to see them."""
    console = lively()
    console.connected = inner(console.brokers)
    client = Client(console)

    reply = client.get("/clients")

    assert "Nobody is connected" in reply.shown
    assert "4 connections of the cluster's own processes are not counted" in reply.shown
    assert 'href="?own=true"' in reply.text
    assert "0 clients" in client.get("/brokers").shown
    broker = client.get("/brokers/1")
    assert 'href="/clients?broker=1&amp;own=true">2 of the cluster' in broker.text
    assert client.get("/find?q=tinymq-m").headers["location"] == "/clients?name=tinymq-m&own=true"


def test_sizes_say_how_large_a_unit_is(client: Client) -> None:
    """The heads of columns of sizes say that a KB is a thousand bytes."""
    for path in ("/topics", "/brokers", "/clients", "/topics/clicks.raw/partitions"):
        assert 'title="1 KB is 1,000 bytes"' in client.get(path).text
    assert "bytes; 1 KB is 1,000 bytes" in client.get("/").text


def test_no_broker_is_called_broker_twice() -> None:
    """A broker whose name says what it is gets no second word for it."""
    console = troubled()
    console.others = tuple(evolve(each, name=f"broker-{each.id}") for each in console.others)
    console.silent = (silenced(console.others[0], 135),)
    client = Client(console)

    for path in ("/", "/brokers", "/brokers/2", "/clients", "/topics/clicks.raw/partitions"):
        shown = client.get(path).shown
        assert "broker-2 does not answer" in shown
        assert "broker broker" not in shown.lower()


def test_slow_client_on_its_brokers_page() -> None:
    """A broker's page counts the clients that take no more, and has them first."""
    console = lively()
    console.connected[3] = slowed(console.connected[3], 9, 99)

    shown = Client(console).get("/brokers/1").shown

    assert "1 take no more" in shown
    assert "Slow since 14:31:57" in shown


def test_metaserver_is_no_broker() -> None:
    """It has a row, but is not counted, and its disk is nobody's limit."""
    console = lively()
    meta = evolve(console.broker, id=0, name="meta", role="meta", disk_free=75 * GB)
    console.others = (*console.others, meta)
    console.queue, console.flow, console.crowd = FakeQueue([]), FakeFlow(), FakeCrowd()
    client = Client(console)

    assert "3 brokers · 1 MetaServer" in re.sub(r"\s+", " ", client.get("/brokers").shown)
    overview = re.sub(r"\s+", " ", client.get("/").shown)
    assert "10 topics, 41 partitions, 3 brokers" in overview
    assert "149.0 GB of disk left on mq-1" in overview
