"""
Orders that find their way: each goes to the topics of those who want it.

Shops publish to one exchange and know nobody else. The key says where an order comes from;
a second exchange behind the first looks at what is in it. What nobody asked for is kept, and
the shop hears of it::

    python examples/routing_by_region.py                      # with a broker of its own
    python examples/routing_by_region.py --url tinymq://HOST  # with one that runs
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from tinymq.errors import TinyMQError, Unroutable
from tinymq.sync import EARLIEST, Client
from tinymq.testing import BrokerProcess

ORDERS = {
    "eu.de.berlin": 80,
    "eu.fr.paris": 2500,
    "us.ny": 40,
    "us.ca": 9000,
}


def bind(client: Client) -> None:
    """Say once which orders go where; the same again changes nothing."""
    admin = client.admin
    for topic in ("eu-orders", "us-orders", "all-orders", "large-orders"):
        admin.create_topic(topic, partitions=1)
    admin.create_exchange("shop", "topic", partitions=1)
    admin.create_exchange("shop-values", "rule", partitions=1)
    admin.bind("shop", "eu-orders", "eu.#")
    admin.bind("shop", "us-orders", "us.#")
    admin.bind("shop", "all-orders", "*.#")
    admin.bind("shop", "shop-values", "eu.#")
    admin.bind("shop", "shop-values", "us.#")
    admin.bind("shop-values", "large-orders", rule="json.cents >= 1000")
    admin.bind("shop-values", "all-orders", rule="json.cents < 1000")


def read(client: Client, topic: str, count: int) -> list[str]:
    """Read the first so many keys of a topic; waits until they are there."""
    found: list[str] = []
    with client.consumer() as consumer:
        consumer.assign(topic, start=EARLIEST)
        for batch in consumer:
            found += [(record.key or b"").decode() for record in batch]
            if len(found) >= count:
                break
    return sorted(found)


def main(url: str) -> None:
    """Bind, publish, and look where the orders went."""
    with Client(url) as client:
        bind(client)
        told = client.admin.test_exchange("shop", "eu.de.berlin", value='{"cents": 80}')
        print("an order of Berlin would go to", ", ".join(told["targets"]))

        producer = client.producer()
        for key, cents in ORDERS.items():
            producer.send("shop", json.dumps({"cents": cents}).encode(), key=key.encode())
        try:
            producer.send("shop", b"{}")  # without a key, so without a region
        except Unroutable:
            print("nobody takes an order without a region; it is kept")

        for topic, count in (("eu-orders", 2), ("us-orders", 2), ("large-orders", 2)):
            print(f"{topic}: {', '.join(read(client, topic, count))}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Routing by region.")
    parser.add_argument("--url", help="a running broker; without it one is started")
    options = parser.parse_args()
    if options.url:
        try:
            main(options.url)
        except TinyMQError as error:
            sys.exit(f"error: {error}")
    else:
        with tempfile.TemporaryDirectory() as folder, BrokerProcess(Path(folder, "data")) as broker:
            main(broker.url)
