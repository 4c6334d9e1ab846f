"""
Puts something around handlers, whether they are plain, coroutines, or return Deferreds.

What is around a handler is written once, as a generator with one ``yield``, at which the
handler is at work; an exception of the handler is raised there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from inspect import isawaitable, iscoroutinefunction
from typing import Any, Final

from tinymq.errors import UsageError

#: Takes a message, and perhaps a connection.
Handler = Callable[..., Any]
#: What a scope gives instead of arguments when the handler is to be left alone.
SKIP: Final = None
#: Around a handler: gives the arguments behind the message, or `SKIP`.
Scope = Callable[..., AbstractContextManager[tuple[Any, ...] | None]]


def guarded(handler: Handler, scope: Scope) -> Handler:
    """
    Put a scope around a handler.

    Args:
        handler: The handler.
        scope: Called with its arguments.

    Returns:
        A handler of the same kind.
    """
    if iscoroutinefunction(handler):

        @wraps(handler)
        async def wait(message: Any, *rest: Any) -> Any:
            check_single(message)
            with scope(message, *rest) as more:
                return SKIP if more is SKIP else await handler(message, *more)

        return wait

    @wraps(handler)
    def call(message: Any, *rest: Any) -> Any:
        check_single(message)
        around = scope(message, *rest)
        more = around.__enter__()
        try:
            result = SKIP if more is SKIP else handler(message, *more)
        except BaseException:
            if not around.__exit__(*sys.exc_info()):
                raise
            return None
        if waits(result):
            return continued(result, _rest(result, around))
        around.__exit__(None, None, None)
        return result

    return call


async def _rest(result: Any, around: AbstractContextManager[Any]) -> Any:
    try:
        found = await result
    except BaseException:
        if not around.__exit__(*sys.exc_info()):
            raise
        return None
    around.__exit__(None, None, None)
    return found


def waits(result: object) -> bool:
    """
    Tell whether a handler has not ended yet.

    Args:
        result: What it returned.
    """
    return result is not None and isawaitable(result)


def continued(first: Any, rest: Any) -> Any:
    """
    Let a coroutine go on in the way that the handler's own result shows.

    Args:
        first: What the handler returned: a Deferred, or another awaitable.
        rest: The coroutine, which awaits that.

    Returns:
        A Deferred for a Deferred, otherwise the coroutine.
    """
    deferred = type(first)
    return deferred.fromCoroutine(rest) if hasattr(deferred, "fromCoroutine") else rest


def check_single(message: object) -> None:
    """
    Refuse a list of messages.

    Args:
        message: What the handler was called with.

    Raises:
        UsageError: It is a list, or another bundle.
    """
    if isinstance(message, (list, tuple)):
        raise UsageError("this handler takes one message at a time: leave out batch=")
