"""
Hands the versions of a key to a handler in order, and holds early ones meanwhile.

A held message is not settled: its lease is renewed by the client, and when the process dies it
comes again. It counts against `SubscriptionConfig.max_in_flight`, so let that be larger than
`OrderConfig.most`. A key whose missing version does not come is given up after a while.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, Final, Literal, Protocol

from attrs import define, field, frozen

from tinymq.client.core.handling import Reject, Requeue, reason_of
from tinymq.errors import UsageError
from tinymq.patterns.idempotence.calling import check_single, continued, waits
from tinymq.patterns.idempotence.identity import Read, as_text

_log: Final = logging.getLogger(__name__)


class Last(Protocol):
    """The last version of each key."""

    def last(self, key: str) -> int | None:
        """Tell the last version of a key."""

    def raise_to(self, key: str, version: int) -> bool:
        """Note a version, and say whether it is newer than the last."""


@frozen
class Gap:
    """
    What a handler of gaps is told.

    Attributes:
        key: Of what versions are missing.
        expected: The first that is missing.
        messages: Those that are held, in order of their versions.
    """

    key: str
    expected: int
    messages: tuple[Any, ...]


#: What becomes of held messages whose turn never came.
Choice = Literal["reject", "skip"]


@frozen(kw_only=True)
class OrderConfig:
    """
    How early messages are held.

    Attributes:
        first: The version that each key begins with; None takes the first that comes, which
            is what versions in memory need.
        most: Messages that are held at most, of all keys together; when there are more, the
            key that waits longest is given up.
        wait_s: After so long a key is given up. It is looked at when a message comes, and by
            `InOrder.expire`.
        gap: What becomes of held messages then: ``reject`` sends them to the dead-letter
            topic, ``skip`` goes on with them as if the missing ones had come. A function is
            given a `Gap` and says which.
        clock: Seconds that never go back.
    """

    first: int | None = 1
    most: int = 500
    wait_s: float = 60.0
    gap: Choice | Callable[[Gap], Choice] = "reject"
    clock: Callable[[], float] = time.monotonic

    def __attrs_post_init__(self) -> None:
        if self.most < 1 or self.wait_s <= 0:
            raise UsageError("most is at least 1, and wait_s above 0")


@define
class _Lane:
    """What is held of a key."""

    #: Since when something is held, while nobody is at work.
    since: float
    busy: bool = False
    held: dict[int, Any] = field(factory=dict)


@frozen
class _Turn:
    """A message whose turn it is."""

    key: str
    version: int
    message: Any
    #: Whether it is what the handler was called with, whose errors are its caller's matter.
    callers: bool


class InOrder:
    """
    A handler around another one; made by `VersionGuard.in_order`.

    Args:
        handler: Takes a message.
        read: Tell version and key of a message.
        versions: The last versions.
        config: How early ones are held.

    Attributes:
        old: Messages that had come before, and were finished without the handler.
        given_up: Messages that were rejected since others were missing.
        skipped: Gaps that were passed over.
    """

    def __init__(
        self,
        handler: Callable[[Any], Any],
        read: tuple[Read, Read],
        versions: Last,
        config: OrderConfig | None = None,
    ) -> None:
        self.config = config or OrderConfig()
        self.old = 0
        self.given_up = 0
        self.skipped = 0
        self._handler = handler
        self._version, self._key = read
        self._versions = versions
        self._lanes: dict[str, _Lane] = {}
        # Calls of messages, which take the client's lock: made when ours is free, since the
        # client holds its own when it tells of a lost one.
        self._calls: deque[Callable[[], object]] = deque()
        self._lock = threading.RLock()

    @property
    def held(self) -> int:
        """How many messages are held."""
        with self._lock:
            return sum(len(lane.held) for lane in self._lanes.values())

    def __call__(self, message: Any) -> Any:
        """
        Handle a message, those that waited for it, or none if it is early.

        Args:
            message: The message.

        Returns:
            As the handler: None, a coroutine, or a Deferred.

        Raises:
            UsageError: Held messages were settled by somebody else.
        """
        check_single(message)
        if self.config.gap == "reject" and not hasattr(message, "reject"):
            raise UsageError(
                'a group cannot send a held message to a dead-letter topic: say gap="skip", or '
                "give a function that does something with those that are given up"
            )
        if iscoroutinefunction(self._handler):
            return self._wait(lambda: self._turns(message))
        return self._plain(self._turns(message))

    def expire(self) -> Any:
        """
        Give up keys that have waited too long, as the next message would.

        Call it from time to time where messages may stay away.

        Returns:
            As the handler: None, a coroutine, or a Deferred.
        """
        if iscoroutinefunction(self._handler):
            return self._wait(self._late_turns)
        return self._plain(self._late_turns())

    async def _wait(self, turns: Callable[[], deque[_Turn]]) -> None:
        # Nothing is taken before it begins: it may never do so.
        await self._rest(turns(), None)

    # --- whose turn it is --------------------------------------------------------------

    def _turns(self, message: Any) -> deque[_Turn]:
        key, version = as_text(self._key(message)), self._version(message)
        try:
            with self._choosing() as turns:
                self._expire(turns)
                self._take(turns, key, version, message)
                self._thin_out(turns)
        except BaseException:
            self._let_go(key, version, message)  # its caller settles it
            raise
        return turns

    def _late_turns(self) -> deque[_Turn]:
        with self._choosing() as turns:
            self._expire(turns)
        return turns

    @contextmanager
    def _choosing(self) -> Iterator[deque[_Turn]]:
        """Choose whose turn it is; nobody's if that fails, as where no database answers."""
        turns: deque[_Turn] = deque()
        try:
            with self._lock:
                yield turns
            self._call()
        except BaseException:
            self._abandon(turns)
            raise

    def _call(self) -> None:
        while True:
            try:
                call = self._calls.popleft()
            except IndexError:
                return  # other threads call as well
            call()

    def _take(self, turns: deque[_Turn], key: str, version: int, message: Any) -> None:
        lane = self._lanes.get(key)
        if lane is not None:
            self._check(lane)
        last = self._versions.last(key)
        if last is not None and version <= last:
            self.old += 1
            self._calls.append(partial(_finish, message))
            if lane is not None and not lane.busy:
                self._take_waiting(turns, key, lane, last + 1)
            return
        busy = lane is not None and lane.busy
        if not busy and self._is_next(version, last):
            if lane is None:
                lane = self._lanes[key] = _Lane(self.config.clock())
            lane.busy = True
            turns.append(_Turn(key, version, message, callers=True))
        else:
            self._hold(key, version, message)

    def _take_waiting(self, turns: deque[_Turn], key: str, lane: _Lane, version: int) -> None:
        """Take one that is held although its turn has come, since it failed before."""
        message = lane.held.pop(version, None)
        if message is None or not _in_hand(message):
            self._tidy(key, lane)
            return
        lane.busy = True
        turns.append(_Turn(key, version, message, callers=False))

    def _is_next(self, version: int, last: int | None) -> bool:
        if last is None:
            return self.config.first is None or version <= self.config.first
        return version == last + 1

    def _hold(self, key: str, version: int, message: Any) -> None:
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(self.config.clock())
        elif not lane.held and not lane.busy:
            lane.since = self.config.clock()
        before = lane.held.get(version)
        if before is not None and _in_hand(before) and _place(before) != _place(message):
            # Another message with its version: one is enough. The same one once more tells
            # that the one before was lost, so it takes its place.
            self.old += 1
            self._calls.append(partial(_finish, message))
            return
        lane.held[version] = message
        if hasattr(message, "when_lost"):
            lost = partial(self._let_go, key, version, message)
            self._calls.append(partial(message.when_lost, lost))

    def _let_go(self, key: str, version: int, message: Any) -> None:
        """Forget a message that is not held any more; it comes again."""
        with self._lock:
            lane = self._lanes.get(key)
            if lane is not None and lane.held.get(version) is message:
                del lane.held[version]
                self._tidy(key, lane)

    def _tidy(self, key: str, lane: _Lane) -> None:
        if not lane.held and not lane.busy:
            self._lanes.pop(key, None)

    # --- giving up -----------------------------------------------------------------------

    def _expire(self, turns: deque[_Turn]) -> None:
        since = self.config.clock() - self.config.wait_s
        late = [
            key
            for key, lane in self._lanes.items()
            if not lane.busy and lane.held and lane.since <= since
        ]
        for key in late:
            self._give_up(turns, key)

    def _thin_out(self, turns: deque[_Turn]) -> None:
        """Give up the key that waits longest, while too many are held."""
        while self.held > self.config.most:
            idle = [(lane.since, key) for key, lane in self._lanes.items() if not lane.busy]
            if not idle:
                break  # the handlers at work will take them
            self._give_up(turns, min(idle)[1])

    def _give_up(self, turns: deque[_Turn], key: str) -> None:
        lane = self._lanes[key]
        self._check(lane)
        versions = sorted(lane.held)
        if not versions:
            self._tidy(key, lane)
            return
        last = self._versions.last(key)
        expected = (self.config.first or 0) if last is None else last + 1
        gap = Gap(key, expected, tuple(lane.held[version] for version in versions))
        choice = self.config.gap(gap) if callable(self.config.gap) else self.config.gap
        if choice == "skip":
            self.skipped += 1
            lane.busy = True
            turns.append(_Turn(key, versions[0], lane.held.pop(versions[0]), callers=False))
            return
        self.given_up += len(versions)
        lane.held.clear()
        self._tidy(key, lane)
        for version, message in zip(versions, gap.messages, strict=True):
            reason = f"version {version} of {key} has waited for {expected} in vain"
            self._calls.append(partial(_reject, message, reason))

    @staticmethod
    def _check(lane: _Lane) -> None:
        for message in lane.held.values():
            if not _in_hand(message) and not message.is_lost:
                raise UsageError("held messages were settled: run this handler with manual=True")

    # --- handling --------------------------------------------------------------------------

    def _plain(self, turns: deque[_Turn]) -> Any:
        failure: BaseException | None = None
        try:
            while turns:
                try:
                    result = self._handler(turns[0].message)
                except Exception as error:  # noqa: BLE001 - anything may come out of it
                    failure = self._ended(turns, error) or failure
                else:
                    if waits(result):
                        return continued(result, self._rest(turns, result, failure))
                    failure = self._ended(turns, None) or failure
        except BaseException:
            self._abandon(turns)  # what was not begun comes again
            raise
        if failure is not None:
            raise failure
        return None

    async def _rest(
        self, turns: deque[_Turn], result: Any, failure: BaseException | None = None
    ) -> None:
        """Go on where a handler waits, which for the first one has begun already."""
        try:
            while turns:
                try:
                    if result is None:
                        result = self._handler(turns[0].message)
                    if waits(result):
                        await result
                except Exception as error:  # noqa: BLE001 - anything may come out of it
                    failure = self._ended(turns, error) or failure
                else:
                    failure = self._ended(turns, None) or failure
                result = None
        finally:
            self._abandon(turns)  # what was cancelled comes again
        if failure is not None:
            raise failure

    def _ended(self, turns: deque[_Turn], error: Exception | None) -> Exception | None:
        """Settle a message, see whose turn is next; return the error if it is the caller's."""
        turn = turns[0]
        if error is None or isinstance(error, Reject):
            try:
                self._versions.raise_to(turn.key, turn.version)
            except Exception as wrong:  # noqa: BLE001 - drivers have errors of their own
                error = wrong
        going_on = error is None or isinstance(error, Reject)
        # A group's message cannot be sent back by itself: its error is that of the call.
        callers = turn.callers or not hasattr(turn.message, "requeue")
        with self._lock:
            turns.popleft()
            if callers and not turn.callers and not going_on:
                self._lanes[turn.key].held[turn.version] = turn.message
            follows = self._next(turn, going_on=going_on)
            if follows is not None:
                turns.appendleft(follows)
        self._call()
        if error is None:
            _finish(turn.message)
            return None
        if callers:
            return error
        _settle(turn.message, error)
        return None

    def _next(self, turn: _Turn, *, going_on: bool) -> _Turn | None:
        lane = self._lanes[turn.key]
        if going_on:
            for version in [version for version in lane.held if version <= turn.version]:
                self._calls.append(partial(_finish, lane.held.pop(version)))
        message = lane.held.pop(turn.version + 1, None) if going_on else None
        if message is not None and _in_hand(message):
            return _Turn(turn.key, turn.version + 1, message, callers=False)
        # Nothing follows, or it was lost on the way, and comes again.
        lane.busy = False
        lane.since = self.config.clock()
        self._tidy(turn.key, lane)
        return None

    def _abandon(self, turns: Iterable[_Turn]) -> None:
        with self._lock:
            for turn in turns:
                lane = self._lanes[turn.key]
                lane.busy = False
                if not turn.callers:
                    if hasattr(turn.message, "give_back"):
                        self._calls.append(partial(_give_back, turn.message))
                    else:
                        lane.held[turn.version] = turn.message
                self._tidy(turn.key, lane)
        self._call()


# --- messages of channels, and of groups ---------------------------------------------------


def _place(message: Any) -> tuple[str, int, int]:
    return message.topic, message.partition, message.offset


def _in_hand(message: Any) -> bool:
    held: bool | None = getattr(message, "held", None)
    return not (message.is_done or message.is_lost) if held is None else held


def _finish(message: Any) -> None:
    if not _in_hand(message):
        return
    if hasattr(message, "finish"):
        message.finish()
    else:
        message.done()


def _reject(message: Any, reason: str) -> None:
    if not _in_hand(message):
        return
    if hasattr(message, "reject"):
        message.reject(reason)
    else:
        _log.error("%r is given up: %s", message, reason)
        message.done()


def _give_back(message: Any) -> None:
    if _in_hand(message):
        message.give_back()


def _settle(message: Any, error: Exception) -> None:
    """Settle a message whose handler failed, as a subscription would."""
    if not isinstance(error, (Reject, Requeue)):
        _log.error("the handler failed at %r", message, exc_info=error)
    if not message.held:
        return
    match error:
        case Reject():
            message.reject(error.reason)
        case Requeue():
            message.requeue(error.delay_s, error.reason, failure=error.failure, at=error.at)
        case _:
            message.requeue(reason=reason_of(error))
