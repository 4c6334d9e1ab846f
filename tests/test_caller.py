"""Callers of operations: who they are, and the end of their connections."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.fakes.broker import LogKeeper
from tinymq.caller import ANONYMOUS, LOCAL, Caller


def test_told_once_in_order() -> None:
    """Everybody is told once, in the order in which they asked, the same callback as often."""
    caller, heard = Caller("p", "peer"), []
    for name in ("a", "b"):
        caller.on_gone(lambda name=name: heard.append(name))  # type: ignore[misc]
    twice = heard.clear
    caller.on_gone(twice)
    caller.on_gone(lambda: heard.append("c"))
    caller.gone()
    caller.gone()
    assert heard == ["c"]


def test_replaced() -> None:
    """What is given under a key takes the place of what was there, however often."""
    heard: list[int] = []
    caller = Caller("p", "peer")
    for number in range(3):
        caller.on_gone(partial(heard.append, number), "key")
    caller.on_gone(partial(heard.append, 9), "another")
    caller.gone()
    assert heard == [2, 9]


def test_cancel() -> None:
    """Who took it back is not told, also by another callback at the end, and may do so twice."""
    caller, heard = Caller("p", "peer"), []
    first = caller.on_gone(lambda: heard.append("first"))
    others: list[Callable[[], None]] = []

    def cancel_others() -> None:
        for cancel in others:
            cancel()

    caller.on_gone(cancel_others)
    others.append(caller.on_gone(lambda: heard.append("last")))
    first()
    first()
    caller.gone()
    others[0]()
    assert heard == []


def test_gone_already() -> None:
    """Who asks after the end is told at once: an operation may have waited meanwhile."""
    caller, heard = Caller("p", "peer"), []
    caller.gone()
    cancel = caller.on_gone(lambda: heard.append("gone"))
    assert heard == ["gone"]
    cancel()


def test_failure(logged: LogKeeper) -> None:
    """One callback that fails is logged and keeps nothing from the others."""
    caller, heard = Caller("p", "192.0.2.1:5"), []
    caller.on_gone(lambda: 1 / 0)  # type: ignore[arg-type]
    caller.on_gone(lambda: heard.append("gone"))
    caller.gone()
    assert heard == ["gone"]
    (event,) = logged.failures
    assert "192.0.2.1:5" in logged.texts[0]
    assert event["log_failure"].check(ZeroDivisionError)


def test_local() -> None:
    """This process never ends as far as it can tell, and keeps nothing of who asks."""
    cancel = LOCAL.on_gone(lambda: pytest.fail("it has not ended"))
    LOCAL.gone()
    cancel()
    assert LOCAL._callbacks is None
    assert (LOCAL.principal, LOCAL.peer) == (ANONYMOUS, "this process")
