"""Dividing the partitions of a group anew, without a broker."""

from __future__ import annotations

import time
from functools import partial
from itertools import count

from benches.bench import Bench, Run, Runs
from benches.tasks import Figures
from tinymq.errors import WireError
from tinymq.groups.group import Group
from tinymq.groups.topics import Topics
from tinymq.groups.values import COOPERATIVE, Client, Now, TopicLike
from tinymq.meta.registry import Topic
from tinymq.topicconfig import TopicConfig
from tinymq.wire.messages import Member, MemberReply, Shares

#: Members, and partitions of their topic.
MEMBERS, PARTITIONS = 50, 200
_STEP_MS = 10


def rebalances(bench: Bench) -> Runs:
    """Let members come, and one more, and one go: until nothing moves, by each strategy."""
    for strategy in (COOPERATIVE, "sticky", "range"):
        yield Run(strategy, 0, partial(_rebalanced, strategy, bench.scaled(5)))


def _rebalanced(strategy: str, times: int) -> Figures:
    spent = {"come": 0.0, "one_more": 0.0, "one_less": 0.0}
    took = moved = 0
    for _ in range(times):
        crowd = _Crowd(strategy)
        began = time.process_time()
        for number in range(MEMBERS):
            crowd.join(f"m{number}")
        spent["come"] += crowd.settled() - began
        took = max(took, crowd.took)
        began = time.process_time()
        crowd.join("more")
        spent["one_more"] += crowd.settled() - began
        moved = crowd.moved
        began = time.process_time()
        crowd.leave("m7")
        spent["one_less"] += crowd.settled() - began
    figures: Figures = {f"{name}_ms": each * 1000 / times for name, each in spent.items()}
    return {**figures, "took_ms": took, "moved": moved}


class _Crowd:
    """Members that do at once what they are told, on a clock of their own."""

    def __init__(self, strategy: str) -> None:
        topic: TopicLike = Topic(
            id=bytes(16),
            name="t",
            partitions=PARTITIONS,
            config=TopicConfig(),
            created_ms=1,
            leaders=(1,) * PARTITIONS,
        )
        self._now = Now(0, 1)
        self._strategy = strategy
        self._group = Group("g", Topics({topic.id: topic}, {"t": topic}), self._now)
        self._heard: dict[str, MemberReply] = {}

    def join(self, name: str) -> None:
        """Let one come."""
        self._say(name, MemberReply(generation=0), [])

    def leave(self, name: str) -> None:
        """Let one go."""
        self._group.ask(
            Member(group="g", member=name, leaves=True), Client(), self._now, lambda reply: None
        )
        self._heard.pop(name, None)

    def settled(self) -> float:
        """Go on until nothing moves, and return the processor's time."""
        for _ in count():
            while self._heard:
                heard, self._heard = self._heard, {}
                for name, reply in heard.items():
                    self._say(name, reply, reply.assigned)
            if not self._group.moving:
                return time.process_time()
            self._now = Now(self._now.mono + _STEP_MS, self._now.wall + _STEP_MS)
            self._group.tick(self._now)
        raise AssertionError

    def _say(self, name: str, reply: MemberReply, owned: Shares) -> None:
        def hear(answer: MemberReply | WireError) -> None:
            if isinstance(answer, MemberReply):  # else it left
                self._heard[name] = answer

        request = Member(
            group="g",
            member=name,
            topics=["t"],
            strategy=self._strategy,
            generation=reply.generation,
            owned=owned,
            wait_ms=5000,
        )
        self._group.ask(request, Client(), self._now, hear)

    @property
    def took(self) -> int:
        """Milliseconds of the last rebalance, of the group's clock."""
        return self._group.history.rows[-1].took_ms or 0

    @property
    def moved(self) -> int:
        """Partitions that the last rebalance moved."""
        return self._group.history.rows[-1].moved
