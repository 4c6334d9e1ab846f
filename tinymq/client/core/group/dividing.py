"""Dividing partitions by a function of the user, on behalf of the whole group."""

from __future__ import annotations

from collections.abc import Callable

from tinymq.client.core.cluster import Cluster
from tinymq.client.core.group.settings import GroupConfig, GroupMember
from tinymq.client.core.metadata import TopicInfo
from tinymq.errors import TinyMQError, UsageError
from tinymq.wire.messages import PlanRow


class Dividing:
    """
    Asks what topics there are, and then the user's assignor.

    Args:
        cluster: The brokers.
        config: Settings.
    """

    def __init__(self, cluster: Cluster, config: GroupConfig) -> None:
        self._cluster = cluster
        self._config = config

    def divide(
        self, members: list[GroupMember], done: Callable[[list[PlanRow], float], None], now: float
    ) -> None:
        """
        Divide.

        Args:
            members: The members, and the topics that each wants.
            done: Told what the assignor decided, if it did.
            now: The time.
        """
        left = {name for member in members for name in member.topics}
        topics: dict[str, TopicInfo] = {}
        waiting = len(left)

        def found(info: TopicInfo | None, _: TinyMQError | None, now: float) -> None:
            nonlocal waiting
            waiting -= 1
            if info is not None:
                topics[info.name] = info
            if not waiting:
                self._decide(members, topics, done, now)

        if not left:
            self._decide(members, topics, done, now)
        deadline = now + self._cluster.config.deadline_s
        for name in sorted(left):
            self._cluster.topic(name, deadline, found, now, fresh=True)

    def _decide(
        self,
        members: list[GroupMember],
        topics: dict[str, TopicInfo],
        done: Callable[[list[PlanRow], float], None],
        now: float,
    ) -> None:
        assignor = self._config.assignor
        assert assignor is not None
        sizes = {name: info.partitions for name, info in sorted(topics.items())}
        try:
            plan = [
                _row(member, places, topics) for member, places in assignor(members, sizes).items()
            ]
        except Exception as error:  # noqa: BLE001 - anything may come out of it
            self._cluster.report("the assignor of the group failed", error)
            return
        done(plan, now)


def _row(member: str, places: object, topics: dict[str, TopicInfo]) -> PlanRow:
    """One member's share of the plan, as it travels."""
    rows: dict[bytes, list[int]] = {}
    for topic, partition in places:  # type: ignore[attr-defined]
        info = topics.get(topic)
        if info is None or not 0 <= partition < info.partitions:
            raise UsageError(f"the assignor gave out {topic}/{partition}, which there is not")
        rows.setdefault(info.id, []).append(partition)
    return member, list(rows.items())
