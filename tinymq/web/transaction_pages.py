"""The page of transactions that are not decided yet, and aborting one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from twisted.web.http import Request

from tinymq.web.base import redirect
from tinymq.web.channels import Word
from tinymq.web.flow import Flow, call_of, cli_of
from tinymq.web.format import Times, duration, number
from tinymq.web.input import check_typed, choice, query_of, text
from tinymq.web.placement import ranges
from tinymq.web.sheet import Figure, Sheet
from tinymq.web.sheets import EXPECTED

#: Transactions on one page.
_ROWS: Final = 100
#: From so long on, an open one is marked.
_LONG_MS: Final = 60_000
STATES: Final = ("open", "committing", "aborting")
_WORDS: Final = {
    "open": Word("idle", "Open", "s"),
    "committing": Word("redo", "Committing", "s"),
    "aborting": Word("undo", "Aborting", "warn"),
}


def state_of(row: Mapping[str, Any], times: Times) -> Word:
    """
    Say the state of a transaction in a word; one that is open for long stands out.

    Args:
        row: The transaction.
        times: Tells the time.
    """
    if row["state"] == "open" and times.now_ms - row["since_ms"] >= _LONG_MS:
        return Word("time", "Open for long", "bad")
    return _WORDS.get(row["state"]) or Word("warn", row["state"].capitalize(), "warn")


def places_of(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    """
    Say where a transaction has something: each topic with the numbers of its partitions.

    Args:
        row: The transaction.
    """
    found: dict[str, list[int]] = {}
    for each in row["partitions"]:
        found.setdefault(each["topic"], []).append(each["partition"])
    return [(topic, ranges(sorted(numbers))) for topic, numbers in sorted(found.items())]


class TransactionPages(Flow):
    """Transactions that are under way."""

    @Flow.app.route("/transactions", methods=["GET"])
    async def transactions(self, request: Request) -> bytes:
        """Every transaction that is not decided, or not carried out everywhere, yet."""
        query, times = query_of(request), self._now(request)
        state = choice(query, "state", ("", *STATES), "")
        asked: dict[str, Any] = {"state": state} if state else {}
        asked |= {"after": query["after"]} if query.get("after") else {}
        told = await self._operate(request, "transaction.list", **asked, limit=_ROWS)
        return self._show(
            request,
            "transactions.html",
            "transactions",
            keep=True,
            silent=told["silent"],
            told=told,
            rows=[(row, state_of(row, times)) for row in told["transactions"]],
            state_asked=state,
            states=STATES,
            places_of=places_of,
        )

    async def _abort_sheet(self, request: Request, name: str) -> Sheet:
        result = await self._operate(
            request, "transaction.abort", transactional_id=name, dry_run=True
        )
        found, times = result["transaction"], self._now(request)
        places = [f"{topic} {numbers}" for topic, numbers in places_of(found)]
        count = len(found["partitions"])
        return Sheet(
            title=f"Abort {name}",
            current="transactions",
            crumbs=(("Transactions", "/transactions"),),
            action="/transactions/abort",
            fields={"id": name},
            cancel="/transactions",
            button="Abort the transaction",
            danger=True,
            typed=name,
            figures=(
                Figure("Open for", duration(times.now_ms - found["since_ms"]), found["state"]),
                Figure(
                    "Ends by itself",
                    f"after {duration(found['timeout_ms'])}",
                    "its time-out",
                ),
                Figure("Partitions", number(count), ", ".join(places[:3])),
                Figure("Producer", str(found["producer_id"]), found["client"] or "unnamed"),
            ),
            notes=(
                "What it published is never read; positions and settles in it do not count.",
                "Its partitions hand out again what lies behind it.",
                "Its producer is told so, and has to begin anew. This cannot be undone.",
            ),
            call=call_of("transaction.abort", {"transactional_id": name}),
            cli=cli_of("transaction.abort", (name,)),
        )

    # A transactional id may have slashes, which no address has: it is a field.
    @Flow.app.route("/transactions/abort", methods=["GET"])
    async def abort_plan(self, request: Request) -> bytes:
        """What aborting would mean. Aborts nothing."""
        name = text(query_of(request), "id")
        return self._sheet(request, await self._abort_sheet(request, name))

    @Flow.app.route("/transactions/abort", methods=["POST"])
    async def abort(self, request: Request) -> bytes:
        """Abort a transaction."""
        form = self._form(request, "transaction.abort")
        name = text(form, "id")
        try:
            check_typed(form, name)
            await self._operate(request, "transaction.abort", transactional_id=name)
        except EXPECTED as error:
            return self._sheet(request, await self._abort_sheet(request, name), error)
        return redirect(request, "/transactions", {"done": "aborted"})
