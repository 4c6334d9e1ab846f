"""
The part of a subscription that one broker serves.

::

             SUBSCRIBE answered         ENDED, lost link, UnknownSubscription
    AWAY ----------------------> JOINED -------------------------------> AWAY
      ^                            |
      |                  leave     v   UNSUBSCRIBE answered
      +---- again, later        LEAVING ------------------------> GONE

It outlives its link: what was delivered stays in the hands of the caller, and
what became of it waits, until the broker is back under the same session. Its
answer to SUBSCRIBE says what it still holds for us: what we do not know was
lost on its way and is given back, and what it does not know is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from math import inf
from typing import Any, Final

from tinymq.client.core.allowance import Allowance, Pool
from tinymq.client.core.cluster import Cluster
from tinymq.client.core.connection import Connection, Done
from tinymq.client.core.custody import Custody
from tinymq.client.core.held import Bits
from tinymq.client.core.link import Link
from tinymq.client.core.link import Phase as LinkPhase
from tinymq.client.core.trunk import Trunk
from tinymq.errors import (
    ClientError,
    ConnectionLost,
    CorruptBatch,
    DeadlineExceeded,
    NotLeader,
    TinyMQError,
    UnknownSubscription,
    WireError,
)
from tinymq.wire.frames import Bytes
from tinymq.wire.messages import (
    REQUEUE,
    Credit,
    Deliver,
    Ended,
    LeaseLost,
    Message,
    Ping,
    Settle,
    SubscribeReply,
    Unsubscribe,
    error_from_meta,
)

#: Share of a lease after which it is renewed.
_RENEW: Final = 1 / 3
#: Seconds after which a subscription asks whether it is still there, if it said nothing
#: meanwhile. ENDED says that it is not; this is only for what nobody thought of.
_CHECK_S: Final = 600.0
#: Seconds that what was finished waits for a broker's answer at most.
_PATIENCE_S: Final = 0.01


class Phase(Enum):
    """Where a branch stands."""

    AWAY = "away"
    JOINED = "joined"
    LEAVING = "leaving"
    GONE = "gone"


class Branch:
    """
    A subscription at one broker.

    Args:
        trunk: The whole subscription.
        cluster: The brokers.
        broker: The number of this one.
        pool: The bound for all brokers.

    Attributes:
        broker: The number of the broker.
        number: Of this branch, among all of the client.
        phase: Where it stands.
        allowance: How much the broker may deliver.
        custody: What is held of it.
        settling: What it is to be told.
        resting: Whether it is to take no more messages.
    """

    def __init__(self, trunk: Trunk, cluster: Cluster, broker: int, pool: Pool) -> None:
        self.broker = broker
        self.number = next(cluster.numbers)
        self.phase = Phase.AWAY
        self.custody = Custody(trunk.topic, self._told)
        self.custody.branch = self
        self.settling = self.custody.settling
        self.allowance = Allowance(self.custody.hands, pool, self.pump)
        self.resting = False
        self._trunk = trunk
        self._cluster = cluster
        self._epoch = 0
        self._link: Link | None = None
        self._connection: Connection | None = None
        self._asking = False
        #: The broker knew the channel: if it is gone later, somebody deleted it.
        self._known = False
        #: The log says that the link was lost, and not yet that it is back.
        self._cut = False
        self._failures = 0
        self._retry_at = -inf
        self._touch_at = self._check_at = inf
        #: When what was finished waits for the broker's answer no longer.
        self._patient_until = -inf
        self._lease_s = inf
        self._handler_s: float | None = None
        self._leave_until = inf
        self._left: Callable[[float], None] | None = None

    @property
    def held(self) -> int:
        """Messages that came and are not settled."""
        return self.custody.held

    @property
    def late(self) -> int:
        """Messages whose settle came too late, so far."""
        return self.custody.late

    @property
    def joined(self) -> bool:
        """Whether the broker knows of it."""
        return self.phase is Phase.JOINED

    @property
    def topic_id(self) -> bytes | None:
        """The identity of its topic, as far as is known."""
        info = self._cluster.metadata.get(self._trunk.topic)
        return None if info is None else info.id

    def ask(self, message: Message, done: Done, deadline: float, now: float) -> None:
        """
        Ask its broker something about it, once.

        Args:
            message: The question.
            done: Told how that ended.
            deadline: When it ends.
            now: The time.
        """
        assert self._link is not None, "it has joined"
        self._link.request(message.type, message.to_meta(), (), deadline, done, now)

    def _told(self) -> None:
        self._trunk.settled(self)

    # --- joining ---------------------------------------------------------------

    def pump(self, now: float) -> None:
        """
        Do what may be done: join, say what became of messages, take more.

        Args:
            now: The time.
        """
        if self.phase is Phase.GONE:
            return
        self._look(now)
        if self.phase is Phase.AWAY:
            self._join(now)
            return
        leaving = self.phase is Phase.LEAVING
        grants = not leaving and self.allowance.grant()
        if now >= self._tell_at(hurry=leaving or grants):
            self._tell(now)
        if leaving:
            self._part(now)
        elif grants:
            assert self._link is not None
            credit = Credit(subscription=self.number, granted=self.allowance.granted)
            self._post(self._link, credit, now)

    def _look(self, now: float) -> None:
        """Notice a link that was lost, or another one."""
        if self.phase is Phase.AWAY:
            return
        link = self._cluster.link(self.broker)
        if link is not self._link or link.connection is not self._connection:
            self._lost_link()
            self._away()

    def _lost_link(self) -> None:
        """Say once that the broker is away, unless we went ourselves."""
        link = self._link
        if self._cut or self.phase is not Phase.JOINED or link is None:
            return
        if link.phase is not LinkPhase.CLOSED:
            self._cut = True
            why = "" if link.trouble is None else f": {link.trouble}"
            self._say_of_broker(f"lost, trying again{why}")

    def _say_of_broker(self, what: str) -> None:
        broker = self._cluster.metadata.describe(self.broker)
        self._cluster.say(f"{self._trunk.topic}: connection to {broker} {what}")

    def _away(self) -> None:
        """Begin anew, with what is in the caller's hands."""
        if self.phase is not Phase.GONE:
            self.phase = Phase.AWAY
        self.allowance.end()
        self._touch_at = self._check_at = inf
        self._connection = None

    def _join(self, now: float) -> None:
        if self._done(now) or self._asking or now < self._retry_at:
            return
        link = self._cluster.link(self.broker)
        if self._link is not None and self._link is not link:
            self._unhook()
        self._link = link
        if link.phase is not LinkPhase.UP:
            # What waits for a link has a deadline, so that nothing piles up there.
            deadline = now + self._cluster.config.request_timeout_s
            self._ask(Ping(), self._reached, deadline, now, quiet=True)
            return
        link.pushes[self.number] = self.pushed
        self._epoch += 1
        credit = self.allowance.begin()
        # Without a deadline: what is let join after it would be joined and not know of it.
        request = self._trunk.request(self.number, credit)
        request.create = request.create and (not self._known or request.temporary)
        self._ask(request, self._answered, inf, now)

    def _reached(self, _link: Link, _reply: Any, error: TinyMQError | None, now: float) -> None:
        """The link is up, or did not come up."""
        if error is None:
            self.pump(now)
        else:
            self._later(error, now)
            self._trunk.joined(self, error, now)

    def _ask(
        self, request: Message, told: Any, deadline: float, now: float, *, quiet: bool = False
    ) -> None:
        assert self._link is not None
        self._asking = True
        link = self._link

        def done(reply: Any, _payload: Bytes, error: TinyMQError | None, now: float) -> None:
            self._asking = False
            if self.phase is not Phase.GONE:
                told(link, reply, error, now)
            elif isinstance(reply, SubscribeReply):
                self._post(link, Unsubscribe(subscription=self.number), now)

        link.request(request.type, request.to_meta(), (), deadline, done, now, quiet=quiet)

    def _post(self, link: Link, message: Message, now: float) -> None:
        """Send what wants no answer."""
        link.request(message.type, message.to_meta(), (), inf, _ignore, now, quiet=True)

    def _answered(
        self, link: Link, reply: SubscribeReply | None, error: TinyMQError | None, now: float
    ) -> None:
        if reply is None:
            assert error is not None
            self.allowance.end()
            self._later(error, now)
            if self._left is not None and not getattr(error, "retriable", False):
                self._gone(error, now)  # nobody is there who could be told what is left
        else:
            self._failures = 0
            self._retry_at = -inf
            self._connection = link.connection
            self.phase = Phase.JOINED if self._left is None else Phase.LEAVING
            self._known = True
            if self._cut:
                self._cut = False
                self._say_of_broker("is back")
            self.custody.order = reply.order
            self._lease_s = reply.lease_ms / 1000
            self._handler_s = None if reply.handler_ms is None else reply.handler_ms / 1000
            parts = self.custody.hands.compare(reply, self._epoch, self.settling.bits_of)
            self.custody.return_unknown(list(parts))
            self._touch_at = now + self._lease_s * _RENEW if self.held else inf
            # Many that join at once do not ask at once.
            self._check_at = now + _CHECK_S * self._cluster.chance()
        self._trunk.joined(self, error, now)
        if error is None:
            self.pump(now)

    def _later(self, error: TinyMQError, now: float) -> None:
        self._failures += 1
        backoff = self._cluster.config.backoff
        self._retry_at = now + backoff.delay(self._failures, self._cluster.chance())
        if isinstance(error, (NotLeader, ClientError)):
            self._cluster.refresh(now)

    # --- credit ----------------------------------------------------------------

    def rest(self) -> None:
        """Take no more messages."""
        self.resting = True
        self.allowance.allow(0, inf)

    # --- deliveries ------------------------------------------------------------

    def pushed(self, message: Message, payload: Bytes, now: float) -> None:
        """
        Take what the broker sent by itself.

        Args:
            message: What it says.
            payload: What comes with it.
            now: The time.
        """
        if isinstance(message, Deliver):
            self._delivered(message, payload, now)
        elif isinstance(message, LeaseLost):
            for _, lease_id, bits in message.rows:
                self.custody.lose(lease_id, int.from_bytes(bits, "little"))
            self._trunk.settled(self)
        elif isinstance(message, Ended):
            self._ended(error_from_meta(message.error), now)

    def _ended(self, error: WireError, now: float) -> None:
        """
        The broker ended it.

        The answer to another SUBSCRIBE says whether that is for good: the channel may be
        there again, and what the caller holds is compared then.
        """
        if self.phase not in (Phase.JOINED, Phase.LEAVING):
            return
        self._away()
        if error.retriable:
            self._later(error, now)
        self.pump(now)

    def _delivered(self, message: Deliver, payload: Bytes, now: float) -> None:
        if self.phase in (Phase.LEAVING, Phase.GONE):
            return  # given back with all the rest
        assert self._link is not None
        arrival = self.custody.hands.take(message, payload, self._link.limits, self._epoch)
        for row in message.rows:
            if row[0]:
                self._touch_at = min(self._touch_at, now + row[-1] / 1000 * _RENEW)
        for part in arrival.missing:
            self._missing(part, arrival.wrong)
        self.allowance.received += arrival.total
        self.custody.keep(arrival.leases)
        self._let_out()

    def _let_out(self) -> None:
        leases = self.custody.let_out()
        if leases:
            self._trunk.ready(self, leases)

    def _missing(self, part: Bits, wrong: CorruptBatch | None) -> None:
        """What cannot be read failed: it comes again, or to the dead-letter topic in the end."""
        what = f"{part.bits.bit_count()} messages of {self._trunk.topic}/{part.partition}"
        self._cluster.say(f"{what} cannot be read: {wrong or 'their records were not delivered'}")
        if part.lease:
            self.settling.add_bits(part.partition, REQUEUE, part.lease, part.bits)
            self._trunk.settled(self)

    # --- settling --------------------------------------------------------------

    def _tell_at(self, *, hurry: bool) -> float:
        """
        Say when the broker is to be told what it was not told yet.

        While it has not answered, what was finished since then waits for the answer, or
        goes with the next credit: a frame for each turn would cost both sides most of it.

        Args:
            hurry: Whether nothing waits.
        """
        if not self.settling.pending:
            return inf
        if hurry or not self.custody.patient:
            return self._retry_at
        return max(self._retry_at, self._patient_until)

    def _tell(self, now: float) -> None:
        self.custody.renewed(now)
        self._check_at = now + _CHECK_S
        self._patient_until = now + _PATIENCE_S
        link, epoch = self._link, self._epoch
        assert link is not None
        deadline = now + self._cluster.config.request_timeout_s
        for frame in self.settling.take():

            def done(
                reply: Any,
                _payload: Bytes,
                error: TinyMQError | None,
                now: float,
                frame: Any = frame,
            ) -> None:
                if error is None:
                    self.custody.answered(frame, reply)
                    self._failures = 0
                else:
                    self._untold(frame, error, epoch, now)
                self._let_out()
                self._trunk.settled(self)

            request = Settle(subscription=self.number, rows=frame.rows)
            link.request(request.type, request.to_meta(), (), deadline, done, now)

    def _untold(self, frame: Any, error: TinyMQError, epoch: int, now: float) -> None:
        """A frame did not arrive, or was not taken."""
        if self.phase is Phase.GONE:
            self.settling.refused(frame, error)
        elif isinstance(error, (ConnectionLost, UnknownSubscription)):
            self.settling.back(frame)
            if epoch == self._epoch:  # else it was noticed before, and SUBSCRIBE is on its way
                if isinstance(error, ConnectionLost):
                    self._lost_link()
                self._away()
        elif isinstance(error, DeadlineExceeded) or getattr(error, "retriable", False):
            self.settling.back(frame)
            self._later(error, now)
        else:
            self._cluster.say(f"{self._trunk.topic}: the broker does not take a settle: {error}")
            self.settling.refused(frame, error)

    def _renew(self, now: float) -> None:
        """
        Renew the leases of all that is in the caller's hands, and of what waits for him.

        If that is something, a frame goes in any case: the broker's answer says whether
        the subscription is still there.
        """
        if not self.held:
            self._touch_at = inf
            return
        self.custody.renew(now, self._handler_s)
        self._touch_at = now + self._lease_s * _RENEW
        if now >= self._retry_at:
            self._tell(now)

    def _check(self, now: float) -> None:
        """Ask whether the subscription is still there, though there is nothing to say."""
        self._check_at = now + _CHECK_S
        if now >= self._retry_at:
            self._tell(now)

    @property
    def trouble(self) -> TinyMQError | None:
        """Why the broker does not answer, while it is tried in vain."""
        return self._cluster.link(self.broker).trouble

    # --- time and end ----------------------------------------------------------

    @property
    def wake_at(self) -> float:
        """When `tick` has something to do."""
        if self.phase is Phase.GONE:
            return inf
        at = self._leave_until
        if self.phase is Phase.AWAY:
            return at if self._asking else min(at, self._retry_at)
        return min(
            at,
            self._tell_at(hurry=self.phase is Phase.LEAVING),
            self._touch_at,
            self._check_at,
        )

    def tick(self, now: float) -> None:
        """
        Do what is due.

        Args:
            now: The time.
        """
        if now >= self._leave_until:
            self._gone(
                DeadlineExceeded("the broker did not answer before the subscription ended"), now
            )
            return
        if self.phase is Phase.JOINED and now >= self._touch_at:
            self._renew(now)
        if self.phase is Phase.JOINED and now >= self._check_at:
            self._check(now)
        self.pump(now)

    def leave(self, until: float, left: Callable[[float], None], now: float) -> None:
        """
        End it: say what became of messages, and give back the others.

        Args:
            until: When to wait no longer for a broker that is away.
            left: Called at the end.
            now: The time.
        """
        if self.phase is Phase.GONE:
            left(now)
            return
        self.rest()
        self.allowance.end()
        self._left = left
        self._leave_until = until
        self._touch_at = self._check_at = inf
        if self.phase is Phase.JOINED:
            self.phase = Phase.LEAVING
        self.custody.lose_all()
        self.pump(now)

    def cancel(self, error: TinyMQError, now: float) -> None:
        """
        End it without a word to the broker.

        Args:
            error: What is told of messages that were settled and not confirmed.
            now: The time.
        """
        self._gone(error, now)

    def _done(self, now: float) -> bool:
        """Whether nothing has to be told any more to a broker that is away."""
        if self._left is None or not self.settling.idle:
            return False
        self._gone(ConnectionLost("the link was lost"), now)
        return True

    def _part(self, now: float) -> None:
        if not self.settling.idle or self._asking or now < self._retry_at:
            return
        deadline = now + self._cluster.config.request_timeout_s
        self._ask(Unsubscribe(subscription=self.number), self._parted, deadline, now)

    def _parted(self, _link: Link, _reply: Any, error: TinyMQError | None, now: float) -> None:
        again = isinstance(error, DeadlineExceeded) or getattr(error, "retriable", False)
        if error is not None and again and not isinstance(error, ConnectionLost):
            self._later(error, now)
            return
        self._gone(ConnectionLost("the subscription ended"), now)

    def _gone(self, error: TinyMQError, now: float) -> None:
        if self.phase is Phase.GONE:
            return
        self.phase = Phase.GONE
        self.allowance.close()
        self._leave_until = inf
        self.custody.lose_all()
        count = self.settling.give_up(error)
        if count:
            self._cluster.say(f"{self._trunk.topic}: {count} messages may come again: {error}")
        self._unhook()
        left, self._left = self._left, None
        if left is not None:
            left(now)

    def _unhook(self) -> None:
        number = self.number
        if self._link is not None and self._link.pushes.get(number) == self.pushed:
            del self._link.pushes[number]


def _ignore(_reply: Any, _payload: Bytes, _error: TinyMQError | None, _now: float) -> None:
    """Credit is not answered."""
