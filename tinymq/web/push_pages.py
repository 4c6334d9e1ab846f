"""The pages of push endpoints: where channels send messages by HTTP, and how that goes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from twisted.web.http import Request

from tinymq.errors import UnknownEndpoint
from tinymq.web.base import redirect
from tinymq.web.channel_pages import ONE as CHANNEL
from tinymq.web.flow import Flow, call_of, cli_of, header_lines
from tinymq.web.format import number
from tinymq.web.input import BadInput, integer, query_of, text
from tinymq.web.render import segment
from tinymq.web.sheet import Entry, Figure, Sheet
from tinymq.web.sheets import EXPECTED

_ROWS: Final = 50
ONE: Final = f"{CHANNEL}/push"
#: State to icon, word and colour.
STATES: Final = {
    "active": ("run", "Active", "ok"),
    "paused": ("pause", "Paused", "warn"),
    "offline": ("bad", "Offline", "bad"),
}
_DEFAULTS: Final = {"timeout_ms": "10000", "concurrency": "10", "give_up": "20"}
_MOST: Final = {"timeout_ms": 3_600_000, "concurrency": 10_000, "give_up": 10**9}


class PushPages(Flow):
    """All push endpoints, and one of them."""

    @Flow.app.route("/push", methods=["GET"])
    async def endpoints(self, request: Request) -> bytes:
        """Every push endpoint, with how it goes."""
        query = query_of(request)
        topic = text(query, "topic").strip()
        asked: dict[str, Any] = {"topic": topic} if topic else {}
        asked |= {"after": query["after"]} if query.get("after") else {}
        told = await self._operate(request, "push.list", **asked, limit=_ROWS)
        return self._show(
            request,
            "endpoints.html",
            "push",
            keep=True,
            silent=told.get("silent", ()),
            told=told,
            topic=topic,
            states=STATES,
        )

    async def _endpoint(self, request: Request, topic: str, name: str) -> dict[str, Any]:
        try:
            return await self._operate(request, "push.info", topic=topic, name=name)
        except UnknownEndpoint:
            return {"endpoint": None, "silent": []}

    async def _endpoint_page(
        self,
        request: Request,
        topic: str,
        channel: str,
        *,
        error: Exception | None = None,
        **values: Any,
    ) -> bytes:
        """Show one endpoint, or the form for one."""
        told = await self._endpoint(request, topic, channel)
        shown = {"secret": "", "tried": None, "values": {}, **values}
        return self._show(
            request,
            "endpoint.html",
            "push",
            names=(topic, channel),
            silent=told["silent"],
            endpoint=told["endpoint"],
            states=STATES,
            defaults=_DEFAULTS,
            error=self._wrong(request, error),
            **shown,
        )

    @Flow.app.route(ONE, methods=["GET"])
    async def endpoint(self, request: Request, name: str, channel: str) -> bytes:
        """One push endpoint: its state and why, its figures, its settings."""
        await self._operate(request, "channel.info", topic=name, name=channel)
        return await self._endpoint_page(request, name, channel)

    # --- deciding ------------------------------------------------------------

    def _endpoint_wish(self, form: Mapping[str, str]) -> dict[str, Any]:
        """Read the form, as arguments of the operation."""
        url = text(form, "url").strip()
        if not url:
            raise BadInput("url", "name the address that messages are sent to")
        found: dict[str, Any] = {"url": url, "secret": text(form, "secret").strip() or None}
        for key, most in _MOST.items():
            found[key] = integer(form, key, 1, most)
        found["headers"] = header_lines(form) if form.get("headers", "").strip() else None
        return {key: value for key, value in found.items() if value is not None}

    @Flow.app.route(ONE, methods=["POST"])
    async def set_endpoint(self, request: Request, name: str, channel: str) -> bytes:
        """Set or alter an endpoint; the page that answers shows a new secret, once."""
        form = self._form(request, "push.set")
        try:
            wish = self._endpoint_wish(form)
            result = await self._operate(request, "push.set", topic=name, name=channel, **wish)
        except EXPECTED as error:
            return await self._endpoint_page(request, name, channel, error=error, values=form)
        secret = result.get("secret") if "secret" not in wish else None
        if not secret:
            return redirect(request, self._endpoint_home(name, channel), {"done": "altered"})
        return await self._endpoint_page(request, name, channel, secret=secret)

    def _endpoint_home(self, topic: str, channel: str) -> str:
        return f"/topics/{segment(topic)}/channels/{segment(channel)}/push"

    @Flow.app.route(f"{ONE}/test", methods=["POST"])
    async def test_endpoint(self, request: Request, name: str, channel: str) -> bytes:
        """Send one made-up message, and show what came back."""
        self._form(request, "push.test")
        try:
            tried = await self._operate(request, "push.test", topic=name, name=channel)
        except EXPECTED as error:
            return await self._endpoint_page(request, name, channel, error=error)
        return await self._endpoint_page(request, name, channel, tried=tried)

    async def _push_sheet(
        self, request: Request, names: tuple[str, str], verb: str, form: Mapping[str, str]
    ) -> Sheet:
        topic, channel = names
        told = await self._operate(request, "push.info", topic=topic, name=channel)
        found, home = told.get("endpoint", told), self._endpoint_home(topic, channel)
        title = {"pause": "Pause push to", "resume": "Resume push to", "delete": "Delete push to"}
        notes = {
            "pause": ("Messages wait in the channel; nothing is lost.",),
            "resume": ("Messages are sent again, with a few at first.",),
            "delete": (
                "The channel and its messages stay; other consumers can take them.",
                "The secret is forgotten: a new endpoint gets a new one.",
            ),
        }
        hint = "For people; stands beside the state."
        entry = Entry("reason", "Reason", form.get("reason", ""), hint)
        return Sheet(
            title=f"{title[verb]} {found['url']}",
            current="push",
            crumbs=(("Push endpoints", "/push"), (f"{topic} / {channel}", home)),
            action=f"{home}/{verb}",
            cancel=home,
            button=f"{verb.capitalize()} push",
            danger=verb == "delete",
            figures=(
                Figure("State", STATES.get(found["state"], ("", found["state"], ""))[1]),
                Figure("In flight", number(found["in_flight"]), "are settled by their answers"),
                Figure("Delivered", number(found["delivered"])),
                Figure("Failed", number(found["failed"])),
            ),
            notes=notes[verb],
            entries=(entry,) if verb == "pause" else (),
            typed=channel if verb == "delete" else "",
            call=call_of(f"push.{verb}", {"topic": topic, "name": channel}),
            cli=cli_of(f"push.{verb}", (topic, channel)),
        )

    @Flow.app.route(f"{ONE}/<any(pause, resume, delete):verb>", methods=["GET"])
    async def push_plan(self, request: Request, name: str, channel: str, verb: str) -> bytes:
        """What deciding about an endpoint would do. Changes nothing."""
        return self._sheet(request, await self._push_sheet(request, (name, channel), verb, {}))

    @Flow.app.route(f"{ONE}/<any(pause, resume, delete):verb>", methods=["POST"])
    async def push_act(self, request: Request, name: str, channel: str, verb: str) -> bytes:
        """Pause an endpoint, let it go on, or remove it."""
        form = self._form(request, f"push.{verb}")
        more = {"reason": text(form, "reason").strip()} if verb == "pause" else {}
        try:
            if verb == "delete" and form.get("typed", "") != channel:
                raise BadInput("typed", f"type {channel} to confirm; nothing was changed")
            await self._operate(request, f"push.{verb}", topic=name, name=channel, **more)
        except EXPECTED as error:
            sheet = await self._push_sheet(request, (name, channel), verb, form)
            return self._sheet(request, sheet, error)
        if verb == "delete":
            return redirect(request, "/push", {"done": verb})
        return redirect(request, self._endpoint_home(name, channel), {"done": verb})
