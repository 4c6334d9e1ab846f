"""
A loop for asyncio whose time is the broker's fake clock.

Bytes move whenever the loop turns, and time passes when nothing is ready: as far
as to the next timer of the loop, the broker, or the test. While a thread of the
loop's executor works, time stands still.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextvars import Context
from functools import partial
from math import inf
from typing import Any, Protocol, TypeVar, TypeVarTuple

from typing_extensions import override

from tinymq.testing.clock import Time

T = TypeVar("T")
R = TypeVar("R")
Ts = TypeVarTuple("Ts")


class World(Protocol):
    """What the loop lives in."""

    clock: Time

    def settle(self) -> None:
        """Let everything happen that needs no time."""


class _Selector(selectors.DefaultSelector):
    """
    Lets time pass instead of waiting.

    Attributes:
        stirred: Whether something was scheduled since the last look.
        threads: Calls of the executor that have not returned.
        left: How many seconds may still pass, jumps not counted.
        tired: Called when more would have to pass, and replaced by what is called
            the next time; None raises `TimeoutError` out of the loop.
    """

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.stirred = False
        self.threads = 0
        self.left = 0.0
        self.tired: Callable[[], object] | None = None

    @override
    def select(self, timeout: float | None = None) -> list[Any]:
        found: list[Any] = super().select(0)
        self.stirred = False
        self.world.settle()
        if found or timeout == 0 or self.stirred:
            return found
        if self.threads:
            woken: list[Any] = super().select(None)
            return woken
        self._pass(timeout)
        return found

    def _pass(self, timeout: float | None) -> None:
        """Go to the next moment at which anything happens."""
        clock = self.world.clock
        now = clock.seconds()
        due = min(clock.next_due() or inf, inf if timeout is None else now + timeout)
        step = max(0.0, due - now)
        if step <= self.left and due < inf:
            self.left -= step
            clock.move_to(due)
            self.world.settle()
            return
        if self.tired is None:
            raise TimeoutError("a task waits for what never comes, and cannot be cancelled")
        self.tired()


class FakeTimeLoop(asyncio.SelectorEventLoop):
    """
    The loop.

    Args:
        selector: What it waits in.
    """

    def __init__(self, selector: _Selector) -> None:
        self._patience = selector
        super().__init__(selector)

    @override
    def time(self) -> float:
        return self._patience.world.clock.seconds()

    @override
    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        self._patience.stirred = True
        return super().call_soon(callback, *args, context=context)

    @override
    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], R], *args: *Ts
    ) -> asyncio.Future[R]:
        future = super().run_in_executor(executor, func, *args)
        self._patience.threads += 1
        future.add_done_callback(self._returned)
        return future

    def _returned(self, _: asyncio.Future[Any]) -> None:
        self._patience.threads -= 1


class LoopRoom:
    """
    Runs coroutines of a test, one after the other, on one loop.

    Args:
        world: Where its time comes from.
    """

    def __init__(self, world: World) -> None:
        self._selector = _Selector(world)
        self._runner = asyncio.Runner(loop_factory=lambda: FakeTimeLoop(self._selector))

    def run(self, waiting: Coroutine[Any, Any, T], patience: float) -> T:
        """
        Run one.

        Args:
            waiting: The coroutine.
            patience: Most seconds of the fake clock.

        Returns:
            Its result.

        Raises:
            TimeoutError: It has none after that time.
        """
        selector = self._selector
        tired = False

        def give_up(task: asyncio.Task[T]) -> None:
            nonlocal tired
            tired = True
            selector.left, selector.tired = patience, None  # to end in order, and once only
            task.cancel()

        async def whole() -> T:
            task = asyncio.current_task()
            assert task is not None
            selector.left, selector.tired = patience, partial(give_up, task)
            try:
                return await waiting
            except asyncio.CancelledError:
                if not tired:
                    raise
                text = f"no outcome within {patience:g} s of the fake clock"
                raise TimeoutError(text) from None

        return self._runner.run(whole())

    @property
    def running(self) -> bool:
        """Whether this is called from within the loop."""
        return self._runner.get_loop().is_running()

    def close(self, patience: float, *ends: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """
        End the loop, and cancel what is left in it.

        Args:
            patience: Most seconds of the fake clock for each step.
            ends: Coroutines to be run before.
        """
        try:
            for end in ends:
                self.run(end(), patience)
        finally:
            self._selector.left, self._selector.tired = patience, None
            self._runner.close()
