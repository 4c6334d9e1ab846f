"""The pages of schedules: messages that come again and again by the clock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from attrs import evolve, frozen
from twisted.web.http import Request

from tinymq.web.base import redirect
from tinymq.web.flow import Flow, bytes_of, call_of, cli_of, header_lines, headers_of
from tinymq.web.format import Times, number
from tinymq.web.histogram import due_in
from tinymq.web.input import BadInput, choice, query_of, text, truth
from tinymq.web.render import segment, shell_quoted
from tinymq.web.sheet import Figure, Sheet
from tinymq.web.sheets import EXPECTED
from tinymq.web.viewers import NAMES, WINDOW, guess, show

#: Schedules on one page.
_ROWS: Final = 50
_ONE: Final = "/schedules/<name>"
#: What becomes of runs that were missed, with what that means.
CATCH_UPS: Final = {
    "skip": "Missed runs are counted and left out",
    "once": "One run for all that were missed",
    "all": "Each missed run, at most 1,000",
}


@frozen
class _Act:
    """What can be done with a schedule: how it is called, and what it means."""

    title: str
    notes: tuple[str, ...]
    danger: bool = False


_ACTS: Final = {
    "pause": _Act("Pause", ("Nothing comes until it goes on; its waiting message is taken back.",)),
    "resume": _Act("Resume", ("The next run is that of the clock; runs in between do not count.",)),
    "run": _Act("Run now", ("One message is published at once; the next run stays as it is.",)),
    "delete": _Act(
        "Delete",
        ("Its waiting message is taken back.", "Messages that came already stay in the topic."),
        danger=True,
    ),
}


class SchedulePages(Flow):
    """All schedules, one of them, and a form for a new one."""

    @Flow.app.route("/schedules", methods=["GET"])
    async def schedules(self, request: Request) -> bytes:
        """Every schedule, with when it comes next."""
        query = query_of(request)
        name, topic = text(query, "name").strip(), text(query, "topic").strip()
        asked: dict[str, Any] = {"filter": f"*{name}*"} if name else {}
        asked |= {"topic": topic} if topic else {}
        asked |= {"after": query["after"]} if query.get("after") else {}
        told = await self._operate(request, "schedule.list", **asked, limit=_ROWS)
        return self._show(
            request,
            "schedules.html",
            "schedules",
            keep=True,
            silent=told.get("silent", ()),
            told=told,
            name=name,
            topic=topic,
            due_in=due_in,
        )

    async def _schedule(self, request: Request, name: str) -> dict[str, Any]:
        return await self._operate(request, "schedule.info", name=name)

    @Flow.app.route(_ONE, methods=["GET"])
    async def schedule(self, request: Request, name: str) -> bytes:
        """One schedule: when it comes, and what."""
        told = await self._schedule(request, name)
        found = told["schedule"]
        value = bytes_of(found["value"], found["value_encoding"])
        window = (value or b"")[:WINDOW]
        headers = headers_of(found["headers"])
        says = next((v for key, v in headers if key.lower() == "content-type"), b"")
        kind, _ = guess(
            window, len(window) == len(value or b""), says[:200].decode("utf-8", "replace")
        )
        return self._show(
            request,
            "schedule.html",
            "schedules",
            silent=told["silent"],
            schedule=found,
            value=value,
            key=bytes_of(found["key"]),
            headers=headers,
            shown=show(window, kind),
            names=NAMES,
            due_in=due_in,
            catch_ups=CATCH_UPS,
        )

    # --- a new one -----------------------------------------------------------

    def _new_schedule(
        self, request: Request, values: Mapping[str, str], error: Exception | None = None
    ) -> bytes:
        return self._show(
            request,
            "new_schedule.html",
            "schedules",
            query={},
            values=values,
            error=self._wrong(request, error, "topic"),
            catch_ups=CATCH_UPS,
        )

    @Flow.app.route("/new-schedule", methods=["GET"])
    def new_schedule(self, request: Request) -> bytes:
        """The form that makes a schedule."""
        return self._new_schedule(request, query_of(request))

    def _schedule_wish(self, form: Mapping[str, str]) -> dict[str, Any]:
        """Read the form, as arguments of the operation."""
        found: dict[str, Any] = {key: text(form, key).strip() for key in ("name", "topic", "cron")}
        for key, what in (("name", "a name"), ("topic", "a topic"), ("cron", "a time")):
            if not found[key]:
                raise BadInput(key, f"a schedule needs {what}")
        return {
            **found,
            "zone": text(form, "zone").strip() or "UTC",
            "key": text(form, "key") or None,
            "value": text(form, "value").replace("\r\n", "\n"),
            "encoding": "base64" if form.get("encoding") == "base64" else "string",
            "headers": header_lines(form),
            "catch_up": choice(form, "catch_up", tuple(CATCH_UPS), "skip"),
            "paused": truth(form, "paused"),
        }

    @Flow.app.route("/new-schedule", methods=["POST"])
    async def create_schedule(self, request: Request) -> bytes:
        """Show what a schedule would do, or make it when that was seen."""
        form = self._form(request, "schedule.create")
        seen = form.get("confirm") == "yes"
        try:
            wish = self._schedule_wish(form)
            result = await self._operate(request, "schedule.create", **wish, dry_run=not seen)
        except EXPECTED as error:
            return self._new_schedule(request, form, error)
        if seen:
            return redirect(request, f"/schedules/{segment(wish['name'])}", {"done": "created"})
        row, times = result.get("schedule", {}), self._now(request)
        body = {key: value for key, value in wish.items() if key != "name"}
        flags = {
            "zone": wish["zone"] if wish["zone"] != "UTC" else None,
            "key": wish["key"],
            "catch-up": wish["catch_up"] if wish["catch_up"] != "skip" else None,
            "paused": wish["paused"],
            "value": wish["value"],
            "encoding": wish["encoding"] if wish["encoding"] != "string" else None,
        }
        cli = cli_of("schedule.create", (wish["name"], wish["topic"], wish["cron"]), flags)
        for key, value in wish["headers"].items():
            cli += f" -H {shell_quoted(f'{key}:{value}')}"
        made = result.get("created", True)
        return self._sheet(
            request,
            Sheet(
                title=f"Make schedule {wish['name']}",
                current="schedules",
                crumbs=(("Schedules", "/schedules"),),
                action="/new-schedule",
                cancel="/schedules",
                button="Make the schedule",
                figures=(
                    Figure("When", row.get("text") or wish["cron"], wish["cron"]),
                    Figure("First run", *_next(row, times)),
                    Figure("Topic", wish["topic"]),
                    Figure("Zone", wish["zone"], "the clock that counts"),
                ),
                warnings=() if made else ("It exists already, and would be changed to this.",),
                notes=(
                    CATCH_UPS[wish["catch_up"]] + ", when the broker was away.",
                    "It runs whether or not a client is connected.",
                ),
                fields={**{key: value for key, value in form.items() if value}, "confirm": "yes"},
                call=call_of("schedule.create", {"name": wish["name"]}, body),
                cli=cli,
            ),
        )

    # --- deciding about one --------------------------------------------------

    async def _schedule_sheet(self, request: Request, name: str, verb: str) -> Sheet:
        words, times = _ACTS[verb], self._now(request)
        found = (await self._schedule(request, name))["schedule"]
        await self._operate(request, f"schedule.{verb}", name=name, dry_run=True)
        base = f"/schedules/{segment(name)}"
        return Sheet(
            title=f"{words.title} {name}",
            current="schedules",
            crumbs=(("Schedules", "/schedules"), (name, base)),
            action=f"{base}/{verb}",
            cancel=base,
            button=words.title,
            danger=words.danger,
            figures=(
                Figure("Topic", found["topic"]),
                Figure("When", found["text"] or found["cron"], found["zone"]),
                Figure("Next run", *_next(found, times)),
                Figure("Runs", number(found["runs"])),
            ),
            notes=words.notes,
            typed=name if words.danger else "",
            call=call_of(f"schedule.{verb}", {"name": name}),
            cli=cli_of(f"schedule.{verb}", (name,)),
        )

    @Flow.app.route(f"{_ONE}/<any(pause, resume, run, delete):verb>", methods=["GET"])
    async def schedule_plan(self, request: Request, name: str, verb: str) -> bytes:
        """What deciding about a schedule would do. Changes nothing."""
        return self._sheet(request, await self._schedule_sheet(request, name, verb))

    @Flow.app.route(f"{_ONE}/<any(pause, resume, run, delete):verb>", methods=["POST"])
    async def schedule_act(self, request: Request, name: str, verb: str) -> bytes:
        """Pause a schedule, let it go on, run it now, or remove it."""
        form = self._form(request, f"schedule.{verb}")
        try:
            if _ACTS[verb].danger and form.get("typed", "") != name:
                raise BadInput("typed", f"type {name} to confirm; nothing was changed")
            await self._operate(request, f"schedule.{verb}", name=name)
        except EXPECTED as error:
            return self._sheet(
                request, evolve(await self._schedule_sheet(request, name, verb)), error
            )
        home = "/schedules" if verb == "delete" else f"/schedules/{segment(name)}"
        return redirect(request, home, {"done": verb})


def _next(row: Mapping[str, Any], times: Times) -> tuple[str, str]:
    """Say when the next run is, and below that, how far off."""
    # A schedule that is not made yet has nothing planned, but times all the same.
    at = row.get("next_ms") or next(iter(row.get("upcoming") or ()), None)
    if at is None or row.get("paused"):
        return "none", "it is paused" if row.get("paused") else "it never comes"
    return times.clock(at), due_in(at - times.now_ms)
