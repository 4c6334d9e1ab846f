"""Whatever happens to a subscription, in whatever order, every message is done in the end."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.client.test_subscription_core import Worker
from tinymq.client.core.message import QueueMessage, Standing
from tinymq.errors import LeaseLost, StateError, UnknownChannel

MOST: Final = 5

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(1, 8)),
        st.tuples(st.just("take"), st.integers(1, 4)),
        st.tuples(st.sampled_from(["finish", "requeue", "give back", "touch"]), st.integers(0, 9)),
        st.tuples(st.just("cut"), st.integers(0, 1)),
        st.tuples(st.just("lose"), st.integers(0, 1)),
        st.tuples(st.just("forget"), st.just(0)),
        st.tuples(st.just("wait"), st.integers(0, 30)),
        st.tuples(st.just("pump"), st.just(0)),
    ),
    max_size=40,
)


class Play:
    """A worker to which things happen."""

    def __init__(self) -> None:
        self.worker = Worker(max_in_flight=MOST)
        self.worker.channel.run = 3
        self.hands: list[QueueMessage] = []
        self.told: dict[int, list[Any]] = {}
        self.count = 0

    def step(self, what: str, number: int) -> None:
        """Let one thing happen."""
        worker = self.worker
        match what:
            case "put":
                self.count += number
                worker.puppet.put(*[b"v"] * number)
            case "take":
                self.hands += self.some(number)
            case "cut":
                worker.net.cut(deliver=bool(number))
            case "lose":
                for lease_id, lease in tuple(worker.channel.leases.items()):
                    bits = lease.bits & (1 | number << 1)
                    if bits and lease.subscription in worker.channel.subscriptions:
                        worker.puppet.take_back(lease_id, bits, tell=bool(number))
            case "forget":
                worker.puppet.end_all((StateError if number else UnknownChannel)("over"))
            case "wait":
                worker.net.advance(number)
            case "pump":
                worker.net.pump()
            case _:
                self.settle(what, number)
        self.check()

    def some(self, number: int) -> list[QueueMessage]:
        """Take a few messages."""
        found = (self.worker.core.take(self.worker.net.now) for _ in range(number))
        return [message for message in found if message is not None]

    def settle(self, what: str, number: int) -> None:
        """Say what became of a message."""
        if not self.hands:
            return
        message = self.hands[number % len(self.hands)]
        if what != "touch":
            self.hands.remove(message)
        try:
            {
                "finish": message.finish,
                "requeue": message.requeue,
                "give back": message.give_back,
                "touch": message.touch,
            }[what]()
        except LeaseLost:
            assert message.is_lost
            return
        if what == "finish":
            message.when_confirmed(self.told.setdefault(message.offset, []).append)

    def check(self) -> None:
        """Check what must hold at any moment."""
        core = self.worker.core
        assert 0 <= core.in_flight <= MOST
        held = [message for message in self.hands if message.standing is Standing.HELD]
        assert len(held) <= core.in_flight

    def end(self) -> None:
        """Let everything come to an end: the channel delivers again what came back."""
        worker, channel = self.worker, self.worker.channel
        worker.net.advance(20)
        for message in self.hands:
            if message.held:
                message.finish()
        back = {"requeue", "give back"}
        delivered_again: set[int] = set()
        for _ in range(100):
            worker.net.advance(1)
            gone = [row for row in channel.settled if row[0] in back]
            for row in gone:
                channel.settled.remove(row)
                channel.ready.append((0, row[2]))
                delivered_again.add(row[2])
            worker.puppet.deliver()
            worker.net.pump()
            for message in worker.take_all():
                message.finish()
        worker.net.advance(20)


@settings(deadline=None, max_examples=20)
@given(STEPS)
def test_every_message_is_done_once(steps: list[tuple[str, int]]) -> None:
    """
    No message is lost, and none is done twice, whatever is lost on the way.

    The puppet tells leases apart, so a settle of a lost one hits nobody else; what is
    confirmed as finished is finished.
    """
    play = Play()
    for step in steps:
        play.step(*step)
    play.end()

    finished = play.worker.channel.offsets("finish")
    assert sorted(finished) == list(range(play.count))
    assert play.worker.core.in_flight == 0
    assert play.worker.core.settled_all
    assert not play.worker.channel.leases
    for told in play.told.values():
        assert len(told) >= 1
