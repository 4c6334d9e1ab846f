"""The pages of messages in the hands of consumers: looking at them, and deciding about some."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlencode

from attrs import evolve, frozen
from twisted.web.http import Request

from tinymq.catalog.inflight import ACTS
from tinymq.web.base import redirect
from tinymq.web.format import number, plural
from tinymq.web.input import MOST_OFFSET, BadInput, choice, integer, query_of, text
from tinymq.web.publishing import MOST_PARTITION
from tinymq.web.render import segment, shell_quoted
from tinymq.web.sheet import Call, Entry, Figure, Sheet
from tinymq.web.sheets import EXPECTED, Sheets, length_of

#: Messages on one page.
_ROWS: Final = 40
#: Messages that one plan decides about.
MOST_PICKED: Final = 1000
_PAGE: Final = 500
_FILTERS: Final = ("topic", "channel", "client", "attempts", "older")
#: What a lease is taken to last when an older broker does not tell.
_LEASE_MS: Final = 60_000


class Place(NamedTuple):
    """A message of a channel."""

    topic: str
    channel: str
    partition: int
    offset: int

    @property
    def value(self) -> str:
        """As a checkbox carries it."""
        return f"{segment(self.topic)}/{segment(self.channel)}/{self.partition}/{self.offset}"


@frozen
class _Act:
    """What can be done with messages in flight: how it is called, and what it means."""

    title: str
    button: str
    cli: str
    danger: bool
    notes: tuple[str, ...]


_TAKEN: Final = "They are taken from their consumers; what these answer comes too late."
_ACTS: Final = {
    "requeue": _Act(
        "Requeue",
        "Requeue",
        "requeue",
        False,
        (_TAKEN, "They are given out again, at once or after the delay."),
    ),
    "finish": _Act(
        "Finish",
        "Finish",
        "finish",
        True,
        (_TAKEN, "They count as settled: the channel gives them to nobody again."),
    ),
    "extend": _Act(
        "Extend the lease of",
        "Extend",
        "touch",
        False,
        ("Their consumers keep them longer; nothing else changes.",),
    ),
    "dead_letter": _Act(
        "Give up",
        "Give up",
        "dlq",
        True,
        (_TAKEN, "They go to the dead-letter topic of their channel, with the reason."),
    ),
}


def place_of(value: str) -> Place:
    """Read what a checkbox carries."""
    parts = value.split("/")
    if len(parts) != 4:
        raise BadInput("row", "this is not a message in flight")
    fields = {"partition": parts[2], "offset": parts[3]}
    partition = integer(fields, "partition", 0, MOST_PARTITION)
    offset = integer(fields, "offset", 0, MOST_OFFSET)
    return Place(unquote(parts[0]), unquote(parts[1]), partition or 0, offset or 0)


def groups_of(places: Sequence[Place]) -> dict[tuple[str, str, int], list[int]]:
    """Put messages together that one call can decide about."""
    found: dict[tuple[str, str, int], list[int]] = {}
    for each in places:
        found.setdefault(each[:3], []).append(each.offset)
    return {key: sorted(set(offsets)) for key, offsets in found.items()}


class Lease(NamedTuple):
    """How far a lease is over, and how a bar shows that."""

    share: float
    left_ms: int
    colour: str
    word: str


def lease_of(row: Mapping[str, Any], now_ms: int) -> Lease:
    """
    Say how far the lease of a message is over.

    Args:
        row: As the operation tells it.
        now_ms: The instant that is shown.
    """
    left = max(0, row["deadline_ms"] - now_ms)
    # Clients renew leases: what counts is the time since then, not that since the delivery.
    share = min(1.0, max(0.0, 1 - left / (row.get("lease_ms") or _LEASE_MS)))
    if row["state"] == "timed_out" or share >= 0.95:
        return Lease(share, left, "b", "bad")
    return Lease(share, left, "w" if share >= 0.9 else "g", "warn" if share >= 0.9 else "")


class InFlightPages(Sheets):
    """All messages in flight, or those of one channel."""

    def _asked(self, query: Mapping[str, str]) -> dict[str, Any]:
        """Read which messages are wanted, as arguments of the operation."""
        return {
            "topic": text(query, "topic").strip() or None,
            "channel": text(query, "channel").strip() or None,
            "client": text(query, "client").strip() or None,
            "attempts": integer(query, "attempts", 1, MOST_OFFSET) or 1,
            "older_ms": length_of(query, "older") or 0,
        }

    @Sheets.app.route("/inflight", methods=["GET"])
    async def inflight(self, request: Request) -> bytes:
        """What consumers hold, the oldest first. Looking changes nothing."""
        query = query_of(request)
        asked = self._asked(query)
        told = await self._operate(
            request, "inflight.list", **asked, limit=_ROWS, after=text(query, "after") or None
        )
        cluster = self._console.cluster()
        rows = [
            (row, Place(row["topic"], row["channel"], row["partition"], row["offset"]).value)
            for row in told["messages"]
        ]
        return self._renderer.page(
            request,
            "inflight.html",
            cluster,
            keep=True,
            silent=told["silent"],
            current="inflight",
            query=query,
            asked=asked,
            told=told,
            rows=rows,
            lease_of=lease_of,
            back=urlencode({key: query[key] for key in _FILTERS if query.get(key)}),
            most=MOST_PICKED,
        )

    # --- deciding ------------------------------------------------------------

    async def _picked(self, request: Request, form: Mapping[str, str]) -> list[Place]:
        """Find out which messages a form is about: those that were chosen, or all that match."""
        if form.get("all") == "yes":
            return [place async for place in self._matching(request, form.get("back", ""))]
        found = [place_of(value) for key, value in form.items() if key.startswith("row.")]
        if not found:
            raise BadInput("row", "choose at least one message")
        if len(found) > MOST_PICKED:
            raise BadInput("row", f"choose at most {MOST_PICKED:,} messages at once")
        return found

    async def _matching(self, request: Request, back: str) -> Any:
        asked = self._asked(dict(parse_qsl(back)))
        after, left = None, MOST_PICKED
        while left > 0:
            told = await self._operate(
                request, "inflight.list", **asked, limit=min(left, _PAGE), after=after
            )
            for row in told["messages"]:
                if row["state"] == "in_flight":
                    yield Place(row["topic"], row["channel"], row["partition"], row["offset"])
            left -= len(told["messages"])
            after = told["after"]
            if not told["more"] or after is None:
                return

    def _body(self, act: str, form: Mapping[str, str]) -> dict[str, Any]:
        """Read how it should be done, as arguments of the operation."""
        found: dict[str, Any] = {"act": act, "reason": text(form, "reason").strip()}
        if act == "requeue":
            found["delay_ms"] = length_of(form, "delay") or 0
        if act == "extend":
            found["extend_ms"] = length_of(form, "extend")
        return found

    async def _settle(
        self, request: Request, places: Sequence[Place], body: Mapping[str, Any], *, dry_run: bool
    ) -> tuple[list[Place], int]:
        """Decide about messages, or try it; return where it could be done, and how many not."""
        done: list[Place] = []
        missing = 0
        for (topic, name, partition), offsets in groups_of(places).items():
            result = await self._operate(
                request,
                "inflight.settle",
                topic=topic,
                name=name,
                partition=partition,
                offsets=offsets,
                **body,
                dry_run=dry_run,
            )
            done += [Place(topic, name, partition, offset) for offset in result["done"]]
            missing += len(result["missing"])
        return done, missing

    def _entries(self, act: str, form: Mapping[str, str]) -> Iterator[Entry]:
        if act == "requeue":
            hint = "Such as 30s or 10m. Empty: at once."
            yield Entry("delay", "Delay", form.get("delay", ""), hint)
        if act == "extend":
            hint = "Such as 60s or 10m, from now. Empty: the lease of the channel."
            yield Entry("extend", "For how long", form.get("extend", ""), hint)
        hint = "For people; stands in the log, and with a dead letter. May be empty."
        yield Entry("reason", "Reason", form.get("reason", ""), hint)

    async def _act_sheet(self, request: Request, form: Mapping[str, str]) -> Sheet:
        act = choice(form, "act", ACTS, "requeue")
        words, back = _ACTS[act], form.get("back", "")
        picked = await self._picked(request, form)
        done, missing = await self._settle(request, picked, {"act": act}, dry_run=True)
        groups = groups_of(done)
        home = "/inflight" + (f"?{urlencode(parse_qsl(back))}" if back else "")
        call, cli = None, ""
        if groups:
            (topic, name, partition), offsets = next(iter(groups.items()))
            parts = {"topic": segment(topic), "name": segment(name)}
            body = {"partition": partition, "offsets": offsets, "act": act}
            call = Call("inflight.settle", parts, body)
            names = f"{topic}/{name}/{partition}"
            places = " ".join(shell_quoted(f"{names}@{offset}") for offset in offsets)
            cli = f"tinymq inflight {words.cli} {places}"
        warnings = []
        if missing:
            warnings.append(f"{plural(missing, 'message')} not in flight any more: left alone.")
        if len(groups) > 1:
            warnings.append(
                f"They lie on {plural(len(groups), 'partition')}; the commands show the first."
            )
        return Sheet(
            title=f"{words.title} {plural(len(done), 'message')}",
            current="inflight",
            crumbs=(("In flight", home),),
            action="/inflight/settle",
            cancel=home,
            button=f"{words.button} {plural(len(done), 'message')}" if done else "",
            danger=words.danger,
            figures=(
                Figure("Chosen", number(len(picked))),
                Figure("In flight now", number(len(done)), "the others are left alone"),
                Figure("Channels", number(len({key[:2] for key in groups}))),
                Figure("Undo", "never"),
            ),
            heads=("Message", "Channel"),
            rows=[(f"{one.topic} {one.partition}/{one.offset:,}", one.channel) for one in done[:20]]
            + ([(f"and {len(done) - 20:,} more", "")] if len(done) > 20 else []),
            notes=words.notes,
            warnings=warnings,
            entries=tuple(self._entries(act, form)),
            fields={
                "act": act,
                "back": back,
                **{f"row.{index}": one.value for index, one in enumerate(done)},
            },
            call=call,
            cli=cli,
        )

    @Sheets.app.route("/inflight/plan", methods=["POST"])
    async def settle_plan(self, request: Request) -> bytes:
        """What deciding about the chosen messages would do. Changes nothing."""
        form = self._form(request, "inflight.settle")
        return self._sheet(request, await self._act_sheet(request, form))

    @Sheets.app.route("/inflight/settle", methods=["POST"])
    async def settle_chosen(self, request: Request) -> bytes:
        """Decide about the chosen messages."""
        form = self._form(request, "inflight.settle")
        act = choice(form, "act", ACTS, "requeue")
        picked = await self._picked(request, form)
        try:
            body = self._body(act, form)
            done, missing = await self._settle(request, picked, body, dry_run=False)
        except EXPECTED as error:
            sheet = await self._act_sheet(request, form)
            return self._sheet(request, evolve(sheet), error)
        told = {"done": act, "count": len(done), "missing": missing}
        return redirect(request, "/inflight", {**dict(parse_qsl(form.get("back", ""))), **told})
