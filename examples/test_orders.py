"""
Tests of a program that uses tinymq: nothing to start, nothing to wait for.

Run it with ``pytest examples/test_orders.py``. The fixture ``tinymq_broker`` comes
with the installation of tinymq. Each test has a broker and clients of its own,
which move when the test says so.
"""

from __future__ import annotations

import json

import pytest

from tinymq.client import Client
from tinymq.errors import TinyMQError

# --- the program: it takes orders and ships them ---------------------------------


class Shop:
    """Publishes orders."""

    def __init__(self, client: Client) -> None:
        self._producer = client.producer()

    async def order(self, customer: str, item: str) -> int:
        """Return the order's number, once the order cannot be lost any more."""
        value = json.dumps({"customer": customer, "item": item}).encode()
        position = await self._producer.send("orders", value, key=customer.encode())
        return position.offset


class Warehouse:
    """Reads orders."""

    def __init__(self, client: Client) -> None:
        self._consumer = client.consumer()
        self.shipped: list[str] = []

    async def open(self) -> None:
        """Begin with the first order that is kept."""
        await self._consumer.assign("orders")

    async def ship(self, count: int) -> None:
        """Ship so many orders."""
        while count > 0:
            batch = await self._consumer.next_batch()
            for record in batch:
                self.shipped.append(json.loads(record.value)["item"])
                count -= 1


# --- its tests -------------------------------------------------------------------


@pytest.fixture
def shop(tinymq_broker):
    """Return a shop."""
    return Shop(tinymq_broker.client())


@pytest.fixture
def warehouse(tinymq_broker):
    """Return a warehouse that is open."""
    tinymq_broker.create_topic("orders", retention_ms=7 * 24 * 3600 * 1000)
    warehouse = Warehouse(tinymq_broker.client())
    tinymq_broker.run(warehouse.open())
    return warehouse


def test_an_order_is_shipped(tinymq_broker, shop, warehouse):
    """What is ordered leaves the warehouse."""
    assert tinymq_broker.run(shop.order("ann", "tea")) == 0

    tinymq_broker.run(warehouse.ship(1))

    assert warehouse.shipped == ["tea"]


def test_an_order_is_stored_once(tinymq_broker, shop):
    """The answer gets lost with the connection; the order must not be there twice."""
    tinymq_broker.drop_acknowledgements(1)

    tinymq_broker.run(shop.order("ann", "tea"))

    assert len(tinymq_broker.records("orders")) == 1


def test_an_order_waits_for_the_broker(tinymq_broker, shop, warehouse):
    """The broker dies and comes back; shop and warehouse go on."""
    tinymq_broker.run(shop.order("ann", "tea"))
    tinymq_broker.power_cut()
    order = shop.order("bob", "milk")
    tinymq_broker.restart()

    tinymq_broker.run(order)
    tinymq_broker.run(warehouse.ship(2))

    assert warehouse.shipped == ["tea", "milk"]


def test_the_shop_says_when_it_cannot_take_orders(tinymq_broker, shop):
    """Nobody waits for ever: half a minute later the customer is told."""
    tinymq_broker.refuse_connections()

    with pytest.raises(TinyMQError):
        tinymq_broker.run(shop.order("ann", "tea"))

    assert tinymq_broker.clock.seconds() == pytest.approx(30)


def test_orders_are_kept_for_a_week(tinymq_broker, shop, warehouse):
    """Three days later the order is there, after thirty it is gone."""
    tinymq_broker.run(shop.order("ann", "tea"))

    tinymq_broker.jump(days=3)
    assert len(tinymq_broker.records("orders")) == 1
    tinymq_broker.jump(days=27)
    assert tinymq_broker.records("orders") == []
