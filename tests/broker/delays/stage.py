"""A broker with a topic, to which messages are published that are not due yet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.fakes.broker import Answers, BrokerFixture, batch, only
from tinymq.broker.delays.delays import Delays


class Stage:
    """
    A broker whose time passes when it is told to.

    Args:
        path: The data folder.
        config: Settings of the topic.
        **changes: Of the broker.
    """

    def __init__(self, path: Path, config: dict[str, Any] | None = None, **changes: Any) -> None:
        self.broker = BrokerFixture(path, **changes)
        if "t" not in self.broker.meta.registry.by_name:
            self.broker.meta.create_topic("t", 1, config or {})

    @property
    def now(self) -> int:
        """The time by which messages are due."""
        return self.broker.broker.channels.now()

    @property
    def delays(self) -> Delays:
        """What waits in the topic's partition."""
        found = self.broker.broker.delaying.of(self.broker.partition())
        assert found is not None, "nothing ever waited"
        return found

    def stage(self, dues: Sequence[int], *values: bytes, **columns: Any) -> Answers:
        """Publish messages in the present turn; a due time below 0 is a delay."""
        answers: Answers = []
        data = batch(*(values or [b"%d" % due for due in dues]), dues=dues, **columns)
        topic = self.broker.meta.describe("t").id
        self.broker.broker.produce(topic, 0, data, answers.append)
        return answers

    def publish(self, dues: Sequence[int], *values: bytes, **columns: Any) -> int:
        """Publish messages, let the turn end, and return the id of the first."""
        answers = self.stage(dues, *values, **columns)
        self.broker.clock.advance(0)
        found = only(answers)
        assert found.delayed
        return found.base_offset

    def wait(self, seconds: float, step: float = 0.01) -> None:
        """Let time pass, on the wall clock, too."""
        self.broker.clock.advance(1e-7)  # so that sums of parts are not a hair too small
        left = seconds
        while left > 1e-9:
            part = min(step, left)
            left -= part
            self.broker.wall.now_ms += round(part * 1000)
            self.broker.clock.advance(part)
        for _ in range(5):
            self.broker.clock.advance(0)

    def operate(self, name: str, **arguments: Any) -> dict[str, Any]:
        """Carry out an operation that waits for the end of a turn."""
        return self.broker.carry_out(name, **arguments)

    @property
    def values(self) -> list[bytes | None]:
        """All values that readers see."""
        return self.broker.values()

    def again(self, *, clean: bool = False, away: float = 0.0) -> None:
        """Kill or stop the broker, and start it once more after some seconds."""
        if clean:
            self.broker.stop()
        else:
            self.broker.kill()
        self.broker.wall.now_ms += round(away * 1000)
        self.broker = self.broker.again()
        for _ in range(5):
            self.broker.clock.advance(0)
