"""Workers that die of a message or stand still in it, on real brokers."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from twisted.internet.selectreactor import SelectReactor
from twisted.internet.threads import deferToThreadPool
from twisted.python.threadpool import ThreadPool

from tests.conftest import RealReactor
from tinymq.config import DEFAULT_CONFIG
from tinymq.service import BrokerService
from tinymq.sync import Client, ClientConfig, Message
from tinymq.verify.process import BrokerProcess

pytestmark = pytest.mark.process

GOOD = [b"%d" % number for number in range(5)]

#: Handles what there is, and ends when there is nothing more.
WORKER = """
import os, sys
from tinymq.sync import Client

with Client(sys.argv[1]) as client, client.subscription("t", "c") as subscription:
    while (message := subscription.next(2.0)) is not None:
        if message.value == b"bad":
            os._exit(7)
        message.finish()
"""


def test_a_message_that_kills_its_workers(real: RealReactor, tmp_path: Path) -> None:
    """It ends as a dead letter after as many deaths as it may fail; all others are done."""
    data = tmp_path / "data"
    config = DEFAULT_CONFIG.changed(
        {
            "storage.data": str(data),
            "network.listen": ("tcp:0:interface=127.0.0.1",),
            "web.listen": None,
            "session.grace_seconds": 1,
        }
    )
    deaths: list[int] = []

    def supervise(url: str) -> tuple[list[bytes | None], int]:
        with Client(url) as client:
            client.admin.create_topic("t")
            client.admin.create_channel("t", "c", {"attempts": 3, "backoff": ["0s"]})
            client.producer().send_batch("t", [*GOOD[:2], b"bad", *GOOD[2:]])
            while len(deaths) < 10:
                command = [sys.executable, "-c", WORKER, url]
                status = subprocess.run(command, timeout=30, check=False).returncode
                if status == 0:
                    break
                deaths.append(status)
            consumer = client.consumer()
            consumer.assign("t.c.dead", None, "earliest")
            batch = consumer.next_batch(5)
            consumer.close()
            assert batch is not None
            channel = client.admin.channel("t", "c")["channel"]
            return batch.values, channel["lag"]

    async def body(reactor: SelectReactor) -> None:
        service = BrokerService(reactor, config)
        service.startService()
        url = json.loads((data / "broker.json").read_text())["listen"]
        pool = ThreadPool(0, 1)
        pool.start()
        try:
            outcome = await deferToThreadPool(reactor, pool, supervise, url)
        finally:
            pool.stop()
            await service.stopService()
        assert outcome == ([b"bad"], 0)

    real(body)
    # The first death had neighbours: nobody could say which of them was at fault.
    assert deaths == [7] * 4


def test_a_handler_that_blocks_for_many_heartbeats(tmp_path: Path) -> None:
    """The connection lives meanwhile, and what the handler did is taken."""
    attempts: list[int] = []
    with (
        BrokerProcess(tmp_path / "data") as broker,
        Client(broker.url, ClientConfig(heartbeat_s=1)) as client,
    ):
        client.producer().send("t", b"slow")
        before = client.admin.operate("client.list")["clients"]
        subscription = client.subscription("t", "c")

        def handle(message: Message) -> None:
            attempts.append(message.attempt)
            time.sleep(4)
            message.finish()
            message.confirmed(5)
            subscription.close()

        subscription.run(handle)
        after = client.admin.operate("client.list")["clients"]
        lag = client.admin.channel("t", "c")["channel"]["lag"]

    assert (attempts, lag) == ([1], 0)
    assert [row["id"] for row in after] == [row["id"] for row in before]
