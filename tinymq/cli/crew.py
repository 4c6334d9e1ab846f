"""
Several processes that belong together: started in order, kept alive, stopped in order.

What starts a process, tells the time and talks to people is passed in, so that
everything here can be tested without a process and without waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol

from attrs import define, frozen

from tinymq.cli.failure import Failed

#: Seconds between two looks at the processes.
GLANCE_S: Final = 0.1
#: Seconds after which a start that goes on is told of, again and again; or a silence.
PATIENCE_S: Final = 10.0
#: Seconds before a process that died is started again: first, and at most.
FIRST_DELAY_S: Final = 1.0
MOST_DELAY_S: Final = 30.0
#: A process that ran so long has not failed at its start: the next delay is the first one.
STEADY_S: Final = 60.0
#: Seconds that an orderly stop may take; a broker waits for its clients for ten of them.
STOP_S: Final = 60.0


@frozen
class Member:
    """
    One process of the crew.

    Attributes:
        name: What people call it.
        command: What is run.
        data: Its data folder.
        log: The file that has its log.
        after: Whether it starts only when those before it in its stage are ready.
        address: Host and port where it answers, if that is known.
    """

    name: str
    command: tuple[str, ...]
    data: Path
    log: Path
    after: bool = False
    address: tuple[str, int] | None = None


class Running(Protocol):
    """A process that was started."""

    @property
    def pid(self) -> int:
        """Its number."""

    def poll(self) -> int | None:
        """Give its exit status, or None while it runs."""

    def terminate(self) -> None:
        """Ask it to stop in order."""

    def kill(self) -> None:
        """End it at once."""


class Means(Protocol):
    """What a crew needs of the world."""

    def start(self, member: Member) -> Running:
        """Start a process, and do not wait."""

    def ready(self, member: Member, pid: int) -> bool:
        """Whether the process of this number takes connections."""

    def silent(self, member: Member) -> float:
        """Tell for how many seconds it owes an answer; never waits for one."""

    def last_words(self, member: Member) -> str:
        """Give the end of what it printed."""

    def now(self) -> float:
        """Tell seconds that never go back."""

    def sleep(self, seconds: float) -> None:
        """Wait."""

    def tell(self, text: str) -> None:
        """Say something to a person."""


@define
class _Berth:
    """A member, and how it is doing."""

    member: Member
    process: Running | None = None
    ready: bool = False
    since: float = 0.0
    told: float = 0.0
    failures: int = 0
    hangs: bool = False
    due: float = 0.0

    @property
    def pid(self) -> int:
        return 0 if self.process is None else self.process.pid


class Crew:
    """
    Processes in stages: each stage starts when the one before it is ready.

    Args:
        stages: The members, first those that the others need.
        means: Of the world.
        stopping: How often a stop was asked for; the second time it is urgent.
    """

    def __init__(
        self, stages: Sequence[Sequence[Member]], means: Means, stopping: Callable[[], int]
    ) -> None:
        self._stages = [[_Berth(member) for member in stage] for stage in stages]
        self._means = means
        self._stopping = stopping

    def _berths(self) -> Iterator[_Berth]:
        for stage in self._stages:
            yield from stage

    @property
    def pids(self) -> dict[str, int]:
        """The number of each process by name; 0 when it does not run."""
        return {berth.member.name: berth.pid for berth in self._berths()}

    # --- start ----------------------------------------------------------------

    def begin(self) -> bool:
        """
        Start everything and wait until all of it is ready.

        Returns:
            Whether it is ready; not when a stop was asked for meanwhile.

        Raises:
            Failed: A process ended at its start. The others were stopped.
        """
        try:
            return all(map(self._begin_stage, self._stages))
        except Failed:
            self.stop()
            raise

    def _begin_stage(self, stage: Sequence[_Berth]) -> bool:
        for place, berth in enumerate(stage):
            if berth.member.after and not self._gather(stage[:place]):
                return False
            self._start(berth)
        return self._gather(stage)

    def _start(self, berth: _Berth) -> None:
        berth.process = self._means.start(berth.member)
        berth.ready = berth.hangs = False
        berth.since = berth.told = self._means.now()

    def _gather(self, stage: Sequence[_Berth]) -> bool:
        while not self._stopping():
            for berth in stage:
                status = self._look(berth)
                if status is not None:
                    words = self._means.last_words(berth.member)
                    raise Failed(
                        f"{berth.member.name} ended at its start with {_status(status)}: {words}",
                        f"its log is {berth.member.log}",
                    )
            if all(berth.ready for berth in stage):
                return True
            self._means.sleep(GLANCE_S)
        return False

    def _look(self, berth: _Berth) -> int | None:
        """Look at a process; give its exit status when it has ended."""
        if berth.process is None:
            return None
        status = berth.process.poll()
        if status is not None:
            return status
        now = self._means.now()
        if not berth.ready:
            berth.ready = self._means.ready(berth.member, berth.process.pid)
            if berth.ready and berth.failures:
                self._means.tell(f"{berth.member.name} is ready again")
        if not berth.ready and now - berth.told >= PATIENCE_S:
            berth.told = now
            self._means.tell(
                f"{berth.member.name} is starting for {now - berth.since:.0f} s; "
                f"its log is {berth.member.log}"
            )
        return None

    # --- while it runs --------------------------------------------------------

    def watch(self) -> None:
        """Start again what dies, until a stop is asked for."""
        while not self._stopping():
            for berth in self._berths():
                self._tend(berth)
            self._means.sleep(GLANCE_S)

    def _tend(self, berth: _Berth) -> None:
        now = self._means.now()
        if berth.process is None:
            if now >= berth.due:
                self._start(berth)
            return
        status = self._look(berth)
        if status is None:
            self._listen(berth)
            return
        if berth.ready and now - berth.since >= STEADY_S:
            berth.failures = 0
        delay = min(FIRST_DELAY_S * 2.0**berth.failures, MOST_DELAY_S)
        words = "" if berth.ready else f": {self._means.last_words(berth.member)}"
        berth.process, berth.ready = None, False
        berth.failures = min(berth.failures + 1, 30)
        berth.due = now + delay
        self._means.tell(
            f"{berth.member.name} ended with {_status(status)}; "
            f"it is started again in {delay:.0f} s; its log is {berth.member.log}{words}"
        )

    def _listen(self, berth: _Berth) -> None:
        """Say when a process hangs, and when it goes on; it is left as it is."""
        if not berth.ready:
            return
        silent = self._means.silent(berth.member)
        if berth.hangs and not silent:
            berth.hangs = False
            self._means.tell(f"{berth.member.name} answers again")
        elif not berth.hangs and silent >= PATIENCE_S:
            berth.hangs = True
            self._means.tell(
                f"{berth.member.name} does not answer for {silent:.0f} s, though its process "
                f"{berth.pid} runs: it is stopped, or hangs; its log is {berth.member.log}"
            )

    # --- stop -----------------------------------------------------------------

    def stop(self) -> bool:
        """
        Stop everything, those first that need the others.

        Returns:
            Whether every process stopped in order.
        """
        parted = [self._part(stage) for stage in reversed(self._stages)]
        return all(parted)

    def _part(self, stage: Sequence[_Berth]) -> bool:
        for berth in stage:
            if berth.process is not None and berth.process.poll() is None:
                berth.process.terminate()
        until = self._means.now() + STOP_S
        while left := [berth for berth in stage if _runs(berth)]:
            if self._means.now() >= until or self._stopping() > 1:
                self._kill(left)
                return False
            self._means.sleep(GLANCE_S)
        return True

    def _kill(self, berths: Sequence[_Berth]) -> None:
        for berth in berths:
            self._means.tell(f"{berth.member.name} did not stop in time; it is killed")
            if berth.process is not None:
                berth.process.kill()
        while any(map(_runs, berths)):
            self._means.sleep(GLANCE_S)


def _runs(berth: _Berth) -> bool:
    return berth.process is not None and berth.process.poll() is None


def _status(status: int) -> str:
    return f"status {status}" if status >= 0 else f"signal {-status}"
