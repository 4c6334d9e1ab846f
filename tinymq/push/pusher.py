"""
One push endpoint on one broker: takes messages as any client does, sends and settles them.

::

              begin                  failure, Retry-After
    AWAY ------------> OPEN <------------------------------> HELD
                         |            time is up              |
                         | 410, or too many failures in a row |
                         v                                    v
                       HALTED  (until it is resumed, which makes another pusher)

While it is held nothing is taken: what was not sent yet goes back to the channel, with its
attempts as they were. After that one request at a time is sent, until one succeeds. A failure
with successes around it holds nothing: it is that message's matter.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from attrs import frozen
from twisted.internet.defer import Deferred, DeferredList
from twisted.logger import Logger
from twisted.python.failure import Failure

from tinymq.client.core.config import SubscriptionConfig
from tinymq.client.subscription import Message, Subscription
from tinymq.errors import ClosedError, TinyMQError
from tinymq.meta.endpoint import Endpoint
from tinymq.push.counting import Tally
from tinymq.push.request import Parcel
from tinymq.push.sending import Answer
from tinymq.push.turnstile import Turnstile
from tinymq.push.waiting import pause_after

#: Seconds until a channel is asked for again that could not be taken from.
AGAIN_S: Final = 2.0
#: Bytes of messages that wait here to be sent to one endpoint.
BUFFER_BYTES: Final = 4 * 1024 * 1024
_GONE: Final = 410
#: Seconds that a request may need beside its time-out, to be cleared away.
_GRACE_S: Final = 5.0


class Sending(Protocol):
    """Sends single messages to an endpoint."""

    def post(
        self, parcel: Parcel, wall_ms: int, timeout_s: float | None = None
    ) -> Awaitable[Answer]:
        """Send a message, and say how that ended."""

    def close(self) -> None:
        """Close the connections that are kept."""


@frozen(kw_only=True)
class Means:
    """
    What all pushers of a broker share.

    Attributes:
        reactor: The time.
        wall: The wall clock, in milliseconds.
        broker: The number of this broker.
        subscribe: Takes messages of a channel.
        sender: Sends to an endpoint.
        turnstile: Lets so many requests through at once.
    """

    reactor: Any
    wall: Callable[[], int]
    broker: int
    subscribe: Callable[[str, str, SubscriptionConfig], Subscription]
    sender: Callable[[Endpoint], Sending]
    turnstile: Turnstile


class Pusher:
    """
    One endpoint.

    Args:
        topic: Name of the topic.
        endpoint: The endpoint, which is not paused.
        means: What all share.
        tally: Its figures, which outlive a change of it.
        give_up: Called once, with the reason, when it takes nothing any more.

    Attributes:
        endpoint: The endpoint.
        row: Failures in a row; requests that failed together count once.
        halted: Why nothing is sent any more; empty while it is.
        trouble: Why no message can be taken from the channel just now, or nothing.
    """

    _log = Logger()

    def __init__(
        self,
        topic: str,
        endpoint: Endpoint,
        means: Means,
        tally: Tally,
        give_up: Callable[[str], None],
    ) -> None:
        self.endpoint = endpoint
        self.row = 0
        self.halted = ""
        self.trouble = ""
        self._topic = topic
        self._means = means
        self._tally = tally
        self._give_up = give_up
        self._sender = means.sender(endpoint)
        self._subscription: Subscription | None = None
        self._probing = False
        #: What ends when the handlers at work do, and those that end with subscriptions.
        self._running: Deferred[Any] | None = None
        self._closing: dict[Deferred[Any], Deferred[Any]] = {}
        self._stopped = False
        self._held_until = 0.0
        #: Until when the endpoint asked to be left alone, on the wall clock.
        self._retry_at: int | None = None
        #: When the last failure was noticed that counts; what began before counts with it.
        self._failed_at = -1.0
        self._timer: Any = None

    @property
    def name(self) -> str:
        """Topic and channel, for people."""
        return f"{self._topic}/{self.endpoint.channel}"

    @property
    def retry_at_ms(self) -> int | None:
        """Until when the endpoint asked to be left alone; None if it did not, or that is over."""
        at = self._retry_at
        return at if at is not None and at > self._means.wall() else None

    # --- life -------------------------------------------------------------------

    def begin(self) -> None:
        """Take messages, if it may."""
        if self._stopped or self.halted or self._subscription is not None:
            return
        left = self._held_until - self._means.reactor.seconds()
        if left > 0:
            self._set_timer(left)
            return
        endpoint = self.endpoint
        self._probing = self.row > 1
        most = 1 if self._probing else endpoint.concurrency
        config = SubscriptionConfig(
            max_in_flight=most,
            buffer_bytes=BUFFER_BYTES,
            create=False,
            only_broker=self._means.broker,
        )
        try:
            taking = self._means.subscribe(self._topic, endpoint.channel, config)
        except ClosedError:  # the broker stops
            return
        self._subscription = taking
        running = self._running = taking.run(self._deliver, concurrency=most, manual=True)
        running.addBoth(self._ended, taking)

    def _ended(self, result: object, taking: Subscription) -> None:
        """The subscription is over: it was closed here, or cannot go on by itself."""
        if taking is not self._subscription:
            return
        self._subscription = None
        error = None
        if isinstance(result, Failure):
            error = result.value
            if not isinstance(error, TinyMQError):
                self._log.failure("pushing {name} failed", result, name=self.name)
        self.trouble = str(error or "the subscription ended")
        self._hold(AGAIN_S)

    def stop(self, within_s: float | None = None) -> Deferred[None]:
        """
        Send nothing more; what is being sent may end.

        Args:
            within_s: Seconds for that, if not as long as the endpoint has for an answer.

        Returns:
            What ends when all messages are settled or given back.
        """
        self._stopped = True
        self._clear_timer()
        self._close(within_s)
        if within_s is not None:
            for closing, running in self._closing.items():
                self._limit(closing, running, within_s)
        done: Deferred[Any] = DeferredList(list(self._closing))
        return done.addCallback(lambda _: self._sender.close())

    def _close(self, within_s: float | None = None) -> None:
        """Take no more; what was not sent yet goes back at once."""
        taking, self._subscription = self._subscription, None
        if taking is None:
            return
        if within_s is None:
            within_s = self.endpoint.timeout_ms / 1000 + _GRACE_S
        closing: Deferred[Any] = taking.close(within_s)
        assert self._running is not None
        self._closing[closing] = self._running

        def closed(_: object) -> None:
            del self._closing[closing]
            self.begin()

        closing.addBoth(closed)

    def _limit(self, closing: Deferred[Any], running: Deferred[Any], seconds: float) -> None:
        """Give back what is still being sent after some seconds."""
        timer = self._means.reactor.callLater(seconds, running.cancel)

        def closed(_: object) -> None:
            if timer.active():
                timer.cancel()

        closing.addBoth(closed)

    def _hold(self, seconds: float) -> None:
        """Take nothing for a while."""
        until = self._means.reactor.seconds() + seconds
        self._held_until = max(self._held_until, until)
        self._close()
        if not self._stopped and not self.halted:
            self._set_timer(self._held_until - self._means.reactor.seconds())

    def _halt(self, reason: str) -> None:
        """Take nothing any more."""
        if self.halted or self._stopped:
            return
        self.halted = reason
        self._clear_timer()
        self._log.warn("push endpoint of {name} is paused: {reason}", name=self.name, reason=reason)
        self._close()
        self._give_up(reason)

    def _set_timer(self, seconds: float) -> None:
        self._clear_timer()
        self._timer = self._means.reactor.callLater(max(seconds, 0.0), self._due)

    def _clear_timer(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None

    def _due(self) -> None:
        self._timer = None
        self.begin()

    @property
    def _holding(self) -> bool:
        held = self._held_until > self._means.reactor.seconds()
        return held or self._stopped or bool(self.halted)

    # --- messages ---------------------------------------------------------------

    async def _deliver(self, message: Message) -> None:
        """Send one message, and settle it by what is answered."""
        means, tally = self._means, self._tally
        self.trouble = ""
        await means.turnstile.enter(self)
        try:
            # What has no lease was settled when it was delivered: it is sent now or never.
            if message.lease and (self._holding or not message.held):
                if message.held:
                    message.give_back()
                return
            began = means.reactor.seconds()
            tally.in_flight += 1
            try:
                answer = await self._sender.post(_parcel(message, self.endpoint), means.wall())
            finally:
                tally.in_flight -= 1
        finally:
            means.turnstile.leave(self)
        tally.answered(answer.status, answer.seconds, means.wall())
        if answer.ok:
            self._succeeded(message)
        else:
            self._failed(message, answer, began)

    def _succeeded(self, message: Message) -> None:
        if message.held:
            message.finish()
        self._tally.succeeded(self._means.reactor.seconds())
        self.row = 0
        if self._probing and not self._holding:  # it is well again: all at once
            self._probing = False
            self._close()

    def _failed(self, message: Message, answer: Answer, began: float) -> None:
        now = self._means.reactor.seconds()
        self._tally.went_wrong(answer.error, now, self._means.wall())
        if message.held and message.lease:
            # Its channel's policy has the last word: attempts, back-off, dead letters.
            message.requeue(answer.wait_s, answer.error)
        if began > self._failed_at:
            self.row += 1
            self._failed_at = now
        if answer.status == _GONE:
            self._halt(f"it answered {answer.error}")
            return
        if self.row >= self.endpoint.give_up:
            self._halt(f"{self.row} failures in a row; the last: {answer.error}")
            return
        if answer.wait_s is not None:
            at = self._means.wall() + round(answer.wait_s * 1000)
            self._retry_at = max(at, self._retry_at or 0)
        pause = max(answer.wait_s or 0.0, pause_after(self.row))
        if pause:
            self._hold(pause)

    def told(self) -> dict[str, Any]:
        """Tell how it does."""
        return {
            "set_ms": self.endpoint.set_ms,
            "row": self.row,
            "halted": self.halted,
            "trouble": self.trouble,
            "retry_at_ms": self.retry_at_ms,
        }


def _parcel(message: Message, endpoint: Endpoint) -> Parcel:
    return Parcel(
        topic=message.topic,
        channel=endpoint.channel,
        partition=message.partition,
        offset=message.offset,
        attempt=message.attempt,
        key=message.key,
        headers=message.headers,
        value=message.value,
    )
