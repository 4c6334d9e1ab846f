"""A puppet that looks after transactions, as far as a client sees it."""

from __future__ import annotations

from typing import Any

from typing_extensions import override

from tests.client.puppet import Puppet
from tinymq.client.core.transactions.producing import LAST_EPOCH
from tinymq.errors import NotCoordinator, ProducerFenced, TransactionAborted
from tinymq.wire.frames import Bytes
from tinymq.wire.messages import (
    AHEAD,
    Commit,
    CommitReply,
    EndTransaction,
    EndTransactionReply,
    Identity,
    InitProducer,
    InitProducerReply,
    Message,
)


class Banker(Puppet):
    """
    A broker that is a coordinator, unless it says that another one is.

    Attributes:
        coordinator: Who is the coordinator.
        ended: Each transaction that was decided, and whether it counts.
        current: The identity that may end next, by name.
        commits: Every COMMIT.
        aborts: Transactions that were aborted before their producers ended them.
    """

    def __init__(self, number: int = 1) -> None:
        super().__init__(number)
        self.coordinator = number
        self.current: dict[str, Identity] = {}
        self.ended: list[tuple[Identity, bool]] = []
        self.commits: list[Commit] = []
        self.aborts: set[Identity] = set()

    @override
    def _message(self, request: Message, payload: Bytes) -> Message | None:
        match request:
            case InitProducer(transactional_id=str(name)):
                self._mine()
                producer, epoch = self.current.get(name, (16, -AHEAD))
                self.current[name] = producer, epoch + AHEAD
                return InitProducerReply(
                    producer_id=producer, epoch=epoch + AHEAD, window=self.window
                )
            case EndTransaction():
                self._mine()
                return self._end(request)
            case Commit():
                self.commits.append(request)
                rows: list[Any] = [
                    (topic_id, [(row[0], None) for row in rows])
                    for topic_id, rows in request.topics
                ]
                return CommitReply(topics=rows)
        return super()._message(request, payload)

    def _mine(self) -> None:
        if self.coordinator != self.number:
            raise NotCoordinator("another broker", broker=self.coordinator)

    def _end(self, request: EndTransaction) -> EndTransactionReply:
        identity = request.transaction
        producer, epoch = self.current[request.transactional_id]
        if identity in self.aborts:
            self.current[request.transactional_id] = producer, identity[1] + 1
            if request.commit:
                raise TransactionAborted
        run = [(producer, identity[1] + at) for at in range(1 + len(request.more))]
        following = producer, identity[1] + len(run)
        if following[1] > LAST_EPOCH:
            following = producer + 16, 0
        if (identity, request.commit) in self.ended and following[1] == epoch:
            return EndTransactionReply(identity=following)
        if identity != (producer, epoch):
            raise ProducerFenced("another one is under way")
        self.ended += [(each, request.commit) for each in run]
        self.current[request.transactional_id] = following
        return EndTransactionReply(identity=following)
