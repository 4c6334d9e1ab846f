"""Who changed what about a topic, on its settings."""

from __future__ import annotations

import re

import pytest
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.interfaces import IAddress

from tests.web.client import Client
from tests.web.content import lively
from tests.web.crowd import MINUTE, change
from tinymq.web.config import anonymous
from tinymq.web.history import readable

SETTINGS = "/topics/orders.created/settings"


@pytest.fixture(name="client")
def make_client() -> Client:
    """Make a client of a lively cluster."""
    return Client(lively())


def words(text: str) -> str:
    """Write a text without its line ends."""
    return re.sub(r"\s+", " ", text)


def test_each_setting_says_who_changed_it_last(client: Client) -> None:
    """Who, when, and from what to what; nothing where no change is kept."""
    shown = words(client.get(SETTINGS).shown)
    assert "retention.time 7 d ops-2, 14:05 7 d → 2 d About retention.time." in shown
    assert "segment.bytes 64 MB anonymous, 2026-11-20 14:32 64 MB → 256 MB" in shown
    assert "sync always \N{EN DASH} About sync." in shown


def test_all_changes_are_listed(client: Client) -> None:
    """The newest first: settings, partitions, purges and what took them back; the first use."""
    shown = words(client.get(SETTINGS).shown)
    assert "14:05:06 ops-2 changed retention.time 7 d → 2 d 10.0.0.7:51000" in shown
    assert "ops-2 undid the last purge of 2 partitions" in shown
    assert "ops-2 purged 4,120 records of partition 3" in shown
    assert "deploy-bot added partitions 4 → 8" in shown
    assert "first use made partitions 4 \N{EN DASH}" in shown


def test_older_ones_are_on_further_pages(client: Client) -> None:
    """Settings know all changes, whatever page of the list is shown."""
    more = [change("purged", (index + 9) * MINUTE, note=f"purge {index}") for index in range(30)]
    client.console.crowd.changes = [*more, *client.console.crowd.changes]
    first = client.get(SETTINGS)
    assert "purge 19" in first.shown
    assert "purge 20" not in first.shown
    assert 'href="?after=20#history"' in first.text
    second = words(client.get(f"{SETTINGS}?after=20").shown)
    assert "purge 20" in second
    assert "Newest" in second
    assert "ops-2, 14:05" in second


def test_a_form_that_comes_back_has_it_too(client: Client) -> None:
    """A wrong setting does not cost the history; one that cannot be told costs nothing else."""
    wrong = client.post(SETTINGS, **{"config.sync": "x", "config.retention.time": "1 d"})
    assert wrong.status == 200
    client.console.crowd.untold = {"topic.history"}
    assert "Not known just now" in client.get(SETTINGS).shown
    client.console.crowd.untold = set()
    client.console.crowd.changes = []
    assert "No change is known" in client.get(SETTINGS).shown


def test_settings_are_written_for_people() -> None:
    """Lengths of time and sizes have units; texts stay as they are."""
    assert readable("retention.ms", "604800000") == "7 d"
    assert readable("segment.bytes", "67108864") == "64 MiB"
    assert readable("sync", "os") == "os"
    assert readable("x", "") == "empty"
    assert readable("x", None) == ""


@pytest.mark.parametrize(
    ("address", "text"),
    [
        (IPv4Address("TCP", "10.0.0.7", 51000), "10.0.0.7:51000"),
        (IPv6Address("TCP", "fe80::1", 51000), "[fe80::1]:51000"),
        (UNIXAddress("/run/tinymq"), "UNIXAddress('/run/tinymq')"),
    ],
)
def test_who_asks_has_an_address(address: IAddress, text: str) -> None:
    """Whoever uses the pages is told with host and port."""

    class Asked:
        def getClientAddress(self) -> IAddress:  # noqa: N802 - Twisted's name
            """Say where it came from."""
            return address

    assert anonymous(Asked()).peer == text  # type: ignore[arg-type]
