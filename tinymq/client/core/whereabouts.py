"""Which topic a subscription is of, and who leads its partitions."""

from __future__ import annotations

from math import inf
from typing import Final, Protocol

from tinymq.client.core.cluster import Cluster
from tinymq.client.core.config import SubscriptionConfig
from tinymq.client.core.metadata import TopicInfo
from tinymq.errors import ClientError, NoBroker, TinyMQError, UnknownTopic, UnknownTopicId

#: Seconds between looks for partitions without a leader.
_LOOK_S: Final = 1.0


class Owner(Protocol):
    """Who wants to know."""

    @property
    def over(self) -> bool:
        """Whether nothing is wanted any more."""

    def arrange(self, leaders: tuple[int, ...], now: float) -> None:
        """Follow the leaders of partitions."""

    def fail(self, error: TinyMQError, now: float) -> None:
        """End, because it cannot go on."""


class Whereabouts:
    """
    Finds the topic, and follows it.

    Args:
        cluster: The brokers.
        topic: Name of the topic.
        config: Settings.
        owner: Who wants to know.

    Attributes:
        info: The topic; None before it was found.
        look_at: When `find` is due, with a fresh look.
        why: Why it was not found yet, or None.
    """

    def __init__(
        self, cluster: Cluster, topic: str, config: SubscriptionConfig, owner: Owner
    ) -> None:
        self.info: TopicInfo | None = None
        self.look_at = inf
        self.why: TinyMQError | None = None
        self._cluster = cluster
        self._topic = topic
        self._config = config
        self._owner = owner

    def find(self, now: float, *, fresh: bool) -> None:
        """
        Look the topic up.

        Args:
            now: The time.
            fresh: Ask a broker, whatever is known.
        """
        self.look_at = inf
        deadline = now + self._config.deadline_s
        create = self._config.create_topics
        self._cluster.topic(self._topic, deadline, self._found, now, create=create, fresh=fresh)

    def _found(self, info: TopicInfo | None, error: TinyMQError | None, now: float) -> None:
        if self._owner.over:
            return
        if info is None:
            self._not_found(self._explained(error), now)
        elif self.info is not None and info.id != self.info.id:
            text = f"topic {self._topic} was made anew, and the channel is of the old one"
            self._owner.fail(UnknownTopicId(text), now)
        else:
            self._follow(info, now)

    def _explained(self, error: TinyMQError | None) -> TinyMQError:
        """Say what helps where a worker was started before the first publish."""
        unborn = error is None or (isinstance(error, UnknownTopic) and self.info is None)
        if not unborn or self._config.create_topics:
            return error or UnknownTopic()
        return UnknownTopic(
            f"there is no topic {self._topic[:200]!a} yet: the first publish makes it, "
            "and SubscriptionConfig(create_topics=True) does",
            topic=self._topic,
        )

    def _not_found(self, error: TinyMQError, now: float) -> None:
        passing = isinstance(error, ClientError) and not isinstance(error, NoBroker)
        if passing or getattr(error, "retriable", False):
            self.why = error
            self.look_at = now + _LOOK_S
        else:
            self._owner.fail(error, now)

    def _follow(self, info: TopicInfo, now: float) -> None:
        self.info = info
        self.look_at = now + _LOOK_S if -1 in info.leaders else inf
        self._owner.arrange(info.leaders, now)

    def changed(self, now: float) -> None:
        """
        Follow partitions that have another leader.

        Args:
            now: The time.
        """
        if self._owner.over or self.info is None:
            return
        info = self._cluster.metadata.get(self._topic)
        if info is None or info.id != self.info.id:
            self.find(now, fresh=True)
        elif info != self.info:
            self._follow(info, now)
