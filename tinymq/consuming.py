"""What a connection asks of channels: subscriptions, credit, settles; and what it is sent."""

from __future__ import annotations

from collections.abc import Callable
from random import random
from typing import Any, Final

from typing_extensions import override

from tinymq.broker.channel.lease import Settle as Lease
from tinymq.broker.channel.queue import Subscribers
from tinymq.broker.channel.returns import Requeue, Settled
from tinymq.broker.hosted import Hosted
from tinymq.broker.subscription import MOST_HELD, Subscription, row_of, unpacked
from tinymq.caller import Caller
from tinymq.connection import Connection, Shared
from tinymq.errors import (
    InvalidDelay,
    InvalidRequest,
    InvalidTransaction,
    Overloaded,
    UnknownSubscription,
    WireError,
)
from tinymq.limits import LATEST_MS
from tinymq.wire.frames import Bytes, Frame, encode_frame
from tinymq.wire.header import MessageType
from tinymq.wire.messages import (
    FINISH,
    GIVE_BACK,
    REJECT,
    REQUEUE,
    TOUCH,
    Credit,
    Deliver,
    Ended,
    LeaseLost,
    LeaseRow,
    Message,
    Settle,
    SettleReply,
    Subscribe,
    SubscribeReply,
    Unsubscribe,
    UnsubscribeReply,
)

#: Subscriptions that one connection may have.
MOST_SUBSCRIPTIONS: Final = 1000

#: Carries out one verb: subscribers, subscription, leases, the time, facts.
_Verb = Callable[[Subscribers, Subscription, list[Lease], int, dict[str, Any]], Settled]


class Consuming(Connection):
    """
    A connection that may take messages of channels.

    Args:
        shared: What all connections share.
        number: Unique among the connections of this broker since it started.
        caller: Who is there.
    """

    def __init__(self, shared: Shared, number: int, caller: Caller) -> None:
        super().__init__(shared, number, caller)
        self._subscriptions: dict[int, Subscription] = {}
        #: Numbers of those that are about to be.
        self._joining: set[int] = set()

    # --- what is asked -------------------------------------------------------------

    def _on_subscribe(self, frame: Frame) -> None:
        request = Subscribe.from_meta(frame.split()[0])
        number = request.subscription
        if number in self._subscriptions or number in self._joining:
            raise InvalidRequest(f"subscription {number} is open already", field="s")
        if len(self._subscriptions) + len(self._joining) >= MOST_SUBSCRIPTIONS:
            raise Overloaded(f"a connection has at most {MOST_SUBSCRIPTIONS} subscriptions")
        self._joining.add(number)

        def done(found: Subscription | None, reply: SubscribeReply | WireError) -> None:
            self._joining.discard(number)
            if isinstance(reply, WireError) or found is None:
                if isinstance(reply, WireError):
                    self._refuse(frame.message_id, reply)
            elif not self._listening:
                self._channels.lost(found)
            else:
                self._subscriptions[number] = found
                found.consumer.ready = self.paused_since is None
                self.reply(frame.type, frame.message_id, reply)

        try:
            self._channels.subscribe(request, self.session, self, done)
        except BaseException:
            self._joining.discard(number)
            raise

    def _on_credit(self, frame: Frame) -> None:
        request = Credit.from_meta(frame.split()[0])
        subscription = self._subscription(request.subscription)
        if subscription.consumer.credit.grant(request.granted):
            subscription.mark()

    def _on_settle(self, frame: Frame) -> None:
        request = Settle.from_meta(frame.split()[0])
        subscription = self._subscription(request.subscription)
        transaction = request.transaction
        if transaction is not None and any(verb != FINISH for _, verb, _, _ in request.rows):
            raise InvalidTransaction("only what is finished can be part of a transaction")
        done = 0
        late: list[LeaseRow] = []
        touched: dict[Hosted, None] = {}
        now = self._channels.now()
        for index, verb, rows, facts in request.rows:
            leases = [(lease_id, unpacked(bits)) for lease_id, bits in rows]
            hosted = subscription.hosted.get(index)
            if hosted is None:
                late += (row_of(index, *lease) for lease in leases)
                continue
            one = hosted.channel_of(subscription)
            if transaction is None:
                settled = _VERBS[verb](one, subscription, leases, now, facts)
            else:
                settled = one.hold(subscription.consumer, leases, now, transaction)
                self.shared.broker.deciding.watch(hosted.partition)
            done += settled.done
            late += (row_of(index, lost.lease_id, lost.bits) for lost in settled.late)
            hosted.losing(settled.revoked)
            touched[hosted] = None
            hosted.mark()
        if touched and not subscription.consumer.in_flight:
            subscription.mark()  # others may have waited for that
        if frame.message_id:
            reply = SettleReply(done=done, late=late[:MOST_HELD])
            self._when_safe([*touched], frame, reply, synced=transaction is not None)

    def _when_safe(
        self, touched: list[Hosted], frame: Frame, reply: Message, *, synced: bool = False
    ) -> None:
        """Answer when what was done is as safe as the topic promises, or on the disk."""
        waiting = len(touched)
        failed: list[WireError] = []

        def safe(error: WireError | None) -> None:
            nonlocal waiting
            waiting -= 1
            if error is not None:
                failed.append(error)
            if waiting <= 0:
                self._answer(frame, failed[0] if failed else reply)

        if not touched:
            self._answer(frame, reply)
        for hosted in touched:
            (hosted.synced if synced else hosted.settled)(safe)

    def _answer(self, frame: Frame, reply: Message | WireError) -> None:
        if isinstance(reply, WireError):
            self._refuse(frame.message_id, reply)
        else:
            self.reply(frame.type, frame.message_id, reply)

    def _on_unsubscribe(self, frame: Frame) -> None:
        request = Unsubscribe.from_meta(frame.split()[0])
        subscription = self._subscription(request.subscription)
        del self._subscriptions[request.subscription]
        self._channels.leave(
            subscription, lambda error: self._answer(frame, error or UnsubscribeReply())
        )

    def _subscription(self, number: int) -> Subscription:
        found = self._subscriptions.get(number)
        if found is None:
            raise UnknownSubscription(
                f"there is no subscription {number} on this connection; subscribe again"
            )
        return found

    @property
    def _channels(self) -> Any:
        return self.shared.broker.channels

    # --- what is sent ----------------------------------------------------------------

    def deliver(self, deliver: Deliver, payload: list[Bytes], messages: int) -> None:
        """
        Send messages.

        Args:
            deliver: What they are.
            payload: The batches that they are in.
            messages: How many there are.
        """
        self.traffic.messages_out += messages
        self._push(deliver, payload)

    def lease_lost(self, lost: LeaseLost) -> None:
        """
        Tell that leases were lost.

        Args:
            lost: Which ones.
        """
        self._push(lost, [])

    def ended(self, ended: Ended) -> None:
        """
        Tell that a subscription is over, and let go of it.

        Args:
            ended: Which one, and why.
        """
        self._subscriptions.pop(ended.subscription, None)
        self._push(ended, [])

    def _push(self, message: Message, payload: list[Bytes]) -> None:
        if self._listening:
            self._write(encode_frame(message.type, 0, message.to_meta(), payload))

    # --- back-pressure, and the end ----------------------------------------------------

    @override
    def pauseProducing(self) -> None:
        super().pauseProducing()
        for subscription in self._subscriptions.values():
            subscription.consumer.ready = False

    @override
    def resumeProducing(self) -> None:
        super().resumeProducing()
        for subscription in self._subscriptions.values():
            subscription.consumer.ready = True
            subscription.mark()

    def _leave_all(self) -> None:
        """Give back what it holds, for its client goes in good order."""
        gone, self._subscriptions = self._subscriptions, {}
        for subscription in gone.values():
            self._channels.leave(subscription, lambda error: None)

    @override
    def _cancel_reads(self) -> None:
        super()._cancel_reads()
        self._let_go()

    @override
    def _close(self) -> None:
        super()._close()
        self._let_go()

    def _let_go(self) -> None:
        """Keep for the session what its subscriptions hold, for a while."""
        gone, self._subscriptions = self._subscriptions, {}
        for subscription in gone.values():
            self._channels.lost(subscription)

    HANDLERS = {  # noqa: RUF012 - the base says that it is the class's
        MessageType.SUBSCRIBE: _on_subscribe,
        MessageType.CREDIT: _on_credit,
        MessageType.SETTLE: _on_settle,
        MessageType.UNSUBSCRIBE: _on_unsubscribe,
    }


