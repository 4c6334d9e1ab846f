"""
The MetaServer's operations on channels: which topic has which, and with what policy.

Where a channel's messages are is not known here but kept by the brokers of the topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from tinymq.channelpolicy import ChannelPolicy
from tinymq.dotted import Given
from tinymq.errors import ChannelExists, InvalidName, InvalidRequest, Overloaded
from tinymq.meta.endpoint import Endpoint, endpoint_key
from tinymq.meta.entries import Compare, Delete, Put
from tinymq.meta.membership import Membership
from tinymq.meta.registry import ChannelInfo, Pause, Start, Topic, channel_key, mark_of
from tinymq.names import users_channel, valid_channel, valid_name
from tinymq.wire.messages import start_place

#: Where a channel begins whose creator does not say.
DEFAULT_START: Final = "earliest"

#: Most bytes of one policy: a page of channels must fit into an answer.
MOST_POLICY: Final = 8192

#: Longest time between two words of a broker on which channels are in use.
TOLD_SECONDS: Final = 5.0


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
        return self.registry.channel(found.id, valid_channel(name))

    def create_channel(
        self,
        topic: str,
        name: str,
        settings: Mapping[str, Given] | None = None,
        start: Start | None = None,
        *,
        temporary: bool | None = None,
        dry_run: bool = False,
    ) -> ChannelInfo:
        """
        Make a channel, or return the one there is if it is what the caller asks for.

        As with topics, only what the caller says is compared.

        Args:
            topic: The topic's name.
            name: The channel's.
            settings: Settings of the policy that differ from the defaults.
            start: Where it begins on each partition: "earliest", "latest", an offset or "@" and
                milliseconds since 1970: the first message of that time or later;
                if that is not said, a temporary one begins at the latest message.
            temporary: Whether it goes when nobody subscribes to it for a while.
            dry_run: Check everything and return what would be, but write nothing.

        Raises:
            InvalidName: A name breaks the rule.
            InvalidRequest: A setting, or the start.
            UnknownTopic: There is no such topic.
            ChannelExists: It exists and differs; the data says in which field.
            Overloaded: The topic has as many channels as it may have.
        """
        owner, name = self.registry.topic(valid_name(topic)), users_channel(valid_channel(name))
        policy = ChannelPolicy.from_mapping(settings or {})
        _check_policy(owner, policy)
        default = "latest" if temporary else DEFAULT_START
        begins = default if start is None else _checked_start(start)
        existing = self.registry.channels_of(owner.id).get(name)
        if existing is not None:
            _check_same(existing, settings or {}, policy, start, temporary)
            return existing
        self._check_length(name)
        self._check_room(owner)
        at = max(self._now_ms(), self._last_made_ms + 1)
        made = ChannelInfo(name=name, policy=policy, start=begins, created_ms=at)
        if dry_run:
            return made
        self._last_made_ms = at
        if temporary:
            made = attrs.evolve(made, lease=self._store.grant(self._unused_seconds))
        key = channel_key(owner.id, name)
        self._write([Compare(key, 0)], [Put(key, made.encode(), made.lease)])
        return made

    @property
    def _unused_seconds(self) -> float:
        """How long a temporary channel stays when no broker says that it is in use."""
        return self._config.session.grace_seconds + TOLD_SECONDS

    def ensure_channel(
        self, topic: str, name: str, start: Start | None = None, *, temporary: bool = False
    ) -> ChannelInfo:
        """
        Return a channel for its first use: made by it if there is none.

        Args:
            topic: The topic's name.
            name: The channel's.
            start: Where it begins, if it is made.
            temporary: Whether it is one that goes when nobody subscribes to it.

        Raises:
            UnknownTopic, InvalidName, InvalidRequest, Overloaded: As `create_channel`.
            ChannelExists: It is to be temporary, and the one there is stays.
        """
        owner = self.registry.topic(valid_name(topic))
        existing = self.registry.channels_of(owner.id).get(users_channel(valid_channel(name)))
        if existing is None or not self._is_left(existing):
            return self.create_channel(topic, name, None, start, temporary=temporary)
        if temporary:
            _check_same(existing, {}, existing.policy, None, temporary)
        return existing

    def use_channels(self, leases: Iterable[int]) -> None:
        """
        Let temporary channels stay: somebody subscribes to them. Costs no write.

        Args:
            leases: What they live by; of those that are gone already nothing is heard.
        """
        for lease in leases:
            if self._store.is_live(lease):
                self._store.renew(lease)

    def _is_left(self, channel: ChannelInfo) -> bool:
        """Let a channel stay that is to be used now; say no if its time was over just before."""
        self.use_channels([channel.lease])
        if channel.temporary and not self._store.is_live(channel.lease):
            self.expire()
            return False
        return True

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
        channel = self.describe_channel(topic, users_channel(valid_channel(name)))
        owner = self.registry.topic(topic)
        policy = channel.policy.altered(settings)
        _check_policy(owner, policy)
        new = attrs.evolve(channel, policy=policy)
        if new != channel and not dry_run:
            self._write([], [Put(channel_key(owner.id, name), new.encode(), new.lease)])
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
        channel = self.describe_channel(topic, users_channel(valid_channel(name)))
        now = self._now_ms()
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
            self._write([], [Put(key, new.encode(), new.lease)])
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
        channel = self.describe_channel(topic, users_channel(valid_channel(name)))
        if channel.temporary and not dry_run:
            self._store.revoke(channel.lease)
        elif not dry_run:
            owner = self.registry.topic(topic).id
            mark = mark_of(owner, name, channel.created_ms).hex()
            at = Put(f"deleted/{mark}", str(self._now_ms()).encode())
            gone = [Delete(channel_key(owner, name)), *self._deletes_of_endpoint(owner, name)]
            self._write([], [*gone, at], vital=True)
        return channel

    def keep_channel(
        self, topic_id: bytes, name: str, stored: bytes, push: bytes | None = None
    ) -> bool:
        """
        Take a channel back that a broker knows and this store does not.

        That is so when the store was restored from a backup.

        Args:
            topic_id: The topic's id.
            name: The channel's name.
            stored: What the store held of it.
            push: What the store held of its push endpoint, if it has one.

        Returns:
            Whether it is there now. It is not when it was deleted, or made anew meanwhile.
        """
        topic = self.registry.topic_of(topic_id)
        channel = ChannelInfo.decode(valid_channel(name), stored)
        found = self.registry.channels_of(topic.id).get(name)
        deleted = mark_of(topic.id, name, channel.created_ms) in self.registry.deleted
        if found is None and not deleted:
            self._check_room(topic)
            key, writes = channel_key(topic.id, name), [Put(channel_key(topic.id, name), stored)]
            if push is not None:
                endpoint = Endpoint.decode(name, push)
                writes.append(Put(endpoint_key(topic.id, name), endpoint.encode()))
            self._write([Compare(key, 0)], writes)
            return True
        return found is not None and found.created_ms == channel.created_ms

    def _deletes_of(self, topic: Topic) -> list[Delete]:
        """Return what takes all channels of a topic out of the store."""
        names = self.registry.channels_of(topic.id)
        return [
            *(Delete(channel_key(topic.id, name)) for name in names),
            *(each for name in names for each in self._deletes_of_endpoint(topic.id, name)),
        ]

    def _deletes_of_endpoint(self, topic_id: bytes, channel: str) -> list[Delete]:
        """Return what takes the push endpoint of a channel out of the store, if it has one."""
        there = (topic_id, channel) in self.registry.endpoints
        return [Delete(endpoint_key(topic_id, channel))] if there else []

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
    try:
        found: Start = start_place(start)
    except ValueError:
        raise InvalidRequest(
            f"a channel starts at {start_place.must}, not at {str(start)[:40]!r}", field="start"
        ) from None
    return found


def _check_same(
    existing: ChannelInfo,
    said: Mapping[str, Given],
    wanted: ChannelPolicy,
    start: Start | None,
    temporary: bool | None,
) -> None:
    has, wants = existing.policy.to_mapping(), wanted.to_mapping()
    pairs = [(name, has[name], wants[name]) for name in said]
    if start is not None:
        pairs.append(("start", existing.start, start))
    if temporary is not None:
        pairs.append(("temporary", existing.temporary, temporary))
    for name, old, new in pairs:
        if old != new:
            raise ChannelExists(
                f"the channel {existing.name} exists with {name} = {old}, not {new}",
                field=name,
                existing=old,
                wanted=new,
            )
