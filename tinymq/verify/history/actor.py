"""
One process of a trial: ``python -m tinymq.verify.history.actor ROLE URL DIARY SEED``.

It does its work until SIGTERM asks it to end, and writes down what it is told. What the
brokers refuse while they are struck is no problem: it goes on.
"""

from __future__ import annotations

import faulthandler
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from tinymq.errors import ProducerFenced, TinyMQError, TransactionAborted, UsageError
from tinymq.sync import (
    Client,
    ClientConfig,
    GroupConsumer,
    GroupMessage,
    ProducerConfig,
    Share,
    SubscriptionConfig,
)
from tinymq.verify.history.diary import Diary
from tinymq.verify.history.judge import COPIES, ORDERS

#: The channel, the groups, and how many keys there are.
CHANNEL: Final = "work"
READERS: Final = "readers"
MOVERS: Final = "movers"
KEYS: Final = 24

#: Seconds of one call, and of one wait for a message.
DEADLINE: Final = 10.0
GLANCE: Final = 0.2
#: Seconds between two calls of one who publishes, and most records of one call.
_PAUSE: Final = 0.02
_MOST: Final = 12
#: Seconds in which a settle must be confirmed, with its broker dead for a while.
_CONFIRMED: Final = 30.0


class Asked:
    """
    Whether the process is to end.

    A signal sets it, in the middle of anything: an `Event` of threading, which has a lock,
    would wait for ever then.
    """

    def __init__(self) -> None:
        self._set = False

    def set(self) -> None:
        """Ask it to end."""
        self._set = True

    def is_set(self) -> bool:
        """Say whether it is to."""
        return self._set


class Part(NamedTuple):
    """
    What an actor has.

    Attributes:
        role: Its name.
        name: The same, and which start of it this is.
        client: Its client.
        diary: What it writes down.
        chance: Decides.
        stopping: Set when it is to end.
    """

    role: str
    name: str
    client: Client
    diary: Diary
    chance: random.Random
    stopping: Asked


def publish(part: Part) -> None:
    """Send batches of numbered records, of one key each."""
    producer = part.client.producer(ProducerConfig(create_topics=False, deadline_s=DEADLINE))
    number = failures = 0
    while not part.stopping.is_set():
        time.sleep(_PAUSE)
        key = f"k{part.chance.randrange(KEYS)}"
        count = part.chance.randint(1, _MOST)
        ids = [f"{part.name}.{failures}:{number + each}" for each in range(count)]
        number += count
        part.diary.note_all("try", ({"id": each} for each in ids))
        try:
            told = producer.send_batch(
                ORDERS, [each.encode() for each in ids], [key.encode()] * count
            )
        except UsageError:
            raise
        except TinyMQError:
            failures += 1  # they may still be stored, behind what comes next
            producer = part.client.producer(producer.config)
            continue
        (partition, first, _) = told.positions[0]
        part.diary.note_all(
            "ack", ({"id": each, "p": partition, "o": first + at} for at, each in enumerate(ids))
        )


def work(part: Part) -> None:
    """Finish what the channel gives, now and then only at the second or third time."""
    config = SubscriptionConfig(max_in_flight=32, create=False, deadline_s=60.0)
    with part.client.subscription(ORDERS, CHANNEL, config) as subscription:
        while not part.stopping.is_set():
            message = subscription.next(GLANCE)
            if message is None:
                continue
            place = {"p": message.partition, "o": message.offset}
            part.diary.note("got", **place)
            try:
                if not part.chance.randrange(20):
                    message.requeue(0.2, reason="try again")
                    continue
                part.diary.note("finish", **place)
                message.finish()
                message.confirmed(_CONFIRMED)
            except UsageError:
                raise
            except TinyMQError:
                continue  # it comes again, or nobody knows
            part.diary.note("confirmed", **place)


def _join(part: Part, group: str) -> GroupConsumer:
    """Become a member, and write down what is read from now on."""

    def noted(kind: str) -> Callable[[list[Share]], None]:
        def note(shares: list[Share]) -> None:
            part.diary.note_all(
                kind,
                (
                    {"group": group, "p": each.partition, "o": max(0, each.offset)}
                    for each in shares
                ),
            )

        return note

    return part.client.group(
        group,
        [ORDERS],
        commit="manual",
        session_s=4.0,
        rebalance_s=8.0,
        on_assigned=noted("begin"),
        on_revoked=noted("end"),
        on_lost=noted("end"),
    )


def read(part: Part) -> None:
    """Handle records as a member of the group, a few at a time, and commit now and then."""
    consumer = _join(part, READERS)
    hands: list[GroupMessage] = []
    behind = False
    while not part.stopping.is_set():
        try:
            message = consumer.next(GLANCE)
        except UsageError:
            raise
        except TinyMQError:
            continue  # of a broker that is away
        if message is not None:
            name = (message.value or b"").decode()
            part.diary.note("got", p=message.partition, o=message.offset, id=name)
            hands.append(message)
        if hands and (message is None or len(hands) >= part.chance.randint(1, 20)):
            part.chance.shuffle(hands)  # out of order
            for each in hands:
                if not each.is_lost:
                    part.diary.note("done", p=each.partition, o=each.offset)
                each.done()
            hands.clear()
            behind = True
        if behind and not part.chance.randrange(3):
            behind = not _commit(part, consumer)
    try:
        _commit(part, consumer)
    finally:
        consumer.close()


