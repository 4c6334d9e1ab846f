"""
Store an order and the message that tells of it in one transaction, and publish it later.

::

    python examples/outbox_sqlite.py                 # with a broker of its own
    python examples/outbox_sqlite.py tinymq://HOST   # with one that runs

One process does everything here. In earnest the shop knows nothing of the broker, and a relay
runs beside it, as a process or a thread, or several of them.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from tinymq.errors import TinyMQError
from tinymq.patterns.outbox import SQLITE, Outbox, Relay
from tinymq.sync import Client
from tinymq.testing import BrokerProcess

TOPIC = "orders.placed"


class SoldOut(Exception):
    """There is nothing left."""


class Shop:
    """
    Sells things, as long as there are some.

    Args:
        path: Its database.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.outbox = Outbox(SQLITE)
        with closing(self.connect()) as connection, connection:
            connection.execute("CREATE TABLE stock (thing TEXT PRIMARY KEY, count INTEGER)")
            connection.execute("CREATE TABLE orders (thing TEXT, customer TEXT)")
            connection.execute("INSERT INTO stock VALUES ('tea', 2)")
            self.outbox.create(connection)  # or put outbox.statements(SQLITE) into a migration

    def connect(self) -> sqlite3.Connection:
        """Open a connection."""
        return sqlite3.connect(self._path)

    def order(self, customer: str, thing: str) -> None:
        """Sell a thing, and tell of it; if either fails, neither has happened."""
        with closing(self.connect()) as connection, connection:
            connection.execute("INSERT INTO orders VALUES (?, ?)", (thing, customer))
            # Equal keys are published in the order of their writing.
            self.outbox.add(connection, TOPIC, f"{thing} for {customer}".encode(), key=customer)
            taken = connection.execute(
                "UPDATE stock SET count = count - 1 WHERE thing = ? AND count > 0", (thing,)
            )
            if not taken.rowcount:
                raise SoldOut  # the order and its message are rolled back


def main(url: str, shop: Shop) -> None:
    """Take orders while there is no broker in sight, then publish them."""
    for customer in ("ann", "bob", "carl"):
        try:
            shop.order(customer, "tea")
        except SoldOut:
            print(f"there was no tea left for {customer}")
    with closing(shop.connect()) as connection:
        print("in the outbox:", shop.outbox.depth(connection).waiting)

    with Client(url) as client:
        # Repeats of a relay that died between the broker's word and its delete are left out.
        client.admin.create_topic(TOPIC, config={"dedup.ms": 24 * 3600 * 1000})
        # A blocking client serves one thread at a time, so the relay has one of its own.
        with Client(url) as own, Relay(shop.outbox, shop.connect, own) as relay:
            relay.start()  # a thread; relay.run() in a process of its own
            with client.consumer() as consumer:
                consumer.assign(TOPIC)
                come: list[bytes | None] = []
                for batch in consumer:
                    come += batch.values
                    if len(come) == 2:
                        break
        for value in sorted(value or b"" for value in come):
            print("published:", value.decode())
    with closing(shop.connect()) as connection:
        print("in the outbox:", shop.outbox.depth(connection).waiting)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        shop = Shop(Path(folder) / "shop.db")
        try:
            if len(sys.argv) > 1:
                main(sys.argv[1], shop)
            else:
                with BrokerProcess(Path(folder) / "data") as broker:
                    main(broker.url, shop)
        except TinyMQError as error:
            sys.exit(f"error: {error}")
