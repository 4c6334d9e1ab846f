"""The pages that only look. None of them changes anything."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from twisted.internet.defer import Deferred, gatherResults
from twisted.web.http import Request

from tinymq.errors import ClientError, StateError, WireError
from tinymq.limits import MAX_VALUE_CEILING
from tinymq.stats import Backlog, ClusterSnapshot, Trail
from tinymq.web import charts
from tinymq.web import format as write
from tinymq.web.base import Base
from tinymq.web.brokers import Order, rows
from tinymq.web.browsing import KINDS, MOST_BYTES, WHERES, coverage, neighbours, preview, wanted
from tinymq.web.channels import WORDS
from tinymq.web.flow_verdict import Flowing, flow_problems
from tinymq.web.groups import GroupQuery, GroupRow, group_problems, latest_of, worst_of
from tinymq.web.input import (
    MOST_BROKER,
    MOST_OFFSET,
    BadInput,
    choice,
    integer,
    query_of,
    text,
    truth,
)
from tinymq.web.life import lanes_of
from tinymq.web.lists import MAX_PAGE_SIZE, SORT_FIELDS, TopicQuery
from tinymq.web.placement import placement
from tinymq.web.port import MessageView
from tinymq.web.publishing import copied
from tinymq.web.render import view_of
from tinymq.web.verdict import draining, problems, tightest
from tinymq.web.viewers import KINDS as VIEWS
from tinymq.web.viewers import NAMES, WINDOW, guess, show, window_of

_MOST_PAGE: Final = 10**6
#: Partitions that a topic's first page shows.
_FEW_PARTITIONS: Final = 16
#: Exchanges and push endpoints that the overview judges.
_MOST_JUDGED: Final = 500
#: Brokers that the overview shows.
_FEW_BROKERS: Final = 8


def topic_query(query: Mapping[str, Any], page_size: int = 50) -> TopicQuery:
    """Read which topics a list should show."""
    return TopicQuery(
        name=text(query, "name").strip(),
        sort=choice(query, "sort", SORT_FIELDS, "name"),
        reverse=truth(query, "reverse"),
        page=integer(query, "page", 1, _MOST_PAGE) or 1,
        page_size=integer(query, "page_size", 1, MAX_PAGE_SIZE) or page_size,
        broker=integer(query, "broker", 0, MOST_BROKER),
    )


def content_type(message: MessageView) -> str:
    """Read what the message says about itself."""
    for name, value in message.headers:
        if name.lower() == "content-type":
            return value[:200].decode("utf-8", "replace")
    return ""


def _byte_axis(value: float) -> str:
    return "0" if not value else str(write.size(value)).replace(".0 ", " ")


def _charts(
    trail: Trail | None, times: write.Times, span_ms: int, box: charts.Box = charts.WIDE
) -> list[charts.Drawn]:
    """Draw messages and bytes, each wide and narrow, with what writes a value."""
    if trail is None:
        return []
    out, into = "delivered /s", "published /s"
    messages = ((out, trail.messages_out), (into, trail.messages_in))
    sizes = ((out, trail.bytes_out), (into, trail.bytes_in))
    plots = (
        (charts.Plot("Messages", messages, span_ms), write.rate),
        (charts.Plot("Bytes", sizes, span_ms, _byte_axis), lambda value: str(write.size(value))),
    )
    return [each for plot, writer in plots for each in charts.draw_both(plot, writer, times, box)]


def _depths(backlog: Backlog, times: write.Times, span: str) -> list[charts.Drawn]:
    """Draw what is not settled, once there are channels and two looks at them."""
    ready, in_flight = backlog.ready_depth, backlog.in_flight_depth
    if ready is None or in_flight is None or not backlog.channels:
        return []
    both = (("ready", ready), ("in flight", in_flight))
    known = tuple((name, one.recent if span == "10m" else one.long) for name, one in both)
    plot = charts.Plot("Unsettled", known, charts.SPANS[span][0])
    return charts.draw_both(plot, write.number, times, charts.THIRD)


class Pages(Base):
    """Overview, topics, one topic, its messages, one message."""

    _safe: ClassVar[re.Pattern[str]] = re.compile(r"[^A-Za-z0-9._-]")

    def _times(self, request: Request, cluster: ClusterSnapshot) -> write.Times:
        return view_of(request, self._config, cluster.taken_ms).times

    async def _flowing(self, request: Request) -> Flowing:
        """Ask what waits and goes on; a page without that is better than none."""
        # All at once: a broker that does not answer is waited for once.
        delayed, exchanges, endpoints = await gatherResults(
            [
                Deferred.fromCoroutine(self._known(request, "delayed.histogram")),
                Deferred.fromCoroutine(self._known(request, "exchange.list", limit=_MOST_JUDGED)),
                Deferred.fromCoroutine(self._known(request, "push.list", limit=_MOST_JUDGED)),
            ]
        )
        return Flowing(
            delayed=delayed,
            exchanges=(exchanges or {}).get("exchanges", ()),
            endpoints=(endpoints or {}).get("endpoints", ()),
        )

    async def _lagging(self) -> Sequence[GroupRow]:
        """List the groups with the largest lag; a page without them is better than none."""
        try:
            found = await self._console.groups(
                GroupQuery(sort="lag", reverse=True, page_size=_MOST_JUDGED)
            )
        except (WireError, ClientError):
            return ()
        return [row for row in found.items if row["lag"]]

    @Base.app.route("/", methods=["GET"])
    async def overview(self, request: Request) -> bytes:
        """The verdict, then the figures, then the evidence."""
        cluster, backlog = self._console.cluster(), await self._console.backlog()
        query = query_of(request)
        span = choice(query, "span", tuple(charts.SPANS), "10m")
        span_ms, span_title = charts.SPANS[span]
        trail = cluster.recent if span == "10m" else cluster.long
        times = self._times(request, cluster)
        listed = rows(cluster, times)
        depths = _depths(backlog, times, span)
        box = charts.THIRD if backlog.channels else charts.WIDE
        flowing, groups = await self._flowing(request), await self._lagging()
        return self._renderer.page(
            request,
            "overview.html",
            cluster,
            keep=True,
            current="overview",
            query=query,
            silent=None,
            problems=problems(
                cluster,
                backlog,
                [*group_problems(groups), *flow_problems(flowing, times.now_ms)],
            ),
            delayed=flowing.delayed,
            backlog=backlog,
            words=WORDS,
            lagging=worst_of(backlog.worst, groups),
            latest=latest_of(backlog.latest, groups),
            draining=draining(cluster),
            tightest=tightest(cluster),
            rows=listed if len(listed) <= _FEW_BROKERS else Order().of(listed)[:_FEW_BROKERS],
            broker_count=len(listed),
            meta_count=sum(row.broker.role == "meta" for row in listed),
            span=span,
            span_title=span_title,
            charts=[*_charts(trail, times, span_ms, box), *depths],
            collecting=bool(backlog.channels) and not depths,
        )

    @Base.app.route("/topics", methods=["GET"])
    def topics(self, request: Request) -> bytes:
        """The list of topics."""
        query = query_of(request)
        asked = topic_query(query)
        found = self._console.topics(asked)
        return self._renderer.page(
            request,
            "topics.html",
            self._console.cluster(),
            keep=True,
            silent=found.silent,
            current="topics",
            query=query,
            asked=asked,
            found=found,
        )

    def _topic_page(self, request: Request, name: str, tab: str, **values: Any) -> bytes:
        values.setdefault("query", query_of(request))
        cluster, topic = self._console.cluster(), self._console.topic(name)
        return self._renderer.page(
            request,
            f"topic_{tab}.html",
            cluster,
            silent=topic.silent,
            current="topics",
            tab=tab,
            topic=topic,
            places=placement(topic, cluster),
            zones={one.id: one.zone for one in cluster.brokers},
            **values,
        )

    @Base.app.route("/topics/<name>", methods=["GET"])
    async def topic(self, request: Request, name: str) -> bytes:
        """One topic: figures, curves, partitions, configuration."""
        cluster = self._console.cluster()
        topic = self._console.topic(name)
        times = self._times(request, cluster)
        drawn = _charts(topic.recent, times, charts.SPANS["10m"][0], charts.LARGE)
        delayed = await self._known(request, "delayed.histogram", topic=name)
        exchange = await self._known(request, "exchange.info", name=name)
        return self._topic_page(
            request,
            name,
            "overview",
            keep=True,
            charts=drawn,
            few=_FEW_PARTITIONS,
            delayed=(delayed or {}).get("total", 0),
            exchange=(exchange or {}).get("exchange"),
        )

    @Base.app.route("/topics/<name>/partitions", methods=["GET"])
    async def partitions(self, request: Request, name: str) -> bytes:
        """Every partition of a topic, with what is damaged or offline, and what retention keeps."""
        try:
            told = (await self._operate(request, "topic.info", name=name))["topic"]
        except (StateError, ClientError):  # a page without that is better than none
            told = {"partitions": (), "config": {}}
        held = {row["partition"]: row["held"] for row in told["partitions"] if row["held"]}
        then = told["config"].get("hold.then", "")
        return self._topic_page(request, name, "partitions", keep=True, held=held, then=then)

    @Base.app.route("/topics/<name>/messages", methods=["GET"])
    async def messages(self, request: Request, name: str) -> bytes:
        """Messages of a topic, from where a person wants."""
        query = query_of(request)
        want = wanted(query)
        found = await self._console.browse(name, want.partition, want.start, want.limit, MOST_BYTES)
        older, newer = neighbours(found, want)
        return self._topic_page(
            request,
            name,
            "messages",
            query=query,
            want=want,
            found=found,
            rows=[(record, preview(record, want.kind)) for record in found.records],
            coverage=coverage(found),
            older=older,
            newer=newer,
            wheres=WHERES,
            kinds=KINDS,
        )

    async def _message(
        self, name: str, place: tuple[int, int], skip: int, length: int
    ) -> MessageView:
        partition, offset = place
        if partition > MOST_OFFSET or offset > MOST_OFFSET:
            raise BadInput("offset", "there is no message with such an offset", 404)
        return await self._console.message(name, partition, offset, skip, length)

    async def _life(
        self, request: Request, name: str, partition: int, offset: int
    ) -> dict[str, Any]:
        """Tell what channels did with a message; a page without that is better than none."""
        try:
            return await self._operate(
                request, "message.life", topic=name, partition=partition, offset=offset
            )
        except (WireError, ClientError) as error:
            return {"events": [], "channels": [], "since_ms": None, "more": False, "why": error}

    @Base.app.route("/topics/<name>/messages/<int:partition>/<int:offset>", methods=["GET"])
    async def message(self, request: Request, name: str, partition: int, offset: int) -> bytes:
        """One message: what it says about itself, then its body."""
        query = query_of(request)
        asked = choice(query, "as", ("auto", *VIEWS), "auto")
        skip = integer(query, "skip", 0, MOST_OFFSET) or 0
        message = await self._message(name, (partition, offset), skip, WINDOW)
        value = message.value or b""
        reason = ""
        if asked == "auto":
            whole = not skip and len(value) == message.size
            kind, reason = guess(value, whole, content_type(message))
        else:
            kind = next(one for one in VIEWS if one == asked)
        window = value[: window_of(kind)]
        life = await self._life(request, name, partition, offset)
        return self._renderer.page(
            request,
            "message.html",
            self._console.cluster(),
            current="topics",
            lanes=lanes_of(life, message.time_ms),
            life=life,
            query=query,
            message=message,
            shown=show(window, kind, skip),
            guess=reason,
            skip=skip,
            end=skip + len(window),
            window=window_of(kind),
            names=NAMES,
        )

    @Base.app.route("/topics/<name>/messages/<int:partition>/<int:offset>/raw", methods=["GET"])
    async def raw(self, request: Request, name: str, partition: int, offset: int) -> bytes:
        """The bytes of a value, to be saved. Never shown by the browser."""
        # All of it at once: every look at a message reads and opens its whole batch.
        message = await self._message(name, (partition, offset), 0, MAX_VALUE_CEILING)
        file = self._safe.sub("_", f"{name}-{partition}-{offset}.bin")
        request.setHeader("Content-Type", "application/octet-stream")
        request.setHeader("Content-Disposition", f'attachment; filename="{file}"')
        request.setHeader("Content-Length", str(message.size))
        return message.value or b""

    @Base.app.route("/topics/<name>/publish", methods=["GET"])
    async def publish_form(self, request: Request, name: str) -> bytes:
        """The form that publishes; filled in when a message is published again."""
        query = query_of(request)
        values: dict[str, str] = {}
        note = ""
        if "from" in query:
            values, note = await self._copied(name, query["from"])
        return self._topic_page(
            request, name, "publish", query=query, values=values, error=None, note=note
        )

    async def _copied(self, name: str, place: str) -> tuple[dict[str, str], str]:
        partition, _, offset = place.partition("/")
        try:
            where = int(partition), int(offset)
        except ValueError:
            raise BadInput("from", "from must be partition/offset") from None
        message = await self._message(name, where, 0, WINDOW)
        return copied(message)

    @Base.app.route("/topics/<name>/settings", methods=["GET"])
    async def settings(self, request: Request, name: str) -> bytes:
        """The configuration of a topic, to be changed, and who changed what."""
        query = query_of(request)
        known = await self._changes(request, name, query.get("after", ""))
        return self._topic_page(
            request, name, "settings", values={}, error=None, query=query, **known
        )

    @Base.app.route("/topics/<name>/danger", methods=["GET"])
    def danger(self, request: Request, name: str) -> bytes:
        """What removes records or the topic itself."""
        return self._topic_page(request, name, "danger", error=None)
