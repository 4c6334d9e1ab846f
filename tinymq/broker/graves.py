"""
Bringing dead letters to their partition, which this broker leads or another one.

Whoever brings them numbers them, without ever going back, and brings the next only
when those before are there. So what comes twice is known by its numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tinymq.broker.ports import Letters
from tinymq.errors import OutOfOrderSequence, WireError
from tinymq.wire.batch import sequence

if TYPE_CHECKING:
    from tinymq.broker.broker import Broker
    from tinymq.broker.partition import Appended

#: Producer ids from here on are the brokers' own.
RESERVED_IDS: Final = 1 << 62
#: Sequences of producers wrap here.
SEQUENCES: Final = 1 << 31

#: Called once: with nothing when all is there and safe, or with what is wrong.
Laid = Callable[["WireError | None"], None]


def lay(broker: Broker, letters: Letters, done: Laid) -> None:
    """
    Append letters to a partition of this broker.

    Args:
        broker: The broker.
        letters: Numbered records.
        done: Called once. With `OutOfOrderSequence` some or all of them are there
            already: those below ``expected``, and safe.

    Raises:
        UnknownTopicId, NotLeader, StateError: The partition is not here.
    """
    partition = broker.partition(letters.topic_id, letters.partition)
    first = letters.first % SEQUENCES

    def answer(found: Appended | WireError) -> None:
        if isinstance(found, OutOfOrderSequence):
            # Whoever laid them may not have heard of it: they may be on their way to the disk.
            partition.when_visible(lambda error: done(error or found))
        else:
            done(found if isinstance(found, WireError) else None)

    # The first of them may not be the first at all: others went elsewhere.
    partition.producers.expect(letters.producer, first)
    batch = sequence(letters.batch, letters.producer, 0, first)
    broker.produce(letters.topic_id, letters.partition, batch, answer)


def bring(broker: Broker, leader: int, letters: Letters, done: Laid) -> None:
    """
    Bring letters to their partition, wherever that is.

    Args:
        broker: This broker.
        leader: The number of the one that leads it.
        letters: Numbered records.
        done: Called once, as by `lay`.
    """
    try:
        if leader != broker.id:
            broker.neighbours.bring(leader, letters, done)
        else:
            lay(broker, letters, done)
    except WireError as error:
        done(error)


def already(error: OutOfOrderSequence, first: int) -> int:
    """
    Say how many of some letters are there already.

    Args:
        error: What `lay` said of them.
        first: The number of the first one.
    """
    expected = error.data.get("expected", 0)
    behind = (int(expected) - first) % SEQUENCES
    return behind if behind < SEQUENCES // 2 else 0
