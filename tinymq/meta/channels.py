"""
The MetaServer's operations on channels: which topic has which, and with what policy.

Where a channel's messages are is not known here but kept by the brokers of the topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from tinymq.channelpolicy import ChannelPolicy
from tinymq.dotted import Given
from tinymq.errors import ChannelExists, InvalidName, InvalidRequest, Overloaded
from tinymq.meta.entries import Compare, Delete, Put
from tinymq.meta.membership import Membership
from tinymq.meta.registry import ChannelInfo, Pause, Start, Topic, channel_key
from tinymq.names import users_channel, valid_name

#: Where a channel begins whose creator does not say.
DEFAULT_START: Final = "earliest"

#: Most bytes of one policy: a page of channels must fit into an answer.
MOST_POLICY: Final = 8192

_MOST_OFFSET: Final = 2**62


class Channels(Membership):
    """The operations on channels."""

    #: When the last channel was made. Brokers tell a channel from one that had its name
    #: before by that time, so no two are of the same millisecond.
    _last_made_ms = 0

    def describe_channel(self, topic: str, name: str) -> ChannelInfo:
        """
        Return a channel by its topic and its name.

        Args:
            topic: The topic's name.
            name: The channel's.

        Raises:
            InvalidName: One of them cannot be a name.
            UnknownTopic: There is no such topic.
            UnknownChannel: The topic has no such channel.
        """
        found = self.registry.topic(valid_name(topic))
        return self.registry.channel(found.id, valid_name(name))

    def create_channel(
        self,
        topic: str,
        name: str,
        settings: Mapping[str, Given] | None = None,
        start: Start | None = None,
        *,
        dry_run: bool = False,
    ) -> ChannelInfo:
        """
        Make a channel, or return the one there is if it is what the caller asks for.

        As with topics, only what the caller says is compared.

        Args:
            topic: The topic's name.
            name: The channel's.
            settings: Settings of the policy that differ from the defaults.
            start: Where it begins on each partition: "earliest", "latest" or an offset.
            dry_run: Check everything and return what would be, but write nothing.

        Raises:
            InvalidName: A name breaks the rule.
            InvalidRequest: A setting, or the start.
            UnknownTopic: There is no such topic.
            ChannelExists: It exists and differs; the data says in which field.
            Overloaded: The topic has as many channels as it may have.
        """
        owner, name = self.registry.topic(valid_name(topic)), users_channel(valid_name(name))
        policy = ChannelPolicy.from_mapping(settings or {})
        _check_policy(owner, policy)
        begins = DEFAULT_START if start is None else _checked_start(start)
        existing = self.registry.channels_of(owner.id).get(name)
        if existing is not None:
            _check_same(existing, settings or {}, policy, start)
            return existing
        self._check_length(name)
        self._check_room(owner)
        at = max(self._now_ms(), self._last_made_ms + 1)
        made = ChannelInfo(name=name, policy=policy, start=begins, created_ms=at)
        if not dry_run:
            self._last_made_ms = at
            key = channel_key(owner.id, name)
            self._write([Compare(key, 0)], [Put(key, made.encode())])
        return made

    def ensure_channel(self, topic: str, name: str, start: Start | None = None) -> ChannelInfo:
        """
        Return a channel for its first use: made by it if there is none.

        Args:
            topic: The topic's name.
            name: The channel's.
            start: Where it begins, if it is made.

        Raises:
            UnknownTopic, InvalidName, InvalidRequest, Overloaded: As `create_channel`.
        """
        owner = self.registry.topic(valid_name(topic))
        existing = self.registry.channels_of(owner.id).get(users_channel(valid_name(name)))
        return existing or self.create_channel(topic, name, None, start)

    def alter_channel(
        self, topic: str, name: str, settings: Mapping[str, Given], *, dry_run: bool = False
    ) -> ChannelInfo:
        """
        Change the policy of a channel; all or nothing.

        Args:
            topic: The topic's name.
            name: The channel's.
            settings: The settings to change; None stands for the default.
            dry_run: Check everything and return what would be, but write nothing.

        Returns:
            The channel as it is afterwards.

        Raises:
            UnknownTopic, UnknownChannel: There is no such channel.
            InvalidRequest: A setting is unknown or wrong.
        """
        channel = self.describe_channel(topic, users_channel(valid_name(name)))
        owner = self.registry.topic(topic)
        policy = channel.policy.altered(settings)
        _check_policy(owner, policy)
        new = attrs.evolve(channel, policy=policy)
        if new != channel and not dry_run:
            self._write([], [Put(channel_key(owner.id, name), new.encode())])
        return new

    def pause_channel(
        self,
        topic: str,
        name: str,
        until_ms: int | None = None,
        reason: str = "",
        *,
        undo: bool = False,
        dry_run: bool = False,
    ) -> ChannelInfo:
        """
        Let a channel give nothing out, or go on.

        A pause is kept here and not by the brokers, so that it holds for partitions
        that are added, and for a broker that is away just now.

        Args:
            topic: The topic's name.
            name: The channel's.
            until_ms: When it goes on by itself; None if it does not.
            reason: Why, for people.
            undo: Go on.
            dry_run: Check everything and return what would be, but write nothing.

        Returns:
            The channel as it is afterwards.

        Raises:
            UnknownTopic, UnknownChannel: There is no such channel.
            InvalidRequest: It would end before it begins.
        """
        channel, now = self.describe_channel(topic, users_channel(valid_name(name))), self._now_ms()
        if until_ms is not None and until_ms <= now:
            raise InvalidRequest("until_ms lies in the past", field="until_ms")
        pause = None
        if not undo:
            began = channel.pause if channel.paused_at(now) else None
            since = began.since_ms if began is not None else now
            pause = Pause(since, until_ms, reason)
        new = attrs.evolve(channel, pause=pause)
        if new != channel and not dry_run:
            key = channel_key(self.registry.topic(topic).id, name)
            self._write([], [Put(key, new.encode())])
        return new

    def delete_channel(self, topic: str, name: str, *, dry_run: bool = False) -> ChannelInfo:
        """
        Delete a channel and return what it was.

        Args:
            topic: The topic's name.
            name: The channel's.
            dry_run: Check everything and return what would go, but write nothing.

        Raises:
            UnknownTopic, UnknownChannel: There is no such channel.
        """
        channel = self.describe_channel(topic, users_channel(valid_name(name)))
        if not dry_run:
            key = channel_key(self.registry.topic(topic).id, name)
            self._write([], [Delete(key)], vital=True)
        return channel

    def _deletes_of(self, topic: Topic) -> list[Delete]:
        """Return what takes all channels of a topic out of the store."""
        return [Delete(channel_key(topic.id, name)) for name in self.registry.channels_of(topic.id)]

    def _check_room(self, topic: Topic) -> None:
        most = self._config.topics.channels
        if len(self.registry.channels_of(topic.id)) >= most:
            raise Overloaded(
                f"{topic.name} has {most} channels, the most that topics.channels allows; "
                "delete some, or raise the setting",
                limit=most,
            )

    def _check_length(self, name: str) -> None:
        most = self._config.limits.name
        if len(name) > most:
            raise InvalidName(
                f"the name {name[:40]!r}... has {len(name)} bytes, and limits.name allows {most}; "
                "choose a shorter one, or raise the setting",
                length=len(name),
            )


def _check_policy(topic: Topic, policy: ChannelPolicy) -> None:
    if policy.dead_letter == topic.name:
        raise InvalidRequest(
            f"dead.letter cannot be {topic.name} itself: what is given up would come again",
            field="dead.letter",
        )
    length = sum(len(text.encode()) for text in policy.filter + policy.backoff)
    if length > MOST_POLICY:
        raise InvalidRequest(
            f"filter and backoff have {length} bytes together, and {MOST_POLICY} are allowed",
            field="filter",
            high=MOST_POLICY,
        )


def _checked_start(start: object) -> Start:
    match start:
        case "earliest" | "latest":
            return str(start)
        case int() if not isinstance(start, bool) and 0 <= start <= _MOST_OFFSET:
            return start
    raise InvalidRequest(
        f"a channel starts at earliest, latest or an offset, not at {str(start)[:40]!r}",
        field="start",
    )


def _check_same(
    existing: ChannelInfo,
    said: Mapping[str, Given],
    wanted: ChannelPolicy,
    start: Start | None,
) -> None:
    has, wants = existing.policy.to_mapping(), wanted.to_mapping()
    pairs = [(name, has[name], wants[name]) for name in said]
    if start is not None:
        pairs.append(("start", existing.start, start))
    for name, old, new in pairs:
        if old != new:
            raise ChannelExists(
                f"the channel {existing.name} exists with {name} = {old}, not {new}",
                field=name,
                existing=old,
                wanted=new,
            )
