"""
The MetaServer's operations on push endpoints: which channel is sent where.

An endpoint belongs to its channel and goes with it. That it is paused is kept here, so
that it holds on every broker and over restarts.
"""

from __future__ import annotations

import attrs

from tinymq.errors import InvalidRequest
from tinymq.meta.channels import Channels
from tinymq.meta.endpoint import Endpoint, endpoint_key
from tinymq.meta.entries import Put
from tinymq.names import users_channel, valid_channel


class Endpoints(Channels):
    """The operations on push endpoints."""

    def describe_endpoint(self, topic: str, channel: str) -> Endpoint:
        """
        Return the endpoint of a channel.

        Args:
            topic: The topic's name.
            channel: The channel's.

        Raises:
            InvalidName: One of them cannot be a name.
            UnknownTopic, UnknownChannel: There is no such channel.
            UnknownEndpoint: It has none.
        """
        found = self.describe_channel(topic, channel)
        return self.registry.endpoint(self.registry.topic(topic).id, found.name)

    def set_endpoint(self, topic: str, wanted: Endpoint, *, dry_run: bool = False) -> Endpoint:
        """
        Have the messages of a channel sent somewhere; takes the place of what was set before.

        Args:
            topic: The topic's name.
            wanted: Where; without a secret, that of before stays.
            dry_run: Check everything and return what would be, but write nothing.

        Returns:
            The endpoint, which sends from then on.

        Raises:
            UnknownTopic, UnknownChannel: There is no such channel.
            InvalidRequest: The channel is temporary, or there is no secret.
        """
        channel = self.describe_channel(topic, users_channel(valid_channel(wanted.channel)))
        owner = self.registry.topic(topic).id
        if channel.temporary:
            raise InvalidRequest(
                f"{topic}/{channel.name} is a temporary channel, and a push endpoint needs one "
                "that stays",
                field="name",
            )
        before = self.registry.endpoints.get((owner, channel.name))
        secret = wanted.secret or ("" if before is None else before.secret)
        if not secret:
            raise InvalidRequest("an endpoint needs a secret", field="secret")
        # Brokers tell one that was set anew by its time.
        at = max(self._now_ms(), 0 if before is None else before.set_ms + 1)
        new = attrs.evolve(wanted, secret=secret, set_ms=at, paused_ms=None, why="")
        if not dry_run:
            self._write([], [Put(endpoint_key(owner, channel.name), new.encode())])
        return new

    def pause_endpoint(
        self, topic: str, channel: str, reason: str = "", *, dry_run: bool = False
    ) -> Endpoint:
        """
        Send nothing more to an endpoint, until somebody lets it go on.

        Args:
            topic: The topic's name.
            channel: The channel's.
            reason: Why, for people.
            dry_run: Check everything and return what would be, but write nothing.

        Raises:
            UnknownTopic, UnknownChannel, UnknownEndpoint: There is none.
        """
        endpoint = self.describe_endpoint(topic, channel)
        since = self._now_ms() if endpoint.paused_ms is None else endpoint.paused_ms
        new = attrs.evolve(endpoint, paused_ms=since, why=reason)
        return self._keep(topic, endpoint, new, dry_run=dry_run)

    def resume_endpoint(self, topic: str, channel: str, *, dry_run: bool = False) -> Endpoint:
        """
        Let an endpoint go on that was paused, or that a broker leaves alone for a while.

        Args:
            topic: The topic's name.
            channel: The channel's.
            dry_run: Check everything and return what would be, but write nothing.

        Raises:
            UnknownTopic, UnknownChannel, UnknownEndpoint: There is none.
        """
        endpoint = self.describe_endpoint(topic, channel)
        # As set anew: what a broker still has to say of its failures is of the past.
        at = max(self._now_ms(), endpoint.set_ms + 1)
        new = attrs.evolve(endpoint, paused_ms=None, why="", set_ms=at)
        return self._keep(topic, endpoint, new, dry_run=dry_run)

    def give_endpoint_up(
        self, topic_id: bytes, channel: str, set_ms: int, reason: str
    ) -> Endpoint | None:
        """
        Pause an endpoint because a broker found that it does not take what is sent.

        Args:
            topic_id: The topic's id.
            channel: The channel's name.
            set_ms: When it was set that is meant: one that was set anew is left alone.
            reason: Why.

        Returns:
            What it is now, or None if it is gone.
        """
        endpoint = self.registry.endpoints.get((topic_id, channel))
        topic = self.registry.topics.get(topic_id)
        if endpoint is None or topic is None:
            return None
        if endpoint.set_ms != set_ms or endpoint.paused:
            return endpoint
        new = attrs.evolve(endpoint, paused_ms=self._now_ms(), why=reason)
        return self._keep(topic.name, endpoint, new)

    def delete_endpoint(self, topic: str, channel: str, *, dry_run: bool = False) -> Endpoint:
        """
        Send the messages of a channel nowhere any more, and return what it was.

        Args:
            topic: The topic's name.
            channel: The channel's.
            dry_run: Check everything and return what would go, but write nothing.

        Raises:
            UnknownTopic, UnknownChannel, UnknownEndpoint: There is none.
        """
        endpoint = self.describe_endpoint(topic, channel)
        if not dry_run:
            owner = self.registry.topic(topic).id
            self._write([], self._deletes_of_endpoint(owner, channel), vital=True)
        return endpoint

    def _keep(self, topic: str, old: Endpoint, new: Endpoint, *, dry_run: bool = False) -> Endpoint:
        if new != old and not dry_run:
            owner = self.registry.topic(topic).id
            self._write([], [Put(endpoint_key(owner, new.channel), new.encode())])
        return new
