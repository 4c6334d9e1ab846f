"""
Send mails from a work queue: with retries, back-off, dead letters, and a second chance for them.

::

    python examples/mail_worker.py                      # with a broker of its own
    python examples/mail_worker.py --url tinymq://HOST  # with one that runs
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections import Counter
from pathlib import Path

from tinymq.aio import Client, Message
from tinymq.testing import BrokerProcess

TOPIC, CHANNEL = "mails", "sender"
DEAD = f"{TOPIC}.{CHANNEL}.dead"
MAILS = [b"ann@here.example", b"bob@grey.example", b"carl@nowhere.example", b"dora@down.example"]


class MailServer:
    """Stands for the mail server."""

    def __init__(self) -> None:
        self.repaired = False
        self._asked: Counter[str] = Counter()

    async def send(self, address: str) -> None:
        """Send a mail, or say why not."""
        await asyncio.sleep(0.01)
        self._asked[address] += 1
        if "nowhere" in address:
            raise LookupError("550 no such mailbox")
        if "grey" in address and self._asked[address] == 1:
            raise ConnectionError("451 greylisted, try again later")
        if "down" in address and not self.repaired:
            raise ConnectionError("connection refused")


async def settled(client: Client) -> None:
    """Wait until every mail was sent or has become a dead letter."""
    while True:
        found = (await client.admin.channel(TOPIC, CHANNEL))["channel"]
        if found["lag"] == found["given_up"] == 0:
            return
        await asyncio.sleep(0.1)


async def main(url: str, backoff: list[str]) -> None:
    """Send mails, look at those that could not be sent, and try some of them again."""
    server = MailServer()

    async def send(message: Message) -> None:
        address = (message.value or b"").decode()
        try:
            await server.send(address)
        except ConnectionError as error:
            message.requeue(reason=str(error))  # comes again after the back-off
        except LookupError as error:
            message.reject(str(error))  # a dead letter at once: nothing would be gained
        else:
            print(f"sent to {address} in attempt {message.attempt}")

    async with Client(url) as client:
        await client.producer().send_batch(TOPIC, MAILS)
        config = {"attempts": 3, "backoff": backoff}
        await client.admin.create_channel(TOPIC, CHANNEL, config=config)
        subscription = client.subscription(TOPIC, CHANNEL)
        running = asyncio.create_task(subscription.run(send, concurrency=10))
        await settled(client)

        found = await client.admin.operate("dlq.messages", target=DEAD)
        for letter in found["messages"]:
            print(f"dead: {letter['preview']}: {letter['reason']}, {letter['text']}")

        server.repaired = True
        done = await client.admin.operate("dlq.redrive", target=DEAD, reason="failed")
        print(f"{done['done']} sent back")
        await settled(client)
        await subscription.close(within_s=5)
        await running


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Send mails from a work queue.")
    parser.add_argument("--url", help="a running broker; without it one is started")
    parser.add_argument("--fast", action="store_true", help="hardly any wait before a retry")
    options = parser.parse_args()
    delays = ["50ms"] if options.fast else ["1s", "5s"]
    if options.url:
        asyncio.run(main(options.url, delays))
    else:
        with tempfile.TemporaryDirectory() as folder, BrokerProcess(Path(folder, "data")) as broker:
            asyncio.run(main(broker.url, delays))
