"""Coroutines on the reactor that cost no Deferred when they wait for nothing."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from contextvars import copy_context
from typing import Any

from twisted.internet.defer import Deferred


def begun(coroutine: Coroutine[Any, Any, Any]) -> object:
    """
    Let a coroutine run until it waits for something.

    Args:
        coroutine: It was not begun yet. It has a context of its own, as everywhere.

    Returns:
        A Deferred that ends as the coroutine will, or what it returned, if it waited
        for nothing. What it raises before it waits comes out of here.
    """
    context = copy_context()
    try:
        awaited = context.run(coroutine.send, None)
    except StopIteration as end:
        return end.value
    rest = _rest(coroutine, awaited)
    going: Deferred[Any] = context.run(Deferred.fromCoroutine, rest)
    return going


def _rest(coroutine: Coroutine[Any, Any, Any], awaited: Any) -> Generator[Any, Any, Any]:
    """What a coroutine does after its first step, with what that waits for."""
    try:
        while True:
            try:
                found = yield awaited
            except GeneratorExit:
                # Nobody waits for either any more; it may have been let go of before this was.
                coroutine.close()
                raise
            except BaseException as error:  # noqa: BLE001 - it is the coroutine's
                awaited = coroutine.throw(error)
            else:
                awaited = coroutine.send(found)
    except StopIteration as end:
        return end.value
