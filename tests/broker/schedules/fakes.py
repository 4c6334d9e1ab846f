"""A broker for schedules, whose disk and delay store can be stopped at any moment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any

from attrs import define, field
from twisted.internet.task import Clock

from tinymq.broker.schedules.ports import Due
from tinymq.broker.schedules.scheduling import SCHEDULED, Scheduling
from tinymq.errors import StorageFull, WireError
from tinymq.meta.registry import Registry, Schedule, Topic
from tinymq.topicconfig import TopicConfig

TOPIC = Topic(
    id=bytes(16), name="t", partitions=1, config=TopicConfig(), created_ms=0, leaders=(1,)
)


@define
class Message:
    """A message that was put; `state` is waiting, released or cancelled."""

    id: int
    mark: str
    due: Due
    state: str = "waiting"

    @property
    def scheduled(self) -> int:
        """The time that it stands for."""
        return int(dict(self.due.headers)[SCHEDULED])


@define
class Store:
    """
    What outlives a kill.

    Attributes:
        content: The book, as it is on the disk.
        messages: Everything that was put.
        came: Messages in the topic.
        full: Whether nothing can be written.
        safe: So many of the messages are on the disk.
    """

    content: bytes | None = None
    messages: list[Message] = field(factory=list)
    came: list[Message] = field(factory=list)
    full: bool = False
    safe: int = 0

    def cut(self, random: Random) -> None:
        """Lose the power: some of what is not on the disk is gone."""
        del self.messages[random.randint(self.safe, len(self.messages)) :]

    def read_file(self, path: str) -> bytes | None:
        """Read the book."""
        return self.content

    def replace_file(self, path: str, content: bytes) -> None:
        """Write the book."""
        if self.full:
            raise StorageFull("no space")
        self.content = content


@define
class Life:
    """
    One life of a broker.

    Attributes:
        store: What was there before.
        now_ms: What time it is at its start.
        schedules: As the MetaServer has them.
        held: Whether the disk waits for `step`; what is held is lost with a kill.
        volatile: Whether the topic is in memory only.
    """

    store: Store
    now_ms: int
    schedules: list[Schedule] = field(factory=list)
    held: bool = False
    volatile: bool = False
    clock: Clock = field(factory=Clock)
    steps: list[Callable[[], None]] = field(factory=list)
    produced: list[bytes] = field(factory=list)
    #: Of messages that came, of which it was not told yet.
    coming: set[int] = field(factory=set)
    partition: Any = None
    scheduling: Scheduling = None  # type: ignore[assignment]

    def __attrs_post_init__(self) -> None:
        """Start."""
        self.store.safe = len(self.store.messages)  # what is there now was read
        self.partition = SimpleNamespace(
            key=(TOPIC.id, 0), index=0, topic=TOPIC, volatile=self.volatile
        )
        broker: Any = SimpleNamespace(
            store=SimpleNamespace(folder=SimpleNamespace(disk=self.store, schedules="schedules")),
            scheduler=self.clock,
            background=self,
            meta=self,
            channels=self,
            partitions_of=lambda topic: [self.partition],
            produce=self._produce,
        )
        self.scheduling = Scheduling(broker)
        self.scheduling.delays = lambda partition: self
        self.scheduling.open()
        self.follow(*self.schedules)

    # --- the broker -------------------------------------------------------------

    @property
    def registry(self) -> Registry:
        """What the MetaServer tells."""
        return Registry(
            topics={TOPIC.id: TOPIC}, schedules={each.name: each for each in self.schedules}
        )

    def now(self) -> int:
        """What time it is."""
        return self.now_ms + int(self.clock.seconds() * 1000)

    def follow(self, *schedules: Schedule) -> None:
        """Hear of schedules."""
        self.schedules = list(schedules)
        self.scheduling.follow(TOPIC)
        self.settle()

    def submit(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        """Wait for the disk elsewhere."""

        def both() -> None:
            work()
            self.later(done)

        self.later(both)

    def later(self, step: Callable[[], None]) -> None:
        """Do something when the disk is ready."""
        if self.held:
            self.steps.append(step)
        else:
            self.clock.callLater(0, step)

    def _produce(
        self, topic_id: bytes, index: int, batch: bytes, answer: Callable[..., None]
    ) -> None:
        self.produced.append(batch)
        answer(SimpleNamespace(base_offset=len(self.produced)))

    # --- the delay store ----------------------------------------------------------

    @property
    def next_id(self) -> int:
        """The id of the next message."""
        return len(self.store.messages)

    def waiting(self, mark: str) -> Sequence[tuple[int, int]]:
        """Say what waits."""
        return [
            (each.id, each.due.due_ms)
            for each in self.store.messages
            if each.mark == mark and (each.state == "waiting" or each.id in self.coming)
        ]

    def put(self, message: Due, mark: str, done: Callable[[int | WireError], None]) -> None:
        """Let a message wait."""

        def work() -> None:
            if self.store.full:
                self.later(lambda: done(StorageFull("no space")))
                return
            put = Message(len(self.store.messages), mark, message)
            self.store.messages.append(put)

            def told() -> None:
                self.store.safe = max(self.store.safe, put.id + 1)
                done(put.id)

            self.later(told)

        self.later(work)

    def cancel(self, ids: Sequence[int], done: Callable[[list[int] | WireError], None]) -> None:
        """Take messages back."""

        def work() -> None:
            found = [each for each in ids if self.store.messages[each].state == "waiting"]
            for each in found:
                self.store.messages[each].state = "cancelled"
            self.later(lambda: done(found))

        self.later(work)

    def put_since(self, mark: str, first: int) -> bool:
        """Whether a message was put."""
        return any(each.mark == mark for each in self.store.messages[first:])

    def release(self) -> None:
        """Let come what is due."""
        due = [
            each
            for each in self.store.messages
            if each.state == "waiting"
            and each.id < self.store.safe
            and each.due.due_ms <= self.now()
        ]
        for each in sorted(due, key=lambda each: (each.due.due_ms, each.id)):
            each.state = "released"
            self.store.came.append(each)
            self.coming.add(each.id)
            self.later(partial(self._tell, each))

    def _tell(self, message: Message) -> None:
        self.coming.discard(message.id)
        told = [(message.id, message.due.due_ms, message.mark)]
        self.scheduling.released(self.partition, told)

    # --- time -----------------------------------------------------------------------

    def settle(self) -> None:
        """Let all happen that does not wait for time."""
        if self.held:
            return
        for _ in range(20):
            self.clock.advance(0)

    def advance(self, seconds: float) -> None:
        """Let time pass, and come what is due."""
        self.clock.advance(seconds)
        self.release()
        self.settle()
        while any(
            due <= self.now() for each in self.schedules for _, due in self.waiting(each.mark)
        ):
            self.release()
            self.settle()

    def put_another(self) -> None:
        """Let a message of somebody else wait."""
        self.store.messages.append(Message(self.next_id, "another", Due(None, b"", (), 1 << 60)))

    def step(self, random: Random) -> None:
        """Let the disk do one thing, or a timer that is due."""
        self.clock.advance(0)
        if self.steps:
            self.steps.pop(0)()
        elif random.random() < 0.5:
            self.release()

    @property
    def times(self) -> list[int]:
        """The times of the messages that came."""
        return [each.scheduled for each in self.store.came]
