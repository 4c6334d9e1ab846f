"""
Moving, emptying and deleting channels. Everything that changes something is a POST.

A GET shows the plan, which is the dry run of the operation; each asks for the name of
the channel to be typed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from attrs import evolve
from twisted.web.http import Request

from tinymq.web.base import Answer, redirect
from tinymq.web.channel_pages import ONE
from tinymq.web.channel_plans import ChannelPlans, Json, both, standing
from tinymq.web.format import duration, number, plural
from tinymq.web.input import MOST_OFFSET, BadInput, check_typed, integer, moment, query_of, text
from tinymq.web.publishing import MOST_PARTITION
from tinymq.web.render import segment, shell_quoted
from tinymq.web.sheet import Figure, Sheet, command
from tinymq.web.sheets import EXPECTED

_MOVED: Final = (
    "Partition",
    "Position before",
    "Position after",
    "Skipped",
    "Replayed",
    "Taken away",
)


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


class ChannelMoves(ChannelPlans):
    """Seek, empty and delete channels."""

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
            heads=_MOVED,
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
            cli=f"{command('channel.seek')} {both(*names)} --to {shell_quoted(where)}{part}",
        )

    async def _seek_form(
        self, request: Request, names: tuple[str, str], fields: Mapping[str, str], error: Exception
    ) -> bytes:
        request.setResponseCode(Answer(error).status)
        return await self._channel_page(
            request, names, "danger", query={}, values=fields, error=Answer(error)
        )

    @ChannelPlans.app.route(f"{ONE}/seek", methods=["GET"])
    async def seek_plan(self, request: Request, name: str, channel: str) -> bytes:
        """What a seek would do. Changes nothing."""
        query = query_of(request)
        try:
            sheet = await self._seek_sheet(request, (name, channel), query)
        except BadInput as error:
            return await self._seek_form(request, (name, channel), query, error)
        return self._sheet(request, sheet)

    @ChannelPlans.app.route(f"{ONE}/seek", methods=["POST"])
    async def seek(self, request: Request, name: str, channel: str) -> bytes:
        """Let a channel begin anew at a point."""
        form = self._form(request, "channel.seek")
        arguments = seek_arguments(form)
        try:
            check_typed(form, channel)
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
            cli=f"{command('channel.empty')} {both(*names)}",
        )

    @ChannelPlans.app.route(f"{ONE}/empty", methods=["GET"])
    async def empty_plan(self, request: Request, name: str, channel: str) -> bytes:
        """What emptying would settle. Changes nothing."""
        return self._sheet(request, await self._empty_sheet(request, (name, channel)))

    @ChannelPlans.app.route(f"{ONE}/empty", methods=["POST"])
    async def empty(self, request: Request, name: str, channel: str) -> bytes:
        """Settle all messages of a channel."""
        form = self._form(request, "channel.empty")
        try:
            check_typed(form, channel)
            await self._operate(request, "channel.empty", topic=name, name=channel)
        except EXPECTED as error:
            return self._sheet(request, await self._empty_sheet(request, (name, channel)), error)
        return redirect(request, self._base(name, channel), {"done": "emptied"})

    @ChannelPlans.app.route(f"{ONE}/undo", methods=["POST"])
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
            figures=standing(found, goes=True),
            warnings=(f"{plural(found['consumers'], 'consumer')} subscribed: they get an error.",)
            if found["consumers"]
            else (),
            notes=(
                "What is settled, in flight, waiting or given up is forgotten.",
                "The messages stay in the topic. This cannot be undone.",
            ),
            call=self._call("channel.delete", *names),
            cli=f"{command('channel.delete')} {both(*names)}",
        )

    @ChannelPlans.app.route(f"{ONE}/delete", methods=["GET"])
    async def delete_channel_plan(self, request: Request, name: str, channel: str) -> bytes:
        """What deleting a channel would remove. Removes nothing."""
        return self._sheet(request, await self._delete_sheet(request, (name, channel)))

    @ChannelPlans.app.route(f"{ONE}/delete", methods=["POST"])
    async def delete_channel(self, request: Request, name: str, channel: str) -> bytes:
        """Delete a channel."""
        form = self._form(request, "channel.delete")
        try:
            check_typed(form, channel)
            await self._operate(request, "channel.delete", topic=name, name=channel)
        except EXPECTED as error:
            return self._sheet(request, await self._delete_sheet(request, (name, channel)), error)
        return redirect(request, f"/topics/{segment(name)}/channels", {"done": "deleted"})
