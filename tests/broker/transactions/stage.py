"""A broker whose producers have transactions, by the messages alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from typing_extensions import override

from tests.fakes.broker import Answers, BrokerFixture, batch, only_of
from tinymq.broker.transactions.opened import Identity
from tinymq.errors import WireError
from tinymq.wire.batch import CONTROL, PAYLOAD, TRANSACTIONAL, build, read_header, split
from tinymq.wire.frames import Bytes
from tinymq.wire.messages import EndTransaction, EndTransactionReply, FetchReply, InitProducerReply
from tinymq.wire.records import RecordBatch


def transactional(
    *values: bytes | None, identity: Identity, sequence: int, **columns: Any
) -> bytes:
    """Encode records as a producer of transactions sends them."""
    plain = batch(*values, **columns)
    header = read_header(plain)
    return build(
        plain[PAYLOAD:],
        header.records,
        header.attributes | TRANSACTIONAL,
        producer_id=identity[0],
        producer_epoch=identity[1],
        base_sequence=sequence,
    )


def committed(reply: FetchReply, payload: Bytes, index: int = 0) -> list[bytes | None]:
    """What a reader makes of an answer: nothing of aborted transactions, no control batches."""
    aborted = {
        identity
        for _, number, identities in reply.aborted or ()
        if number == index
        for identity in identities
    }
    found: list[bytes | None] = []
    for header, data in split(payload):
        identity = header.producer_id, header.producer_epoch
        if header.attributes & TRANSACTIONAL and identity in aborted:
            continue
        if not header.attributes & CONTROL:
            found += RecordBatch(data, header).values
    return found


class Stage(BrokerFixture):
    """
    A broker with a topic `t`.

    Args:
        path: The data folder.
        partitions: Of the topic.
        **given: As `BrokerFixture`.
    """

    def __init__(self, path: Path, partitions: int = 2, **given: Any) -> None:
        super().__init__(path, **given)
        if "t" not in self.meta.registry.by_name:
            self.topic("t", partitions)
        self.sequences: Counter[tuple[Identity, int]] = Counter()
        self.settle()

    def settle(self, seconds: float = 0) -> None:
        """Let the broker do what it does."""
        self.wall.now_ms += round(1000 * seconds)
        self.clock.advance(seconds)
        for _ in range(20):
            self.clock.advance(0)

    @override
    def again(self, **changes: Any) -> Stage:
        """Start once more on the same folder, after `kill` or `stop`."""
        given = {"config": self.config, "wall": self.wall, **changes}
        return Stage(self.path, **given)

    def init(self, name: str = "bank", timeout_ms: int = 60_000) -> Identity:
        """Say INIT_PRODUCER."""
        found: list[InitProducerReply | WireError] = []
        self.broker.transacting.init_producer(name, timeout_ms, "test", found.append)
        self.settle()
        reply = only_of(found)
        if isinstance(reply, WireError):
            raise reply
        return reply.producer_id, reply.epoch

    def put(self, identity: Identity, *values: bytes | None, index: int = 0) -> Answers:
        """Publish in a transaction, without letting the turn end."""
        answers: Answers = []
        key = identity, index
        data = transactional(*values, identity=identity, sequence=self.sequences[key])
        self.sequences[key] += len(values)
        self.broker.produce(self.meta.describe("t").id, index, data, answers.append)
        return answers

    def send(self, identity: Identity, *values: bytes | None, index: int = 0) -> int:
        """Publish in a transaction; return the first offset."""
        answers = self.put(identity, *values, index=index)
        self.settle()
        (answer,) = answers
        if isinstance(answer, WireError):
            raise answer
        return answer.base_offset

    def ending(
        self,
        identity: Identity,
        partitions: Sequence[int] = (0,),
        *,
        commit: bool = True,
        name: str = "bank",
    ) -> list[EndTransactionReply | WireError]:
        """Say END_TRANSACTION, without letting the turn end."""
        found: list[EndTransactionReply | WireError] = []
        request = EndTransaction(
            transactional_id=name,
            transaction=identity,
            commit=commit,
            topics=[(self.meta.describe("t").id, [*partitions])],
        )
        self.broker.transacting.end(request, found.append)
        return found

    def end(self, *args: Any, **given: Any) -> Identity:
        """Say END_TRANSACTION; return the next identity."""
        found = self.ending(*args, **given)
        self.settle()
        reply = only_of(found)
        if isinstance(reply, WireError):
            raise reply
        return reply.identity

    def seen(self, index: int = 0) -> list[bytes | None]:
        """All that a committed reader sees of a partition."""
        found: list[bytes | None] = []
        offset = self.partition("t", index).log.start_offset
        while True:
            got = self.fetch(("t", index, offset), max_wait_ms=0)
            assert got.error is None, got.error
            assert got.reply is not None
            found += committed(got.reply, got.payload, index)
            following = got.rows[0][3]
            if following <= offset:
                return found
            offset = following