def _commit(part: Part, consumer: GroupConsumer) -> bool:
    """Commit, write down what was acknowledged, and say whether anything was."""
    floors = {place: consumer.floor(*place).offset for place in consumer.assigned}
    try:
        consumer.commit()
    except UsageError:
        raise
    except TinyMQError:
        return False
    # What was taken away meanwhile was not committed, and nobody said so.
    kept = {*consumer.assigned}
    part.diary.note_all(
        "commit",
        (
            {"group": READERS, "p": place[1], "o": floor}
            for place, floor in floors.items()
            if place in kept and floor >= 0
        ),
    )
    return True


class _Changed(Exception):
    """It was all for nothing: the transaction is to be aborted."""


class Mover:
    """
    Brings records to two topics, in transactions, some of which are aborted.

    Args:
        part: What it has.

    Attributes:
        joined: Whether what was taken last is part of its transaction, whatever came of that.
    """

    def __init__(self, part: Part) -> None:
        self._part = part
        self.consumer = _join(part, MOVERS)
        self.begin_anew()

    def begin_anew(self) -> None:
        """Take the name from whoever has it, itself before a start that came late, for one."""
        self._producer = self._part.client.transactional(self._part.role, timeout_s=8.0)

    def bring(self) -> int:
        """Bring some records, and say how many."""
        self.joined = False
        messages = _some(self._part, self.consumer)
        if not messages:
            return 0
        with self._producer.transaction() as tx:
            for message in messages:
                for topic in COPIES:
                    tx.send(topic, message.value, key=message.key)
            tx.commit_positions(self.consumer)
            self.joined = True
            if not self._part.chance.randrange(6):
                tx.flush()
                raise _Changed
        return len(messages)


def move(part: Part) -> None:
    """Bring each record to two topics, exactly once."""
    mover = Mover(part)
    while not part.stopping.is_set():
        try:
            moved = mover.bring()
        except (_Changed, TransactionAborted) as error:
            part.diary.note("abort", why=repr(error))
        except ProducerFenced as error:
            part.diary.note("doubt", why=repr(error))
            mover.begin_anew()
        except UsageError:
            raise
        except TinyMQError as error:
            # Nobody knows yet, or nothing was begun.
            part.diary.note("doubt", why=repr(error), joined=mover.joined)
        else:
            if moved:
                part.diary.note("moved", n=moved)
            continue
        if not mover.joined:
            mover.consumer.shares().back()
    mover.consumer.close()


def _some(part: Part, consumer: GroupConsumer) -> list[GroupMessage]:
    """Take the next few messages."""
    found: list[GroupMessage] = []
    while len(found) < part.chance.randint(1, 40):
        message = consumer.next(0.0 if found else GLANCE)
        if message is None:
            break
        found.append(message)
    return found


def watch(part: Part) -> None:
    """Look where groups stand, and read what is committed."""
    consumer = part.client.consumer()
    for topic in COPIES:
        consumer.assign(topic)
    while not part.stopping.is_set():
        try:
            batch = consumer.next_batch(GLANCE)
            if batch is not None:
                place = {"topic": batch.topic, "p": batch.partition}
                part.diary.note_all(
                    "seen",
                    (
                        {**place, "o": each.offset, "id": (each.value or b"").decode()}
                        for each in batch
                    ),
                )
            for group in (READERS, MOVERS):
                since = time.monotonic()
                found = part.client.positions(group).committed(ORDERS)
                part.diary.note_all(
                    "seen",
                    (
                        {"group": group, "p": number, "o": one.offset, "since": since}
                        for number, one in found.items()
                        if one.offset >= 0
                    ),
                )
        except UsageError:
            raise
        except TinyMQError:
            continue


ROLES: Final[dict[str, Callable[[Part], None]]] = {
    "producer": publish,
    "member": read,
    "worker": work,
    "mover": move,
    "watcher": watch,
}


def main(arguments: list[str]) -> None:
    """
    Play one part.

    Args:
        arguments: Its role and number, the URL of the brokers, the diary, a seed.
    """
    role, url, path, seed = arguments
    stopping = Asked()
    faulthandler.register(signal.SIGUSR1)  # asked with it where it hangs
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    config = ClientConfig(client_id=f"verify {role}", deadline_s=DEADLINE)
    diary = Diary(Path(path))
    with Client(url, config) as client:
        name = Path(path).name
        chance = random.Random(f"{seed}/{name}")  # noqa: S311 - nothing secret
        ROLES[role.partition("-")[0]](Part(role, name, client, diary, chance, stopping))
    diary.close()


if __name__ == "__main__":
    main(sys.argv[1:])
