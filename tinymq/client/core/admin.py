"""The administrative operations, the same for both faces."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final, Generic, TypeVar

import msgpack

from tinymq.client.core.results import Result
from tinymq.errors import MalformedFrame
from tinymq.wire.frames import Bytes

#: A result now, or a Deferred of one.
R = TypeVar("R")

#: Operations that change nothing, so that they may be repeated after a lost answer.
HARMLESS: Final = frozenset({"topic.list", "topic.info", "broker.info"})


def read_result(payload: Bytes) -> Result:
    """
    Read what an operation returned.

    Args:
        payload: Of the reply to OPERATE.

    Raises:
        MalformedFrame: It is no map.
    """
    try:
        found = msgpack.unpackb(payload, strict_map_key=False) if len(payload) else {}
    except (ValueError, msgpack.UnpackException) as error:
        raise MalformedFrame(f"the result of the operation cannot be read: {error}") from error
    if type(found) is not dict:
        raise MalformedFrame("the result of the operation is not a map")
    return found


class AdminCalls(ABC, Generic[R]):
    """
    Administrative operations; every one ends as `operate` does.

    In the blocking face a call returns the result; in the Deferred face it
    returns a Deferred of it.
    """

    @abstractmethod
    def operate(self, operation: str, /, **arguments: Any) -> R:
        """
        Carry out any operation by its name.

        Args:
            operation: Such as ``topic.create``.
            **arguments: Its arguments; None is left out.
        """

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, Any] | None = None,
        *,
        dry_run: bool = False,
    ) -> R:
        """
        Create a topic; one that exists with the same settings is no error.

        Args:
            name: Its name.
            partitions: How many partitions.
            config: Settings by dotted name, such as ``retention.ms``.
            dry_run: Check and change nothing.
        """
        return self.operate(
            "topic.create",
            name=name,
            partitions=partitions,
            config=dict(config or {}),
            dry_run=dry_run,
        )

    def alter_topic(
        self,
        name: str,
        config: Mapping[str, Any] | None = None,
        partitions: int | None = None,
        *,
        dry_run: bool = False,
    ) -> R:
        """
        Change settings of a topic, or add partitions.

        Args:
            name: Its name.
            config: Settings to change.
            partitions: The new number of partitions, or None.
            dry_run: Say what would change, and change nothing.
        """
        return self.operate(
            "topic.alter",
            name=name,
            config=dict(config or {}),
            partitions=partitions,
            dry_run=dry_run,
        )

    def delete_topic(self, name: str, *, dry_run: bool = False) -> R:
        """
        Delete a topic with all its records.

        Args:
            name: Its name.
            dry_run: Say what would go, and change nothing.
        """
        return self.operate("topic.delete", name=name, dry_run=dry_run)

    def list_topics(
        self,
        filter: str = "",  # noqa: A002 - the API's word
        *,
        after: str = "",
        limit: int = 500,
    ) -> R:
        """
        List topics in order of their names.

        Args:
            filter: A glob; empty means all.
            after: Go on behind this name.
            limit: Most topics in the answer.
        """
        return self.operate("topic.list", filter=filter, after=after, limit=limit)

    def topic(self, name: str) -> R:
        """
        Describe a topic and its partitions.

        Args:
            name: Its name.
        """
        return self.operate("topic.info", name=name)

    def purge(
        self,
        name: str,
        *,
        partition: int | None = None,
        before: int | None = None,
        before_ms: int | None = None,
        keep: int | None = None,
        dry_run: bool = False,
    ) -> R:
        """
        Remove records from the start; it can be undone for some minutes.

        Args:
            name: The topic.
            partition: Only there.
            before: Records below this offset.
            before_ms: Records older than this time.
            keep: All but so many.
            dry_run: Say what would go, and change nothing.
        """
        return self.operate(
            "topic.purge",
            name=name,
            partition=partition,
            before=before,
            before_ms=before_ms,
            keep=keep,
            dry_run=dry_run,
        )

    def undo_purge(self, name: str, *, partition: int | None = None, dry_run: bool = False) -> R:
        """
        Take back the last purge.

        Args:
            name: The topic.
            partition: Only there.
            dry_run: Find out whether it can be taken back, and change nothing.
        """
        return self.operate("topic.undo_purge", name=name, partition=partition, dry_run=dry_run)

    def broker_info(self) -> R:
        """Describe the broker, and whether it is ready."""
        return self.operate("broker.info")

    def log_level(self, level: str, *, dry_run: bool = False) -> R:
        """
        Change which log lines the broker writes, until its next start.

        Args:
            level: The least important ones: ``debug``, ``info``, ``warn``,
                ``error`` or ``critical``.
            dry_run: Say which it is now, and change nothing.
        """
        return self.operate("broker.log_level", level=level, dry_run=dry_run)
