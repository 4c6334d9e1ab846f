"""What a client knows about topics and brokers; it goes on with it when nobody answers."""

from __future__ import annotations

from typing import Any

from attrs import frozen

from tinymq.client.core.address import Address
from tinymq.errors import TinyMQError
from tinymq.wire.messages import MetadataReply, error_from_meta


@frozen
class TopicInfo:
    """
    A topic as the broker described it.

    Attributes:
        name: Its name.
        id: Its identity; a topic made anew under the same name has another.
        leaders: The broker that leads each partition, -1 where there is none.
        config: Its settings.
    """

    name: str
    id: bytes
    leaders: tuple[int, ...]
    config: dict[str, Any]

    @property
    def partitions(self) -> int:
        """How many partitions it has."""
        return len(self.leaders)


class MetadataCache:
    """
    Topics by name and by id, brokers by number.

    Attributes:
        revision: The newest revision seen.
        brokers: Where each broker can be reached.
    """

    def __init__(self) -> None:
        self.revision = -1
        self.brokers: dict[int, Address] = {}
        self._by_name: dict[str, TopicInfo] = {}
        self._by_id: dict[bytes, TopicInfo] = {}

    def __len__(self) -> int:
        return len(self._by_name)

    @property
    def names(self) -> list[str]:
        """The known topics."""
        return list(self._by_name)

    def get(self, name: str) -> TopicInfo | None:
        """
        Look up a topic.

        Args:
            name: Its name.
        """
        return self._by_name.get(name)

    def by_id(self, topic_id: bytes) -> TopicInfo | None:
        """
        Look up a topic.

        Args:
            topic_id: Its identity.
        """
        return self._by_id.get(topic_id)

    def apply(self, reply: MetadataReply) -> dict[str, TopicInfo | TinyMQError]:
        """
        Take in what a broker said.

        Args:
            reply: Its answer; one with an older revision changes nothing that
                is known already.

        Returns:
            For every topic in it what is known now, or the broker's error.
        """
        old = reply.revision < self.revision
        self.revision = max(self.revision, reply.revision)
        if reply.brokers and not old:
            self.brokers = {
                number: Address(host, port) for number, host, port, _ in reply.brokers if port
            }
        found: dict[str, TopicInfo | TinyMQError] = {}
        for name, topic_id, leaders, config, error in reply.topics:
            if error is not None:
                found[name] = error_from_meta(error)
                if not found[name].retriable:  # type: ignore[union-attr]
                    self.drop(name)
                continue
            known = self._by_name.get(name)
            if old and known is not None:
                found[name] = known
                continue
            found[name] = self._put(TopicInfo(name, topic_id, tuple(leaders), config))
        return found

    def drop(self, name: str) -> None:
        """
        Forget a topic.

        Args:
            name: Its name.
        """
        known = self._by_name.pop(name, None)
        if known is not None:
            del self._by_id[known.id]

    def _put(self, topic: TopicInfo) -> TopicInfo:
        self.drop(topic.name)
        self._by_name[topic.name] = topic
        self._by_id[topic.id] = topic
        return topic
