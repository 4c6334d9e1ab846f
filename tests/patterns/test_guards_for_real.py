"""Guards around handlers of real consumers, against a real broker."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.selectreactor import SelectReactor

from tests.conftest import RealReactor
from tests.patterns.conftest import Base
from tests.patterns.test_seen import Stage
from tinymq.client import Client as TwistedClient
from tinymq.patterns.idempotence import OrderConfig, StateConfig, StateGuard, VersionGuard, header
from tinymq.sync import Client
from tinymq.verify.process import BrokerProcess

pytestmark = pytest.mark.process

PATIENCE = 30.0


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the URL of a running broker."""
    with BrokerProcess(tmp_path_factory.mktemp("guards") / "data") as broker:
        yield broker.url


def test_versions_in_a_group(url: str) -> None:
    """A group's member hands out versions in order, and the group's position follows."""
    done: list[int] = []
    ended = threading.Event()

    def work(message: Any) -> None:
        done.append(int(message.value))
        if len(done) == 4:
            ended.set()

    handler = VersionGuard().in_order(work, OrderConfig(gap="skip"))
    with Client(url) as client, Client(url) as sends:
        sends.admin.create_topic("versions", 3)
        with sends.producer() as producer:
            for number in (2, 3, 1, 3, 4):
                text = b"%d" % number
                producer.send("versions", text, "k", [("version", text)])
        member = client.group("order", ["versions"])
        thread = threading.Thread(target=lambda: member.run(handler, manual=True))
        thread.start()
        assert ended.wait(PATIENCE)
        member.close()
        thread.join(PATIENCE)

    assert done == [1, 2, 3, 4]
    assert handler.held == 0


def test_deferreds(url: str, real: RealReactor, lite: Base) -> None:
    """Handlers that return Deferreds are guarded in a reactor: each message once, early ones
    again later.
    """
    done: list[bytes] = []
    stage = Stage(lite)
    seen = stage.store(identity=header("id"))

    async def body(reactor: SelectReactor) -> None:
        guard = StateGuard(
            {"new": {"paid"}, "paid": {"shipped"}}, "new", config=StateConfig(delay_s=0.05)
        )
        ended: Deferred[None] = Deferred()

        @seen.once
        @guard.step
        def handle(message: Any) -> Deferred[None]:
            later: Deferred[None] = Deferred()
            reactor.callLater(0.01, later.callback, None)
            return later.addCallback(lambda _: done.append(message.value))

        def look() -> None:
            if seen.handled == 2 and seen.repeats == 1:
                ended.callback(None)
            else:
                reactor.callLater(0.02, look)

        client = TwistedClient(reactor, url)
        producer = client.producer()
        for name in (b"shipped", b"paid", b"paid"):
            headers = [("id", name), ("state", name)]
            await producer.send("states", name, "order", headers)
        subscription = client.subscription("states", "shop")
        running = subscription.run(handle)
        look()
        await ended
        await subscription.close()
        await running
        await client.close()

    real(body)
    assert done == [b"paid", b"shipped"]
    seen.close()
