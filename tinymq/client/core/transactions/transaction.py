"""
One transaction: what is sent, committed and settled in it, and how it ends.

::

    OPEN --commit--> GATHERING --all acknowledged--> READY
         --END_TRANSACTION, with those before it or behind them--> ENDING
         --answered--> COMMITTED
    any of these --abort, or something failed--> ABORTING --answered--> ABORTED

Nothing of it counts before COMMITTED. What fails in between makes it fail as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from tinymq.client.core.transactions.desk import Desk
from tinymq.client.core.transactions.errands import Errand
from tinymq.client.core.transactions.pieces import Piece, Positions, Rows, Settles
from tinymq.errors import ClosedError, ProducerFenced, TinyMQError, TransactionAborted, UsageError
from tinymq.wire.messages import Identity

if TYPE_CHECKING:
    from tinymq.client.core.branch import Branch
    from tinymq.client.core.message import QueueMessage
    from tinymq.client.core.transactions.producing import TransactionsCore

#: Told once how a transaction ended: None if it counts, or is aborted as was wished.
Ended = Callable[["TinyMQError | None"], None]


class Stage(Enum):
    """Where a transaction stands."""

    OPEN = "open"
    GATHERING = "gathering"
    READY = "ready"
    ENDING = "ending"
    COMMITTED = "committed"
    ABORTING = "aborting"
    ABORTED = "aborted"


class Shares(Protocol):
    """What a group consumer has handed out and not committed."""

    @property
    def group(self) -> str:
        """Name of the group."""

    @property
    def member(self) -> str:
        """Number of the member."""

    @property
    def rows(self) -> Any:
        """How far each partition was handed out."""

    def done(self) -> None:
        """All of it was committed."""

    def back(self) -> None:
        """All of it is handed out again."""


class TransactionCore:
    """
    One transaction.

    Args:
        producer: Whose it is.
        desk: Sends its records.
        before: The one before, if that is not over.

    Attributes:
        stage: Where it stands.
        identity: Its own, once it is known.
        orphan: Its identity is nobody's any more, so that it need not be ended.
        wrong: Why it cannot count.
        swept: It failed with one before it, and so did those that were behind it then.
        producer: Whose it is.
        began_at: When it began.
        wake_at: When nobody waits for its end any longer.
        after: The one behind.
    """

    def __init__(
        self, producer: TransactionsCore, desk: Desk, before: TransactionCore | None, now: float
    ) -> None:
        self.stage = Stage.OPEN
        self.identity: Identity | None = None
        self.orphan = False
        self.wrong: TinyMQError | None = None
        self.swept = False
        self.began_at = now
        self.desk = desk
        self.producer = producer
        self._ended: Ended | None = None
        self._until = inf
        self._flushed = False
        #: Records are being given up, of which others hear.
        self._giving_up = False
        self._pieces: list[Piece] = []
        self._errands: list[Errand] = []
        self._open_pieces = 0
        self._positions: dict[tuple[str, str], dict[tuple[str, int], Rows]] = {}
        self._shares: list[Shares] = []
        self._settles: list[QueueMessage] = []
        self._branches: dict[Branch, None] = {}
        self._told: Settles | None = None
        desk.sending.failed = self.failed
        self.after: TransactionCore | None = None
        self.wake_at = inf
        desk.sending.written = partial(producer.wrote, self)
        if before is not None:
            before.after = self
            desk.sending.before = before.desk.sending

    # --- what belongs to it --------------------------------------------------------

    def check(self) -> None:
        """
        See whether more can be added.

        Raises:
            TransactionAborted: It failed already.
            ProducerFenced: Another producer is at work under this name.
            UsageError: It was ended.
        """
        if self.stage is not Stage.OPEN:
            raise UsageError(f"the transaction is {self.stage.value}: begin another one")
        if isinstance(self.wrong, (ProducerFenced, TransactionAborted)):
            raise self.wrong.with_traceback(None)

    def positions(
        self, group: str, positions: Mapping[tuple[str, int], Any], member: str = ""
    ) -> None:
        """
        Commit positions of a group with it.

        Args:
            group: Name of the group.
            positions: By topic and partition the first offset that is not handled, as a
                number or a mark with the epoch before it.
            member: Who commits.

        Raises:
            UsageError: It was ended, or a position is none.
        """
        self.check()
        rows = self._positions.setdefault((group, member), {})
        for where, place in positions.items():
            rows[where] = Rows.of(where, place)

    def commit_shares(self, shares: Shares) -> None:
        """
        Commit what a group consumer has handed out.

        Args:
            shares: From it.
        """
        self.check()
        rows = self._positions.setdefault((shares.group, shares.member), {})
        for row in shares.rows:
            rows[row.topic, row.partition] = Rows(
                row.topic,
                row.topic_id,
                row.partition,
                row.generation,
                row.offset,
                row.epoch,
                row.note,
            )
        self._shares.append(shares)

    def finish(self, message: QueueMessage) -> None:
        """
        Finish a message of a channel with it.

        Args:
            message: It is yours until the transaction is committed.

        Raises:
            LeaseLost: It is not yours any more.
            UsageError: It was settled before, or its channel delivers at most once.
        """
        self.check()
        message.check_held()
        if not message.lease:
            raise UsageError("the channel delivers at most once: the message was settled before")
        self._branches[message.branch] = None
        self._settles.append(message)

    # --- ending ----------------------------------------------------------------------

    def commit(self, ended: Ended, now: float, deadline: float = inf) -> None:
        """
        Let all of it count.

        Args:
            ended: Told how it ended.
            now: The time.
            deadline: When to give up waiting; nobody knows then whether it counts.

        Raises:
            UsageError: It was ended.
        """
        if self.stage is not Stage.OPEN:
            raise UsageError(f"the transaction is {self.stage.value}")
        self.stage = Stage.GATHERING
        self._ended = ended
        self._until = self.wake_at = deadline
        if self.wrong is not None:
            self._abort(now)
            return
        self._pieces = [
            Positions(self.producer.cluster, group, member, [*rows.values()])
            for (group, member), rows in self._positions.items()
        ]
        if self._settles:
            self._told = Settles(self._settles)
            self._pieces.append(self._told)
        self._open_pieces = len(self._pieces)
        self.desk.flush(self._gathered, now)
        self.producer.wanted(now)
        self.go_on(now)

    def abort(self, ended: Ended, now: float, why: TinyMQError | None = None) -> None:
        """
        Let nothing of it count.

        Args:
            ended: Told when that is so.
            now: The time.
            why: What records that were not stored are told.

        Raises:
            UsageError: It was ended.
        """
        if self.stage is not Stage.OPEN:
            raise UsageError(f"the transaction is {self.stage.value}")
        self._ended = lambda error: ended(error if isinstance(error, ProducerFenced) else None)
        self.wrong = self.wrong or why or TransactionAborted("the transaction was aborted")
        self._abort(now)

    def failed(self, error: TinyMQError, now: float) -> None:
        """
        Note that something of it failed, so that it cannot count.

        Args:
            error: Why.
            now: The time; -1 while records are being settled.
        """
        if self.wrong is None:
            self.wrong = error
        if self.stage in (Stage.GATHERING, Stage.READY):
            self.producer.later(self)

    def fail(self, error: TinyMQError, now: float) -> None:
        """
        End it because it cannot count.

        Args:
            error: Why.
            now: The time.
        """
        self.wrong = error
        if self.stage in (Stage.GATHERING, Stage.READY):
            self._abort(now)
        elif self.stage is Stage.OPEN:
            self.desk.give_up(error, now)

    def lend(self, identity: Identity, window: int, now: float) -> None:
        """
        Take the identity under which all of it is sent.

        Args:
            identity: Producer id and epoch.
            window: Batches in flight for one partition.
            now: The time.
        """
        self.identity = identity
        if self.wrong is None:
            self.desk.sending.lend(identity, window, now)
        self.go_on(now)

    def go_on(self, now: float) -> None:
        """
        Do the next step, if it can be done.

        Args:
            now: The time.
        """
        if self._giving_up or self.stage not in (Stage.GATHERING, Stage.READY):
            return
        if self.wrong is not None:
            self._abort(now)
        elif self.identity is not None and self._pieces:
            pieces, self._pieces = self._pieces, []
            for piece in pieces:
                self._errands.append(
                    self.producer.errands.run(
                        piece.attempt_for(self.identity, self.desk.sending.places),
                        self._brought,
                        self._until,
                        now,
                    )
                )
            self.producer.wrote(self, now)
        elif self._flushed and not self._open_pieces:
            self.stage = Stage.READY
            self.producer.ready(self, now)

    @property
    def empty(self) -> bool:
        """Whether no broker has heard of it."""
        return not self.desk.sending.places

    @property
    def written(self) -> bool:
        """Whether nothing comes to it any more, and all of it is on its way to the brokers."""
        if self.stage is Stage.ENDING:
            return self.wrong is None
        on_its_way = self.stage in (Stage.GATHERING, Stage.READY) and self.wrong is None
        return on_its_way and not self._pieces and self.desk.under_way

    def _gathered(self) -> None:
        self._flushed = True
        self.go_on(self.producer.seconds())

    def _brought(self, _reply: Any, error: TinyMQError | None, now: float) -> None:
        self._open_pieces -= 1
        if error is not None and self.wrong is None:
            self.wrong = error
        self.go_on(now)

    def _abort(self, now: float) -> None:
        self.stage = Stage.ABORTING
        error = self.wrong
        assert error is not None, "that is why it is aborted"
        if error is not self.producer.fatal and not isinstance(error, TransactionAborted):
            # Also what a partition takes for fenced: the coordinator knows whether it is.
            self.wrong = TransactionAborted(f"the transaction was aborted: {error}")
            self.wrong.__cause__ = error
        for errand in self._errands:
            self.producer.errands.drop(errand)
        self._giving_up = True
        self.desk.give_up(self.wrong, now)  # type: ignore[arg-type]
        self._giving_up = False
        self.producer.proceed(now)

    def ended(self, error: TinyMQError | None, now: float, *, commit: bool) -> None:
        """
        Hear how it was decided.

        Args:
            error: Why it does not count, or None.
            now: The time.
            commit: Whether it was to count.
        """
        if commit and error is None:
            self._over(Stage.COMMITTED, None, now)
        else:
            self._over(Stage.ABORTED, error or self.wrong, now)

    def _over(self, stage: Stage, error: TinyMQError | None, now: float) -> None:
        self.stage = stage
        if stage is Stage.COMMITTED:
            for message in self._settles:
                message.taken()
            for shares in self._shares:
                shares.done()
        else:
            self.wrong = error
            self._back()
        self.desk.give_up(error or TransactionAborted(), now)
        # There is room for more messages of their channels.
        for branch in self._branches:
            branch.pump(now)
        self.producer.over(self, now)
        self.tell(error)

    def tell(self, error: TinyMQError | None) -> None:
        """
        Tell once how it ended.

        Args:
            error: Why it does not count, or why that is not known.
        """
        self.wake_at = inf
        told, self._ended = self._ended, None
        if told is not None:
            told(error)

    def _back(self) -> None:
        """Let what was handed out for it come again, since it was aborted."""
        for shares in self._shares:
            with suppress(ClosedError):
                shares.back()
        # These come again from their broker, and the others are held as before.
        for message in () if self._told is None else self._told.told:
            message.gone()

    # --- time ------------------------------------------------------------------------

    def overdue(self, error: TinyMQError) -> None:
        """
        Wait no longer.

        Args:
            error: What is told.
        """
        self._until = inf  # what is asked from now on is asked until it is answered
        self.tell(error)
