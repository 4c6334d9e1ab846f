"""The search box: a message's address, or names of topics, channels, brokers and clients."""

from __future__ import annotations

import re
from typing import Final

from twisted.web.http import Request

from tinymq.web.base import Base, redirect
from tinymq.web.brokers import MISSING, rows
from tinymq.web.channels import WORDS
from tinymq.web.input import query_of, text
from tinymq.web.port import ChannelQuery, ClientQuery, TopicQuery
from tinymq.web.render import segment, view_of

_ADDRESS: Final = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)/(?P<partition>\d+)/(?P<offset>[\d,]+)")
_WAITING: Final = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)/(?P<place>\d+~\d+)")
#: Rows of each kind that a page of mixed results shows.
_ROWS: Final = 10


class Finding(Base):
    """Leads to what a person typed, or shows what it may mean."""

    @Base.app.route("/find", methods=["GET"])
    async def find(self, request: Request) -> bytes:
        """Go to the only kind of thing that matches, or show all kinds."""
        asked = text(query_of(request), "q").strip()
        match = _ADDRESS.fullmatch(asked)
        if match:
            offset = match["offset"].replace(",", "")
            name = segment(match["topic"])
            return redirect(request, f"/topics/{name}/messages/{match['partition']}/{offset}")
        waiting = _WAITING.fullmatch(asked)
        if waiting:
            return redirect(request, f"/delayed/{segment(waiting['topic'])}/{waiting['place']}")
        if not asked:
            return redirect(request, "/topics")
        return await self._search(request, asked)

    async def _search(self, request: Request, asked: str) -> bytes:
        cluster = self._console.cluster()
        times = view_of(request, self._config, cluster.taken_ms).times
        topics = self._console.topics(TopicQuery(name=asked, page_size=_ROWS))
        clients = await self._console.clients(ClientQuery(name=asked, page_size=_ROWS, own=True))
        wanted = asked.lower()
        brokers = [row for row in rows(cluster, times) if wanted in row.broker.name.lower()]
        channels = await self._console.channels(ChannelQuery(name=asked, page_size=_ROWS))
        # A topic's name is a part of the names of its channels: those alone are no other find.
        named = [row for row in channels.items if wanted not in row["topic"].lower()]
        if not brokers and not clients.items and not named:
            return redirect(request, "/topics", {"name": asked})
        if not topics.items and not brokers and not clients.items:
            return redirect(request, "/channels", {"name": asked})
        own = {"own": "true"} if any(one.own for one in clients.items) else {}
        others = topics.items or named
        if not others and not brokers:
            return redirect(request, "/clients", {"name": asked, **own})
        if not others and not clients.items and len(brokers) == 1:
            return redirect(request, f"/brokers/{brokers[0].broker.id}")
        return self._renderer.page(
            request,
            "find.html",
            cluster,
            silent=clients.silent,
            effect=MISSING,
            current="",
            query={"q": asked},
            asked=asked,
            topics=topics,
            channels=channels,
            words=WORDS,
            brokers=brokers[:_ROWS],
            broker_count=len(brokers),
            clients=clients,
            own=own,
        )
