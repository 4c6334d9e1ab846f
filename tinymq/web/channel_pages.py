"""The pages of channels that only look: all of them, one of them, its messages, its settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from twisted.web.http import Request

from tinymq.catalog.inflight import STATES as PEEKS
from tinymq.channelpolicy import ChannelPolicy
from tinymq.errors import ClientError, WireError
from tinymq.stats import Depth
from tinymq.web import charts
from tinymq.web import format as write
from tinymq.web.base import Base
from tinymq.web.channels import (
    CHANNEL_SORTS,
    STATES,
    WORDS,
    ChannelQuery,
)
from tinymq.web.groups import GroupPage, GroupQuery
from tinymq.web.input import MOST_OFFSET, choice, integer, query_of, text, truth
from tinymq.web.lists import MAX_PAGE_SIZE
from tinymq.web.publishing import MOST_PARTITION
from tinymq.web.render import view_of

_MOST_PAGE: Final = 10**6
#: Messages on one page of a peek.
_PEEKED: Final = 50
#: Groups on the page of a topic.
_GROUPS: Final = 20
#: The address of one channel.
ONE: Final = "/topics/<name>/channels/<channel>"


def channel_query(query: Mapping[str, Any], topic: str | None = None) -> ChannelQuery:
    """Read which channels a list should show."""
    return ChannelQuery(
        name=text(query, "name").strip(),
        topic=topic if topic is not None else text(query, "topic").strip() or None,
        state=choice(query, "state", ("", *STATES), ""),
        sort=choice(query, "sort", CHANNEL_SORTS, "channel"),
        reverse=truth(query, "reverse"),
        page=integer(query, "page", 1, _MOST_PAGE) or 1,
        page_size=integer(query, "page_size", 1, MAX_PAGE_SIZE) or 50,
    )


def settings_rows(config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Write the settings of a channel as rows for people, each beside its default."""
    policy = ChannelPolicy.from_stored(config)
    return [
        {
            "name": row.name,
            "value": row.value,
            "default": row.default,
            "text": row.text,
            "allowed": row.allowed,
        }
        for row in policy.rows()
    ]


def _lag_chart(lag: Depth, times: write.Times, span: str) -> list[charts.Drawn]:
    """Draw the lag, once two looks at it are known."""
    known = lag.recent if span == "10m" else lag.long
    plot = charts.Plot("Lag", (("messages", known),), charts.SPANS[span][0])
    return charts.draw_both(plot, write.number, times, charts.LARGE)


class ChannelPages(Base):
    """Lists of channels, and one channel."""

    @Base.app.route("/channels", methods=["GET"])
    async def channels(self, request: Request) -> bytes:
        """Every channel, or those that a person looks for."""
        query = query_of(request)
        asked = channel_query(query)
        found = await self._console.channels(asked)
        return self._renderer.page(
            request,
            "channels.html",
            self._console.cluster(),
            keep=True,
            silent=found.silent,
            current="channels",
            query=query,
            asked=asked,
            found=found,
            states=STATES,
            words=WORDS,
        )

    @Base.app.route("/topics/<name>/channels", methods=["GET"])
    async def channels_of(self, request: Request, name: str) -> bytes:
        """The channels of one topic."""
        query = query_of(request)
        asked = channel_query(query, name)
        topic = self._console.topic(name)
        found = await self._console.channels(asked)
        return self._renderer.page(
            request,
            "topic_channels.html",
            self._console.cluster(),
            groups=await self._groups_of(name),
            keep=True,
            silent=found.silent,
            current="topics",
            tab="channels",
            topic=topic,
            query=query,
            asked=asked,
            found=found,
            states=STATES,
            words=WORDS,
        )

    async def _groups_of(self, topic: str) -> GroupPage | None:
        """List the groups that read a topic; None if that cannot be told."""
        asked = GroupQuery(topic=topic, sort="lag", reverse=True, page_size=_GROUPS)
        try:
            return await self._console.groups(asked)
        except (WireError, ClientError):
            return None

    # --- one channel ---------------------------------------------------------

    async def _info(self, request: Request, topic: str, name: str) -> dict[str, Any]:
        result = await self._operate(request, "channel.info", topic=topic, name=name)
        found: dict[str, Any] = result["channel"]
        return found

    async def _channel_page(
        self, request: Request, names: tuple[str, str], tab: str, **values: Any
    ) -> bytes:
        """Show a tab of a channel."""
        found = values.pop("channel", None) or await self._info(request, *names)
        values.setdefault("query", query_of(request))
        return self._renderer.page(
            request,
            f"channel_{tab}.html",
            self._console.cluster(),
            silent=sorted({*found["silent"], *values.pop("missing", ())}),
            current="channels",
            tab=tab,
            channel=found,
            words=WORDS,
            **values,
        )

    @Base.app.route(ONE, methods=["GET"])
    async def channel(self, request: Request, name: str, channel: str) -> bytes:
        """One channel: where its messages are, why it stands where it does, who works."""
        told = await self._operate(request, "channel.members", topic=name, name=channel)
        found = await self._info(request, name, channel)
        pushed = await self._known(request, "push.info", topic=name, name=channel)
        query = query_of(request)
        span = choice(query, "span", tuple(charts.SPANS), "10m")
        cluster = self._console.cluster()
        times = view_of(request, self._config, cluster.taken_ms).times
        return await self._channel_page(
            request,
            (name, channel),
            "overview",
            keep=True,
            channel=found,
            query=query,
            asked_span=span,
            span_title=charts.SPANS[span][1],
            charts=_lag_chart(self._console.lag(found), times, span),
            members=told["members"],
            missing=told["silent"],
            pushed=(pushed or {}).get("endpoint"),
        )

    @Base.app.route(f"{ONE}/messages", methods=["GET"])
    async def peek(self, request: Request, name: str, channel: str) -> bytes:
        """The messages of a channel, each with where it stands. Changes nothing."""
        query = query_of(request)
        state = choice(query, "state", PEEKS, "any")
        partition = integer(query, "partition", 0, MOST_PARTITION)
        told = await self._operate(
            request,
            "channel.peek",
            topic=name,
            name=channel,
            partition=partition,
            state=state,
            limit=_PEEKED,
            after=text(query, "after") or None,
        )
        return await self._channel_page(
            request,
            (name, channel),
            "messages",
            query=query,
            told=told,
            missing=told["silent"],
            state_asked=state,
            partition=partition,
            peeks=PEEKS,
        )

    @Base.app.route(f"{ONE}/settings", methods=["GET"])
    async def channel_settings(self, request: Request, name: str, channel: str) -> bytes:
        """The policy of a channel, to be changed."""
        found = await self._info(request, name, channel)
        return await self._channel_page(
            request,
            (name, channel),
            "settings",
            channel=found,
            rows=settings_rows(found["config"]),
            values={},
            error=None,
        )

    @Base.app.route(f"{ONE}/danger", methods=["GET"])
    async def channel_danger(self, request: Request, name: str, channel: str) -> bytes:
        """What moves a channel, settles its messages, or removes it."""
        return await self._channel_page(
            request, (name, channel), "danger", values={}, error=None, most=MOST_OFFSET
        )
