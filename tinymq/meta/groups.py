"""
The MetaServer's operations on consumer groups: which there are.

Where a group is in each partition is not known here but kept by the partition's broker,
and who its members are by the group's coordinator.
"""

from __future__ import annotations

from typing import Final

from tinymq.errors import InvalidRequest, Overloaded
from tinymq.meta.channels import Channels
from tinymq.meta.entries import Compare, Delete, Put
from tinymq.meta.registry import GroupInfo, group_mark
from tinymq.names import valid_name

#: Most groups: every broker keeps their names in memory.
MOST_GROUPS: Final = 20_000


class Groups(Channels):
    """The operations on groups."""

    #: When the last group was made. Brokers tell the positions of a group from those of one
    #: that had its name before by that time, so no two are of the same millisecond.
    _last_grouped_ms = 0

    def describe_group(self, name: str) -> GroupInfo:
        """
        Return a group by its name.

        Args:
            name: The name.

        Raises:
            InvalidName: It cannot be a name.
            UnknownGroup: There is none.
        """
        return self.registry.group(valid_name(name))

    def ensure_group(self, name: str) -> GroupInfo:
        """
        Return a group for its first use: made by it if there is none.

        Args:
            name: The name.

        Raises:
            InvalidName: It cannot be a name.
            Overloaded: There are as many groups as there may be.
        """
        existing = self.registry.groups.get(valid_name(name))
        if existing is not None:
            return existing
        self._check_length(name)
        self._check_groups()
        at = max(self._now_ms(), self._last_grouped_ms + 1)
        made = GroupInfo(name=name, created_ms=at)
        while group_mark(made.mark) in self.registry.deleted:
            at += 1
            made = GroupInfo(name=name, created_ms=at)
        self._write([Compare(made.store_key, 0)], [Put(made.store_key, made.encode())])
        self._last_grouped_ms = at
        return made

    def keep_group(self, name: str, created_ms: int) -> bool:
        """
        Take a group back that a broker knows and this store does not.

        That is so when the store was restored from a backup.

        Args:
            name: The group's name.
            created_ms: When it was made.

        Returns:
            Whether it is there now. It is not when it was deleted, or made anew meanwhile.

        Raises:
            InvalidName, InvalidRequest: It cannot be a group.
            Overloaded: There are as many groups as there may be.
        """
        if created_ms < 0:
            raise InvalidRequest("no group was made before 1970", field="created_ms")
        kept = GroupInfo(name=valid_name(name), created_ms=created_ms)
        found = self.registry.groups.get(name)
        if found is None and group_mark(kept.mark) not in self.registry.deleted:
            self._check_groups()
            self._write([Compare(kept.store_key, 0)], [Put(kept.store_key, kept.encode())])
            return True
        return found == kept

    def delete_group(self, name: str, *, dry_run: bool = False) -> GroupInfo:
        """
        Delete a group and return what it was; brokers that are away forget its positions later.

        Args:
            name: The group.
            dry_run: Check everything and return what would go, but write nothing.

        Raises:
            UnknownGroup: There is none.
        """
        group = self.describe_group(name)
        if not dry_run:
            mark = group_mark(group.mark).hex()
            at = Put(f"deleted/{mark}", str(self._now_ms()).encode())
            self._write([], [Delete(group.store_key), at], vital=True)
        return group

    def _check_groups(self) -> None:
        if len(self.registry.groups) >= MOST_GROUPS:
            raise Overloaded(
                f"there are {MOST_GROUPS} groups, the most there may be; `tinymq group rm` those "
                "that nobody uses any more",
                limit=MOST_GROUPS,
            )
