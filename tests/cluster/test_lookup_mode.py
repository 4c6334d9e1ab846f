"""Lookup mode on real sockets: brokers inside a process, found through several lookup servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from twisted.internet.task import deferLater

from tests.conftest import RealReactor
from tinymq.client import Client
from tinymq.embedded import EmbeddedBroker
from tinymq.errors import ConfigError


async def until(reactor: Any, holds: Any) -> Any:
    """Ask again and again until something holds, for ten seconds at most."""
    for _ in range(500):
        found = await holds()
        if found:
            return found
        await deferLater(reactor, 0.02)
    raise AssertionError("it never came to hold")


def place_of(broker: EmbeddedBroker) -> str:
    """The place of a broker, as a setting names it."""
    return broker.url.removeprefix("tinymq://")


@pytest.mark.process
def test_announced(real: RealReactor, tmp_path: Path) -> None:
    """Topics of independent brokers are known to every lookup server, and forgotten with them."""

    async def body(reactor: Any) -> None:
        lookups = [EmbeddedBroker(reactor, tmp_path / f"lookup{n}") for n in range(2)]
        for each in lookups:
            each.start()
        places = [place_of(each) for each in lookups]
        brokers = [
            EmbeddedBroker(
                reactor, tmp_path / f"b{n}", lookup=places, broker__name=f"b{n}", cluster__zone="z"
            )
            for n in range(2)
        ]
        asking = [Client(reactor, each.url) for each in lookups]

        async def found(client: Client) -> list[str]:
            nodes = (await client.admin.operate("lookup.find", name="t"))["nodes"]
            return sorted(node["name"] for node in nodes)

        for broker in brokers:
            broker.start()
            own = Client(reactor, broker.url)
            await own.admin.create_topic("t")
            await own.close()
        for client in asking:
            await until(reactor, lambda client=client: _is(found(client), ["b0", "b1"]))
        own = Client(reactor, brokers[0].url)
        await own.admin.delete_topic("t")
        await own.close()
        for client in asking:
            await until(reactor, lambda client=client: _is(found(client), ["b1"]))
        await brokers[1].stop()
        for client in asking:
            await until(reactor, lambda client=client: _is(found(client), []))
            await client.close()
        for each in (brokers[0], *lookups):
            await each.stop()

    real(body)


async def _is(waiting: Any, wanted: list[str]) -> bool:
    return bool(await waiting == wanted)


def test_folder_in_use(real: RealReactor, tmp_path: Path) -> None:
    """A second embedded broker in one folder is an error of this process, not its end."""

    async def body(reactor: Any) -> None:
        first, second = (EmbeddedBroker(reactor, tmp_path / "data") for _ in range(2))
        first.start()
        with pytest.raises(ConfigError, match="in use"):
            second.start()
        await first.stop()

    real(body)
