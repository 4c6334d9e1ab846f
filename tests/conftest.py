"""
What all tests share: hypothesis profiles, a real reactor where one is needed, and a broker.

Most tests hand a `Clock` and a `StringTransport` to the code. The few that want
real sockets use the fixture `real`, which runs a coroutine on a reactor of its
own: nothing is left from one test to the next, and code that reached for the
global reactor would hang instead of passing by luck.
"""

from __future__ import annotations

import gc
import os
import random
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.selectreactor import SelectReactor
from twisted.logger import globalLogPublisher
from twisted.python.failure import Failure

from tests.fakes.broker import BrokerFixture, HeldSyncer, LogKeeper
from tinymq.meta.registry import Topic

#: The long form of every check was asked for, by `make long`.
LONG = os.environ.get("TINYMQ_LONG", "") not in {"", "0"}

settings.register_profile(
    "short", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("long", settings.get_profile("short"), max_examples=5000)
settings.load_profile("long" if LONG else "short")

#: Seconds after which a test on a real reactor has failed.
PATIENCE = 20.0


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose the seed of hypothesis, so that it can be printed and given again."""
    if config.getoption("hypothesis_seed", None) is None:
        config.option.hypothesis_seed = str(random.SystemRandom().randrange(2**32))


def pytest_collection_finish(session: pytest.Session) -> None:
    """
    Let the garbage collector leave alone what stays for the whole run.

    Modules and collected tests are over a million objects. To look at them again takes
    0.1 s, once in every test of asyncio (which looks for what nobody closed), and now and
    then in any other.
    """
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print what repeats this run."""
    form = "long" if LONG else "short"
    seed = config.option.hypothesis_seed
    terminalreporter.write_line(f"checks in {form} form; repeat with --hypothesis-seed={seed}")


class RealReactor:
    """
    Runs coroutines on fresh reactors with real sockets.

    The body is given the reactor. The test fails when the body fails, when it
    takes longer than `PATIENCE`, or when it leaves a delayed call behind.
    """

    def __call__(self, body: Callable[[SelectReactor], Awaitable[None]]) -> None:
        """Run one coroutine to its end."""
        reactor = SelectReactor()
        outcome: list[Failure | None] = []

        def ended(result: object) -> None:
            outcome.append(result if isinstance(result, Failure) else None)
            reactor.callLater(0, reactor.stop)

        def begin() -> None:
            done = Deferred.fromCoroutine(_as_coroutine(body, reactor))
            done.addTimeout(PATIENCE, reactor)
            done.addBoth(ended)

        reactor.callWhenRunning(begin)
        reactor.run(installSignalHandlers=False)
        left = _close(reactor)
        (failure,) = outcome
        if failure is not None:
            failure.raiseException()
        assert left == [], "the test left delayed calls behind"


async def _as_coroutine(
    body: Callable[[SelectReactor], Awaitable[None]], reactor: SelectReactor
) -> None:
    await body(reactor)


def _close(reactor: SelectReactor) -> list[IDelayedCall]:
    """Close whatever the reactor still holds, and say which calls were due."""
    left = [call for call in reactor.getDelayedCalls() if call.active()]
    for selectable in (*reactor.removeAll(), reactor.waker):
        selectable.connectionLost(Failure(ConnectionDone()))
    return left


@pytest.fixture(autouse=True)
def _no_broker_is_left() -> Iterator[None]:
    """Kill the brokers in memory that a test left, so that none holds files."""
    yield
    fakes = sys.modules.get("tests.fakes.broker")
    while fakes is not None and fakes.RUNNING:
        fakes.RUNNING[-1].kill()


@pytest.fixture
def real() -> RealReactor:
    """Return what runs a coroutine on a reactor with real sockets."""
    return RealReactor()


@pytest.fixture
def fixture(tmp_path: Path) -> BrokerFixture:
    """Return a broker whose disk answers at once."""
    return BrokerFixture(tmp_path / "data")


@pytest.fixture
def topic(fixture: BrokerFixture) -> Topic:
    """Return a topic of it."""
    return fixture.topic()


@pytest.fixture
def syncer() -> HeldSyncer:
    """Return a syncer that waits to be told."""
    return HeldSyncer()


@pytest.fixture
def held(tmp_path: Path, syncer: HeldSyncer) -> BrokerFixture:
    """Return a broker whose syncs wait to be told, with a topic."""
    held = BrokerFixture(tmp_path / "held", syncer=syncer)
    held.topic()
    return held


@pytest.fixture
def logged() -> Iterator[LogKeeper]:
    """Return what keeps the events that are logged from now on."""
    keeper = LogKeeper()
    globalLogPublisher.addObserver(keeper)
    yield keeper
    globalLogPublisher.removeObserver(keeper)
