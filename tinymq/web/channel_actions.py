"""
Making, altering and pausing channels. Everything that changes something is a POST.

What is seen first is the plan, which is the dry run of the operation.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import evolve
from twisted.web.http import Request

from tinymq.channelpolicy import DEFAULT_POLICY
from tinymq.web.base import Answer, redirect
from tinymq.web.channel_pages import ONE, settings_rows
from tinymq.web.channel_plans import ChannelPlans, Json, both, standing
from tinymq.web.format import number, plural
from tinymq.web.input import BadInput, query_of, text, truth
from tinymq.web.render import segment, shell_quoted
from tinymq.web.sheet import Entry, Figure, Sheet, command
from tinymq.web.sheets import EXPECTED, length_of


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


def _written(value: object) -> str:
    if value is None:
        return "none"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


class ChannelActions(ChannelPlans):
    """Make, alter, pause and resume channels."""

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

    @ChannelPlans.app.route("/topics/<name>/new-channel", methods=["GET"])
    def new_channel(self, request: Request, name: str) -> bytes:
        """The form that makes a channel."""
        return self._new_channel(request, name, query_of(request), None)

    @ChannelPlans.app.route("/topics/<name>/new-channel", methods=["POST"])
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
                cli=f"{command('channel.create')} {both(name, channel)}{flags}",
            ),
        )

    # --- settings ------------------------------------------------------------

    @ChannelPlans.app.route(f"{ONE}/settings", methods=["POST"])
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
                cli=f"{command('channel.alter')} {both(name, channel)}{flags}",
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
            figures=standing(found),
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
            cli=f"{command('channel.pause')} {both(*names)} --for 30m --reason '…'",
        )

    @ChannelPlans.app.route(f"{ONE}/pause", methods=["GET"])
    async def pause_plan(self, request: Request, name: str, channel: str) -> bytes:
        """What pausing would do. Changes nothing."""
        return self._sheet(request, await self._pause_sheet(request, (name, channel), {}))

    @ChannelPlans.app.route(f"{ONE}/pause", methods=["POST"])
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

    @ChannelPlans.app.route(f"{ONE}/resume", methods=["GET"])
    async def resume_plan(self, request: Request, name: str, channel: str) -> bytes:
        """What going on would do. Changes nothing."""
        found = await self._info(request, name, channel)
        sheet = self._plain(name, channel, "Resume", "resume")
        return self._sheet(
            request,
            evolve(
                sheet,
                button="Let it go on" if found["paused"] else "",
                figures=standing(found),
                notes=("Messages are given out again, at once, to whoever asks for them.",),
                call=self._call("channel.pause", name, channel, {"undo": True}),
                cli=f"tinymq channel resume {both(name, channel)}",
            ),
        )

    @ChannelPlans.app.route(f"{ONE}/resume", methods=["POST"])
    async def resume(self, request: Request, name: str, channel: str) -> bytes:
        """Let a channel go on."""
        self._form(request, "channel.pause")
        await self._operate(request, "channel.pause", topic=name, name=channel, undo=True)
        return redirect(request, self._base(name, channel), {"done": "resumed"})
