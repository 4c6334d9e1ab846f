"""
Deciding about all messages that match and are not due yet.

It goes step by step, each a call of its own that is over when it is answered; so it can
be stopped between two of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

from twisted.web.http import Request

from tinymq.web import histogram
from tinymq.web.base import redirect
from tinymq.web.delayed_pages import ACTS, ALREADY, FILTERS, WORDS
from tinymq.web.delayed_picks import DelayedPicks
from tinymq.web.flow import call_of, cli_of, due_of
from tinymq.web.format import UNKNOWN, Times, number, plural
from tinymq.web.input import MOST_OFFSET, BadInput, choice, integer
from tinymq.web.sheet import Entry, Figure, Sheet
from tinymq.web.sheets import EXPECTED

#: Messages of one step.
MOST_STEP: Final = 500
FILTERS_IN_WORDS: Final = {
    "topic": "topic",
    "channel": "channel",
    "key": "key",
    "since": "due from",
    "until": "due before",
    "schedule": "schedule",
}
#: Failures that a page lists.
_FAILED: Final = 20


class DelayedSteps(DelayedPicks):
    """Carries out what is decided about all that match."""

    @DelayedPicks.app.route("/delayed/plan", methods=["POST"])
    async def delayed_plan(self, request: Request) -> bytes:
        """What deciding about some, or about all that match, would do. Changes nothing."""
        form = self._form(request, "delayed.cancel")
        fields = dict(parse_qsl(form.get("back", "")))
        if form.get("all") == "yes" and not fields.get("channel"):
            fields["act"] = choice(form, "act", ACTS, "now")
            return self._sheet(request, await self._all_delayed(request, fields))
        return self._sheet(request, await self._some_delayed(request, form))

    async def _delayed_step(
        self, request: Request, form: Mapping[str, str], *, dry_run: bool
    ) -> dict[str, Any]:
        """Carry one step out, or try it."""
        act = choice(form, "act", ACTS, "now")
        asked = self._wanted_delayed(form, self._now(request).now_ms)
        if "topic" not in asked:
            raise BadInput("topic", "filter by one topic first: all that match is of one topic")
        how = self._when_due(request, form, trying=dry_run) if act == "move" else {}
        rate = MOST_STEP if dry_run else integer(form, "rate", 1, MOST_STEP) or MOST_STEP
        after = {"after": form["after"]} if form.get("after") else {}
        return await self._operate(
            request,
            "delayed.apply",
            act=act,
            **how,
            dry_run=dry_run,
            **asked,
            limit=rate,
            **after,
        )

    async def _all_delayed(self, request: Request, form: Mapping[str, str]) -> Sheet:
        act, times = choice(form, "act", ACTS, "now"), self._now(request)
        words, asked = WORDS[act], self._wanted_delayed(form, times.now_ms)
        first = await self._delayed_step(request, form, dry_run=True)
        told = await self._operate(request, "delayed.list", **asked, limit=1)
        total = max(told["total"], first["done"])
        kept = {key: form[key] for key in FILTERS if form.get(key)}
        matches = ", ".join(f"{FILTERS_IN_WORDS[key]} {value}" for key, value in kept.items())
        home = f"/delayed?{urlencode(kept)}"
        hint = f"From 1 to {MOST_STEP}; one step a second. Empty: {MOST_STEP}."
        when: dict[str, Any] = {"delay_ms": 60_000} if act == "move" else {}
        named = [key for key in (*FILTERS, "all") if key in kept or key == "all"]
        flags = {key: kept.get(key, True) for key in named} | ({"delay": "1m"} if when else {})
        return Sheet(
            title=f"{words.title}: all that match",
            current="delayed",
            crumbs=(("Delayed", home),),
            action="/delayed/apply",
            cancel=home,
            back="Keep them" if act == "cancel" else "Cancel",
            button=f"{words.button}: {plural(total, 'message')}" if total else "",
            danger=act == "cancel",
            figures=(
                Figure("Match now", number(total)),
                Figure(
                    "A step", number(min(MOST_STEP, total)), "messages at most; one step a second"
                ),
                Figure("Next due", _due(told["messages"], times)),
                Figure("Undo", "never", "it can be stopped between two steps"),
            ),
            notes=(
                f"It is about {matches}.",
                *words.notes,
                ALREADY,
                "Stopping leaves the rest as it is.",
            ),
            entries=(
                *self._delayed_entries(act, form),
                Entry("rate", "Messages a step", form.get("rate", ""), hint),
            ),
            fields={**kept, "act": act, "so.total": str(total)},
            typed=form["topic"] if act == "cancel" else "",
            call=call_of("delayed.apply", {}, {"act": act, **asked, **when}),
            cli=cli_of(f"delayed.{act}", (), flags),
        )

    @DelayedPicks.app.route("/delayed/apply", methods=["POST"])
    async def delayed_apply(self, request: Request) -> bytes:
        """Carry one step out, and show how far it is."""
        given = form = self._form(request, "delayed.apply")
        act = choice(form, "act", ACTS, "now")
        kept = {key: form[key] for key in FILTERS if form.get(key)}
        try:
            form = self._pinned_times(given, self._now(request).now_ms)
            if act == "cancel" and form.get("typed", "") != form.get("topic"):
                raise BadInput("typed", f"type {form.get('topic')} to confirm; nothing was changed")
            result = await self._delayed_step(request, form, dry_run=False)
        except EXPECTED as error:
            if form.get("so.steps"):
                raise
            return self._sheet(request, await self._all_delayed(request, given), error)
        so = {
            key: (integer(form, f"so.{key}", 0, MOST_OFFSET) or 0) + added
            for key, added in (
                ("done", result["done"]),
                ("failed", len(result["failed"])),
                ("steps", 1),
            )
        }
        so["total"] = integer(form, "so.total", 0, MOST_OFFSET) or 0
        if not result["more"] and not so["failed"] and so["steps"] == 1:
            told = {"done": act, "count": so["done"], "missing": 0}
            return redirect(request, "/delayed", {**kept, **told})
        carried = {*FILTERS, "act", "when", "rate", "typed"}
        return self._show(
            request,
            "delayed_steps.html",
            "delayed",
            query={},
            silent=result.get("silent", ()),
            words=WORDS[act],
            act=act,
            so=so,
            result=result,
            failed=result["failed"][:_FAILED],
            home=f"/delayed?{urlencode(kept)}",
            fields={
                **{key: value for key, value in form.items() if key in carried and value},
                **{f"so.{key}": str(value) for key, value in so.items()},
                "after": result["after"] or "",
            },
            step=integer(form, "rate", 1, MOST_STEP) or MOST_STEP,
        )

    def _pinned_times(self, form: Mapping[str, str], now_ms: int) -> dict[str, str]:
        """Write times that are counted from now as times, so that every step means the same."""
        found = dict(form)
        for field in ("since", "until", "when"):
            if form.get(field):
                found[field] = str(due_of(form, field, now_ms))
        return found


def _due(messages: Sequence[Mapping[str, Any]], times: Times) -> str:
    if not messages:
        return UNKNOWN
    return histogram.due_in(messages[0]["due_ms"] - times.now_ms)
