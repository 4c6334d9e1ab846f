"""Channels and groups over all brokers: in any order, and added up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import evolve

from tinymq.console.base import Base
from tinymq.stats import Backlog, Depth
from tinymq.web.channels import select_channels, states_of
from tinymq.web.groups import GroupPage, GroupQuery, select_groups, shown
from tinymq.web.lists import cut
from tinymq.web.port import ChannelPage, ChannelQuery


class Work(Base):
    """Lists and sums of channels, and lists of groups."""

    async def channels(self, query: ChannelQuery) -> ChannelPage:
        """List channels in any order; the figures of the page are fresh."""
        if query.topic is not None:
            self._operations.find(query.topic)
        if self.queues.few or not query.by_name:
            rows, silent = await self.queues.rows()
            page = select_channels(rows, query, silent)
            if self.queues.few:
                return page
        else:
            page = self._by_name(query)
        fresh, silent_now = await self.queues.describe([_place(row) for row in page.items])
        return evolve(page, items=tuple(fresh), silent=tuple({*page.silent, *silent_now}))

    def _by_name(self, query: ChannelQuery) -> ChannelPage:
        """Find a page by names alone; its rows have nothing else yet."""
        places = self.queues.places()
        found = [each for each in places if query.takes(*each)]
        items, page, count = cut(
            found[::-1] if query.reverse else found, query.page, query.page_size
        )
        return ChannelPage(
            items=tuple({"topic": topic, "name": name} for topic, name in items),
            page=page,
            page_count=count,
            filtered_count=len(found),
            total_count=sum(query.topic in (None, topic) for topic, _ in places),
            states=states_of(self.queues.known(), query),
        )

    async def backlog(self) -> Backlog:
        """Add up all channels."""
        return await self.queues.backlog()

    def lag(self, channel: Mapping[str, Any]) -> Depth:
        """Tell what the lag of a channel was."""
        return self.queues.lag(channel)

    async def groups(self, query: GroupQuery) -> GroupPage:
        """List groups in any order."""
        if not self._registry().groups:
            return select_groups((), query)  # most clusters need not be asked
        rows, silent = await self.crowd.rows()
        if self._listed[0] is not rows:
            self._listed = rows, [shown(row) for row in rows]
        return select_groups(self._listed[1], query, silent)

    def group_lag(self, told: Mapping[str, Any]) -> Depth:
        """Tell what the lag of a group was."""
        return self.crowd.lag(told)


def _place(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["topic"], row["name"]
