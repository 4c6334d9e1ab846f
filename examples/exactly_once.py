"""
Orders in, invoices out: each order becomes one invoice, whatever breaks in between.

A program that reads, works and writes can fail between any two of its steps. Here what it
writes and how far it has read count together, in transactions, so that a crash leaves
both or neither. The first run crashes in the middle on purpose; the second goes on::

    python examples/exactly_once.py                      # with a broker of its own
    python examples/exactly_once.py --url tinymq://HOST  # with one that runs
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from pathlib import Path
from uuid import uuid4

from tinymq.aio import EARLIEST, Client, GroupMessage, Out
from tinymq.testing import BrokerProcess

ORDERS, INVOICES, GROUP = "orders-to-invoice", "bills", "invoicing"
COUNT = 20
#: Marks the orders of this run; the topics may hold those of others.
RUN = uuid4().hex


class Crash(Exception):
    """Stands for a power cut, a bug, a killed process."""


def invoice(message: GroupMessage) -> Out:
    """Make an invoice of an order."""
    order = json.loads(message.value or b"")
    bill = {"run": order["run"], "order": order["number"], "cents": 350 * order["teas"]}
    return Out(INVOICES, json.dumps(bill).encode(), key=message.key)


def crashing(message: GroupMessage) -> Out:
    """Do the same, but not to the end."""
    if json.loads(message.value or b"")["number"] == COUNT // 2:
        raise Crash
    return invoice(message)


async def first_run(url: str) -> None:
    """Work, a few orders in each transaction, until it crashes."""
    async with Client(url) as client:
        producer = client.transactional("invoicing-1")
        group = client.group(GROUP, [ORDERS], commit="manual")
        try:
            await producer.transform(group, crashing, most=3)
        except Crash:
            print("crashed in the middle")


async def second_run(url: str) -> list[int]:
    """Go on where the first run was, and return what was billed in all."""
    async with Client(url) as client:
        producer = client.transactional("invoicing-1")
        group = client.group(GROUP, [ORDERS], commit="manual")
        working = asyncio.create_task(producer.transform(group, invoice, most=3))
        billed: list[int] = []
        async with client.consumer() as consumer:  # it shows what counts, and nothing else
            await consumer.assign(INVOICES, start=EARLIEST)
            async for batch in consumer:
                bills = [json.loads(value or b"") for value in batch.values]
                billed += [bill["order"] for bill in bills if bill["run"] == RUN]
                if len(billed) >= COUNT:
                    break
        await group.close()
        await working
    return billed


async def work(url: str) -> None:
    """Publish orders, and bill them."""
    async with Client(url) as client, client.producer() as producer:
        await client.admin.create_topic(INVOICES)
        for number in range(COUNT):
            order = {"run": RUN, "number": number, "teas": number % 3 + 1}
            await producer.send(ORDERS, json.dumps(order).encode(), key=b"customer")
    await first_run(url)
    billed = await second_run(url)
    print(f"{len(billed)} invoices, {len(set(billed))} of them different")


def main() -> None:
    """Run with a broker that is there, or with one of its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--url", help="a broker that runs")
    url = parser.parse_args().url
    if url is not None:
        asyncio.run(work(url))
        return
    with tempfile.TemporaryDirectory() as folder:
        broker = BrokerProcess(Path(folder) / "data")
        broker.start()
        try:
            asyncio.run(work(broker.url))
        finally:
            broker.stop()


if __name__ == "__main__":
    main()
