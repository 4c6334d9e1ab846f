"""The administrative calls on consumer groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from tinymq.client.core.calls import Calls

#: What a call returns: a result, or what becomes one.
R = TypeVar("R")


class GroupCalls(Calls[R]):
    """Administrative operations on consumer groups; every one ends as `operate` does."""

    def list_groups(
        self,
        topic: str | None = None,
        filter: str = "",  # noqa: A002 - the API's word
        *,
        after: str = "",
        limit: int = 100,
    ) -> R:
        """
        List consumer groups in order of their names.

        Args:
            topic: Only those that read this topic.
            filter: A glob for names; empty means all.
            after: Where the last answer said that the next page begins.
            limit: Most groups in the answer.
        """
        return self.operate("group.list", topic=topic, filter=filter, after=after, limit=limit)

    def group(self, name: str) -> R:
        """
        Describe a group with its members, its positions and its last rebalances.

        Args:
            name: The group.
        """
        return self.operate("group.info", name=name)

    def seek_group(
        self,
        name: str,
        to: str | int | None = None,
        *,
        from_group: str | None = None,
        positions: Sequence[tuple[str, int, int]] | None = None,
        **more: Any,
    ) -> R:
        """
        Move a group to another place, given in one of three ways.

        Args:
            name: The group.
            to: ``earliest``, ``latest``, an offset, ``@MILLISECONDS``, ``+N`` or ``-N``.
            from_group: To where this group is.
            positions: To these: topic, partition and offset of each.
            **more: ``topic`` and ``partition`` (only there), ``force`` (though members are
                reading) and ``dry_run``.
        """
        rows: list[dict[str, Any]] | None = None
        if positions is not None:
            rows = [
                {"topic": topic, "partition": index, "offset": offset}
                for topic, index, offset in positions
            ]
        given = {"force": False, "dry_run": False, **more}
        return self.operate(
            "group.seek", name=name, to=to, from_group=from_group, positions=rows, **given
        )

    def undo_group_seek(self, name: str, *, force: bool = False, dry_run: bool = False) -> R:
        """
        Take back what the last seek of a group did.

        Args:
            name: The group.
            force: Do it though members are reading.
            dry_run: Only tell what would be moved.
        """
        return self.operate("group.undo_seek", name=name, force=force, dry_run=dry_run)

    def reset_group(
        self,
        name: str,
        topic: str | None = None,
        *,
        force: bool = False,
        dry_run: bool = False,
    ) -> R:
        """
        Forget the positions of a group; its members begin as if they were new.

        Args:
            name: The group.
            topic: Only in this topic.
            force: Do it though members are reading.
            dry_run: Only tell what would be forgotten.
        """
        return self.operate("group.reset", name=name, topic=topic, force=force, dry_run=dry_run)

    def delete_group(self, name: str, *, force: bool = False, dry_run: bool = False) -> R:
        """
        Remove a group with its positions.

        Args:
            name: The group.
            force: Do it though it has members.
            dry_run: Only tell what would go.
        """
        return self.operate("group.delete", name=name, force=force, dry_run=dry_run)

    def evict_member(self, name: str, member: str, reason: str = "", *, dry_run: bool = False) -> R:
        """
        Send a member away; what it reads is given to others at once.

        This is for one that hangs. One that still runs joins again, with what a newcomer gets:
        stop its process to keep it away.

        Args:
            name: The group.
            member: Its id, or its instance.
            reason: What it is told, for people.
            dry_run: Only say who it is.
        """
        return self.operate("group.evict", name=name, member=member, reason=reason, dry_run=dry_run)
