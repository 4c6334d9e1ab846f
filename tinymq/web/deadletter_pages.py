"""
The pages of dead letters: which topics have some, why, and sending them back.

Sending back and dropping go step by step, each a call of its own that is over when it
is answered; so they can be stopped between two of them, and nothing is lost by that.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal
from urllib.parse import parse_qsl, urlencode

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IPushProducer
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.http import Request
from zope.interface import implementer

from tinymq.catalog.deadletters import MOST_STEP
from tinymq.web.base import redirect
from tinymq.web.format import number, plural
from tinymq.web.input import MOST_OFFSET, BadInput, check_typed, integer, moment, query_of, text
from tinymq.web.render import segment, shell_quoted
from tinymq.web.sheet import Call, Entry, Figure, Sheet
from tinymq.web.sheets import EXPECTED, Sheets

Verb = Literal["redrive", "drop"]
#: Reads the page of dead letters behind a place.
Reader = Callable[[str], Awaitable[dict[str, Any]]]
#: Rows of one page.
_ROWS: Final = 40
_FILTERS: Final = ("topic", "channel", "reason", "text", "since", "until")
_ONE: Final = "/dead-letters/<target>"
#: Failures that a page lists.
_FAILED: Final = 20


def letters_of(query: Mapping[str, str]) -> dict[str, Any]:
    """Read which dead letters are meant, as arguments of the operations."""
    found: dict[str, Any] = {
        key: text(query, key).strip() for key in _FILTERS[:4] if text(query, key).strip()
    }
    for field, name in (("since", "since_ms"), ("until", "until_ms")):
        ms = moment(query, field) if query.get(field) else None
        if ms is not None:
            found[name] = ms
    return found


def _kept(form: Mapping[str, str]) -> dict[str, str]:
    """What a form carries along of the filter."""
    return {key: form[key] for key in _FILTERS if form.get(key)}


def _chosen(form: Mapping[str, str]) -> list[str] | None:
    """Which letters were chosen, each as PARTITION:OFFSET; None for all that match."""
    if form.get("all") == "yes":
        return None
    found = [value for key, value in form.items() if key.startswith("row.")]
    if not found:
        raise BadInput("row", "choose at least one message")
    return found


@frozen(kw_only=True)
class Progress:
    """
    How far the steps are.

    Attributes:
        done: Messages that were dealt with.
        failed: Those that stay where they are.
        loops: How many were sent back before.
        steps: How many steps there were.
    """

    done: int = 0
    failed: int = 0
    loops: int = 0
    steps: int = 0

    @classmethod
    def of(cls, form: Mapping[str, str]) -> Progress:
        """Read what the form of a further step says."""
        names = ("done", "failed", "loops", "steps")
        return cls(**{key: integer(form, f"so.{key}", 0, MOST_OFFSET) or 0 for key in names})

    def plus(self, result: Mapping[str, Any]) -> Progress:
        """Add a step."""
        return Progress(
            done=self.done + result["done"],
            failed=self.failed + len(result["failed"]),
            loops=self.loops + result["loops"],
            steps=self.steps + 1,
        )

    @property
    def fields(self) -> dict[str, str]:
        """What the next form carries along."""
        pairs = (("done", self.done), ("failed", self.failed), ("loops", self.loops))
        return {**{f"so.{key}": str(value) for key, value in pairs}, "so.steps": str(self.steps)}


class DeadLetterPages(Sheets):
    """Dead-letter topics, and one of them."""

    @Sheets.app.route("/dead-letters", methods=["GET"])
    async def dead_letters(self, request: Request) -> bytes:
        """Every topic of dead letters, with how many are still there."""
        query = query_of(request)
        name = text(query, "name").strip()
        told = await self._operate(
            request,
            "dlq.list",
            topic=text(query, "topic").strip() or None,
            filter=f"*{name}*" if name else "",
            after=text(query, "after"),
            limit=_ROWS,
        )
        return self._renderer.page(
            request,
            "deadletters.html",
            self._console.cluster(),
            keep=True,
            silent=told["silent"],
            current="dead",
            query=query,
            name=name,
            told=told,
        )

    @Sheets.app.route(_ONE, methods=["GET"])
    async def dead_letter(self, request: Request, target: str) -> bytes:
        """The dead letters of one topic: in groups, and one by one."""
        query = query_of(request)
        asked = letters_of(query)
        told = await self._operate(
            request,
            "dlq.messages",
            target=target,
            **asked,
            limit=_ROWS,
            after=text(query, "after"),
        )
        return self._renderer.page(
            request,
            "deadletter.html",
            self._console.cluster(),
            silent=told["silent"],
            current="dead",
            query=query,
            target=target,
            asked=asked,
            kept=_kept(query),
            back=urlencode(_kept(query)),
            told=told,
        )

    @Sheets.app.route(f"{_ONE}/export", methods=["GET"])
    async def export(self, request: Request, target: str) -> Any:
        """Every dead letter that matches, one JSON object a line."""
        asked = letters_of(query_of(request))

        async def page(after: str) -> dict[str, Any]:
            return await self._operate(
                request, "dlq.messages", target=target, **asked, limit=MOST_STEP, after=after
            )

        first = await page("")  # what is wrong is answered as a page
        request.setHeader("Content-Type", "application/x-ndjson")
        safe = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in target)
        request.setHeader("Content-Disposition", f'attachment; filename="{safe}.ndjson"')
        if request.method == b"HEAD":
            return b""
        return Export(request, page, first).done

    # --- sending back, dropping ----------------------------------------------

    async def _step(
        self, request: Request, verb: Verb, target: str, form: Mapping[str, str], *, dry_run: bool
    ) -> dict[str, Any]:
        """Carry one step out, or try it."""
        arguments: dict[str, Any] = {**letters_of(form), "dry_run": dry_run}
        if "letters" in form:
            arguments["offsets"] = form["letters"].split()
        if verb == "redrive":
            arguments["to"] = text(form, "to").strip() or "origin"
        rate = integer(form, "rate", 1, MOST_STEP) or MOST_STEP
        return await self._operate(
            request,
            f"dlq.{verb}",
            target=target,
            **arguments,
            limit=MOST_STEP if dry_run else rate,
            after=text(form, "after"),
        )

    async def _steps_sheet(
        self, request: Request, verb: Verb, target: str, form: Mapping[str, str]
    ) -> Sheet:
        result = await self._step(request, verb, target, form, dry_run=True)
        base = f"/dead-letters/{segment(target)}"
        more, done = result["more"], result["done"]
        amount = f"{done:,}" + (" or more" if more else "")
        to = text(form, "to").strip() or "origin"
        redrive = verb == "redrive"
        warnings = []
        if result["loops"]:
            warnings.append(
                f"{plural(result['loops'], 'message')} of them came back before or went in "
                "circles: they may fail again."
            )
        if result["failed"]:
            first = result["failed"][0]
            warnings.append(
                f"{plural(len(result['failed']), 'message')} cannot be sent and would stay, such "
                f"as {first['partition']}/{first['offset']:,}: {first['why']}"
            )
        entries = []
        if redrive:
            hint = "origin sends each back to the channel that gave it up; or name a topic."
            entries.append(Entry("to", "To", to, hint))
        hint = f"From 1 to {MOST_STEP}; one step a second. Empty: {MOST_STEP}."
        entries.append(Entry("rate", "Messages a second", form.get("rate", ""), hint))
        body = letters_of(form)
        if "letters" in form:
            body["offsets"] = form["letters"].split()
        if redrive:
            body["to"] = to
        given = {**letters_of(form), **({"to": to} if redrive else {})}
        for key in ("since", "until"):  # the command reads times as people write them
            if f"{key}_ms" in given:
                given[f"{key}_ms"] = form[key]
        flags = "".join(
            f" --{key.removesuffix('_ms')} {shell_quoted(str(value))}"
            for key, value in given.items()
        )
        flags += "".join(f" --offset {place}" for place in form.get("letters", "").split())
        notes = (
            (
                "Each is confirmed there before it is settled here: stopping loses nothing.",
                "To the origin, only the channel that gave a message up gets it again.",
            )
            if redrive
            else (
                "They count as settled here; nobody is given them again.",
                "The records stay in the dead-letter topic until its retention removes them.",
            )
        )
        return Sheet(
            title=f"{'Redrive' if redrive else 'Drop'} dead letters of {target}",
            current="dead",
            crumbs=(("Dead letters", "/dead-letters"), (target, base)),
            action=f"{base}/{verb}",
            cancel=base + (f"?{urlencode(_kept(form))}" if _kept(form) else ""),
            button=f"{'Redrive' if redrive else 'Drop'} {amount}" if done or more else "",
            danger=not redrive,
            figures=(
                Figure(
                    "Would be sent" if redrive else "Would be dropped",
                    amount,
                    "in the first step; the rest is counted on the way" if more else "in all",
                ),
                Figure("Stay", number(len(result["failed"])), "cannot be sent"),
                Figure("Came back before", number(result["loops"])),
                Figure("Undo", "never", "it can be stopped between two steps"),
            ),
            warnings=warnings,
            notes=notes,
            entries=entries,
            fields={
                **_kept(form),
                **({"letters": form["letters"]} if "letters" in form else {}),
            },
            typed="" if redrive else target,
            call=Call(f"dlq.{verb}", {"target": segment(target)}, body),
            cli=f"tinymq dlq {verb} {shell_quoted(target)}{flags}",
        )

    @Sheets.app.route(f"{_ONE}/plan", methods=["POST"])
    async def letters_plan(self, request: Request, target: str) -> bytes:
        """What sending back or dropping would do. Changes nothing."""
        form = self._form(request, "dlq.redrive")
        verb: Verb = "drop" if form.get("act") == "drop" else "redrive"
        chosen = _chosen(form)
        fields = {key: value for key, value in form.items() if not key.startswith("row.")}
        fields |= dict(parse_qsl(form.get("back", "")))
        if chosen is not None:
            fields["letters"] = " ".join(chosen)
        return self._sheet(request, await self._steps_sheet(request, verb, target, fields))

    async def _go(self, request: Request, verb: Verb, target: str) -> bytes:
        """Carry one step out, and show how far it is."""
        form = self._form(request, f"dlq.{verb}")
        try:
            if verb == "drop":
                check_typed(form, target)
            result = await self._step(request, verb, target, form, dry_run=False)
        except EXPECTED as error:
            if form.get("so.steps"):
                raise
            return self._sheet(request, await self._steps_sheet(request, verb, target, form), error)
        progress = Progress.of(form).plus(result)
        base = f"/dead-letters/{segment(target)}"
        if not result["more"] and not progress.failed:
            told = {"done": verb, "count": progress.done}
            if progress.steps == 1:
                return redirect(request, base, told)
        kept = {
            key: value
            for key, value in form.items()
            if key in {*_FILTERS, "to", "rate", "typed", "letters"}
        }
        return self._renderer.page(
            request,
            "steps.html",
            self._console.cluster(),
            silent=result["silent"],
            current="dead",
            query={},
            verb=verb,
            target=target,
            base=base,
            progress=progress,
            result=result,
            failed=result["failed"][:_FAILED],
            fields={**kept, **progress.fields, "after": result["after"] or ""},
            step=integer(form, "rate", 1, MOST_STEP) or MOST_STEP,
        )

    @Sheets.app.route(f"{_ONE}/redrive", methods=["POST"])
    async def redrive(self, request: Request, target: str) -> bytes:
        """Send dead letters back, one step."""
        return await self._go(request, "redrive", target)

    @Sheets.app.route(f"{_ONE}/drop", methods=["POST"])
    async def drop(self, request: Request, target: str) -> bytes:
        """Settle dead letters without doing anything with them, one step."""
        return await self._go(request, "drop", target)


@implementer(IPushProducer)
class Export:
    """
    Writes page after page as the browser takes them.

    Args:
        request: Who asks.
        page: Reads the page behind a place.
        first: The first page.
    """

    _log = Logger()

    def __init__(self, request: Request, page: Reader, first: dict[str, Any]) -> None:
        self._request = request
        self._page = page
        self._paused: Deferred[None] | None = None
        self._gone = False
        self.done: Deferred[bytes] = Deferred()
        request.notifyFinish().addErrback(lambda _: self.stopProducing())
        request.registerProducer(self, True)
        Deferred.fromCoroutine(self._write(first)).addErrback(self._failed)

    def pauseProducing(self) -> None:  # noqa: N802
        """Write no more for now: the browser does not take it."""
        if self._paused is None:
            self._paused = Deferred()

    def resumeProducing(self) -> None:  # noqa: N802
        """Go on."""
        paused, self._paused = self._paused, None
        if paused is not None:
            paused.callback(None)

    def stopProducing(self) -> None:  # noqa: N802
        """Write no more: nobody reads."""
        self._gone = True
        self.resumeProducing()

    async def _write(self, told: dict[str, Any]) -> None:
        while not self._gone:
            lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in told["messages"]]
            self._request.write("".join(lines).encode("utf-8", "replace"))
            if not told["more"] or not told["after"]:
                break
            if self._paused is not None:
                await self._paused
            if not self._gone:
                told = await self._page(told["after"])
        self._end()

    def _failed(self, failure: Failure) -> None:
        # The answer has begun, so an end too early is all that can be told.
        self._log.failure("The export of dead letters failed", failure)
        if not self._gone:
            self._request.loseConnection()
        self._end()

    def _end(self) -> None:
        self._request.unregisterProducer()
        self.done.callback(b"")
