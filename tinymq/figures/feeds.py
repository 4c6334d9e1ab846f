"""How reports come to the board: from the broker of this process, and from all others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, cast

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from tinymq.broker.ports import Scheduler
from tinymq.clockwork import Clockwork
from tinymq.errors import TinyMQError
from tinymq.figures.board import Board
from tinymq.figures.reports import MOST_ROWS, SLICE, Reporter, Taken, boot_of, from_wire
from tinymq.operation import Nodes

if TYPE_CHECKING:
    from tinymq.meta.registry import Registry, Topic

#: Seconds between two questions to each broker.
POLL_SECONDS: Final = 1.0
#: Seconds that a broker has for an answer.
DEADLINE_SECONDS: Final = 2.0
#: Pages after which a broker waits for its next turn.
MOST_PAGES: Final = 200


class LocalFeed:
    """
    Brings what the broker of this process knows, whenever somebody reads.

    It is a `Source` of the board.

    Args:
        reporter: Makes the reports.
        board: Takes them.
    """

    def __init__(self, reporter: Reporter, board: Board) -> None:
        self._reporter = reporter
        self._board = board
        #: Up to where slices are brought before new moves are heard of.
        self._goal = 0
        board.source = self

    def bring(self) -> bool:
        """Feed a slice of what moved, and tell whether there is another."""
        reporter, board = self._reporter, self._board
        since = board.generation(board.own)
        if since >= self._goal or boot_of(since) != boot_of(self._goal):
            gathered = reporter.gather()
            self._goal = reporter.generation
            if gathered > SLICE:
                return True  # to number so many takes as long as a slice
        if since != self._goal:
            board.feed(board.own, reporter.take(since, SLICE))
        return board.generation(board.own) < self._goal

    def bring_topic(self, topic: Topic) -> None:
        """Feed all that moved of one topic; its slice comes all the same."""
        since = self._board.generation(self._board.own)
        rows = self._reporter.of_topic(topic, since)
        if rows:
            self._board.feed(self._board.own, Taken(since, True, rows, []))


class Poller:
    """
    Asks every other broker once a second for what moved there.

    Args:
        board: Takes the answers.
        registry: Tells which brokers there are.
        nodes: The way to them.
        scheduler: Measures time.
    """

    _log = Logger()

    def __init__(
        self,
        board: Board,
        registry: Callable[[], Registry],
        nodes: Nodes,
        scheduler: Scheduler,
    ) -> None:
        self._board = board
        self._registry = registry
        self._nodes = nodes
        self._scheduler = scheduler
        self._clockwork = Clockwork(scheduler)
        self._asking: dict[int, Deferred[None]] = {}
        #: Brokers whose answer could not be read the last time; told once.
        self._unreadable: set[int] = set()

    def start(self) -> None:
        """Begin, at once."""
        self._clockwork.every(POLL_SECONDS, lambda late: self.poll())
        self.poll()

    def stop(self) -> None:
        """End, and let go of every answer that is still to come."""
        self._clockwork.stop()
        for asking in tuple(self._asking.values()):
            asking.cancel()

    def poll(self) -> None:
        """Ask every broker that owes no answer."""
        for broker_id in self._registry().brokers:
            if broker_id != self._board.own and broker_id not in self._asking:
                self._begin(broker_id)

    def _begin(self, broker_id: int) -> None:
        asking = Deferred.fromCoroutine(self._follow(broker_id))
        if not asking.called:
            self._asking[broker_id] = asking

        def ended(result: object) -> None:
            self._asking.pop(broker_id, None)
            if isinstance(result, Failure):
                self._failed(broker_id, result)
            else:
                self._unreadable.discard(broker_id)

        asking.addBoth(ended)

    async def _follow(self, broker_id: int) -> None:
        """Ask for page after page, until all is known."""
        for _ in range(MOST_PAGES):
            since = self._board.generation(broker_id)
            arguments = {"since": since, "limit": MOST_ROWS}
            answer = deadline(
                self._nodes.ask(broker_id, "node.report", arguments),
                DEADLINE_SECONDS,
                self._scheduler,
            )
            taken, snapshot = from_wire(await answer)
            self._board.feed(broker_id, taken, snapshot)
            if not taken.more:
                return

    def _failed(self, broker_id: int, failure: Failure) -> None:
        if isinstance(failure.value, (TinyMQError, DeferredTimeout, CancelledError)):
            return  # of silence the board tells by itself
        if broker_id not in self._unreadable:
            self._unreadable.add(broker_id)
            self._log.failure(
                "what broker {broker} reports cannot be read", failure, broker=broker_id
            )


def deadline(answer: Awaitable[Any], seconds: float, scheduler: Scheduler) -> Deferred[Any]:
    """
    Give up waiting for an answer.

    Args:
        answer: What is waited for; it is cancelled.
        seconds: For how long.
        scheduler: Measures them.

    Returns:
        Ends as the answer does, or with Twisted's `TimeoutError`.
    """

    async def wait() -> Any:
        return await answer

    clock = cast("IReactorTime", scheduler)
    return Deferred.fromCoroutine(wait()).addTimeout(seconds, clock)
