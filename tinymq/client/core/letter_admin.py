"""The administrative calls on dead letters, and on what became of one message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from tinymq.client.core.channel_admin import ChannelCalls

#: What a call returns: a result, or what becomes one.
R = TypeVar("R")


class LetterCalls(ChannelCalls[R]):
    """Administrative operations on dead letters; every one ends as `operate` does."""

    def list_dead_letters(
        self,
        topic: str | None = None,
        filter: str = "",  # noqa: A002 - the API's word
        *,
        after: str = "",
        limit: int = 100,
    ) -> R:
        """
        List dead-letter topics with how much is in them.

        Args:
            topic: Only those to which channels of this topic give up.
            filter: A glob for names; empty means all.
            after: Where the last answer said that the next page begins.
            limit: Most topics in the answer.
        """
        return self.operate("dlq.list", topic=topic, filter=filter, after=after, limit=limit)

    def dead_letters(self, target: str, *, after: str = "", limit: int = 100, **which: Any) -> R:
        """
        Look at the dead letters that are still there, in groups and one by one.

        Args:
            target: The dead-letter topic.
            after: Where the last answer said that the next page begins.
            limit: Most messages in the answer.
            **which: Only some: of a ``topic``, ``channel`` or ``reason``, with a
                ``text`` in their error, given up from ``since_ms`` to ``until_ms``.
        """
        return self.operate("dlq.messages", target=target, after=after, limit=limit, **which)

    def redrive(
        self,
        target: str,
        offsets: Sequence[str] | None = None,
        *,
        to: str = "origin",
        after: str = "",
        limit: int = 100,
        dry_run: bool = False,
        **which: Any,
    ) -> R:
        """
        Send dead letters back, one step; the answer says where the next one begins.

        Args:
            target: The dead-letter topic.
            offsets: Only those at these places, each as ``PARTITION:OFFSET``.
            to: Back to the channels that gave them up (``origin``), or to a topic.
            after: Where the last answer said that the next step begins.
            limit: Most messages of this step.
            dry_run: Say what would happen, and change nothing.
            **which: As for `dead_letters`.
        """
        return self.operate(
            "dlq.redrive",
            target=target,
            offsets=None if offsets is None else list(offsets),
            to=to,
            after=after,
            limit=limit,
            dry_run=dry_run,
            **which,
        )

    def drop_dead_letters(
        self,
        target: str,
        offsets: Sequence[str] | None = None,
        *,
        after: str = "",
        limit: int = 100,
        dry_run: bool = False,
        **which: Any,
    ) -> R:
        """
        Settle dead letters without doing anything with them, one step.

        Args:
            target: The dead-letter topic.
            offsets: Only those at these places, each as ``PARTITION:OFFSET``.
            after: Where the last answer said that the next step begins.
            limit: Most messages of this step.
            dry_run: Say what would happen, and change nothing.
            **which: As for `dead_letters`.
        """
        return self.operate(
            "dlq.drop",
            target=target,
            offsets=None if offsets is None else list(offsets),
            after=after,
            limit=limit,
            dry_run=dry_run,
            **which,
        )

    def message_life(self, topic: str, partition: int, offset: int) -> R:
        """
        Tell what the channels of a topic did with one message.

        Args:
            topic: The topic.
            partition: The partition's number.
            offset: The message's offset.
        """
        return self.operate("message.life", topic=topic, partition=partition, offset=offset)
