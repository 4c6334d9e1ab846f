"""Deciding about chosen messages that are not due yet: a plan first, then a form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

from attrs import evolve
from twisted.web.http import Request

from tinymq.web.base import redirect
from tinymq.web.delayed_pages import (
    ACTS,
    ALREADY,
    MOST_PICKED,
    WORDS,
    DelayedPages,
    Spot,
    groups_of,
    spot_of,
)
from tinymq.web.flow import call_of, cli_of, due_of
from tinymq.web.format import UNKNOWN, number, plural
from tinymq.web.input import BadInput, choice, text
from tinymq.web.sheet import Call, Entry, Figure, Sheet
from tinymq.web.sheets import EXPECTED, length_of

_PAGE = 500


class DelayedPicks(DelayedPages):
    """Lets messages come now or at another time, or never."""

    async def _picked_delayed(self, request: Request, form: Mapping[str, str]) -> list[Spot]:
        """Find out which messages a form is about: those that were chosen, or all retries."""
        if form.get("all") == "yes":
            asked = self._wanted_delayed(
                dict(parse_qsl(form.get("back", ""))), self._now(request).now_ms
            )
            return await self._matching_retries(request, asked)
        found = [spot_of(value) for key, value in form.items() if key.startswith("row.")]
        if not found:
            raise BadInput("row", "choose at least one message")
        if len(found) > MOST_PICKED:
            raise BadInput("row", f"choose at most {MOST_PICKED:,} messages at once")
        return found

    async def _matching_retries(self, request: Request, asked: Mapping[str, Any]) -> list[Spot]:
        found: list[Spot] = []
        place: dict[str, Any] = {}
        while len(found) < MOST_PICKED:
            left = min(_PAGE, MOST_PICKED - len(found))
            told = await self._operate(request, "delayed.list", **asked, limit=left, **place)
            found += map(Spot.of, told["messages"])
            if not told["more"] or told["after"] is None:
                break
            place = {"after": told["after"]}
        return found

    def _when_due(
        self, request: Request, form: Mapping[str, str], *, trying: bool
    ) -> dict[str, int]:
        """Read to when messages are moved: by a length, or to a time."""
        if trying:  # what is typed may be wrong; the plan counts in any case
            return {"delay_ms": 60_000}
        given = text(form, "when").strip()
        if not given:
            raise BadInput("when", "say when: such as 30m, or 2026-12-01T09:00Z")
        if given[-1:].lower() in {*"smhd"}:
            return {"delay_ms": length_of({"when": given.removeprefix("+")}, "when") or 0}
        return {"due_ms": due_of(form, "when", self._now(request).now_ms) or 0}

    async def _settle_delayed(
        self, request: Request, spots: Sequence[Spot], act: str, how: Mapping[str, Any]
    ) -> tuple[list[Spot], int]:
        """Decide about messages, or try it; return where it could be done, and how many not."""
        done: list[Spot] = []
        missing = 0
        for (topic, channel, partition), numbers in groups_of(spots).items():
            if channel:
                if act == "cancel":
                    raise BadInput("act", "retries of a channel are not cancelled; finish them")
                operation = "channel.wake" if act == "now" else "channel.delay"
                whose = {"name": channel, "offsets": numbers}
            else:
                operation, whose = f"delayed.{act}", {"ids": numbers}
            result = await self._operate(
                request, operation, topic=topic, partition=partition, **whose, **how
            )
            done += [Spot(topic, partition, each, channel) for each in result["done"]]
            missing += len(result["missing"])
        return done, missing

    def _delayed_entries(self, act: str, form: Mapping[str, str]) -> tuple[Entry, ...]:
        if act != "move":
            return ()
        hint = "From now, such as 30m or 2d; or a time such as 2026-12-01T09:00Z."
        return (Entry("when", "When", form.get("when", ""), hint),)

    async def _some_delayed(self, request: Request, form: Mapping[str, str]) -> Sheet:
        act, back = choice(form, "act", ACTS, "now"), form.get("back", "")
        words, picked = WORDS[act], await self._picked_delayed(request, form)
        how: dict[str, Any] = {"dry_run": True}
        if act == "move":
            how |= {"delay_ms": 60_000}
        done, missing = await self._settle_delayed(request, picked, act, how)
        groups = groups_of(done)
        home = "/delayed" + (f"?{back}" if back else "")
        warnings = []
        if missing:
            warnings.append(f"{plural(missing, 'message')} not waiting any more: left alone.")
        if len(groups) > 1:
            warnings.append(
                f"They lie on {plural(len(groups), 'partition')}; the commands show the first."
            )
        retries = any(spot.channel for spot in done)
        call, cli = self._same_delayed(act, groups, form) if groups else (None, "")
        rows = [(f"{one.topic} / {one.place}", one.channel or UNKNOWN) for one in done[:20]]
        if len(done) > 20:
            rows.append((f"and {len(done) - 20:,} more", ""))
        return Sheet(
            title=f"{words.title}: {plural(len(done), 'message')}",
            current="delayed",
            crumbs=(("Delayed", home),),
            action="/delayed/settle",
            cancel=home,
            back="Keep them" if act == "cancel" else "Cancel",
            button=f"{words.button}: {plural(len(done), 'message')}" if done else "",
            danger=act == "cancel",
            figures=(
                Figure("Chosen", number(len(picked))),
                Figure("Wait now", number(len(done)), "the others are left alone"),
                Figure("Partitions", number(len(groups))),
                Figure("Undo", "never", "there is none: what is done stays"),
            ),
            heads=("Message", "Channel") if retries else ("Message",),
            rows=rows if retries else [row[:1] for row in rows],
            notes=(*words.notes, ALREADY),
            warnings=warnings,
            entries=self._delayed_entries(act, form),
            fields={
                "act": act,
                "back": back,
                **{f"row.{index}": one.value for index, one in enumerate(done)},
            },
            call=call,
            cli=cli,
        )

    def _same_delayed(
        self, act: str, groups: Mapping[tuple[str, str, int], list[int]], form: Mapping[str, str]
    ) -> tuple[Call, str]:
        """Write the same for a terminal, for the messages of one partition."""
        (topic, channel, partition), numbers = next(iter(groups.items()))
        when: dict[str, Any] = {"delay_ms": 60_000} if act == "move" else {}
        if channel:
            name = "channel.wake" if act == "now" else "channel.delay"
            body = {"partition": partition, "offsets": numbers, **when}
            call = call_of(name, {"topic": topic, "name": channel}, body)
        else:
            name = f"delayed.{act}"
            parts = {"topic": topic, "partition": str(partition)}
            call = call_of(name, parts, {"ids": numbers, **when})
        spots = [Spot(topic, partition, each, channel) for each in numbers]
        home = f"{topic}/{channel}" if channel else topic
        words = [f"{home}/{spot.place}" for spot in spots]
        return call, cli_of(name, words, {"for" if channel else "delay": "1m"} if when else {})

    @DelayedPages.app.route("/delayed/settle", methods=["POST"])
    async def delayed_settle(self, request: Request) -> bytes:
        """Decide about the chosen messages."""
        form = self._form(request, "delayed.cancel")
        act = choice(form, "act", ACTS, "now")
        picked = await self._picked_delayed(request, form)
        try:
            how = self._when_due(request, form, trying=False) if act == "move" else {}
            done, missing = await self._settle_delayed(request, picked, act, how)
        except EXPECTED as error:
            return self._sheet(request, evolve(await self._some_delayed(request, form)), error)
        told = {"done": act, "count": len(done), "missing": missing}
        return redirect(request, "/delayed", {**dict(parse_qsl(form.get("back", ""))), **told})
