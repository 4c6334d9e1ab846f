"""Commands that work the messages of a channel, some at the same time."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Condition
from typing import TYPE_CHECKING, Final

from attrs import define, field

from tinymq.cli.failure import REFUSED, Failed
from tinymq.cli.jobs import Command, Job, Outcome
from tinymq.cli.output import note, printable, write_json
from tinymq.cli.render import document
from tinymq.cli.session import Session
from tinymq.cli.work import LOOK_S, Rest, Stop, Work, name_of, placed, stopping, subscribed

if TYPE_CHECKING:
    from tinymq.sync import Message, Subscription

#: Seconds between SIGTERM and SIGKILL for a command that had its time.
_LAST_S: Final = 1.0
#: What becomes of a message that is not finished.
_ENDS: Final = {
    "requeued": "it comes again later",
    "rejected": "it goes to the dead-letter topic",
    "given_back": "it was given back",
}


@define
class Workers:
    """
    Runs commands, some at the same time.

    Attributes:
        command: What is run for each message.
        jobs: How many at once.
        tell: Told what became of each message.
        counts: How many messages ended how.
        error: Why a command could not be run, if that happened.
    """

    command: Command
    jobs: int
    tell: Callable[[Message, Outcome], None]
    counts: Counter[str] = field(factory=Counter)
    error: OSError | None = None
    _running: set[Job] = field(factory=set)
    _change: Condition = field(factory=Condition)
    _pool: ThreadPoolExecutor = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._pool = ThreadPoolExecutor(self.jobs, "tinymq-job")

    @property
    def idle(self) -> bool:
        """Whether nothing runs."""
        return not self._running

    def room(self, within_s: float) -> bool:
        """
        Wait until one more can be run; commands whose message was lost are ended.

        Args:
            within_s: Seconds to wait.
        """
        with self._change:
            found = self._change.wait_for(lambda: len(self._running) < self.jobs, within_s)
        self._drop_lost()
        return found

    def begin(self, message: Message) -> None:
        """
        Run the command for a message.

        Args:
            message: The message.
        """
        job = Job(self.command, message)
        with self._change:
            self._running.add(job)
        self._pool.submit(self._run, job)

    def drain(self, stop: Stop, grace_s: float, clock: Callable[[], float]) -> None:
        """
        Wait for all that runs: for ever, but for so long once somebody asked us to stop.

        Args:
            stop: Whether somebody did.
            grace_s: Seconds that commands have then.
            clock: Tells the time.
        """
        try:
            asked: float | None = None
            while not self._wait(LOOK_S):
                self._drop_lost()
                asked = clock() if asked is None and stop.asked else asked
                if asked is not None and clock() - asked >= grace_s:
                    break
        except KeyboardInterrupt:
            note("commands that run are ended, and their messages given back")
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self.idle:
                break
            for job in [*self._running]:
                job.end(number)
            self._wait(_LAST_S)
        self._pool.shutdown()

    def _wait(self, within_s: float) -> bool:
        with self._change:
            return self._change.wait_for(lambda: self.idle, within_s)

    def _drop_lost(self) -> None:
        for job in [*self._running]:
            if job.message.is_lost:
                job.end(signal.SIGTERM)

    def _run(self, job: Job) -> None:
        outcome = Outcome("given_back")
        try:
            outcome = job.run()
            self.tell(job.message, outcome)
        except OSError as error:
            self.error = error
        finally:
            with self._change:
                self.counts[outcome.what] += 1
                self._running.discard(job)
                self._change.notify_all()


def execute(session: Session, work: Work, workers: Workers, grace_s: float) -> int:
    """
    Run a command for each message, which its exit status settles.

    Args:
        session: Where the broker is.
        work: Which messages.
        workers: Runs the commands.
        grace_s: Seconds that running commands have when we are asked to stop.

    Returns:
        The exit status: 1 when we came to our end and some message was not finished.

    Raises:
        BrokenPipeError: Nobody reads our output any more.
        Failed: The command cannot be run.
    """
    with stopping() as stop, subscribed(session, work, workers.jobs) as subscription:
        try:
            _feed(session, work, subscription, workers, stop)
        except KeyboardInterrupt:
            stop.asked = True
        finally:
            workers.drain(stop, grace_s, session.clock)
    if isinstance(workers.error, BrokenPipeError):
        raise workers.error
    if workers.error is not None:
        raise Failed(f"{workers.command.words[0]} cannot be run: {workers.error}")
    bad = {what: count for what, count in workers.counts.items() if what != "finished"}
    return REFUSED if bad and not stop.asked else 0


def _feed(
    session: Session, work: Work, subscription: Subscription, workers: Workers, stop: Stop
) -> None:
    """Give messages to the workers until that is enough."""
    rest, left = Rest(session, work), work.most
    while not stop.asked and left != 0 and workers.error is None:
        if not workers.room(LOOK_S) or stop.asked:
            continue
        message = subscription.next(LOOK_S)
        if message is not None:
            workers.begin(message)
            left = None if left is None else left - 1
        elif work.stop and workers.idle and rest.over() and subscription.in_flight == 0:
            return


def tell_people(message: Message, outcome: Outcome) -> None:
    """Say on stderr which message was not finished, and why."""
    name, reason = name_of(message), printable(outcome.reason)
    if outcome.what in _ENDS:
        note(f"{name}: {reason}; {_ENDS[outcome.what]}")
    elif outcome.what == "lost":
        note(f"{name} was taken away while its command ran")


def tell_programs(message: Message, outcome: Outcome) -> None:
    """Write a message as JSON, with what became of it."""
    more = {"outcome": outcome.what, "status": outcome.status, "reason": outcome.reason}
    write_json(document(placed(message)) | more, indent=None)