# --- the verbs of SETTLE ------------------------------------------------------------------


def _finish(
    one: Subscribers, who: Subscription, leases: list[Lease], now: int, facts: dict[str, Any]
) -> Settled:
    return one.finish(who.consumer, leases, now)


def _requeue(
    one: Subscribers, who: Subscription, leases: list[Lease], now: int, facts: dict[str, Any]
) -> Settled:
    delay, at = facts.get("d"), facts.get("a")
    if at is not None:
        if type(at) is not int or delay is not None:
            raise InvalidRequest("a is a time in ms, and goes without d", field="a")
        delay = max(0, at - now)
    if delay is not None and (type(delay) is not int or delay < 0):
        raise InvalidRequest("a delay is a number of ms from 0", field="d")
    if delay is not None and now + delay > LATEST_MS:
        raise InvalidDelay(f"it would come beyond the end of the year 9999 ({LATEST_MS} ms)")
    failure = facts.get("f", True)
    if type(failure) is not bool:
        raise InvalidRequest("f is true or false", field="f")
    how = Requeue(delay, failure, _text(facts), random())  # noqa: S311 - jitter
    return one.requeue(who.consumer, leases, now, how)


def _reject(
    one: Subscribers, who: Subscription, leases: list[Lease], now: int, facts: dict[str, Any]
) -> Settled:
    return one.reject(who.consumer, leases, now, _text(facts))


def _touch(
    one: Subscribers, who: Subscription, leases: list[Lease], now: int, facts: dict[str, Any]
) -> Settled:
    return one.channel.touch(who.name, leases, now)


def _give_back(
    one: Subscribers, who: Subscription, leases: list[Lease], now: int, facts: dict[str, Any]
) -> Settled:
    return one.give_back(who.consumer, leases, now)


def _text(facts: dict[str, Any]) -> str:
    text = facts.get("x", "")
    if type(text) is not str:
        raise InvalidRequest("x is a string", field="x")
    return text


_VERBS: Final[dict[int, _Verb]] = {
    FINISH: _finish,
    REQUEUE: _requeue,
    REJECT: _reject,
    TOUCH: _touch,
    GIVE_BACK: _give_back,
}
