"""The pages of consumer groups that only look: all of them, and one of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from attrs import frozen
from twisted.web.http import Request

from tinymq.web import charts
from tinymq.web import format as write
from tinymq.web.flow import Flow
from tinymq.web.group_why import diagnose, member_names, out_of_range, place
from tinymq.web.groups import GROUP_SORTS, GROUP_STATES, GroupQuery, shown
from tinymq.web.input import choice, integer, query_of, text, truth
from tinymq.web.lists import MAX_PAGE_SIZE, cut
from tinymq.web.publishing import MOST_PARTITION

Json = dict[str, Any]
#: The address of one group.
ONE: Final = "/groups/<name>"
_MOST_PAGE: Final = 10**6
#: Partitions on the first page of a group, and on each of their own pages.
_FEW: Final = 12
_PAGE: Final = 100
#: Rebalances that are listed.
_REBALANCES: Final = 10
#: Open transactions that are asked about.
_OPEN: Final = 500
#: The id of a member that is gone: its beginning says enough.
_GONE: Final = re.compile(r"\b([0-9a-f]{6})[0-9a-f]{26}\b")


def group_query(query: Mapping[str, Any], topic: str | None = None) -> GroupQuery:
    """
    Read which groups a list should show.

    Args:
        query: Of the address.
        topic: The topic that they read; as the query says, if not given.
    """
    return GroupQuery(
        name=text(query, "name").strip(),
        topic=topic if topic is not None else text(query, "topic").strip() or None,
        state=choice(query, "state", ("", *GROUP_STATES), ""),
        sort=choice(query, "sort", GROUP_SORTS, "group"),
        reverse=truth(query, "reverse"),
        page=integer(query, "page", 1, _MOST_PAGE) or 1,
        page_size=integer(query, "page_size", 1, MAX_PAGE_SIZE) or 50,
    )


def letters(index: int) -> str:
    """
    Write a number as letters: A to Z, then AA and so on.

    Args:
        index: From 0.
    """
    found = ""
    index += 1
    while index:
        index, digit = divmod(index - 1, 26)
        found = chr(ord("A") + digit) + found
    return found


@frozen
class Holder:
    """
    A member with what it has.

    Attributes:
        member: As operations describe it.
        name: As people know it.
        letters: What stands for it where there is little room.
        topics: The numbers of its partitions, by topic.
        lag: Messages behind the positions of its partitions.
        draining: How many of them it is giving up.
    """

    member: Mapping[str, Any]
    name: str
    letters: str
    topics: Mapping[str, Sequence[int]]
    lag: int
    draining: int

    @property
    def partitions(self) -> int:
        """How many it has."""
        return sum(map(len, self.topics.values()))


def holders(told: Mapping[str, Any]) -> list[Holder]:
    """
    Say who has what.

    Args:
        told: As ``group.info`` tells it.

    Returns:
        The members in order of their names.
    """
    held: dict[str, list[Mapping[str, Any]]] = {}
    for row in told["partitions"]:
        held.setdefault(row["member"], []).append(row)
    found = []
    names = member_names(told["members"])
    members = sorted(told["members"], key=lambda row: (names[row["id"]], row["id"]))
    for index, member in enumerate(members):
        rows = held.get(member["id"], [])
        topics: dict[str, list[int]] = {}
        for row in sorted(rows, key=_order):
            topics.setdefault(row["topic"], []).append(row["partition"])
        found.append(
            Holder(
                member,
                names[member["id"]],
                letters(index),
                topics,
                sum(row["lag"] or 0 for row in rows),
                sum(row["draining"] for row in rows),
            )
        )
    return found


def _order(row: Mapping[str, Any]) -> tuple[str, int]:
    return row["topic"], row["partition"]


def _rebalance(row: Mapping[str, Any]) -> charts.Event:
    moved = f"{write.plural(row['moved'], 'partition')} moved"
    took = " so far" if row["took_ms"] is None else f" in {write.duration(row['took_ms'])}"
    why = f": {row['why']}" if row["why"] else ""
    return charts.Event(row["at_ms"], f"Rebalance, {moved}{took}{why}")


def _readable(told: Json) -> Json:
    """Write the reasons of rebalances with the names of members that are still there."""
    names = member_names(told["members"])

    def named(text: str) -> str:
        for key, name in names.items():
            text = text.replace(key, name) if key else text
        return _GONE.sub(r"\1", text)

    rows = [{**row, "why": named(row["why"])} for row in told["rebalances"]]
    return {**told, "rebalances": rows}


def _lag_chart(
    lag: Any, rebalances: Iterable[Mapping[str, Any]], times: write.Times, span: str
) -> list[charts.Drawn]:
    """Draw the lag with the rebalances on it, once two looks at it are known."""
    known = lag.recent if span == "10m" else lag.long
    events = tuple(map(_rebalance, rebalances))
    plot = charts.Plot("Lag", (("messages", known),), charts.SPANS[span][0], events=events)
    return charts.draw_both(plot, write.number, times, charts.LARGE)


class GroupPages(Flow):
    """Lists of groups, and one group."""

    @Flow.app.route("/groups", methods=["GET"])
    async def groups(self, request: Request) -> bytes:
        """Every group, or those that a person looks for."""
        query = query_of(request)
        asked = group_query(query)
        found = await self._console.groups(asked)
        return self._show(
            request,
            "groups.html",
            "groups",
            keep=True,
            silent=found.silent,
            query=query,
            asked=asked,
            found=found,
        )

    # --- one group -----------------------------------------------------------

    async def _told(self, request: Request, name: str) -> Json:
        return await self._operate(request, "group.info", name=name)

    async def _group_page(self, request: Request, told: Json, tab: str, **values: Any) -> bytes:
        """Show a tab of a group."""
        values.setdefault("why", diagnose(told, self._now(request).now_ms))
        return self._show(
            request,
            f"group_{tab}.html",
            "groups",
            silent=told["silent"],
            tab=tab,
            told=told,
            group=shown(told["group"]),
            names=member_names(told["members"]),
            place=place,
            out_of_range=out_of_range,
            **values,
        )

    @Flow.app.route(ONE, methods=["GET"])
    async def group(self, request: Request, name: str) -> bytes:
        """One group: how far it is, why it stands where it does, who reads."""
        told = _readable(await self._told(request, name))
        opened = await self._known(request, "transaction.list", state="open", limit=_OPEN)
        query, times = query_of(request), self._now(request)
        span = choice(query, "span", tuple(charts.SPANS), "10m")
        rows = told["partitions"]
        worst = sorted(rows, key=lambda row: (-(row["lag"] or 0), *_order(row)))[:_FEW]
        return await self._group_page(
            request,
            told,
            "overview",
            keep=True,
            query=query,
            asked_span=span,
            span_title=charts.SPANS[span][1],
            charts=_lag_chart(self._console.group_lag(told), told["rebalances"], times, span),
            why=diagnose(told, times.now_ms, None if opened is None else opened["transactions"]),
            holders=holders(told),
            rows=sorted(rows, key=_order) if len(rows) <= _FEW else worst,
            rebalances=told["rebalances"][:_REBALANCES],
        )

    @Flow.app.route(f"{ONE}/partitions", methods=["GET"])
    async def group_partitions(self, request: Request, name: str) -> bytes:
        """Where the group is in each partition."""
        told, query = await self._told(request, name), query_of(request)
        topic, lagging = text(query, "topic").strip(), truth(query, "lagging")
        partition = integer(query, "partition", 0, MOST_PARTITION)
        member = text(query, "member")
        found = [
            row
            for row in sorted(told["partitions"], key=_order)
            if topic in ("", row["topic"])
            and partition in (None, row["partition"])
            and member in ("", row["member"])
            and (not lagging or row["lag"] or row["error"])
        ]
        page = integer(query, "page", 1, _MOST_PAGE) or 1
        rows, page, count = cut(found, page, _PAGE)
        return await self._group_page(
            request,
            told,
            "partitions",
            keep=True,
            query=query,
            topic=topic,
            lagging=lagging,
            member=member,
            rows=rows,
            filtered=found,
            page=page,
            page_count=count,
        )

    @Flow.app.route(f"{ONE}/assignment", methods=["GET"])
    async def group_assignment(self, request: Request, name: str) -> bytes:
        """Which member has which partitions."""
        told = await self._told(request, name)
        topics: dict[str, list[Mapping[str, Any]]] = {}
        for row in sorted(told["partitions"], key=_order):
            topics.setdefault(row["topic"], []).append(row)
        return await self._group_page(
            request, told, "assignment", keep=True, holders=holders(told), topics=topics
        )

    @Flow.app.route(f"{ONE}/danger", methods=["GET"])
    async def group_danger(self, request: Request, name: str) -> bytes:
        """What moves a group, lets it forget its positions, or removes it."""
        told = await self._told(request, name)
        return await self._group_page(request, told, "danger", values=query_of(request), error=None)
