"""
Two teams and one topic: a replayable log for one of them, a work queue for the other.

The billing team shares the orders among two workers, and each order is billed once. The
statistics team reads the same orders from the beginning, and again from the beginning when
it finds a mistake in its sums. Neither notices the other::

    python examples/two_teams.py                      # with a broker of its own
    python examples/two_teams.py --url tinymq://HOST  # with one that runs
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from threading import Lock, Thread

from tinymq.sync import EARLIEST, Client, Message, SubscriptionConfig
from tinymq.testing import BrokerProcess

TOPIC, CHANNEL = "shop-orders", "billing"
ORDERS = [{"item": item, "cents": cents} for item, cents in (("tea", 350), ("milk", 120)) * 6]


class Billing:
    """Takes orders out of the queue; what is finished here is still in the log."""

    def __init__(self) -> None:
        self.billed: list[int] = []
        self._lock = Lock()

    def bill(self, message: Message) -> None:
        """Bill an order; it is finished when this returns, and comes again if it raises."""
        with self._lock:
            self.billed.append(message.offset)

    def work(self, url: str) -> None:
        """Be one of the workers, until nothing has come for a while."""
        few = SubscriptionConfig(max_in_flight=2)  # the other one shall have some, too
        with Client(url) as client, client.subscription(TOPIC, CHANNEL, few) as subscription:
            while message := subscription.next(timeout=1):
                self.bill(message)
                message.finish()


def total(client: Client, price: Callable[[dict[str, int]], int]) -> Counter[str]:
    """Sum up all orders, from the first one on; reading takes nothing away."""
    sums: Counter[str] = Counter()
    with client.consumer() as consumer:
        consumer.assign(TOPIC, start=EARLIEST)
        left = consumer.end_offsets(TOPIC)[0]
        for batch in consumer:
            for record in batch:
                order = json.loads(record.value or b"")
                sums[order["item"]] += price(order)
            left -= len(batch)
            if left <= 0:
                break
    return sums


def main(url: str) -> None:
    """Let both teams have the same orders."""
    with Client(url) as client:
        client.producer().send_batch(TOPIC, [json.dumps(order).encode() for order in ORDERS])

        wrong = total(client, lambda order: 1)
        print("statistics:", dict(wrong))

        billing = Billing()
        workers = [Thread(target=billing.work, args=(url,)) for _ in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        once = len(billing.billed) == len(set(billing.billed))
        print(f"billing: {len(billing.billed)} orders, each once: {once}")
        left = client.admin.channel(TOPIC, CHANNEL)["channel"]["lag"]
        print(f"left in the queue: {left}")

        right = total(client, lambda order: order["cents"])
        print("statistics, once more from the beginning:", dict(right))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="One topic for two teams.")
    parser.add_argument("--url", help="a running broker; without it one is started")
    options = parser.parse_args()
    if options.url:
        main(options.url)
    else:
        with tempfile.TemporaryDirectory() as folder, BrokerProcess(Path(folder, "data")) as broker:
            main(broker.url)
