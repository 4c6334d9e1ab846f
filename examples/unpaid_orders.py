"""
Cancel orders that nobody pays for within half an hour.

With each order a message is published that comes 30 minutes later. Who pays in time
cancels it by its place; otherwise it comes, and the order is cancelled.

::

    python examples/unpaid_orders.py --fast             # with a broker of its own
    python examples/unpaid_orders.py --url tinymq://HOST  # with one that runs

``examples/test_unpaid_orders.py`` tests the shop on a fake clock.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

from tinymq.aio import Client, SubscriptionConfig
from tinymq.errors import TinyMQError
from tinymq.testing import BrokerProcess

TOPIC, CHANNEL = "unpaid", "shop"


class Shop:
    """
    Takes orders and payments; with asyncio or with Deferreds, as its client does.

    Args:
        client: A client of `tinymq.aio` or `tinymq.client`.
        patience: How long a customer may take to pay.
    """

    def __init__(self, client: Any, patience: timedelta = timedelta(minutes=30)) -> None:
        self.states: dict[str, str] = {}
        self._client = client
        self._producer = client.producer()
        self._patience = patience
        #: Where the message of each open order waits, as text: a real shop stores it.
        self._waiting: dict[str, str] = {}

    async def order(self, number: str) -> None:
        """Take an order."""
        place = await self._producer.send(TOPIC, number.encode(), delay=self._patience)
        self._waiting[number] = str(place)  # such as unpaid/0~17
        self.states[number] = "open"

    async def pay(self, number: str) -> bool:
        """Take a payment; it comes too late where the message cannot be cancelled any more."""
        told = await self._client.admin.cancel_delayed(self._waiting[number])
        if told["done"]:
            self.states[number] = "paid"
        return bool(told["done"])

    async def run(self) -> None:
        """Cancel what was not paid, until the subscription is closed."""
        await self.subscription.run(self._cancel)

    def open(self) -> None:
        """Subscribe to the orders that were not paid in time."""
        config = SubscriptionConfig(create_topics=True)
        self.subscription = self._client.subscription(TOPIC, CHANNEL, config)

    def _cancel(self, message: Any) -> None:
        self.states[message.value.decode()] = "cancelled"


async def main(url: str, patience: timedelta) -> None:
    """Take two orders, of which one is paid."""
    async with Client(url) as client:
        shop = Shop(client, patience)
        shop.open()
        running = asyncio.create_task(shop.run())
        for number in ("1", "2"):
            await shop.order(number)
        print("order 1 is paid:", await shop.pay("1"))
        print("what waits:", (await client.admin.delayed_histogram(TOPIC))["total"])
        await asyncio.sleep(patience.total_seconds() + 1)
        print("order 2 is paid:", await shop.pay("2"))
        for number, state in shop.states.items():
            print(f"order {number}: {state}")
        await shop.subscription.close(within_s=5)
        await running


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Cancel orders that nobody pays for.")
    parser.add_argument("--url", help="a running broker; without it one is started")
    parser.add_argument("--fast", action="store_true", help="half a second instead of 30 minutes")
    options = parser.parse_args()
    waiting = timedelta(seconds=0.5) if options.fast else timedelta(minutes=30)
    if options.url:
        try:
            asyncio.run(main(options.url, waiting))
        except TinyMQError as error:
            sys.exit(f"error: {error}")
    else:
        with tempfile.TemporaryDirectory() as folder, BrokerProcess(Path(folder, "data")) as broker:
            asyncio.run(main(broker.url, waiting))
