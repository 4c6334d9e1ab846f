"""Messages that the state of their entity does not allow come again, not for ever."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred

from tests.patterns.conftest import Base
from tests.patterns.messages import KINDS, GroupMessage, Message, run
from tinymq.client.core.handling import Reject, Requeue
from tinymq.errors import UsageError
from tinymq.patterns.idempotence import (
    MemoryStates,
    SeenStore,
    StateConfig,
    StateGuard,
    TableStates,
)
from tinymq.patterns.idempotence.calling import Handler
from tinymq.patterns.idempotence.machine import States

ORDER = {"new": {"paid", "cancelled"}, "paid": {"shipped"}}


def becomes(state: str, attempt: int = 1, key: bytes = b"k") -> Message:
    """Make a message."""
    return Message(0, key, [("state", state.encode())], attempt)


def table(base: Base) -> TableStates:
    """Return states in a table."""
    states = TableStates(base.connect, base.dialect, "g")
    with closing(base.connect()) as connection:
        states.create(connection)
        connection.commit()
    return states


@pytest.fixture(params=["memory", "table"])
def states(request: pytest.FixtureRequest, lite: Base) -> States:
    """Return states of each kind."""
    return MemoryStates() if request.param == "memory" else table(lite)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_allowed(states: States, kind: Callable[[Handler], Handler]) -> None:
    """A message that the state allows is handled and changes it; an early one comes again."""
    done: list[bytes] = []
    guard = StateGuard(ORDER, "new", states=states)
    handler = guard.step(kind(lambda message: done.append(message.headers[0][1])))
    with pytest.raises(Requeue) as early:
        run(handler, becomes("shipped"))
    assert (early.value.delay_s, early.value.failure) == (1.0, False)
    assert early.value.reason == "k is new and cannot become shipped"
    for state in ("paid", "paid", "shipped"):
        run(handler, becomes(state))
    run(handler, becomes("cancelled", key=b"other"))

    assert done == [b"paid", b"shipped", b"cancelled"]
    assert (guard.early, guard.repeats, guard.given_up) == (1, 1, 0)


def test_not_for_ever() -> None:
    """At the last delivery that is allowed, a message whose time does not come is rejected."""
    guard = StateGuard(ORDER, "new", config=StateConfig(most=3))
    handler = guard.step(lambda message: None)
    for attempt in (1, 2):
        with pytest.raises(Requeue):
            handler(becomes("shipped", attempt))
    with pytest.raises(Reject) as end:
        handler(becomes("shipped", 3))

    assert end.value.reason == "k is new and cannot become shipped, after 3 deliveries"
    assert (guard.early, guard.given_up) == (2, 1)


def test_a_group_counts() -> None:
    """A group does not say how often a message came, so it is counted, message by message."""
    guard = StateGuard(ORDER, "new", config=StateConfig(most=2))
    handler = guard.step(lambda message: None)
    message, other = GroupMessage(becomes("shipped")), GroupMessage(becomes("shipped"))
    other.offset = 7
    for each in (message, other):
        with pytest.raises(Requeue):
            handler(each)
    with pytest.raises(Reject, match="after 2 deliveries"):
        handler(message)


def test_unknown_states() -> None:
    """A state that nobody named is a mistake, at once."""
    guard = StateGuard(ORDER, "new")
    with pytest.raises(Reject, match="there is no state lost"):
        guard.step(lambda message: None)(becomes("lost"))
    with pytest.raises(UsageError, match="'draft'"):
        StateGuard(ORDER, "draft")


def test_the_same_state_may_be_early() -> None:
    """Where a switch goes on and off, *off* while it is off comes again after *on*."""
    guard = StateGuard(
        {"on": {"off"}, "off": {"on"}}, "off", config=StateConfig(same="again", delay_s=7)
    )
    done: list[bytes] = []
    handler = guard.step(lambda message: done.append(message.headers[0][1]))
    with pytest.raises(Requeue) as early:
        handler(becomes("off"))
    handler(becomes("on"))
    handler(becomes("off", 2))

    assert (early.value.delay_s, done) == (7, [b"on", b"off"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_failure_changes_no_state(states: States, kind: Callable[[Handler], Handler]) -> None:
    """What the handler could not do is tried again in the same state."""
    failing = [True]

    def work(message: Message) -> None:
        if failing:
            failing.clear()
            raise ZeroDivisionError

    handler = StateGuard(ORDER, "new", states=states).step(kind(work))
    with pytest.raises(ZeroDivisionError):
        run(handler, becomes("paid"))
    with pytest.raises(Requeue):
        run(handler, becomes("shipped"))
    run(handler, becomes("paid"))
    run(handler, becomes("shipped"))


def test_an_entity_is_handled_by_one() -> None:
    """While a message of an entity is at work, others of it are put off."""
    gate: Deferred[None] = Deferred()
    handler = StateGuard(ORDER, "new").step(lambda message: gate)
    first = handler(becomes("paid"))
    with pytest.raises(Requeue, match="another one"):
        handler(becomes("cancelled"))
    gate.callback(None)

    assert run(lambda: first) is None
    with pytest.raises(Requeue, match="is paid"):
        handler(becomes("cancelled"))


def test_somebody_else_was_quicker(base: Base) -> None:
    """Work on a state that another process changed meanwhile is rolled back, and looked at
    again.
    """
    seen = SeenStore(base.connect, base.dialect, "c")
    ours, others = table(base), table(base)
    with closing(base.connect()) as connection:
        seen.create(connection)
        connection.commit()
    meanwhile: list[Callable[[], object]] = []

    @seen.in_transaction
    @StateGuard(ORDER, "new", states=ours).step
    def work(message: Message, connection: Any) -> None:
        for call in meanwhile:
            call()

    if base.dialect.name == "postgresql":  # SQLite lets nobody write meanwhile
        meanwhile.append(lambda: others.move("k", None, "cancelled"))
        with pytest.raises(Requeue, match="somebody else"):
            work(becomes("paid"))
        assert others.state("k") == "cancelled"
        assert not seen.known("t/0@0/1800000000000")
    else:
        work(becomes("paid"))
        assert others.state("k") == "paid"
    seen.close()
    ours.close()
    others.close()


@given(coming=st.permutations(["paid", "shipped", "paid", "shipped"]), crash=st.integers(0, 8))
def test_random_order(coming: list[str], crash: int) -> None:
    """In whatever order messages and repeats come, and wherever one fails, the entity goes its
    way once.
    """
    done: list[str] = []
    calls = 0

    def work(message: Message) -> None:
        nonlocal calls
        calls += 1
        if calls == crash:
            raise ZeroDivisionError
        done.append(message.headers[0][1].decode())

    handler = StateGuard(ORDER, "new").step(work)
    queue = [becomes(state) for state in coming]
    for _ in range(40):
        if not queue:
            break
        message = queue.pop(0)
        try:
            handler(message)
        except (Requeue, ZeroDivisionError):
            queue.append(message)
        except Reject:
            pass

    assert done == ["paid", "shipped"]
    assert [message.headers[0][1] for message in queue] in ([], [b"paid"], [b"paid"] * 2)
