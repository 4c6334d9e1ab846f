"""Making, altering and removing exchanges and bindings. Everything that changes is a POST."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted.web.http import Request

from tinymq.web.base import redirect
from tinymq.web.exchange_pages import KINDS, ONE, ExchangePages
from tinymq.web.flow import call_of, cli_of
from tinymq.web.format import number, plural
from tinymq.web.input import BadInput, choice, integer, query_of, text
from tinymq.web.render import segment
from tinymq.web.sheet import Figure, Sheet
from tinymq.web.sheets import EXPECTED


class ExchangeActions(ExchangePages):
    """Decides about exchanges and their bindings."""

    # --- a new one -----------------------------------------------------------

    def _new_exchange(
        self, request: Request, values: Mapping[str, str], error: Exception | None = None
    ) -> bytes:
        return self._show(
            request,
            "new_exchange.html",
            "exchanges",
            query={},
            values=values,
            error=self._wrong(request, error),
            kinds=KINDS,
        )

    @ExchangePages.app.route("/new-exchange", methods=["GET"])
    def new_exchange(self, request: Request) -> bytes:
        """The form that makes an exchange."""
        return self._new_exchange(request, query_of(request))

    @ExchangePages.app.route("/new-exchange", methods=["POST"])
    async def create_exchange(self, request: Request) -> bytes:
        """Make an exchange, with its topic if that is not there."""
        form = self._form(request, "exchange.create")
        name = text(form, "name").strip()
        try:
            if not name:
                raise BadInput("name", "an exchange needs a name")
            wish: dict[str, Any] = {
                "kind": choice(form, "kind", tuple(KINDS), "topic"),
                "dead_letter": text(form, "dead_letter").strip() or None,
                "partitions": integer(form, "partitions", 1, self._config.limits.partitions),
            }
            kept = {key: value for key, value in wish.items() if value is not None}
            await self._operate(request, "exchange.create", name=name, **kept)
        except EXPECTED as error:
            return self._new_exchange(request, form, error)
        return redirect(request, f"/exchanges/{segment(name)}", {"done": "created"})

    # --- bindings ------------------------------------------------------------

    @ExchangePages.app.route(f"{ONE}/bindings", methods=["POST"])
    async def add_binding(self, request: Request, name: str) -> bytes:
        """Add a binding; what is wrong is told at its field."""
        form = self._form(request, "binding.add")
        lines = [line.strip() for line in text(form, "conditions").splitlines() if line.strip()]
        wish: dict[str, Any] = {
            "key": text(form, "pattern") or None,
            "headers": lines or None,
            "rule": text(form, "rule").replace("\r\n", "\n").strip() or None,
        }
        kept = {key: value for key, value in wish.items() if value is not None}
        try:
            target = text(form, "target").strip()
            if not target:
                raise BadInput("target", "name the topic or exchange that it leads to")
            await self._operate(request, "binding.add", exchange=name, target=target, **kept)
        except EXPECTED as error:
            return await self._exchange_page(request, name, {}, values=form, error=error)
        return redirect(request, f"/exchanges/{segment(name)}", {"done": "bound"})

    async def _binding_sheet(self, request: Request, name: str, binding: str) -> Sheet:
        result = await self._operate(
            request, "binding.delete", exchange=name, id=binding, dry_run=True
        )
        row = result.get("binding") or {}
        base = f"/exchanges/{segment(name)}"
        matches = row.get("key") or row.get("rule") or "; ".join(row.get("headers") or ())
        return Sheet(
            title=f"Remove binding {binding}",
            current="exchanges",
            crumbs=(("Exchanges", "/exchanges"), (name, base)),
            action=f"{base}/bindings/{segment(binding)}/delete",
            cancel=base,
            button="Remove the binding",
            danger=True,
            figures=(Figure("Undo", "never", "but it can be added again"),),
            changes=[
                (key, value, "nothing")
                for key, value in (("leads to", row.get("target")), ("takes", matches))
                if value
            ],
            notes=(
                "Messages from now on do not go this way.",
                "What no other binding takes is unroutable.",
            ),
            call=call_of("binding.delete", {"exchange": name, "id": binding}),
            cli=cli_of("binding.delete", (name, binding)),
        )

    @ExchangePages.app.route(f"{ONE}/bindings/<binding>/delete", methods=["GET"])
    async def binding_plan(self, request: Request, name: str, binding: str) -> bytes:
        """What removing a binding would do. Changes nothing."""
        return self._sheet(request, await self._binding_sheet(request, name, binding))

    @ExchangePages.app.route(f"{ONE}/bindings/<binding>/delete", methods=["POST"])
    async def binding_delete(self, request: Request, name: str, binding: str) -> bytes:
        """Remove a binding."""
        self._form(request, "binding.delete")
        await self._operate(request, "binding.delete", exchange=name, id=binding)
        return redirect(request, f"/exchanges/{segment(name)}", {"done": "unbound"})

    # --- one exchange --------------------------------------------------------

    @ExchangePages.app.route(f"{ONE}/settings", methods=["POST"])
    async def alter_exchange(self, request: Request, name: str) -> bytes:
        """Say where goes what no binding takes."""
        form = self._form(request, "exchange.alter")
        target = text(form, "dead_letter").strip() or None
        try:
            await self._operate(request, "exchange.alter", name=name, dead_letter=target)
        except EXPECTED as error:
            return await self._exchange_page(request, name, {}, values=form, error=error)
        return redirect(request, f"/exchanges/{segment(name)}", {"done": "altered"})

    async def _exchange_sheet(self, request: Request, name: str) -> Sheet:
        told = await self._operate(request, "exchange.info", name=name)
        found, base = told.get("exchange", told), f"/exchanges/{segment(name)}"
        bound = await self._known(request, "binding.list", target=name, limit=1)
        bound = (bound or {}).get("total", 0)
        count = found["bindings"] if isinstance(found["bindings"], int) else len(found["bindings"])
        lead = plural(bound, "binding of another exchange leads", "bindings of others lead")
        warnings = (f"{lead} here, and would go, too.",) if bound else ()
        return Sheet(
            title=f"Delete exchange {name}",
            current="exchanges",
            crumbs=(("Exchanges", "/exchanges"), (name, base)),
            action=f"{base}/delete",
            cancel=base,
            button="Delete the exchange",
            danger=True,
            figures=(
                Figure("Bindings", number(count), "go with it"),
                Figure("Lead here", number(bound), "bindings of other exchanges"),
                Figure("Not routed yet", number(found.get("lag")), "messages"),
                Figure("Undo", "never"),
            ),
            warnings=warnings,
            notes=(
                "The topic stays with all its messages; they are routed nowhere any more.",
                "Delete the topic, too, if nobody reads it.",
            ),
            typed=name,
            call=call_of("exchange.delete", {"name": name}, {"force": "true"} if bound else {}),
            cli=cli_of("exchange.delete", (name,), {"force": bool(bound)}),
        )

    @ExchangePages.app.route(f"{ONE}/delete", methods=["GET"])
    async def exchange_delete_plan(self, request: Request, name: str) -> bytes:
        """What removing an exchange would do. Changes nothing."""
        return self._sheet(request, await self._exchange_sheet(request, name))

    @ExchangePages.app.route(f"{ONE}/delete", methods=["POST"])
    async def exchange_delete(self, request: Request, name: str) -> bytes:
        """Remove an exchange; its topic stays."""
        form = self._form(request, "exchange.delete")
        try:
            if form.get("typed", "") != name:
                raise BadInput("typed", f"type {name} to confirm; nothing was changed")
            # The plan said what leads here; without force that is refused.
            await self._operate(request, "exchange.delete", name=name, force=True)
        except EXPECTED as error:
            return self._sheet(request, await self._exchange_sheet(request, name), error)
        return redirect(request, "/exchanges", {"done": "deleted"})
