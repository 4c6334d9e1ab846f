"""
What is kept of a producer of transactions: its identity, its last transaction, what is undone.

It is one record of the topic of transactions, with the transactional id as its key; the
last one tells all. The record whose last transaction is a commit *is* the commit.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal, TypeAlias

import msgpack
from attrs import evolve, frozen

from tinymq.broker.transactions.deciding import Place
from tinymq.broker.transactions.opened import Identity
from tinymq.errors import CorruptBatch
from tinymq.wire.codec import pack

_VERSION: Final = 1
#: Epochs are 15 bits.
LAST_EPOCH: Final = 32_767

#: Who ended a transaction: its producer, time, the next of its name, or people.
By: TypeAlias = Literal["producer", "timeout", "fence", "operator"]


@frozen
class Ended:
    """
    A transaction of a producer that is over, with those behind that were committed together.

    Attributes:
        identity: Its own; the epochs of the others follow.
        commit: Whether it counts.
        by: Who ended it.
        following: The identity that was given for the one after it.
    """

    identity: Identity
    commit: bool
    by: By
    following: Identity

    @property
    def count(self) -> int:
        """How many were committed together."""
        same = self.following[0] == self.identity[0]
        return (self.following[1] if same else LAST_EPOCH + 1) - self.identity[1]


@frozen
class Producing:
    """
    A producer of transactions.

    Attributes:
        producer_id: Of its present transaction.
        epoch: Of its present transaction.
        timeout_ms: After how long that is aborted.
        updated_ms: When this was written.
        client: What its client calls itself.
        last: The transaction before.
        told: The last one that its producer ended, where that is another one: whoever did
            not hear what became of it may ask again, though another producer came since.
    """

    producer_id: int
    epoch: int
    timeout_ms: int
    updated_ms: int
    client: str = ""
    last: Ended | None = None
    told: Ended | None = None

    @property
    def identity(self) -> Identity:
        """Of its present transaction, which may not have begun."""
        return self.producer_id, self.epoch

    def after(self, identity: Identity, now_ms: int, by: By, *, commit: bool) -> Producing:
        """
        Return what it is when its transaction ended.

        Args:
            identity: Of its next transaction.
            now_ms: The time.
            by: Who ended it.
            commit: Whether it counts.
        """
        last, told = self.last, self.told
        if by == "producer":
            told = None
        elif last is not None and last.by == "producer":
            told = last
        return evolve(
            self,
            producer_id=identity[0],
            epoch=identity[1],
            updated_ms=now_ms,
            last=Ended(self.identity, commit, by, identity),
            told=told,
        )


#: Committed transactions of a producer that not all of their partitions have heard of.
Undone: TypeAlias = dict[Identity, list[Place]]


def encoded(one: Producing, undone: Undone) -> bytes:
    """
    Write a producer down.

    Args:
        one: The producer.
        undone: What not all partitions have heard of.
    """
    value: bytes = pack(
        [
            _VERSION,
            one.producer_id,
            one.epoch,
            one.timeout_ms,
            one.updated_ms,
            one.client,
            [
                [*each.identity, each.commit, each.by, *each.following]
                for each in (one.last, one.told)
                if each is not None
            ],
            [[*identity, _by_topic(places)] for identity, places in undone.items()],
        ]
    )
    return value


def decoded(value: bytes) -> tuple[Producing, Undone]:
    """
    Read what `encoded` wrote.

    Args:
        value: The value of a record.

    Raises:
        CorruptBatch: It is none, or of a newer version.
    """
    try:
        version, producer_id, epoch, timeout_ms, updated_ms, client, ended, undone, *_ = (
            msgpack.unpackb(value)
        )
        if version != _VERSION:
            raise ValueError(f"version {version}")  # noqa: TRY301 - as the rest of it
        over = [Ended((a, b), commit, by, (c, d)) for a, b, commit, by, c, d in ended]
        one = Producing(producer_id, epoch, timeout_ms, updated_ms, client, *over)
        found: Undone = {
            (each[0], each[1]): [(topic, index) for topic, row in each[2] for index in row]
            for each in undone
        }
    except (msgpack.UnpackException, LookupError, TypeError, ValueError) as error:
        raise CorruptBatch(f"a producer of transactions cannot be read: {error}") from error
    return one, found


def _by_topic(places: Iterable[Place]) -> list[Any]:
    found: dict[bytes, list[int]] = {}
    for topic_id, index in places:
        found.setdefault(topic_id, []).append(index)
    return [[*each] for each in found.items()]
