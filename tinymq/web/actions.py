"""
The pages that change something: a plan first, then a form with a token.

A plan is a dry run, so looking at it with GET changes nothing. What cannot be
taken back asks for the name to be typed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from twisted.web.http import Request

from tinymq.web.base import Answer, Base, redirect
from tinymq.web.input import (
    MOST_OFFSET,
    BadInput,
    check_typed,
    choice,
    integer,
    moment,
    query_of,
    text,
)
from tinymq.web.port import At, Plan, Since
from tinymq.web.publishing import from_form
from tinymq.web.render import INTERVALS, segment
from tinymq.web.sheets import EXPECTED

_MOST_PARTITION: Final = 2**31 - 1
_YEAR: Final = 365 * 24 * 3600


def purge_of(fields: Mapping[str, Any]) -> tuple[int | None, At | Since | None]:
    """
    Read which records to purge: before an offset, before a time, or all.

    Returns:
        The partition, and the first record to keep.
    """
    partition = integer(fields, "partition", 0, _MOST_PARTITION)
    kind = choice(fields, "before", ("all", "offset", "time"), "all")
    if kind == "all":
        return partition, None
    if kind == "offset":
        offset = integer(fields, "at", 0, MOST_OFFSET)
        if offset is None:
            raise BadInput("at", "name the first offset to keep")
        return partition, At(offset)
    ms = moment(fields, "at")
    if ms is None:
        raise BadInput("at", "name the time before which records go")
    return partition, Since(ms)


def purge_arguments(fields: Mapping[str, str]) -> dict[str, int]:
    """Say what a form wants to purge in the words of the operation."""
    partition, before = purge_of(fields)
    found = {} if partition is None else {"partition": partition}
    if isinstance(before, At):
        found["before"] = before.offset
    elif isinstance(before, Since):
        found["before_ms"] = before.ms
    return found


def settings_of(given: str) -> dict[str, str]:
    """Read settings that were written one a line, as name=value."""
    found = {}
    for line in given.splitlines():
        if not line.strip():
            continue
        name, sign, value = line.partition("=")
        if not sign or not name.strip():
            raise BadInput("config", "write one setting a line, as name=value")
        found[name.strip()] = value.strip()
    return found


class Actions(Base):
    """Publish, create, configure, purge, delete, and the look of the pages."""

    def _again(
        self, request: Request, template: str, name: str | None, error: Exception, **values: Any
    ) -> bytes:
        """Show a form again with what is wrong."""
        answer = Answer(error)
        request.setResponseCode(answer.status)
        topic = None if name is None else self._console.topic(name)
        return self._renderer.page(
            request,
            template,
            self._console.cluster(),
            current="topics",
            topic=topic,
            query={},
            error=answer,
            **values,
        )

    # --- publish -------------------------------------------------------------

    @Base.app.route("/topics/<name>/publish", methods=["POST"])
    async def publish(self, request: Request, name: str) -> bytes:
        """Append one record, and say where it went."""
        form = self._form(request, "messages.publish")
        try:
            wish = from_form(form)
            at = await self._console.publish(name, *wish.told)
        except EXPECTED as error:
            return self._again(
                request, "topic_publish.html", name, error, tab="publish", values=form, note=""
            )
        done = {"done": "published", "partition": at.partition, "offset": at.offset}
        if at.unroutable:
            done["done"] = "unroutable"
        if at.delayed is not None:
            done = {"done": "delayed", "partition": at.partition, "id": at.delayed}

        return redirect(request, f"/topics/{segment(name)}/publish", done)

    # --- create and configure ------------------------------------------------

    @Base.app.route("/new-topic", methods=["GET"])
    def new_topic(self, request: Request) -> bytes:
        """The form that makes a topic."""
        return self._renderer.page(
            request,
            "new_topic.html",
            self._console.cluster(),
            current="topics",
            query={},
            values={"name": query_of(request).get("name", "")},
            error=None,
        )

    @Base.app.route("/new-topic", methods=["POST"])
    async def create(self, request: Request) -> bytes:
        """Make a topic."""
        form = self._form(request, "topic.create")
        try:
            name = text(form, "name").strip()
            if not name:
                raise BadInput("name", "a topic needs a name")
            count = integer(form, "partitions", 1, self._config.limits.partitions)
            config = settings_of(text(form, "config"))
            await self._console.create_topic(
                name, count, config, dry_run=False, caller=self._config.caller(request)
            )
        except EXPECTED as error:
            return self._again(request, "new_topic.html", None, error, values=form)
        return redirect(request, f"/topics/{segment(name)}", {"done": "created"})

    @Base.app.route("/topics/<name>/settings", methods=["POST"])
    async def alter(self, request: Request, name: str) -> bytes:
        """Show the plan of changed settings, or carry it out when it was seen."""
        form = self._form(request, "topic.alter")
        topic = self._console.topic(name)
        changed = {
            row.name: form[f"config.{row.name}"].strip() or None
            for row in topic.config
            if f"config.{row.name}" in form and form[f"config.{row.name}"].strip() != row.value
        }
        seen = form.get("confirm") == "yes"
        try:
            plan = await self._console.alter_topic(
                name, changed, dry_run=not seen, caller=self._config.caller(request)
            )
        except EXPECTED as error:
            known = await self._changes(request, name)
            return self._again(
                request, "topic_settings.html", name, error, tab="settings", values=form, **known
            )
        if seen:
            return redirect(request, f"/topics/{segment(name)}", {"done": "altered"})
        fields = {f"config.{key}": value or "" for key, value in changed.items()}
        return self._plan(request, plan, {**fields, "confirm": "yes"})

    # --- purge and delete ----------------------------------------------------

    def _plan(
        self, request: Request, plan: Plan, fields: Mapping[str, str], error: Answer | None = None
    ) -> bytes:
        """Show what an action would do, with the form that does it."""
        return self._renderer.page(
            request,
            "plan.html",
            self._console.cluster(),
            current="topics",
            topic=self._console.topic(plan.topic),
            query={},
            plan=plan,
            fields=fields,
            arguments=json.dumps(purge_arguments(fields)) if plan.action == "purge" else "",
            error=error,
        )

    @Base.app.route("/topics/<name>/purge", methods=["GET"])
    async def purge_plan(self, request: Request, name: str) -> bytes:
        """What a purge would remove. Removes nothing."""
        query = query_of(request)
        partition, before = purge_of(query)
        plan = await self._console.purge(name, partition, before, dry_run=True)
        return self._plan(request, plan, _purge_fields(query))

    @Base.app.route("/topics/<name>/purge", methods=["POST"])
    async def purge(self, request: Request, name: str) -> bytes:
        """Remove records; the undo window opens."""
        form = self._form(request, "topic.purge")
        partition, before = purge_of(form)
        try:
            check_typed(form, name)
        except BadInput as error:
            plan = await self._console.purge(name, partition, before, dry_run=True)
            request.setResponseCode(error.status)
            return self._plan(request, plan, _purge_fields(form), Answer(error))
        caller = self._config.caller(request)
        await self._console.purge(name, partition, before, dry_run=False, caller=caller)
        return redirect(request, f"/topics/{segment(name)}", {"done": "purged"})

    @Base.app.route("/topics/<name>/undo", methods=["POST"])
    async def undo(self, request: Request, name: str) -> bytes:
        """Bring back what the last purge took."""
        self._form(request, "topic.undo_purge")
        plan = await self._console.undo_purge(name, self._config.caller(request))
        done = {"done": "undone", "records": plan.records}
        return redirect(request, f"/topics/{segment(name)}", done)

    @Base.app.route("/topics/<name>/delete", methods=["GET"])
    async def delete_plan(self, request: Request, name: str) -> bytes:
        """What deleting a topic would remove. Removes nothing."""
        plan = await self._console.delete_topic(name, dry_run=True)
        return self._plan(request, plan, {})

    @Base.app.route("/topics/<name>/delete", methods=["POST"])
    async def delete(self, request: Request, name: str) -> bytes:
        """Delete a topic."""
        form = self._form(request, "topic.delete")
        try:
            check_typed(form, name)
        except BadInput as error:
            plan = await self._console.delete_topic(name, dry_run=True)
            request.setResponseCode(error.status)
            return self._plan(request, plan, {}, Answer(error))
        await self._console.delete_topic(name, dry_run=False)
        return redirect(request, "/topics", {"done": "deleted"})

    # --- the look ------------------------------------------------------------

    @Base.app.route("/view", methods=["POST"])
    def view(self, request: Request) -> bytes:
        """Remember how this browser wants pages to look."""
        form = self._form(request)
        theme, zone = form.get("theme", ""), form.get("zone", "")
        if theme in {"light", "dark"}:
            _remember(request, "tinymq-theme", theme)
        if zone and len(zone) < 64 and zone.replace("/", "").replace("_", "").isascii():
            _remember(
                request, "tinymq-zone", "".join(c for c in zone if c.isalnum() or c in "/_+-")
            )
        if form.get("every", "") in map(str, INTERVALS):
            _remember(request, "tinymq-every", form["every"])
        back = form.get("back", "")
        plain = back.startswith("/") and not back.startswith(("//", "/\\")) and back.isascii()
        return redirect(request, back if plain and back.isprintable() else "/")


def _purge_fields(given: Mapping[str, str]) -> dict[str, str]:
    return {key: given[key] for key in ("before", "at", "partition") if given.get(key)}


def _remember(request: Request, name: str, value: str) -> None:
    request.addCookie(name, value, path="/", max_age=str(_YEAR), sameSite="strict")
