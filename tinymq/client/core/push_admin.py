"""The administrative calls on push endpoints."""

from __future__ import annotations

from typing import Any, TypeVar

from tinymq.client.core.calls import Calls

#: What a call returns: a result, or what becomes one.
R = TypeVar("R")


class PushCalls(Calls[R]):
    """Administrative operations on push endpoints; every one ends as `operate` does."""

    def set_push(
        self,
        topic: str,
        name: str,
        url: str,
        *,
        secret: str | None = None,
        dry_run: bool = False,
        **how: Any,
    ) -> R:
        """
        Have the messages of a channel sent to a URL, in place of what was set before.

        Args:
            topic: The topic.
            name: The channel.
            url: Where to.
            secret: What requests are signed with; without it the present one stays, or one
                is made, which the answer holds this one time.
            dry_run: Check and change nothing.
            **how: ``timeout_ms``, ``concurrency``, ``headers`` and ``give_up``.
        """
        return self.operate(
            "push.set", topic=topic, name=name, url=url, secret=secret, dry_run=dry_run, **how
        )

    def list_pushes(
        self,
        topic: str | None = None,
        filter: str = "",  # noqa: A002 - the API's word
        *,
        after: str = "",
        limit: int = 100,
    ) -> R:
        """
        List push endpoints in order of topic and channel.

        Args:
            topic: Only those of this topic.
            filter: A glob for names of channels; empty means all.
            after: Where the last answer said that the next page begins.
            limit: Most endpoints in the answer.
        """
        return self.operate("push.list", topic=topic, filter=filter, after=after, limit=limit)

    def push(self, topic: str, name: str) -> R:
        """
        Describe the push endpoint of a channel.

        Args:
            topic: The topic.
            name: The channel.
        """
        return self.operate("push.info", topic=topic, name=name)

    def delete_push(self, topic: str, name: str, *, dry_run: bool = False) -> R:
        """
        Send the messages of a channel nowhere any more; they stay in the channel.

        Args:
            topic: The topic.
            name: The channel.
            dry_run: Change nothing.
        """
        return self.operate("push.delete", topic=topic, name=name, dry_run=dry_run)

    def pause_push(self, topic: str, name: str, reason: str = "", *, dry_run: bool = False) -> R:
        """
        Send nothing to an endpoint until it is resumed; its messages wait.

        Args:
            topic: The topic.
            name: The channel.
            reason: Why, for people.
            dry_run: Change nothing.
        """
        return self.operate("push.pause", topic=topic, name=name, reason=reason, dry_run=dry_run)

    def resume_push(self, topic: str, name: str, *, dry_run: bool = False) -> R:
        """
        Let an endpoint go on that was paused, or that asked to be left alone.

        Args:
            topic: The topic.
            name: The channel.
            dry_run: Change nothing.
        """
        return self.operate("push.resume", topic=topic, name=name, dry_run=dry_run)

    def test_push(self, topic: str, name: str, *, dry_run: bool = False) -> R:
        """
        Send one made-up message to an endpoint, and tell what it answers.

        Args:
            topic: The topic.
            name: The channel.
            dry_run: Only look whether it may be sent there.
        """
        return self.operate("push.test", topic=topic, name=name, dry_run=dry_run)
