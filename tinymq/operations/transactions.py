"""Transactions over all brokers."""

from __future__ import annotations

from typing import Final

from tinymq.broker.transactions.places import place_of
from tinymq.catalog import PUBLIC
from tinymq.errors import UnknownProducer
from tinymq.names import TRANSACTIONS
from tinymq.operation import Operation, Result, table
from tinymq.operations.base import Base


class Transactions(Base):
    """What is under way, and ending it."""

    async def transactions(self, state: str | None, limit: int, after: str) -> Result:
        """List transactions, by the names of their producers."""
        topic = self._registry.by_name.get(TRANSACTIONS)
        leaders = set() if topic is None else {*topic.leaders}
        asked = {"state": state, "limit": limit + 1, "after": after}
        answers = await self._ask(leaders, "node.transactions", asked)
        found = [row for result in answers.results.values() for row in result["transactions"]]
        found.sort(key=_order)
        page = found[:limit]
        more = len(found) > limit
        return {
            "transactions": page,
            "more": more,
            "after": place(page[-1]) if more else None,
            "silent": self._silence(answers),
        }

    async def abort_transaction(self, transactional_id: str, *, dry_run: bool) -> Result:
        """Abort what a producer has open."""
        topic = self._registry.by_name.get(TRANSACTIONS)
        if topic is None:
            raise UnknownProducer("nobody ever produced in transactions here")
        asked = {"transactional_id": transactional_id, "dry_run": dry_run}
        leader = topic.leader(place_of(transactional_id))
        row = await self._ask_alone(leader, "node.abort_transaction", asked)
        return {"transaction": row, "dry_run": dry_run}


def _order(row: Result) -> tuple[str, int, int]:
    return row["transactional_id"], row["producer_id"], row["epoch"]


def place(row: Result) -> str:
    """
    Name a row so that a page can begin behind it.

    Args:
        row: A transaction.
    """
    return f"{row['producer_id']}:{row['epoch']}:{row['transactional_id']}"


TRANSACTION_OPERATIONS: Final[dict[str, Operation]] = table(
    PUBLIC["transaction.list"].by(Transactions.transactions),
    PUBLIC["transaction.abort"].by(Transactions.abort_transaction),
)
