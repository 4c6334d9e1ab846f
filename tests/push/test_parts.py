"""The small parts of pushing: turns, rates, pauses, and a connection within a process."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from typing_extensions import override

from tinymq.push.counting import Rate, Tally
from tinymq.push.inside import InsideEndpoint
from tinymq.push.turnstile import Turnstile
from tinymq.push.waiting import MOST_PAUSE_S, pause_after


class TestTurnstile:
    """Requests are let through, shared out fairly."""

    def test_room(self) -> None:
        """While there is room nobody waits."""
        gate = Turnstile(2)
        assert gate.enter("a").called
        assert gate.enter("a").called
        assert not gate.enter("a").called

    def test_fair(self) -> None:
        """The next turn goes to who has the fewest open, not to who waits longest."""
        gate = Turnstile(2)
        for who in ("slow", "slow", "quick"):
            assert gate.enter(who).called
        slow, quick = gate.enter("slow"), gate.enter("quick")
        gate.leave("slow")
        assert (slow.called, quick.called) == (False, False)
        gate.leave("quick")
        assert (slow.called, quick.called) == (False, True)
        gate.leave("quick")
        assert slow.called

    def test_the_first_never_waits(self) -> None:
        """However much the others have open, each has one."""
        gate = Turnstile(1)
        assert gate.enter("slow").called
        assert gate.enter("quick").called
        assert not gate.enter("quick").called

    def test_given_up(self) -> None:
        """A turn that is waited for no more goes to another."""
        gate = Turnstile(1)
        gate.enter("a")
        one, two = gate.enter("a"), gate.enter("a")
        one.addErrback(lambda _: None)
        one.cancel()
        gate.leave("a")
        assert two.called
        gate.leave("a")
        assert gate.total == 0


class TestCounting:
    """Figures of an endpoint."""

    def test_rate(self) -> None:
        """A rate is of the last ten seconds."""
        rate = Rate()
        for second in range(5):
            for _ in range(4):
                rate.count(second)
        assert rate.of(5) == 2.0
        assert rate.of(12) == 0.8
        assert rate.of(100) == 0.0

    def test_times(self) -> None:
        """Times are told in few steps, and of the latest answers only."""
        tally = Tally()
        for number in range(1000):
            tally.answered(200, 0.001 * (number % 100), 5)
        times = tally.told(0)["times"]
        assert sum(count for _, count in times) == 200
        assert len(times) < 25
        assert times[-1][0] >= 99


@pytest.mark.parametrize(
    ("failures", "seconds"), [(0, 0), (1, 0), (2, 0.25), (3, 0.5), (10_000, MOST_PAUSE_S)]
)
def test_pauses(failures: int, seconds: float) -> None:
    """One failure stops nothing; more in a row do for longer and longer, up to a minute."""
    assert pause_after(failures) == seconds


class Side(Protocol):
    """One side of a connection, which remembers."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.ended = False
        self.paused: list[bool] = []

    @override
    def dataReceived(self, data: bytes) -> None:
        """Remember."""
        self.got.append(data)

    @override
    def connectionLost(self, reason: Any = None) -> None:
        """Remember."""
        self.ended = True

    def pauseProducing(self) -> None:  # noqa: N802 - Twisted's name
        """Remember."""
        self.paused.append(True)

    def resumeProducing(self) -> None:  # noqa: N802 - Twisted's name
        """Remember."""
        self.paused.append(False)


class TestInside:
    """A connection within a process behaves like one over a socket."""

    def pair(self) -> tuple[Clock, Side, Side]:
        """Connect two sides."""
        clock, far, near = Clock(), Side(), Side()
        server, client = Factory(), Factory()
        server.buildProtocol = lambda addr: far  # type: ignore[method-assign]
        client.buildProtocol = lambda addr: near  # type: ignore[method-assign]
        InsideEndpoint(clock, server).connect(client)
        return clock, near, far

    def test_bytes(self) -> None:
        """What is written arrives in a later turn, in one piece; the end comes behind it."""
        clock, near, far = self.pair()
        transport: Any = near.transport
        transport.write(b"a")
        transport.writeSequence([b"b", b"c"])
        transport.loseConnection()
        assert far.got == []
        clock.advance(0)
        assert far.got == [b"abc"]
        assert near.ended
        assert far.ended
        assert clock.getDelayedCalls() == []

    def test_pressure(self) -> None:
        """A side that does not read lets the other one pause, and nothing is lost."""
        clock, near, far = self.pair()
        transport: Any = near.transport
        transport.registerProducer(near, True)
        far_transport: Any = far.transport
        far_transport.pauseProducing()
        transport.write(b"x" * 100_000)
        clock.advance(0)
        assert (far.got, near.paused) == ([], [True])
        far_transport.resumeProducing()
        clock.advance(0)
        assert (len(far.got[0]), near.paused) == (100_000, [True, False])

    def test_abort(self) -> None:
        """What is under way is lost when a connection is cut."""
        clock, near, far = self.pair()
        transport: Any = near.transport
        transport.write(b"x")
        transport.abortConnection()
        clock.advance(0)
        assert (far.got, far.ended, near.ended) == ([], True, True)
        transport.write(b"y")
        assert clock.getDelayedCalls() == []

    def test_refused(self) -> None:
        """A broker that takes nobody refuses."""
        server = Factory()
        server.buildProtocol = lambda addr: None  # type: ignore[method-assign]
        failed: list[Any] = []
        InsideEndpoint(Clock(), server).connect(Factory()).addErrback(failed.append)
        assert len(failed) == 1
