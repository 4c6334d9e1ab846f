"""The search box: a message's address, or names of topics, channels, groups and the rest."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from attrs import frozen
from twisted.web.http import Request

from tinymq.errors import ClientError, WireError
from tinymq.web.base import Base, redirect
from tinymq.web.brokers import MISSING, Row, rows
from tinymq.web.channels import WORDS
from tinymq.web.groups import GroupPage, GroupQuery, select_groups
from tinymq.web.input import query_of, text
from tinymq.web.port import (
    ChannelPage,
    ChannelQuery,
    ClientPage,
    ClientQuery,
    TopicPage,
    TopicQuery,
)
from tinymq.web.render import segment, view_of

_ADDRESS: Final = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)/(?P<partition>\d+)/(?P<offset>[\d,]+)")
_WAITING: Final = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)/(?P<place>\d+~\d+)")
#: Rows of each kind that a page of mixed results shows.
_ROWS: Final = 10


@frozen
class Found:
    """What a search found, by kind."""

    topics: TopicPage
    channels: ChannelPage
    groups: GroupPage
    clients: ClientPage
    brokers: Sequence[Row]

    def only(self, wanted: str) -> tuple[str, bool] | None:
        """
        Find the page of what was meant, if only one kind of thing matches.

        Args:
            wanted: What was looked for, in small letters.

        Returns:
            An address, and whether that is a list that must be told the name; None if
            several kinds match. What matches nothing was meant to be a topic.
        """
        # A topic's name is a part of the names of its channels: those alone are no other find.
        named = [row for row in self.channels.items if wanted not in row["topic"].lower()]
        kinds = {
            "/topics": bool(self.topics.items),
            "/channels": bool(named),
            "/groups": bool(self.groups.items),
            "/brokers": bool(self.brokers),
            "/clients": bool(self.clients.items),
        }
        if sum(kinds.values()) > 1:
            return None
        path = next((path for path, found in kinds.items() if found), "/topics")
        if path == "/groups" and self.groups.filtered_count == 1:
            return f"/groups/{segment(self.groups.items[0]['name'])}", False
        if path == "/brokers":
            one = len(self.brokers) == 1
            return (f"/brokers/{self.brokers[0].broker.id}", False) if one else None
        return path, True


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

    async def _groups_like(self, asked: str) -> GroupPage:
        """Look for groups; a search without them is better than none."""
        try:
            return await self._console.groups(GroupQuery(name=asked, page_size=_ROWS))
        except (WireError, ClientError):
            return select_groups((), GroupQuery())

    async def _search(self, request: Request, asked: str) -> bytes:
        cluster = self._console.cluster()
        times = view_of(request, self._config, cluster.taken_ms).times
        topics = self._console.topics(TopicQuery(name=asked, page_size=_ROWS))
        clients = await self._console.clients(ClientQuery(name=asked, page_size=_ROWS, own=True))
        wanted = asked.lower()
        brokers = [row for row in rows(cluster, times) if wanted in row.broker.name.lower()]
        channels = await self._console.channels(ChannelQuery(name=asked, page_size=_ROWS))
        groups = await self._groups_like(asked)
        own = {"own": "true"} if any(one.own for one in clients.items) else {}
        found = Found(topics, channels, groups, clients, brokers)
        only = found.only(wanted)
        if only is not None:
            path, by_name = only
            more = own if path == "/clients" else {}
            return redirect(request, path, {"name": asked, **more} if by_name else None)
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
            groups=groups,
            words=WORDS,
            brokers=brokers[:_ROWS],
            broker_count=len(brokers),
            clients=clients,
            own=own,
        )
