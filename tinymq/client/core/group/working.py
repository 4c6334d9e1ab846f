"""What handlers of a group consumer are given, in which order, and what comes of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Any, Final

from attrs import Factory, field, frozen

from tinymq.client.core.config import Backoff
from tinymq.client.core.group.handed import GroupBatch, GroupMessage
from tinymq.client.core.handling import reason_of
from tinymq.errors import InvalidName, UsageError
from tinymq.names import valid_name

#: Most messages that wait for one of their key, for each handler.
_QUEUED: Final = 100
#: What `on_error` may be, beside the name of a topic.
STOP: Final = "stop"
SKIP: Final = "skip"
#: How the broker names where a dead letter comes from.
_ORIGIN: Final = "tinymq-"

#: What a handler is given.
Item = GroupMessage | GroupBatch


@frozen(kw_only=True)
class GroupPlan:
    """
    How handlers are called.

    Attributes:
        concurrency: How many at once at most.
        batches: Whether each is given a whole batch.
        manual: Whether they say `done` by themselves.
        threads: In how many threads of their own they are called; 0 is none.
        retries: How often one is called again with what it failed at.
        on_error: What comes then: ``stop``, ``skip``, or the name of a topic.
        backoff: Waits between these calls.
    """

    concurrency: int = 1
    batches: bool = False
    manual: bool = False
    threads: int = 0
    retries: int = 0
    on_error: str = STOP
    backoff: Backoff = Factory(lambda: Backoff(first_s=0.1, most_s=10.0))

    def __attrs_post_init__(self) -> None:
        for name, least in (("concurrency", 1), ("threads", 0), ("retries", 0)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise UsageError(f"{name} must be at least {least}, not {value!r}")
        if self.threads and self.concurrency not in {1, self.threads}:
            raise UsageError(
                "threads say how many handlers are at work at once: leave out concurrency"
            )
        if self.threads and self.manual:
            raise UsageError("messages are not said to be done in threads: leave out manual")
        if self.on_error not in (STOP, SKIP):
            try:
                valid_name(self.on_error)
            except InvalidName as error:
                raise UsageError(f"on_error is stop, skip or a topic: {error.text}") from None

    @property
    def at_once(self) -> int:
        """How many handlers are at work at once at most."""
        return self.threads or self.concurrency

    @property
    def letters(self) -> str | None:
        """Where goes what handlers fail at, or None."""
        return None if self.on_error in (STOP, SKIP) else self.on_error


class Job:
    """
    What one call of a handler has in hand.

    Args:
        item: A message or a batch.

    Attributes:
        item: The same.
        failures: How often its handler has failed.
        gone: Whether it was let go of: it comes again, and before all behind it.
    """

    __slots__ = ("failures", "gone", "item")

    def __init__(self, item: Item) -> None:
        self.item = item
        self.failures = 0
        self.gone = False

    def let_go(self) -> None:
        """It is not done: whoever reads the partition next has it again."""
        self.gone = True
        self.item.let_go()

    @property
    def lane(self) -> Hashable:
        """Those of one lane are handled one after the other; None is in no lane."""
        item = self.item
        if isinstance(item, GroupMessage):
            key = item.key
            return None if key is None else (item.topic, item.partition, key)
        return item.topic, item.partition


class Lanes:
    """
    Jobs whose lane is busy wait here, so that those of one key keep their order.

    Args:
        most: So many may be at work at once.
    """

    def __init__(self, most: int) -> None:
        self._most = most * _QUEUED if most > 1 else 1
        self._busy: dict[Hashable, deque[Job]] = {}
        self._ready: deque[Job] = deque()
        self._waiting = 0

    @property
    def full(self) -> bool:
        """Whether no more should be taken for now."""
        return self._waiting >= self._most

    @property
    def any_ready(self) -> bool:
        """Whether one that has waited for its lane may begin."""
        return bool(self._ready)

    def next(self) -> Job | None:
        """Give one that has waited for its lane, if that is free now."""
        if not self._ready:
            return None
        self._waiting -= 1
        return self._ready.popleft()

    def enter(self, job: Job) -> bool:
        """
        Let a job begin, or wait.

        Args:
            job: The job.

        Returns:
            Whether it may begin.
        """
        lane = job.lane
        if lane is None:
            return True
        queue = self._busy.get(lane)
        if queue is None:
            self._busy[lane] = deque()
            return True
        queue.append(job)
        self._waiting += 1
        return False

    def drop(self) -> list[Job]:
        """Give up all that wait for their lane, and return them."""
        waiting = [*self._ready, *(job for queue in self._busy.values() for job in queue)]
        for queue in self._busy.values():
            queue.clear()
        self._ready.clear()
        self._waiting = 0
        return waiting

    def leave(self, job: Job) -> None:
        """
        Note that a job has ended: the next of its lane may begin.

        If it is gone, all behind it are let go of, for it comes again before them.

        Args:
            job: The job.
        """
        lane = job.lane
        if lane is None:
            return
        queue = self._busy.get(lane)
        if queue and job.gone:
            for each in queue:
                each.let_go()
            self._waiting -= len(queue)
            queue.clear()
        if queue:
            self._ready.append(queue.popleft())
        else:
            self._busy.pop(lane, None)


@frozen
class Letter:
    """
    What is published of a message that a handler failed at.

    Attributes:
        key: Its key.
        value: Its value.
        headers: Its headers, where it comes from, and why.
    """

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]] = field(factory=list)


def letters(group: str, item: Item, error: BaseException) -> list[Letter]:
    """
    Make dead letters.

    Args:
        group: Name of the group.
        item: What the handler failed at.
        error: What it raised.
    """
    messages = [item] if isinstance(item, GroupMessage) else item.messages
    text = reason_of(error)[:1000].encode("utf-8", "replace")
    found = []
    for message in messages:
        facts: dict[str, Any] = {
            "topic": message.topic.encode(),
            "partition": b"%d" % message.partition,
            "offset": b"%d" % message.offset,
            "group": group.encode(),
            "reason": b"failures",
            "text": text,
        }
        headers = [*message.headers, *((_ORIGIN + name, value) for name, value in facts.items())]
        found.append(Letter(message.key, message.value, headers))
    return found
