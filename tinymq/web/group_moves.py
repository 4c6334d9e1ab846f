"""
Moving, resetting and deleting groups, and sending members away.

Everything that changes something is a POST. A GET shows the plan, which is the dry run of
the operation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from attrs import evolve
from twisted.web.http import Request

from tinymq.errors import UnknownMember
from tinymq.web.base import Answer, redirect
from tinymq.web.flow import call_of, cli_of
from tinymq.web.format import number, plural
from tinymq.web.group_pages import ONE, GroupPages, Json
from tinymq.web.group_why import member_names
from tinymq.web.input import (
    MOST_OFFSET,
    BadInput,
    check_typed,
    integer,
    moment,
    query_of,
    text,
    truth,
)
from tinymq.web.publishing import MOST_PARTITION
from tinymq.web.render import segment
from tinymq.web.sheet import Entry, Figure, Sheet, Tick
from tinymq.web.sheets import EXPECTED

_MOVED: Final = ("Partition", "Before", "After", "Skipped", "Replayed")
#: Partitions that a plan lists.
_ROWS: Final = 500
#: Longest reason that a member is told.
_MOST_REASON: Final = 200
_FIELDS: Final = ("to", "at", "topic", "partition")
#: What stands before a number: nothing where it is an offset.
_SIGNS: Final = {"offset": "", "forward": "+", "back": "-"}


def seek_arguments(fields: Mapping[str, str]) -> Json:
    """
    Read where a group should go on.

    Args:
        fields: Of a form or a query.

    Returns:
        Arguments of the operation.
    """
    found: Json = {}
    topic = text(fields, "topic").strip()
    partition = integer(fields, "partition", 0, MOST_PARTITION)
    if topic:
        found["topic"] = topic
    if partition is not None:
        if not topic:
            raise BadInput("topic", "say which topic the partition is of")
        found["partition"] = partition
    kind = text(fields, "to")
    if kind == "group":
        other = text(fields, "at").strip()
        if not other:
            raise BadInput("at", "name the group whose positions it takes")
        return {**found, "from_group": other}
    return {**found, "to": _place(kind, fields)}


def _place(kind: str, fields: Mapping[str, str]) -> str | int:
    if kind in {"earliest", "latest"}:
        return kind
    if kind == "time":
        ms = moment(fields, "at")
        if ms is None:
            raise BadInput("at", "name the time to go on at")
        return f"@{ms}"
    if kind in _SIGNS:
        amount = integer(fields, "at", 0, MOST_OFFSET)
        if amount is None:
            raise BadInput("at", "write a whole number beside it")
        return f"{_SIGNS[kind]}{amount}" if _SIGNS[kind] else amount
    raise BadInput("to", "say where to go on: earliest, latest, an offset, a time or a group")


def moved_rows(plan: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """
    Write what a plan moves, by partition.

    Args:
        plan: As the operation tells it.
    """
    return [
        (
            f"{row['topic']}/{row['partition']}",
            "none" if row["before"] is None else number(row["before"]),
            "none" if row["after"] is None else number(row["after"]),
            number(row["skipped"]),
            number(row["replayed"]),
        )
        for row in plan[:_ROWS]
    ]


class GroupMoves(GroupPages):
    """Seek, undo, reset and delete groups; evict members."""

    def _home(self, name: str) -> str:
        """The address of a group."""
        return f"/groups/{segment(name)}"

    def _begun(self, name: str, title: str, verb: str) -> Sheet:
        """The beginning of a plan about one group."""
        base = self._home(name)
        return Sheet(
            title=f"{title} {name}",
            current="groups",
            crumbs=(("Groups", "/groups"), (name, base)),
            action=f"{base}/{verb}",
            cancel=f"{base}/danger",
            button=title,
            danger=True,
            typed=name,
        )

    def _live(self, told: Json) -> tuple[tuple[str, ...], tuple[Tick, ...]]:
        """Warn of members that read, and ask for a tick to do it all the same."""
        count = len(told["members"])
        if not count:
            return (), ()
        verb = "is" if count == 1 else "are"
        warning = (
            f"{plural(count, 'member')} {verb} reading. They are moved while they read: what "
            "they have in hand is done a second time, or was done for nothing."
        )
        return (warning,), (Tick("force", "Do it though members are reading"),)

    async def _moving(
        self, request: Request, name: str, operation: str, arguments: Json
    ) -> tuple[Json, Sheet]:
        """What moving a group would do: the dry run of its operation."""
        told = await self._told(request, name)
        result = await self._operate(
            request, operation, name=name, **arguments, force=True, dry_run=True
        )
        plan, times = result["plan"], self._now(request)
        until = result["undo_until_ms"]
        warnings, ticks = self._live(told)
        if result["silent"]:
            warnings += (f"Not told by {', '.join(result['silent'])}, which do not answer.",)
        if len(plan) > _ROWS:
            warnings += (f"Only {_ROWS} of {plural(len(plan), 'partition')} are listed.",)
        changed = [row for row in plan if row["before"] != row["after"]]
        verb = operation.rpartition(".")[2]
        sheet = evolve(
            self._begun(name, "", verb.replace("undo_seek", "undo")),
            figures=(
                Figure("Moved", number(len(changed)), f"of {plural(len(plan), 'partition')}"),
                Figure(
                    "Skipped", number(sum(row["skipped"] for row in plan)), "that it will not read"
                ),
                Figure(
                    "Replayed",
                    number(sum(row["replayed"] for row in plan)),
                    "that it will read again",
                ),
                Figure(
                    "Undo",
                    f"until {times.minute(until)}" if until else "for a while",
                    "while the topic keeps the messages",
                    title=times.full(until) if until else "",
                ),
            ),
            heads=_MOVED,
            rows=moved_rows(plan),
            warnings=warnings,
            ticks=ticks,
            call=call_of(
                operation, {"name": name}, {**arguments, **({"force": True} if ticks else {})}
            ),
        )
        return result, sheet

    # --- seek ----------------------------------------------------------------

    async def _seek_group_sheet(
        self, request: Request, name: str, fields: Mapping[str, str]
    ) -> Sheet:
        arguments = seek_arguments(fields)
        result, sheet = await self._moving(request, name, "group.seek", arguments)
        return evolve(
            sheet,
            title=f"Seek {name}",
            button="Go on there" if result["plan"] else "",
            notes=(
                "Members go on from the new positions; other groups and channels notice nothing.",
                "The messages stay in their topics.",
            ),
            fields={key: fields[key] for key in _FIELDS if fields.get(key)},
            cli=cli_of(
                "group.seek",
                (name,),
                {
                    "to": arguments.get("to"),
                    "from-group": arguments.get("from_group"),
                    "topic": arguments.get("topic"),
                    # Zero would be left out as nothing.
                    "partition": str(arguments.get("partition", "")),
                    "force": bool(sheet.ticks),
                    "execute": True,
                },
            ),
        )

    async def _seek_group_form(
        self, request: Request, name: str, fields: Mapping[str, str], error: Exception
    ) -> bytes:
        answer = Answer(error)
        request.setResponseCode(answer.status)
        told = await self._told(request, name)
        return await self._group_page(request, told, "danger", values=fields, error=answer)

    @GroupPages.app.route(f"{ONE}/seek", methods=["GET"])
    async def seek_group_plan(self, request: Request, name: str) -> bytes:
        """What a seek would do. Changes nothing."""
        query = query_of(request)
        try:
            return self._sheet(request, await self._seek_group_sheet(request, name, query))
        except EXPECTED as error:
            return await self._seek_group_form(request, name, query, error)

    @GroupPages.app.route(f"{ONE}/seek", methods=["POST"])
    async def seek_group(self, request: Request, name: str) -> bytes:
        """Let a group go on at another place."""
        form = self._form(request, "group.seek")
        arguments = seek_arguments(form)
        try:
            check_typed(form, name)
            await self._operate(
                request, "group.seek", name=name, **arguments, force=truth(form, "force")
            )
        except EXPECTED as error:
            sheet = await self._seek_group_sheet(request, name, form)
            return self._sheet(request, sheet, error)
        return redirect(request, self._home(name), {"done": "moved"})

    # --- undo ----------------------------------------------------------------

    async def _undo_sheet(self, request: Request, name: str) -> Sheet:
        result, sheet = await self._moving(request, name, "group.undo_seek", {})
        return evolve(
            sheet,
            title=f"Take back the last seek of {name}",
            cancel=self._home(name),
            button="Take it back" if result["plan"] else "",
            danger=False,
            typed="",
            figures=sheet.figures[:3],
            notes=("The positions are again what they were before the last seek.",),
            cli=cli_of("group.undo_seek", (name,), {"force": bool(sheet.ticks), "execute": True}),
        )

    @GroupPages.app.route(f"{ONE}/undo", methods=["GET"])
    async def undo_group_plan(self, request: Request, name: str) -> bytes:
        """What taking the last seek back would do. Changes nothing."""
        return self._sheet(request, await self._undo_sheet(request, name))

    @GroupPages.app.route(f"{ONE}/undo", methods=["POST"])
    async def undo_group(self, request: Request, name: str) -> bytes:
        """Take the last seek back."""
        form = self._form(request, "group.undo_seek")
        try:
            await self._operate(request, "group.undo_seek", name=name, force=truth(form, "force"))
        except EXPECTED as error:
            return self._sheet(request, await self._undo_sheet(request, name), error)
        return redirect(request, self._home(name), {"done": "undone"})

    # --- reset and delete ----------------------------------------------------

    async def _reset_sheet(self, request: Request, name: str, topic: str) -> Sheet:
        arguments = {"topic": topic} if topic else {}
        _, sheet = await self._moving(request, name, "group.reset", arguments)
        return evolve(
            sheet,
            title=f"Reset {name}",
            button="Forget the positions",
            notes=(
                "The group forgets where it was; its members begin where their settings say.",
                "The messages stay in their topics.",
            ),
            fields=arguments,
            cli=cli_of(
                "group.reset", (name,), {**arguments, "force": bool(sheet.ticks), "execute": True}
            ),
        )

    @GroupPages.app.route(f"{ONE}/reset", methods=["GET"])
    async def reset_group_plan(self, request: Request, name: str) -> bytes:
        """What forgetting the positions would mean. Forgets nothing."""
        topic = text(query_of(request), "topic").strip()
        return self._sheet(request, await self._reset_sheet(request, name, topic))

    @GroupPages.app.route(f"{ONE}/reset", methods=["POST"])
    async def reset_group(self, request: Request, name: str) -> bytes:
        """Forget the positions of a group."""
        form = self._form(request, "group.reset")
        topic = text(form, "topic").strip()
        arguments = {"topic": topic} if topic else {}
        try:
            check_typed(form, name)
            await self._operate(
                request, "group.reset", name=name, **arguments, force=truth(form, "force")
            )
        except EXPECTED as error:
            return self._sheet(request, await self._reset_sheet(request, name, topic), error)
        return redirect(request, self._home(name), {"done": "reset"})

    async def _delete_group_sheet(self, request: Request, name: str) -> Sheet:
        told = await self._told(request, name)
        await self._operate(request, "group.delete", name=name, force=True, dry_run=True)
        group = told["group"]
        warnings, ticks = self._live(told)
        return evolve(
            self._begun(name, "Delete", "delete"),
            button="Delete the group",
            figures=(
                Figure("Members", number(group["members"]), "reading"),
                Figure(
                    "Positions",
                    number(sum(row["committed"] is not None for row in told["partitions"])),
                    f"in {plural(len(group['topics']), 'topic')}, are forgotten",
                ),
                Figure("Lag", number(group["lag"]), "messages behind them"),
                Figure("Undo", "never", "positions are gone"),
            ),
            warnings=warnings,
            ticks=ticks,
            notes=(
                "The group goes with its positions. This cannot be undone.",
                "The messages stay in their topics.",
                "A member that comes later makes a group of this name anew.",
            ),
            call=call_of("group.delete", {"name": name}, {"force": True} if ticks else None),
            cli=cli_of("group.delete", (name,), {"force": bool(ticks)}),
        )

    @GroupPages.app.route(f"{ONE}/delete", methods=["GET"])
    async def delete_group_plan(self, request: Request, name: str) -> bytes:
        """What deleting a group would remove. Removes nothing."""
        return self._sheet(request, await self._delete_group_sheet(request, name))

    @GroupPages.app.route(f"{ONE}/delete", methods=["POST"])
    async def delete_group(self, request: Request, name: str) -> bytes:
        """Delete a group."""
        form = self._form(request, "group.delete")
        try:
            check_typed(form, name)
            await self._operate(request, "group.delete", name=name, force=truth(form, "force"))
        except EXPECTED as error:
            return self._sheet(request, await self._delete_group_sheet(request, name), error)
        return redirect(request, "/groups", {"done": "deleted"})

    # --- members -------------------------------------------------------------

    async def _evict_sheet(
        self, request: Request, name: str, member: str, form: Mapping[str, str]
    ) -> Sheet:
        told, times = await self._told(request, name), self._now(request)
        found = next((row for row in told["members"] if row["id"] == member), None)
        if found is None:
            raise UnknownMember(f"the group {name} has no member {member[:200]!r} any more")
        title, base = member_names(told["members"])[member], self._home(name)
        return evolve(
            self._begun(name, "Evict", ""),
            title=f"Evict {title}",
            action=f"{base}/evict",
            fields={"member": member},
            cancel=base,
            button="Evict the member",
            typed="",
            figures=(
                Figure("Partitions", number(found["partitions"]), "go to the other members"),
                Figure("Heard", times.age(found["heard_ms"]), "ago"),
                Figure("Member for", times.age(found["since_ms"]), found["address"]),
                Figure("Others", number(len(told["members"]) - 1), "members stay"),
            ),
            warnings=("It is the only member: nobody reads then.",)
            if len(told["members"]) == 1
            else (),
            notes=(
                "Its partitions go to others at once; what it did not commit is done again.",
                "It may join again by itself. To keep it away, stop its process.",
            ),
            entries=(
                Entry(
                    "reason",
                    "Reason",
                    form.get("reason", ""),
                    "Told to the member and written to the log. May be empty.",
                    _MOST_REASON,
                ),
            ),
            call=call_of("group.evict", {"name": name, "member": member}, {"reason": "…"}),
            cli=cli_of("group.evict", (name, member), {"reason": "…"}),
        )

    # Ids of members may have slashes, which no address has: they are fields.
    @GroupPages.app.route(f"{ONE}/evict", methods=["GET"])
    async def evict_plan(self, request: Request, name: str) -> bytes:
        """What sending a member away would do. Changes nothing."""
        member = text(query_of(request), "member")
        return self._sheet(request, await self._evict_sheet(request, name, member, {}))

    @GroupPages.app.route(f"{ONE}/evict", methods=["POST"])
    async def evict(self, request: Request, name: str) -> bytes:
        """Send a member away."""
        form = self._form(request, "group.evict")
        member = text(form, "member")
        try:
            reason = text(form, "reason").strip()
            await self._operate(request, "group.evict", name=name, member=member, reason=reason)
        except UnknownMember:
            return redirect(request, self._home(name), {"done": "gone"})
        except EXPECTED as error:
            sheet = await self._evict_sheet(request, name, member, form)
            return self._sheet(request, sheet, error)
        return redirect(request, self._home(name), {"done": "evicted"})
