"""Verbs that never end by themselves: Ctrl-C ends them well, and an outage does not."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any, Final, TypeVar

from attrs import define

from tinymq.cli.output import note
from tinymq.errors import BufferFull, ClientError, StateError, TinyMQError

_Result = TypeVar("_Result")

#: Seconds between two attempts of an outage, first and at most.
FIRST_S: Final = 0.5
MOST_S: Final = 5.0


def until_interrupted(function: Callable[..., Any]) -> Callable[..., Any]:
    """Take Ctrl-C for the wanted end of a verb that would never end by itself."""

    @functools.wraps(function)
    def verb(*args: Any, **kwargs: Any) -> Any:
        with contextlib.suppress(KeyboardInterrupt):
            return function(*args, **kwargs)

    return verb


def passes(error: TinyMQError) -> bool:
    """Whether it is worth waiting for the end of an error."""
    if isinstance(error, ClientError):
        return not isinstance(error, BufferFull)
    return isinstance(error, StateError) and error.retriable


@define
class Outage:
    """
    Tries again for as long as it takes, and says so once.

    Attributes:
        sleep: Waits so many seconds.
    """

    sleep: Callable[[float], None]

    def outlast(self, call: Callable[[], _Result], error: TinyMQError | None = None) -> _Result:
        """
        Call until the answer comes.

        Args:
            call: What is tried.
            error: What went wrong already, if anything did.

        Raises:
            TinyMQError: One that does not pass.
        """
        attempt = 0
        while True:
            if error is not None:
                if not passes(error):
                    raise error
                if attempt == 0:
                    note(f"connection lost, trying again ({error})")
                self.sleep(min(FIRST_S * 2.0**attempt, MOST_S))
                attempt = min(attempt + 1, 10)
            try:
                result = call()
            except TinyMQError as found:
                error = found
            else:
                if attempt:
                    note("connected again")
                return result
