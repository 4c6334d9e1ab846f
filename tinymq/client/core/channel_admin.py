"""The administrative calls on channels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from tinymq.client.core.calls import Calls

#: What a call returns: a result, or what becomes one.
R = TypeVar("R")


class ChannelCalls(Calls[R]):
    """Administrative operations on channels; every one ends as `operate` does."""

    def create_channel(
        self,
        topic: str,
        name: str,
        config: Mapping[str, Any] | None = None,
        start: str | int | None = None,
        *,
        temporary: bool = False,
        dry_run: bool = False,
    ) -> R:
        """
        Create a channel of a topic; one that exists with the same settings is no error.

        Args:
            topic: The topic.
            name: The channel's name.
            config: Settings by dotted name, such as ``lease.ms``.
            start: Where it begins: ``earliest``, ``latest``, an offset, or ``@`` and
                milliseconds since 1970.
            temporary: Whether it goes when nobody subscribes to it for a while.
            dry_run: Check and change nothing.
        """
        return self.operate(
            "channel.create",
            topic=topic,
            name=name,
            config=dict(config or {}),
            start=start,
            temporary=temporary,
            dry_run=dry_run,
        )

    def alter_channel(
        self,
        topic: str,
        name: str,
        config: Mapping[str, Any] | None = None,
        *,
        dry_run: bool = False,
    ) -> R:
        """
        Change settings of a channel; what is in flight keeps its deadline.

        Args:
            topic: The topic.
            name: The channel.
            config: Settings to change; None returns one to its default.
            dry_run: Say what would change, and change nothing.
        """
        return self.operate(
            "channel.alter", topic=topic, name=name, config=dict(config or {}), dry_run=dry_run
        )

    def delete_channel(self, topic: str, name: str, *, dry_run: bool = False) -> R:
        """
        Delete a channel with what it knows; the messages stay in the topic.

        Args:
            topic: The topic.
            name: The channel.
            dry_run: Say what would go, and change nothing.
        """
        return self.operate("channel.delete", topic=topic, name=name, dry_run=dry_run)

    def list_channels(
        self,
        topic: str | None = None,
        filter: str = "",  # noqa: A002 - the API's word
        *,
        after: str = "",
        limit: int = 100,
    ) -> R:
        """
        List channels in order of topic and name.

        Args:
            topic: Only those of this topic.
            filter: A glob for names; empty means all.
            after: Where the last answer said that the next page begins.
            limit: Most channels in the answer.
        """
        return self.operate("channel.list", topic=topic, filter=filter, after=after, limit=limit)

    def channel(self, topic: str, name: str) -> R:
        """
        Describe a channel and its partitions.

        Args:
            topic: The topic.
            name: The channel.
        """
        return self.operate("channel.info", topic=topic, name=name)

    def pause_channel(
        self,
        topic: str,
        name: str,
        until_ms: int | None = None,
        reason: str = "",
        *,
        undo: bool = False,
        dry_run: bool = False,
    ) -> R:
        """
        Give nothing of a channel out, or go on; what is in flight can be settled.

        Args:
            topic: The topic.
            name: The channel.
            until_ms: When it goes on by itself, in milliseconds since 1970.
            reason: Why, for people.
            undo: Go on.
            dry_run: Say what would change, and change nothing.
        """
        return self.operate(
            "channel.pause",
            topic=topic,
            name=name,
            until_ms=until_ms,
            reason=reason,
            undo=undo,
            dry_run=dry_run,
        )

    def seek_channel(
        self,
        topic: str,
        name: str,
        to: str | int | None = None,
        *,
        time_ms: int | None = None,
        partition: int | None = None,
        dry_run: bool = False,
    ) -> R:
        """
        Begin anew at a point: what lies before is settled, the rest comes again.

        Args:
            topic: The topic.
            name: The channel.
            to: ``earliest``, ``latest`` or an offset.
            time_ms: Or a time, in milliseconds since 1970.
            partition: Only there.
            dry_run: Say what would happen, and change nothing.
        """
        return self.operate(
            "channel.seek",
            topic=topic,
            name=name,
            to=to,
            time_ms=time_ms,
            partition=partition,
            dry_run=dry_run,
        )

    def undo_seek(
        self, topic: str, name: str, *, partition: int | None = None, dry_run: bool = False
    ) -> R:
        """
        Take back what the last seek or emptying of a channel did.

        Args:
            topic: The topic.
            name: The channel.
            partition: Only there.
            dry_run: Find out where it can be taken back, and change nothing.
        """
        return self.operate(
            "channel.undo_seek", topic=topic, name=name, partition=partition, dry_run=dry_run
        )

    def empty_channel(
        self, topic: str, name: str, *, partition: int | None = None, dry_run: bool = False
    ) -> R:
        """
        Settle all messages of a channel; it can be taken back for some minutes.

        Args:
            topic: The topic.
            name: The channel.
            partition: Only there.
            dry_run: Say what would happen, and change nothing.
        """
        return self.operate(
            "channel.empty", topic=topic, name=name, partition=partition, dry_run=dry_run
        )

    # --- members and single messages ------------------------------------------------

    def channel_members(self, topic: str, name: str) -> R:
        """
        List who takes messages of a channel, with what each holds.

        Args:
            topic: The topic.
            name: The channel.
        """
        return self.operate("channel.members", topic=topic, name=name)

    def peek_channel(
        self,
        topic: str,
        name: str,
        state: str = "any",
        *,
        partition: int | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> R:
        """
        Look at the unsettled messages of a channel in order, without any effect.

        Args:
            topic: The topic.
            name: The channel.
            state: ``any``, ``ready``, ``in_flight``, ``waiting``, ``parked`` or ``given_up``.
            partition: Only there.
            after: Where the last answer said that the next page begins.
            limit: Most messages in the answer.
        """
        return self.operate(
            "channel.peek",
            topic=topic,
            name=name,
            state=state,
            partition=partition,
            after=after,
            limit=limit,
        )

    def in_flight(
        self, topic: str | None = None, channel: str | None = None, **filters: str | int | None
    ) -> R:
        """
        List messages in the hands of consumers, those given out first before the others.

        Args:
            topic: Only those of this topic.
            channel: Only those of this channel.
            **filters: ``client``, ``attempts``, ``older_ms``, ``limit`` and ``after``.
        """
        return self.operate("inflight.list", topic=topic, channel=channel, **filters)

    def settle_in_flight(
        self,
        topic: str,
        name: str,
        partition: int,
        offsets: Sequence[int],
        act: str,
        *,
        dry_run: bool = False,
        **how: str | int | None,
    ) -> R:
        """
        Requeue, finish, extend or give up messages that are in the hands of consumers.

        Args:
            topic: The topic.
            name: The channel.
            partition: Where they are.
            offsets: Which ones, at most a thousand.
            act: ``requeue``, ``finish``, ``extend`` or ``dead_letter``.
            dry_run: Find out which are in flight, and change nothing.
            **how: ``delay_ms``, ``extend_ms`` and ``reason``.
        """
        return self.operate(
            "inflight.settle",
            topic=topic,
            name=name,
            partition=partition,
            offsets=list(offsets),
            act=act,
            dry_run=dry_run,
            **how,
        )

    def wake_retries(
        self,
        topic: str,
        name: str,
        partition: int,
        offsets: Sequence[int],
        *,
        dry_run: bool = False,
    ) -> R:
        """
        Let messages that wait for their next attempt come now.

        Args:
            topic: The topic.
            name: The channel.
            partition: Where they are.
            offsets: Which ones, at most a thousand.
            dry_run: Find out which of them wait, and change nothing.
        """
        return self.operate(
            "channel.wake",
            topic=topic,
            name=name,
            partition=partition,
            offsets=list(offsets),
            dry_run=dry_run,
        )

    def delay_retries(
        self,
        topic: str,
        name: str,
        partition: int,
        offsets: Sequence[int],
        *,
        dry_run: bool = False,
        **when: int,
    ) -> R:
        """
        Let messages that wait for their next attempt come at another time.

        Args:
            topic: The topic.
            name: The channel.
            partition: Where they are.
            offsets: Which ones, at most a thousand.
            dry_run: Find out which of them wait, and change nothing.
            **when: When they come then: ``due_ms``, in milliseconds since 1970, or
                ``delay_ms``, from now on.
        """
        return self.operate(
            "channel.delay",
            topic=topic,
            name=name,
            partition=partition,
            offsets=list(offsets),
            dry_run=dry_run,
            **when,
        )
