"""
A group through a rolling deploy: its members are replaced one by one, and nothing is lost.

Three workers share the orders of a day. Each is stopped and started again while orders come
in, as a deploy does it. Every order is handled, those of a customer in their order, and the
partitions of a worker wait for it while it is away, for it has a name::

    python examples/rolling_group.py                      # with a broker of its own
    python examples/rolling_group.py --url tinymq://HOST  # with one that runs
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from threading import Lock, Thread

from tinymq.sync import Client, GroupConsumer, GroupMessage
from tinymq.testing import BrokerProcess

TOPIC, GROUP = "orders-to-ship", "shipping"
CUSTOMERS, ORDERS = 20, 300


class Shipping:
    """What became of the orders; in a real program this is a database."""

    def __init__(self) -> None:
        self.shipped: defaultdict[bytes, list[int]] = defaultdict(list)
        self._lock = Lock()

    def ship(self, message: GroupMessage) -> None:
        """Ship an order; it is done when this returns, and comes again if it raises."""
        assert message.key is not None
        assert message.value is not None
        with self._lock:
            orders = self.shipped[message.key]
            if int(message.value) not in orders:  # after a crash it may come twice
                orders.append(int(message.value))

    @property
    def count(self) -> int:
        """How many orders were shipped."""
        with self._lock:
            return sum(map(len, self.shipped.values()))


class Worker:
    """A member of the group; it would be a process of its own."""

    def __init__(self, url: str, name: str, shipping: Shipping) -> None:
        self._client = Client(url)
        self.consumer: GroupConsumer = self._client.group(
            GROUP, topics=[TOPIC], instance=name, commit="batch"
        )
        self._thread = Thread(target=self.consumer.run, args=(shipping.ship,))
        self._thread.start()

    def stop(self) -> None:
        """Finish what is under way, commit, and leave."""
        self.consumer.close(within_s=5)
        self._thread.join()
        self._client.close()


def main(url: str) -> None:
    """Replace every worker while orders come in."""
    shipping = Shipping()
    names = ["one", "two", "three"]
    with Client(url) as client:
        client.admin.create_topic(TOPIC, partitions=6)
        producer = client.producer()
        workers = {name: Worker(url, name, shipping) for name in names}
        for worker in workers.values():
            worker.consumer.ready()
        for number in range(ORDERS):
            customer = b"customer %d" % (number % CUSTOMERS)
            producer.send(TOPIC, b"%d" % number, customer)
            if number % 100 == 99:  # a deploy
                name = names[number // 100]
                workers[name].stop()
                workers[name] = Worker(url, name, shipping)
        while shipping.count < ORDERS:
            time.sleep(0.05)
        for worker in workers.values():
            worker.stop()
        positions = client.positions(GROUP).committed(TOPIC)

    print(f"shipped: {shipping.count} orders of {len(shipping.shipped)} customers")
    in_order = all(orders == sorted(orders) for orders in shipping.shipped.values())
    print(f"those of each customer in order: {in_order}")
    print(f"left to do: {sum(position.lag for position in positions.values())}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A group through a rolling deploy.")
    parser.add_argument("--url", help="a running broker; without it one is started")
    options = parser.parse_args()
    if options.url:
        main(options.url)
    else:
        with tempfile.TemporaryDirectory() as folder, BrokerProcess(Path(folder, "data")) as broker:
            main(broker.url)
