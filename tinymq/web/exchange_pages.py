"""The pages of exchanges: what goes where, and why something does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from twisted.web.http import Request

from tinymq.web.base import Answer
from tinymq.web.flow import Flow, header_lines
from tinymq.web.input import query_of, text
from tinymq.web.sheets import EXPECTED
from tinymq.web.topology import Drawing, draw

#: Exchanges on one page, and bindings.
_ROWS: Final = 50
ONE: Final = "/exchanges/<name>"
#: The kinds, with what each looks at.
KINDS: Final = {
    "direct": "The key of a message is exactly that of a binding",
    "topic": "Words of the key with dots between: * is one word, # any number",
    "fanout": "Every message to every target",
    "headers": "All conditions on headers hold",
    "rule": "A rule over key, headers, size and value holds",
}
#: Parameters of a binding whose fields are called otherwise.
_FIELDS: Final = {"key": "pattern", "headers": "conditions"}
#: The parameter that a binding of a kind has.
ASKS: Final = {"direct": "key", "topic": "key", "headers": "headers", "rule": "rule", "fanout": ""}


class ExchangePages(Flow):
    """All exchanges, and one of them with its bindings."""

    async def _route_picture(
        self,
        request: Request,
        name: str | None = None,
        answer: Mapping[str, Any] | None = None,
    ) -> tuple[Drawing | None, list[dict[str, Any]]]:
        """Draw what sends to what; also give the lines as they are."""
        asked = {} if name is None else {"exchange": name}
        told = await self._known(request, "exchange.topology", **asked)
        if told is None:
            return None, []
        path = answer["path"] if answer else ()
        hot = {(step["exchange"], step["target"]) for step in path}
        reached = {end for pair in hot for end in pair}
        if answer and answer["unroutable"] and name:
            reached.add(name)
            if answer["dead_letter"]:
                hot.add((name, answer["dead_letter"]))
                reached.add(answer["dead_letter"])
        first = [name] if name else []
        drawn = draw(told["nodes"], told["edges"], first=first, hot=hot, reached=reached)
        return drawn, told["edges"]

    @Flow.app.route("/exchanges", methods=["GET"])
    async def exchanges(self, request: Request) -> bytes:
        """Every exchange, and the picture of all."""
        query = query_of(request)
        name = text(query, "name").strip()
        asked: dict[str, Any] = {"filter": f"*{name}*"} if name else {}
        asked |= {"after": query["after"]} if query.get("after") else {}
        told = await self._operate(request, "exchange.list", **asked, limit=_ROWS)
        drawing, edges = await self._route_picture(request)
        return self._show(
            request,
            "exchanges.html",
            "exchanges",
            keep=True,
            silent=told.get("silent", ()),
            told=told,
            name=name,
            drawing=drawing,
            edges=edges,
        )

    def _route_question(self, query: Mapping[str, str]) -> dict[str, Any] | None:
        """Read which message is asked about; None when none is."""
        if query.get("ask") != "yes":
            return None
        headers = header_lines(query)
        value = text(query, "value").replace("\r\n", "\n")
        return {
            **({"key": text(query, "key")} if query.get("key") else {}),
            **({"headers": headers} if headers else {}),
            **({"value": value} if value else {}),
        }

    async def _exchange_page(
        self,
        request: Request,
        name: str,
        query: Mapping[str, str],
        *,
        values: Mapping[str, str] | None = None,
        error: Exception | None = None,
    ) -> bytes:
        """Show one exchange, maybe with the answer to a question or with a form again."""
        info = await self._operate(request, "exchange.info", name=name)
        after = {"after": query["after"]} if query.get("after") else {}
        told = await self._operate(request, "binding.list", exchange=name, limit=_ROWS, **after)
        answer, puzzled = None, None
        try:
            question = self._route_question(query)
            if question is not None:
                answer = await self._operate(request, "exchange.test", name=name, **question)
        except EXPECTED as wrong:
            puzzled = Answer(wrong)
            request.setResponseCode(puzzled.status)
        drawing, edges = await self._route_picture(request, name, answer)
        wrong_form = self._wrong(request, error, "target")
        if wrong_form is not None:  # the other form of the page has fields of these names
            wrong_form.field = _FIELDS.get(wrong_form.field, wrong_form.field)
        exchange = info.get("exchange", info)
        return self._show(
            request,
            "exchange.html",
            "exchanges",
            query=query,
            silent=exchange.get("silent", ()),
            exchange=exchange,
            told=told,
            answer=answer,
            puzzled=puzzled,
            drawing=drawing,
            edges=edges,
            values=values or {},
            error=wrong_form,
            kinds=KINDS,
            asks=ASKS.get(exchange["kind"], ""),
        )

    @Flow.app.route(ONE, methods=["GET"])
    async def exchange(self, request: Request, name: str) -> bytes:
        """One exchange: what it takes, where that goes, and where a message would."""
        return await self._exchange_page(request, name, query_of(request))
