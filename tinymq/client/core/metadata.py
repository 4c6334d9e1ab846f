"""What a client knows about topics and brokers; it goes on with it when nobody answers."""

from __future__ import annotations

from typing import Any

from attrs import frozen

from tinymq.client.core.address import Address
from tinymq.errors import ClientError, NotLeader, TinyMQError
from tinymq.names import broker_called
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
    Topics by name, brokers by number.

    Attributes:
        revision: The newest revision seen.
        brokers: Where each broker can be reached.
        places: The same with those that are away, where they were last.
        zones: The zone of each broker that has one.
        lagging: Whether the last answer was older than what was known before.
    """

    def __init__(self) -> None:
        self.revision = -1
        self.brokers: dict[int, Address] = {}
        self.places: dict[int, Address] = {}
        self.zones: dict[int, str] = {}
        self.lagging = False
        self._by_name: dict[str, TopicInfo] = {}
        self._broker_names: dict[int, str] = {}
        self._led: dict[tuple[str, int], int] = {}

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

    def leader(self, topic: str, partition: int) -> int | None:
        """
        Say which broker leads a partition.

        Args:
            topic: Name of the topic.
            partition: Number of the partition.

        Returns:
            Its number, -1 when it is known that no live broker leads it, or None
            when nothing is known.
        """
        info = self._by_name.get(topic)
        if info is None or partition >= info.partitions:
            return None
        return info.leaders[partition]

    def describe(self, broker: int) -> str:
        """
        Name a broker for people.

        Args:
            broker: Its number.
        """
        name = self._broker_names.get(broker)
        return f"broker {broker}" if not name else f"{broker_called(name)} ({broker})"

    def place(self, topic: str, partition: int) -> str:
        """
        Name a partition and its broker for people.

        Args:
            topic: Name of the topic.
            partition: Number of the partition.
        """
        broker = self._last_leader(topic, partition)
        whose = f" on {self.describe(broker)}" if broker >= 0 else ""
        return f"partition {partition} of topic {topic}{whose}"

    def leaderless(self, topic: str, partition: int) -> NotLeader:
        """
        Make the error of a partition without a live leader.

        Args:
            topic: Name of the topic.
            partition: Number of the partition.
        """
        broker = self._last_leader(topic, partition)
        where = f"partition {partition} of topic {topic}"
        if broker >= 0:
            text = f"{self.describe(broker)} is away: no live broker leads {where}"
        else:  # METADATA does not tell who led it before this client came
            text = f"no live broker leads {where}: the one that holds it is away"
        return NotLeader(text, topic=topic, partition=partition, broker=broker)

    def unreachable(self, topic: str, partition: int, error: ClientError) -> ClientError:
        """
        Make the error of a partition whose leader does not answer.

        Args:
            topic: Name of the topic.
            partition: Number of the partition.
            error: What came of asking its leader.
        """
        named = type(error)(f"{self.place(topic, partition)}: {error}")
        named.__cause__ = error.__cause__
        return named

    def _last_leader(self, topic: str, partition: int) -> int:
        leader = self.leader(topic, partition)
        if leader is None or leader < 0:
            return self._led.get((topic, partition), -1)
        return leader

    def forget_revision(self) -> None:
        """Take the next answer for newer, since it comes from another cluster."""
        self.revision = -1

    def apply(self, reply: MetadataReply) -> dict[str, TopicInfo | TinyMQError]:
        """
        Take in what a broker said.

        Args:
            reply: Its answer; one with an older revision changes nothing that
                is known already.

        Returns:
            For every topic in it what is known now, or the broker's error.
        """
        old = self.lagging = reply.revision < self.revision
        self.revision = max(self.revision, reply.revision)
        if reply.brokers and not old:
            self._learn_brokers(reply)
        found: dict[str, TopicInfo | TinyMQError] = {}
        for name, topic_id, leaders, config, error in reply.topics:
            known = self._by_name.get(name)
            if old and known is not None:
                found[name] = known
                continue
            if error is not None:
                found[name] = error_from_meta(error)
                if not found[name].retriable:  # type: ignore[union-attr]
                    self.drop(name)
                continue
            found[name] = self._put(TopicInfo(name, topic_id, tuple(leaders), config))
        return found

    def drop(self, name: str) -> None:
        """
        Forget a topic.

        Args:
            name: Its name.
        """
        self._by_name.pop(name, None)

    def _put(self, topic: TopicInfo) -> TopicInfo:
        before = self._by_name.get(topic.name)
        for number in range(before.partitions if before is not None else 0):
            assert before is not None
            if before.leaders[number] >= 0 and topic.leaders[number : number + 1] == (-1,):
                self._led[topic.name, number] = before.leaders[number]
        self._by_name[topic.name] = topic
        return topic

    def _learn_brokers(self, reply: MetadataReply) -> None:
        self.brokers = {
            number: Address(host, port) for number, host, port, _ in reply.brokers if port
        }
        self.places.update(self.brokers)
        self._broker_names.update({number: name for number, _, _, name in reply.brokers})
        self.zones = {
            int(number): zone for number, zone in (reply.zones or {}).items() if number.isdecimal()
        }
