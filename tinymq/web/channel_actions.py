"""
What the pages can change about channels. Everything here is a POST.

A GET shows the plan, which is the dry run of the operation. What settles messages
or removes a channel asks for its name to be typed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from attrs import evolve
from twisted.web.http import Request

from tinymq.channelpolicy import DEFAULT_POLICY
from tinymq.web.base import Answer, redirect
from tinymq.web.channel_pages import ChannelPages, settings_rows
from tinymq.web.format import duration, number, plural
from tinymq.web.input import MOST_OFFSET, BadInput, integer, moment, query_of, text, truth
from tinymq.web.publishing import MOST_PARTITION
from tinymq.web.render import segment, shell_quoted
from tinymq.web.sheet import Call, Entry, Figure, Sheet, command
from tinymq.web.sheets import EXPECTED, Sheets, length_of

_ONE: Final = "/topics/<name>/channels/<channel>"

Json = dict[str, Any]
_MOVED: Final = (
    "Partition",
    "Position before",
    "Position after",
    "Skipped",
    "Replayed",
    "Taken away",
)


def changed_settings(form: Mapping[str, str], rows: list[Json]) -> dict[str, str | None]:
    """
    Read which settings a form wants to be others than they are.

    An empty field is the default, by its value: for the operation, None may be "none".
    """
    found: dict[str, str | None] = {}
    for row in rows:
        given = form.get(f"config.{row['name']}")
        if given is not None and given.strip() != row["value"]:
            found[row["name"]] = given.strip() or row["default"] or None
    return found


def seek_arguments(fields: Mapping[str, str]) -> Json:
    """
    Read where a channel should begin anew.

    Returns:
        Arguments of the operation.
    """
    found: Json = {}
    partition = integer(fields, "partition", 0, MOST_PARTITION)
    if partition is not None:
        found["partition"] = partition
    kind = text(fields, "to")
    if kind in {"earliest", "latest"}:
        return {**found, "to": kind}
    if kind == "offset":
        offset = integer(fields, "at", 0, MOST_OFFSET)
        if offset is None:
            raise BadInput("at", "name the offset to begin at")
        return {**found, "to": offset}
    if kind == "time":
        ms = moment(fields, "at")
        if ms is None:
            raise BadInput("at", "name the time to begin at")
        return {**found, "time_ms": ms}
    raise BadInput("to", "say where to begin: earliest, latest, an offset or a time")


def _written(value: object) -> str:
    if value is None:
        return "none"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


class ChannelActions(ChannelPages, Sheets):
    """Make, change, pause, move, empty and delete channels."""

    def _base(self, topic: str, name: str) -> str:
        return f"/topics/{segment(topic)}/channels/{segment(name)}"

    def _plain(self, topic: str, name: str, title: str, verb: str) -> Sheet:
        """The beginning of a plan about one channel."""
        base = self._base(topic, name)
        return Sheet(
            title=f"{title} {name}",
            crumbs=(
                ("Topics", "/topics"),
                (topic, f"/topics/{segment(topic)}"),
                ("channels", f"/topics/{segment(topic)}/channels"),
                (name, base),
            ),
            action=f"{base}/{verb}",
            cancel=base,
            button=title,
        )

    def _call(
        self, operation: str, topic: str, name: str, body: Mapping[str, Any] | None = None
    ) -> Call:
        return Call(operation, {"topic": segment(topic), "name": segment(name)}, body or {})

    # --- make ----------------------------------------------------------------

    def _new_channel(
        self, request: Request, name: str, values: Mapping[str, str], error: Exception | None
    ) -> bytes:
        answer = None if error is None else Answer(error)
        if answer is not None:
            request.setResponseCode(answer.status)
        return self._renderer.page(
            request,
            "new_channel.html",
            self._console.cluster(),
            current="topics",
            topic=self._console.topic(name),
            query={},
            rows=settings_rows(DEFAULT_POLICY.to_mapping()),
            values=values,
            error=answer,
        )

    @ChannelPages.app.route("/topics/<name>/new-channel", methods=["GET"])
    def new_channel(self, request: Request, name: str) -> bytes:
        """The form that makes a channel."""
        return self._new_channel(request, name, query_of(request), None)

    @ChannelPages.app.route("/topics/<name>/new-channel", methods=["POST"])
    async def create_channel(self, request: Request, name: str) -> bytes:
        """Show the plan of a channel, or make it when the plan was seen."""
        form = self._form(request, "channel.create")
        seen = form.get("confirm") == "yes"
        defaults = settings_rows(DEFAULT_POLICY.to_mapping())
        config = changed_settings(form, defaults)
        channel, start = text(form, "name").strip(), text(form, "start").strip()
        temporary = truth(form, "temporary")
        asked: Json = {"config": config, "temporary": temporary, "start": start or None}
        try:
            if not channel:
                raise BadInput("name", "a channel needs a name")
            result = await self._operate(
                request,
                "channel.create",
                topic=name,
                name=channel,
                **asked,
                dry_run=not seen,
            )
        except EXPECTED as error:
            return self._new_channel(request, name, form, error)
        if seen:
            return redirect(request, self._base(name, channel), {"done": "created"})
        old = {row["name"]: row["value"] for row in defaults}
        fields = {key: value for key, value in form.items() if key.startswith("config.")}
        warnings = () if result["created"] else ("It exists already, with these settings.",)
        flags = f" --start {shell_quoted(start)}" if start else ""
        flags += " --temporary" if temporary else ""
        flags += "".join(f" -s {shell_quoted(f'{key}={value}')}" for key, value in config.items())
        sheet = self._plain(name, channel, "Make channel", "")
        return self._sheet(
            request,
            evolve(
                sheet,
                crumbs=sheet.crumbs[:3],
                action=f"/topics/{segment(name)}/new-channel",
                cancel=f"/topics/{segment(name)}/channels",
                button="Make the channel",
                figures=(
                    Figure("Topic", name),
                    Figure("Begins at", str(result["channel"]["start"]), "on each partition"),
                    Figure("Settings", number(len(config)), "differ from their defaults"),
                ),
                changes=[(key, old[key], _written(value)) for key, value in config.items()],
                warnings=warnings,
                notes=("Nothing is copied: a channel only knows which messages are settled.",),
                fields={
                    **fields,
                    "name": channel,
                    "start": start,
                    "temporary": "yes" if temporary else "",
                    "confirm": "yes",
                },
                call=self._call("channel.create", name, channel, asked),
                cli=f"{command('channel.create')} {_both(name, channel)}{flags}",
            ),
        )

    # --- settings ------------------------------------------------------------

    @ChannelPages.app.route(f"{_ONE}/settings", methods=["POST"])
    async def alter_channel(self, request: Request, name: str, channel: str) -> bytes:
        """Show the plan of changed settings, or carry it out when it was seen."""
        form = self._form(request, "channel.alter")
        found = await self._info(request, name, channel)
        rows = settings_rows(found["config"])
        config = changed_settings(form, rows)
        seen = form.get("confirm") == "yes"
        try:
            result = await self._operate(
                request, "channel.alter", topic=name, name=channel, config=config, dry_run=not seen
            )
        except EXPECTED as error:
            request.setResponseCode(Answer(error).status)
            return await self._channel_page(
                request,
                (name, channel),
                "settings",
                channel=found,
                query={},
                rows=rows,
                values=form,
                error=Answer(error),
            )
        if seen:
            return redirect(request, self._base(name, channel), {"done": "altered"})
        changes = [(key, _written(old), _written(new)) for key, old, new in result["changes"]]
        flags = "".join(
            f" --unset {shell_quoted(key)}"
            if value is None
            else f" -s {shell_quoted(f'{key}={value}')}"
            for key, value in config.items()
        )
        sheet = self._plain(name, channel, "Change settings of", "settings")
        return self._sheet(
            request,
            evolve(
                sheet,
                cancel=f"{sheet.cancel}/settings",
                button=f"Change {plural(len(changes), 'setting')}" if changes else "",
                changes=changes,
                notes=("What is in flight keeps its deadline; all else follows the new settings.",),
                fields={
                    **{f"config.{key}": value or "" for key, value in config.items()},
                    "confirm": "yes",
                },
                call=self._call("channel.alter", name, channel, {"config": config}),
                cli=f"{command('channel.alter')} {_both(name, channel)}{flags}",
            ),
        )

    # --- pause ---------------------------------------------------------------

    async def _pause_sheet(
        self, request: Request, names: tuple[str, str], form: Mapping[str, str]
    ) -> Sheet:
        found = await self._info(request, *names)
        sheet = self._plain(*names, "Pause", "pause")
        return evolve(
            sheet,
            button="Pause the channel",
            figures=_standing(found),
            notes=(
                "Nothing is given out any more, on any partition.",
                "What is in flight can be settled; what fails waits.",
                "Producers are not held back, so the lag grows until it goes on.",
            ),
            warnings=("It is paused already.",) if found["paused"] else (),
            entries=(
                Entry(
                    "for",
                    "For how long",
                    form.get("for", ""),
                    "Such as 30m, 2h or 1d. Empty: until somebody lets it go on.",
                ),
                Entry(
                    "reason",
                    "Reason",
                    form.get("reason", ""),
                    "For people, on its page and in the log. May be empty.",
                ),
            ),
            call=self._call("channel.pause", *names, {"reason": "…"}),
            cli=f"{command('channel.pause')} {_both(*names)} --for 30m --reason '…'",
        )

    @ChannelPages.app.route(f"{_ONE}/pause", methods=["GET"])
    async def pause_plan(self, request: Request, name: str, channel: str) -> bytes:
        """What pausing would do. Changes nothing."""
        return self._sheet(request, await self._pause_sheet(request, (name, channel), {}))

    @ChannelPages.app.route(f"{_ONE}/pause", methods=["POST"])
    async def pause(self, request: Request, name: str, channel: str) -> bytes:
        """Give nothing of a channel out."""
        form = self._form(request, "channel.pause")
        try:
            length = length_of(form, "for")
            until = None if length is None else self._console.cluster().taken_ms + length
            await self._operate(
                request,
                "channel.pause",
                topic=name,
                name=channel,
                until_ms=until,
                reason=text(form, "reason").strip(),
            )
        except EXPECTED as error:
            sheet = await self._pause_sheet(request, (name, channel), form)
            return self._sheet(request, sheet, error)
        return redirect(request, self._base(name, channel), {"done": "paused"})

    @ChannelPages.app.route(f"{_ONE}/resume", methods=["GET"])
    async def resume_plan(self, request: Request, name: str, channel: str) -> bytes:
        """What going on would do. Changes nothing."""
        found = await self._info(request, name, channel)
        sheet = self._plain(name, channel, "Resume", "resume")
        return self._sheet(
            request,
            evolve(
                sheet,
                button="Let it go on" if found["paused"] else "",
                figures=_standing(found),
                notes=("Messages are given out again, at once, to whoever asks for them.",),
                call=self._call("channel.pause", name, channel, {"undo": True}),
                cli=f"tinymq channel resume {_both(name, channel)}",
            ),
        )

    @ChannelPages.app.route(f"{_ONE}/resume", methods=["POST"])
    async def resume(self, request: Request, name: str, channel: str) -> bytes:
        """Let a channel go on."""
        self._form(request, "channel.pause")
        await self._operate(request, "channel.pause", topic=name, name=channel, undo=True)
        return redirect(request, self._base(name, channel), {"done": "resumed"})

    # --- seek and empty ------------------------------------------------------

    async def _move_sheet(
        self, request: Request, names: tuple[str, str], operation: str, arguments: Json
    ) -> Sheet:
        """What moving a channel would do: the dry run of its operation."""
        result = await self._operate(
            request, operation, topic=names[0], name=names[1], **arguments, dry_run=True
        )
        plan, times = result["plan"], self._now(request)
        until = max((row["undo_until_ms"] for row in plan["partitions"]), default=None)
        warnings = []
        if plan["lost"]:
            warnings.append(
                f"{plural(plan['lost'], 'message')} in flight are taken from their consumers; "
                "what these answer comes too late."
            )
        if plan["silent"]:
            warnings.append(f"Not told by {', '.join(plan['silent'])}, which do not answer.")
        return evolve(
            self._plain(*names, "", ""),
            figures=(
                Figure("Skipped", number(plan["skipped"]), "settled without being given out"),
                Figure("Replayed", number(plan["revived"]), "settled before, given out again"),
                Figure("Taken away", number(plan["lost"]), "in flight now"),
                Figure(
                    "Undo",
                    "never" if until is None else f"until {times.minute(until)}",
                    "" if until is None else f"for {duration(until - times.now_ms)}",
                    title=times.full(until),
                ),
            ),
            heads=(
                "Partition",
                "Position before",
                "Position after",
                "Skipped",
                "Replayed",
                "Taken away",
            ),
            rows=[
                (
                    number(row["partition"]),
                    number(row["cursor"]),
                    number(row["new_cursor"]),
                    number(row["skipped"]),
                    number(row["revived"]),
                    number(row["lost"]),
                )
                for row in plan["partitions"]
            ],
            warnings=warnings,
            call=self._call(operation, *names, arguments),
        )

    async def _seek_sheet(
        self, request: Request, names: tuple[str, str], fields: Mapping[str, str]
    ) -> Sheet:
        arguments = seek_arguments(fields)
        sheet = await self._move_sheet(request, names, "channel.seek", arguments)
        where = f"@{fields.get('at', '')}" if "time_ms" in arguments else str(arguments["to"])
        part = f" -p {arguments['partition']}" if "partition" in arguments else ""
        base = self._base(*names)
        return evolve(
            sheet,
            title=f"Seek {names[1]}",
            action=f"{base}/seek",
            cancel=f"{base}/danger",
            button="Begin anew there",
            danger=True,
            typed=names[1],
            notes=(
                "What lies before it is settled; what comes behind is given out again.",
                "The messages stay in the topic; other channels and groups notice nothing.",
            ),
            fields={key: fields[key] for key in ("to", "at", "partition") if fields.get(key)},
            cli=f"{command('channel.seek')} {_both(*names)} --to {shell_quoted(where)}{part}",
        )

    async def _seek_form(
        self, request: Request, names: tuple[str, str], fields: Mapping[str, str], error: Exception
    ) -> bytes:
        request.setResponseCode(Answer(error).status)
        return await self._channel_page(
            request, names, "danger", query={}, values=fields, error=Answer(error)
        )

    @ChannelPages.app.route(f"{_ONE}/seek", methods=["GET"])
    async def seek_plan(self, request: Request, name: str, channel: str) -> bytes:
        """What a seek would do. Changes nothing."""
        query = query_of(request)
        try:
            sheet = await self._seek_sheet(request, (name, channel), query)
        except BadInput as error:
            return await self._seek_form(request, (name, channel), query, error)
        return self._sheet(request, sheet)

    @ChannelPages.app.route(f"{_ONE}/seek", methods=["POST"])
    async def seek(self, request: Request, name: str, channel: str) -> bytes:
        """Let a channel begin anew at a point."""
        form = self._form(request, "channel.seek")
        arguments = seek_arguments(form)
        try:
            _check_typed(form, channel)
            await self._operate(request, "channel.seek", topic=name, name=channel, **arguments)
        except EXPECTED as error:
            sheet = await self._seek_sheet(request, (name, channel), form)
            return self._sheet(request, sheet, error)
        return redirect(request, self._base(name, channel), {"done": "moved"})

    async def _empty_sheet(self, request: Request, names: tuple[str, str]) -> Sheet:
        sheet = await self._move_sheet(request, names, "channel.empty", {})
        return evolve(
            sheet,
            title=f"Empty {names[1]}",
            action=f"{self._base(*names)}/empty",
            cancel=f"{self._base(*names)}/danger",
            button="Settle all its messages",
            danger=True,
            typed=names[1],
            notes=(
                "All messages of the channel count as settled; nobody is given them.",
                "They stay in the topic, for other channels and groups.",
            ),
            cli=f"{command('channel.empty')} {_both(*names)}",
        )

    @ChannelPages.app.route(f"{_ONE}/empty", methods=["GET"])
    async def empty_plan(self, request: Request, name: str, channel: str) -> bytes:
        """What emptying would settle. Changes nothing."""
        return self._sheet(request, await self._empty_sheet(request, (name, channel)))

    @ChannelPages.app.route(f"{_ONE}/empty", methods=["POST"])
    async def empty(self, request: Request, name: str, channel: str) -> bytes:
        """Settle all messages of a channel."""
        form = self._form(request, "channel.empty")
        try:
            _check_typed(form, channel)
            await self._operate(request, "channel.empty", topic=name, name=channel)
        except EXPECTED as error:
            return self._sheet(request, await self._empty_sheet(request, (name, channel)), error)
        return redirect(request, self._base(name, channel), {"done": "emptied"})

    @ChannelPages.app.route(f"{_ONE}/undo", methods=["POST"])
    async def undo_seek(self, request: Request, name: str, channel: str) -> bytes:
        """Take the last seek or emptying back."""
        self._form(request, "channel.undo_seek")
        await self._operate(request, "channel.undo_seek", topic=name, name=channel)
        return redirect(request, self._base(name, channel), {"done": "undone"})

    # --- delete --------------------------------------------------------------

    async def _delete_sheet(self, request: Request, names: tuple[str, str]) -> Sheet:
        result = await self._operate(
            request, "channel.delete", topic=names[0], name=names[1], dry_run=True
        )
        found = result["channel"]
        base = self._base(*names)
        return evolve(
            self._plain(*names, "Delete", "delete"),
            cancel=f"{base}/danger",
            button="Delete the channel",
            danger=True,
            typed=names[1],
            figures=_standing(found),
            warnings=(f"{plural(found['consumers'], 'consumer')} subscribed: they get an error.",)
            if found["consumers"]
            else (),
            notes=(
                "What is settled, in flight, waiting or given up is forgotten.",
                "The messages stay in the topic. This cannot be undone.",
            ),
            call=self._call("channel.delete", *names),
            cli=f"{command('channel.delete')} {_both(*names)}",
        )

    @ChannelPages.app.route(f"{_ONE}/delete", methods=["GET"])
    async def delete_channel_plan(self, request: Request, name: str, channel: str) -> bytes:
        """What deleting a channel would remove. Removes nothing."""
        return self._sheet(request, await self._delete_sheet(request, (name, channel)))

    @ChannelPages.app.route(f"{_ONE}/delete", methods=["POST"])
    async def delete_channel(self, request: Request, name: str, channel: str) -> bytes:
        """Delete a channel."""
        form = self._form(request, "channel.delete")
        try:
            _check_typed(form, channel)
            await self._operate(request, "channel.delete", topic=name, name=channel)
        except EXPECTED as error:
            return self._sheet(request, await self._delete_sheet(request, (name, channel)), error)
        return redirect(request, f"/topics/{segment(name)}/channels", {"done": "deleted"})


def _both(topic: str, name: str) -> str:
    return f"{shell_quoted(topic)} {shell_quoted(name)}"


def _check_typed(form: Mapping[str, str], name: str) -> None:
    if form.get("typed", "") != name:
        raise BadInput("typed", f"type {name} to confirm; nothing was changed")


def _standing(found: Mapping[str, Any]) -> tuple[Figure, ...]:
    """What a channel holds, in figures."""
    return (
        Figure("Ready", number(found["ready"]), "can be given out now"),
        Figure("In flight", number(found["in_flight"]), "can still be settled"),
        Figure("Waiting", number(found["waiting"]), "for their next attempt"),
        Figure("Consumers", number(found["consumers"]), "subscribed"),
    )
