"""The transactions that a broker decides, and those in its partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from twisted.internet.defer import Deferred

from tinymq.broker.broker import Broker
from tinymq.broker.transactions.bringing import MOST_TOGETHER, outcome
from tinymq.broker.transactions.coordinator import Coordinator, Row
from tinymq.broker.transactions.deciding import Decided, Question
from tinymq.errors import InvalidRequest, UnknownProducer, WireError
from tinymq.node.partitions import topic_key
from tinymq.operation import AFTER, DRY, NAME, Operation, Parameter, Result, table
from tinymq.wire.fields import I64, PARTITION, array, boolean, integer, optional, row, text

#: Partitions that are told of one transaction.
_MOST_TOLD: Final = 100


class Transactions:
    """What is asked of a broker about transactions."""

    _broker: Broker

    async def decide(self, rows: list[Any]) -> Result:
        """Do what a coordinator decided in partitions that are here."""
        done: Deferred[Sequence[WireError | None]] = Deferred()
        decided = [
            Decided((topic_key(id_), index), (producer_id, epoch), commit)
            for id_, index, producer_id, epoch, commit in rows
        ]
        self._broker.deciding.decide_all(decided, done.callback)
        return outcome(await done)

    async def fate(self, rows: list[Any]) -> Result:
        """Say what became of transactions that are open in partitions elsewhere."""
        done: Deferred[Sequence[bool | None] | WireError] = Deferred()
        asked = [
            Question((topic_key(id_), index), (producer_id, epoch), age_ms)
            for id_, index, producer_id, epoch, age_ms in rows
        ]
        self._broker.transacting.fates(asked, done.callback)
        found = await done
        if isinstance(found, WireError):
            raise found
        return {"fates": [*found]}

    def transactions(self, state: str | None, limit: int, after: str) -> Result:
        """List the transactions that are decided here, by the names of their producers."""
        found = [each for one in self._broker.transacting.seats for each in one.rows()]
        found.sort(key=_order)
        behind = _place(after) if after else None
        page = [
            each
            for each in found
            if (state is None or each.state == state) and (behind is None or _order(each) > behind)
        ]
        return {"transactions": [self._row(each) for each in page[:limit]]}

    async def abort_transaction(self, transactional_id: str, *, dry_run: bool) -> Result:
        """Abort what a producer has open."""
        known: Deferred[Coordinator | WireError] = Deferred()
        self._broker.transacting.find(transactional_id, known.callback)
        coordinator = await known
        if isinstance(coordinator, WireError):
            raise coordinator
        found = coordinator.find(transactional_id)
        if found is None:
            raise UnknownProducer(
                f"no producer of transactions is known as {transactional_id}; see "
                "`tinymq transaction ls`"
            )
        if not dry_run:
            ended: Deferred[WireError | None] = Deferred()
            coordinator.abort(transactional_id, "operator", ended.callback)
            error = await ended
            if error is not None:
                raise error
        return self._row(found)

    def _row(self, found: Row) -> Result:
        topics = self._broker.meta.registry.topics
        known = sorted(each for each in found.places if each[0] in topics)[:_MOST_TOLD]
        return {
            "transactional_id": found.name,
            "producer_id": found.identity[0],
            "epoch": found.identity[1],
            "state": found.state,
            "since_ms": found.since_ms,
            "timeout_ms": found.timeout_ms,
            "partitions": [{"topic": topics[each[0]].name, "partition": each[1]} for each in known],
            "client": found.client,
        }


def _order(found: Row) -> tuple[str, int, int]:
    return found.name, *found.identity


def _place(after: str) -> tuple[str, int, int]:
    """Read where a page ended, ``PRODUCER:EPOCH:NAME`` of its last transaction."""
    producer_id, _, rest = after.partition(":")
    epoch, _, name = rest.partition(":")
    if not (producer_id.isdecimal() and epoch.isdecimal()):
        raise InvalidRequest("after is what the page before said", field="after")
    return name, int(producer_id), int(epoch)


_TOPIC: Final = text(32)
_PRODUCER: Final = integer(0, I64)
_EPOCH: Final = integer(0, 32_767)

TRANSACTION_OPERATIONS: Final[dict[str, Operation]] = table(
    Operation(
        "node.decide",
        "cluster",
        True,
        (
            Parameter(
                "rows",
                array(row(_TOPIC, PARTITION, _PRODUCER, _EPOCH, boolean), MOST_TOGETHER),
            ),
        ),
        Transactions.decide,
    ),
    Operation(
        "node.fate",
        "cluster",
        True,
        (
            Parameter(
                "rows",
                array(row(_TOPIC, PARTITION, _PRODUCER, _EPOCH, _PRODUCER), MOST_TOGETHER),
            ),
        ),
        Transactions.fate,
    ),
    Operation(
        "node.transactions",
        "cluster",
        False,
        (
            Parameter("state", optional(text(20)), default=None),
            Parameter("limit", integer(1, 501)),
            AFTER,
        ),
        Transactions.transactions,
    ),
    Operation(
        "node.abort_transaction",
        "cluster",
        True,
        (Parameter("transactional_id", NAME), DRY),
        Transactions.abort_transaction,
    ),
)
