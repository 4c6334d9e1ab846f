"""
Transfer money from one bank to another, and lose or double none, whatever dies meanwhile.

Each bank has a database of its own, and no transaction spans both. Bank A takes the money off
an account and writes a message, in one transaction (the outbox). Bank B puts the money onto an
account, notes that it has seen the message, and writes its answer, in one transaction too. If
the account is closed it answers so, and bank A puts the money back.

::

    python examples/bank_transfer.py                      # with a broker of its own
    python examples/bank_transfer.py --crash              # and kill -9 all the time
    python examples/bank_transfer.py --url tinymq://HOST  # with a broker that runs

In the end the books are checked; the exit status is 1 if a cent is wrong.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import sqlite3
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tinymq.patterns.idempotence import SeenConfig, SeenStore, header
from tinymq.patterns.outbox import SQLITE, Outbox, Relay, RelayConfig
from tinymq.sync import Client
from tinymq.testing import BrokerProcess

CREDITS, ANSWERS = "bank-b.credits", "bank-a.answers"
#: Accounts of each bank, and the cents that are on each at first.
ACCOUNTS, CENTS = 8, 100_000
#: This account of bank B is closed.
CLOSED = 0
PATIENCE_S = 120.0

TABLES = """
CREATE TABLE IF NOT EXISTS account (number INTEGER PRIMARY KEY, cents INTEGER, closed INTEGER);
CREATE TABLE IF NOT EXISTS transfer (id TEXT PRIMARY KEY, cents INTEGER, state TEXT);
CREATE TABLE IF NOT EXISTS entry (transfer TEXT, account INTEGER, cents INTEGER);
"""


class Bank:
    """
    A bank.

    Args:
        path: Its database.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.outbox = Outbox(SQLITE)
        #: A transfer is handled once, however often its message comes.
        self.seen = SeenStore(
            self.connect, SQLITE, "transfers", SeenConfig(identity=header("transfer"))
        )

    def connect(self) -> sqlite3.Connection:
        """Open a connection."""
        return sqlite3.connect(self.path, timeout=30, check_same_thread=False)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection for one transaction."""
        with closing(self.connect()) as connection, connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection

    def found(self, closed: int | None = None) -> None:
        """Found the bank."""
        with closing(self.connect()) as connection:
            connection.executescript(TABLES)
            self.outbox.create(connection)
            self.seen.create(connection)
            rows = [(number, CENTS, number == closed) for number in range(ACCOUNTS)]
            connection.executemany("INSERT INTO account VALUES (?, ?, ?)", rows)
            connection.commit()

    def book(self, connection: sqlite3.Connection, transfer: str, account: int, cents: int) -> None:
        """Change an account, and leave an entry that says why."""
        connection.execute(
            "UPDATE account SET cents = cents + ? WHERE number = ?", (cents, account)
        )
        connection.execute("INSERT INTO entry VALUES (?, ?, ?)", (transfer, account, cents))

    # --- what bank A does --------------------------------------------------------------

    def send(self, source: int, target: int, cents: int) -> None:
        """Take money off an account, and tell the other bank of it: both, or nothing."""
        transfer = uuid.uuid4().hex
        order = {"transfer": transfer, "from": source, "to": target, "cents": cents}
        with self.transaction() as connection:
            self.book(connection, transfer, source, -cents)
            connection.execute("INSERT INTO transfer VALUES (?, ?, 'sent')", (transfer, cents))
            self.tell(connection, CREDITS, order, key=str(target))

    def hear(self, message: Any, connection: sqlite3.Connection) -> None:
        """Note what the other bank did; if it refused, put the money back."""
        answer = json.loads(message.value)
        state = "done" if answer["taken"] else "refunded"
        connection.execute(
            "UPDATE transfer SET state = ? WHERE id = ?", (state, answer["transfer"])
        )
        if not answer["taken"]:
            self.book(connection, answer["transfer"], answer["from"], answer["cents"])

    # --- what bank B does --------------------------------------------------------------

    def receive(self, message: Any, connection: sqlite3.Connection) -> None:
        """Put money onto an account, or refuse to, and answer: both, or nothing."""
        order = json.loads(message.value)
        where = (order["to"],)
        (closed,) = connection.execute(
            "SELECT closed FROM account WHERE number = ?", where
        ).fetchone()
        if not closed:
            self.book(connection, order["transfer"], order["to"], order["cents"])
        self.tell(connection, ANSWERS, {**order, "taken": not closed}, key=str(order["from"]))

    def tell(self, connection: Any, topic: str, what: dict[str, Any], key: str) -> None:
        """Write a message into the outbox."""
        value, headers = json.dumps(what).encode(), {"transfer": what["transfer"].encode()}
        self.outbox.add(connection, topic, value, key, headers)


# --- processes: each of them may be killed at any moment ----------------------------------


def business(bank: Bank, count: int) -> None:
    """Send so many transfers, all in all."""
    chance = random.Random()
    while True:
        with closing(bank.connect()) as connection:
            ((done,),) = connection.execute("SELECT COUNT(*) FROM transfer").fetchall()
        if done >= count:
            return
        source, target = chance.randrange(ACCOUNTS), done % ACCOUNTS
        bank.send(source, target, chance.randrange(1, 10_000))


def relay(bank: Bank, url: str) -> None:
    """Publish what stands in the outbox of a bank."""
    config = RelayConfig(poll_s=0.05, lease_s=2.0, retry_s=0.1, most_retry_s=1.0)
    with Client(url) as client, Relay(bank.outbox, bank.connect, client, config) as running:
        running.run()


def consume(bank: Bank, url: str, topic: str, handler: Callable[..., None]) -> None:
    """Let a bank handle what it is told, each transfer once."""
    with Client(url) as client, client.subscription(topic, "bank") as subscription:
        subscription.run(bank.seen.in_transaction(handler))


class Staff:
    """
    Those who work for the banks, each a process.

    Args:
        a: The bank that sends.
        b: The bank that receives.
        url: Where the broker is.
        count: How many transfers there are to be.
    """

    def __init__(self, a: Bank, b: Bank, url: str, count: int) -> None:
        self._fork: Any = multiprocessing.get_context("fork")
        self._work: list[tuple[Callable[..., None], tuple[Any, ...]]] = [
            (business, (a, count)),
            (relay, (a, url)),
            (relay, (b, url)),
            (consume, (b, url, CREDITS, b.receive)),
            (consume, (a, url, ANSWERS, a.hear)),
        ]
        self._processes = [self._start(place) for place in range(len(self._work))]

    def _start(self, place: int) -> Any:
        work, arguments = self._work[place]
        process = self._fork.Process(target=work, args=arguments, daemon=True)
        process.start()
        return process

    def kill(self, place: int) -> None:
        """Kill one in the middle of whatever it does, and let another one take its place."""
        self._processes[place].kill()
        self._processes[place].join()
        self._processes[place] = self._start(place)

    def dismiss(self) -> None:
        """End them all."""
        for process in self._processes:
            process.kill()
            process.join()


# --- the books ---------------------------------------------------------------------------


def settled(a: Bank, b: Bank, count: int) -> bool:
    """Whether every transfer has found its end, and nobody has anything to say any more."""
    with closing(a.connect()) as one, closing(b.connect()) as other:
        ((done,),) = one.execute("SELECT COUNT(*) FROM transfer WHERE state != 'sent'").fetchall()
        return done >= count and not a.outbox.depth(one).waiting + b.outbox.depth(other).waiting


def states(a: Bank) -> dict[str, int]:
    """Count transfers by what became of them."""
    with closing(a.connect()) as connection:
        return dict(connection.execute("SELECT state, COUNT(*) FROM transfer GROUP BY state"))


def cents(bank: Bank) -> int:
    """Count the money of a bank."""
    with closing(bank.connect()) as connection:
        ((found,),) = connection.execute("SELECT SUM(cents) FROM account").fetchall()
    return int(found)


def mistakes(a: Bank, b: Bank) -> list[str]:
    """Check the books, and say what is wrong."""
    found = []
    if cents(a) + cents(b) != 2 * ACCOUNTS * CENTS:
        found.append(f"there are {cents(a) + cents(b)} cents, not {2 * ACCOUNTS * CENTS}")
    with closing(a.connect()) as connection:
        connection.execute("ATTACH DATABASE ? AS b", (str(b.path),))
        # What A booked for a transfer, and what B booked, each as a list of amounts.
        rows = connection.execute(
            "SELECT id, cents, state, "
            "(SELECT json_group_array(cents) FROM entry WHERE transfer = id), "
            "(SELECT json_group_array(cents) FROM b.entry WHERE transfer = id) FROM transfer"
        ).fetchall()
    for transfer, amount, state, ours, theirs in rows:
        expected = {
            "done": ([-amount], [amount]),
            "refunded": ([-amount, amount], []),
            "sent": ([-amount], []),
        }[state]
        if (json.loads(ours), json.loads(theirs)) != expected:
            found.append(f"transfer {transfer} is {state}, booked {ours} here, {theirs} there")
    return found


def main(url: str, folder: Path, count: int, chance: random.Random | None) -> int:
    """Transfer, kill if there is to be chance, and check the books."""
    a, b = Bank(folder / "a.db"), Bank(folder / "b.db")
    a.found()
    b.found(CLOSED)
    with Client(url) as client:
        for topic in (CREDITS, ANSWERS):
            # What a relay publishes once more since it was killed is stored once.
            client.admin.create_topic(topic, config={"dedup.ms": 24 * 3600 * 1000})
            # Who is killed with a message in hand is not to be held against the message.
            config = {"attempts": 1000, "backoff": ["100ms"]}
            client.admin.create_channel(topic, "bank", config=config)
    staff, kills = Staff(a, b, url, count), 0
    end = time.monotonic() + PATIENCE_S
    try:
        while not settled(a, b, count) and time.monotonic() < end:
            time.sleep(0.05 if chance is None else chance.uniform(0.0, 0.2))
            if chance is not None and kills < 20:
                staff.kill(chance.randrange(5))
                kills += 1
    finally:
        staff.dismiss()
    print(f"transfers: {states(a)}")
    if chance is not None:
        print(f"processes killed: {kills}")
    print(f"bank A has {cents(a)} cents, bank B {cents(b)}, together {cents(a) + cents(b)}")
    wrong = mistakes(a, b)
    if not settled(a, b, count):
        wrong.append("not every transfer has found its end")
    print("\n".join(wrong) or "the books are right")
    return 1 if wrong else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Transfer money between two banks.")
    parser.add_argument("--url", help="a broker that runs")
    parser.add_argument("--transfers", type=int, default=64)
    parser.add_argument("--crash", action="store_true", help="kill processes all the time")
    parser.add_argument("--seed", type=int, default=None, help="of the kills")
    options = parser.parse_args()
    kills = random.Random(options.seed) if options.crash else None
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        if options.url:
            sys.exit(main(options.url, place, options.transfers, kills))
        settings = place / "tinymq.toml"
        settings.write_text("[session]\ngrace_seconds = 1\n")  # messages of the dead come soon
        with BrokerProcess(place / "data", arguments=["--config", str(settings)]) as broker:
            sys.exit(main(broker.url, place, options.transfers, kills))
