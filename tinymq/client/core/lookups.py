"""What is asked about topics: by whoever needs one, and again as time goes by."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, Final

from tinymq.client.core.config import ClientConfig
from tinymq.client.core.link import Link
from tinymq.client.core.metadata import MetadataCache, TopicInfo
from tinymq.errors import DeadlineExceeded, TinyMQError, UnknownTopic
from tinymq.wire.frames import Bytes
from tinymq.wire.messages import Metadata, MetadataReply

#: Most names in one METADATA request.
_MOST_NAMES: Final = 100

#: Changes that follow one another are read together.
_SOON_S: Final = 1.0

#: Told what is known about a topic, or why nothing is.
Found = Callable[[TopicInfo | None, TinyMQError | None, float], None]


def may_repeat(error: TinyMQError) -> bool:
    """
    Say whether a harmless question may be asked again after an error.

    Args:
        error: The error.
    """
    return isinstance(error, DeadlineExceeded) or bool(getattr(error, "retriable", False))


class _Want:
    """One caller that waits for a topic."""

    __slots__ = ("create", "deadline", "found", "fresh")

    def __init__(self, create: bool, fresh: bool, deadline: float, found: Found) -> None:
        self.create = create
        self.fresh = fresh
        self.deadline = deadline
        self.found = found


class Lookups:
    """
    Asks for topics, one METADATA request at a time.

    Args:
        link: Finds whom to ask.
        cache: Where answers go.
        config: Settings of the client.
        delay: Says how long to wait after so many failures.
    """

    def __init__(
        self,
        link: Callable[[], Link],
        cache: MetadataCache,
        config: ClientConfig,
        delay: Callable[[int], float],
    ) -> None:
        self._link = link
        self._cache = cache
        self._config = config
        self._delay = delay
        self._wanted: dict[str, list[_Want]] = {}
        self._asking = False
        self._ask_wait = 0.0
        self._ask_failures = 0
        self._cursor = 0
        self._changed = False
        self._closed = False
        self._why: TinyMQError | None = None
        self._refresh_at = inf
        self._calm_until = -inf
        self._troubles = 0

    def topic(
        self,
        name: str,
        deadline: float,
        found: Found,
        now: float,
        *,
        create: bool,
        fresh: bool,
    ) -> None:
        """
        Look up a topic, from the cache or by asking.

        Args:
            name: Its name.
            deadline: When to give up.
            found: Told what is known.
            now: The time.
            create: Make it where there is none.
            fresh: Ask in any case.
        """
        known = None if fresh else self._cache.get(name)
        if known is not None:
            found(known, None, now)
            return
        self._wanted.setdefault(name, []).append(_Want(create, fresh, deadline, found))
        self._ask(now)

    def refresh(self, now: float) -> None:
        """
        Ask for every known topic soon, however often this is called.

        Args:
            now: The time.
        """
        if now > self._calm_until + self._config.backoff.most_s:
            self._troubles = 0  # the trouble before is long over
        self._refresh_at = min(self._refresh_at, max(now, self._calm_until))

    def heard(self, revision: int, now: float) -> None:
        """
        Note that the metadata has this revision somewhere; read it if that is newer.

        Args:
            revision: The revision.
            now: The time.
        """
        if revision > self._cache.revision:
            self._refresh_soon(now)

    def _refresh_soon(self, now: float) -> None:
        """Ask for every known topic, but once for changes that come one after the other."""
        self._refresh_at = min(self._refresh_at, now + _SOON_S)

    @property
    def wake_at(self) -> float:
        """When `tick` has something to do."""
        if self._changed:
            return -inf
        if self._closed:
            return inf
        at = inf
        if self._wanted:
            at = min((one.deadline for many in self._wanted.values() for one in many), default=inf)
        if self._asking:
            return at
        ask = -inf if self._wanted else self._refresh_at
        return min(at, max(ask, self._ask_wait))

    def tick(self, now: float) -> bool:
        """
        Do what is due.

        Args:
            now: The time.

        Returns:
            Whether anything was learned since the last time.
        """
        self._expire(now)
        self._ask(now)
        changed, self._changed = self._changed, False
        return changed

    def close(self, error: TinyMQError, now: float) -> None:
        """
        Ask no more, and tell all who wait.

        Args:
            error: What they are told.
            now: The time.
        """
        self._closed = True
        self._changed = False
        wanted, self._wanted = self._wanted, {}
        for want in [one for many in wanted.values() for one in many]:
            want.found(None, error, now)

    # --- inside ----------------------------------------------------------------

    def _ask(self, now: float) -> None:
        if self._asking or self._closed or now < self._ask_wait:
            return
        names = list(self._wanted)[:_MOST_NAMES]
        create = bool(names) and all(want.create for want in self._wanted[names[0]])
        if names:  # creating and looking up are asked for apart
            names = [name for name in names if self._creates(name) is create]
        elif now >= self._refresh_at:
            names = self._cache.names[self._cursor : self._cursor + _MOST_NAMES]
            self._cursor += len(names)
            if self._cursor >= len(self._cache):
                self._cursor = 0
                self._refresh_at = now + self._config.metadata_age_s
                self._troubles += 1
                self._calm_until = now + self._delay(self._troubles)
            if not names:
                return
        else:
            return
        self._asking = True
        until = now + self._config.request_timeout_s
        deadlines = [want.deadline for name in names for want in self._wanted.get(name, ())]
        message = Metadata(names=names, create=create)

        def told(reply: Any, _payload: Bytes, error: TinyMQError | None, now: float) -> None:
            self._told(names, reply, error, now)

        until = min([until, *deadlines]) if deadlines else until
        self._link().request(message.type, message.to_meta(), (), until, told, now)

    def _creates(self, name: str) -> bool:
        return all(want.create for want in self._wanted[name])

    def _told(self, names: list[str], reply: Any, error: TinyMQError | None, now: float) -> None:
        self._asking = False
        found: dict[str, TopicInfo | TinyMQError] = {}
        if isinstance(reply, MetadataReply):
            found = self._learn(names, reply, now)
            self._why = None
        elif error is not None:
            found = dict.fromkeys(names, error)
        again = False
        for name in names:
            again |= self._settle(name, found[name], now)
        if again or error is not None:
            self._ask_failures += 1
            self._ask_wait = now + self._delay(self._ask_failures)
            if error is not None:
                self.refresh(now)  # what is known may be old; it is used all the same
        else:
            self._ask_failures = 0
            self._ask_wait = 0.0
            if self._refresh_at == inf:
                self._refresh_at = now + self._config.metadata_age_s
        if error is None:
            self._changed = True

    def _learn(
        self, names: list[str], reply: MetadataReply, now: float
    ) -> dict[str, TopicInfo | TinyMQError]:
        """Take in an answer; say what is known of each topic that was asked for."""
        cache = self._cache
        newer = -1 < cache.revision < reply.revision
        found = cache.apply(reply)
        if newer and any(name not in found for name in cache.names):
            self._refresh_soon(now)  # others may have changed as well
        for name in names:
            if name not in found:
                if not cache.lagging:
                    cache.drop(name)
                found[name] = cache.get(name) or UnknownTopic(f"there is no topic {name}")
        return found

    def _settle(self, name: str, answer: TopicInfo | TinyMQError, now: float) -> bool:
        """Tell those who wait for a topic; say whether some go on waiting."""
        waiting = self._wanted.pop(name, [])
        if isinstance(answer, TopicInfo):
            for want in waiting:
                want.found(answer, None, now)
            return False
        # A broker that lags behind may not have heard of the topic yet.
        if (may_repeat(answer) or self._cache.lagging) and not self._closed:
            # Overdue ones are told by `tick`.
            if waiting:
                self._wanted.setdefault(name, []).extend(waiting)
                self._why = answer
            return bool(waiting)
        for want in waiting:
            want.found(None, answer, now)
        return False

    def _expire(self, now: float) -> None:
        for name in list(self._wanted):
            wants = self._wanted[name]
            overdue = [want for want in wants if want.deadline <= now]
            if not overdue:
                continue
            left = [want for want in wants if want.deadline > now]
            if left:
                self._wanted[name] = left
            else:
                del self._wanted[name]
            error = self._why or DeadlineExceeded(f"nothing was heard about topic {name} in time")
            for want in overdue:
                want.found(None, error, now)
