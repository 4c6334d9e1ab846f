"""
Lookup mode: an independent broker tells lookup servers which topics it has.

Every server is told on its own, over a connection that stays: what came and
went as soon as it did, and every few seconds that the broker still lives.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from twisted.internet.defer import CancelledError, Deferred, ensureDeferred
from twisted.logger import Logger

from tinymq.broker.broker import Broker
from tinymq.client.core.config import ClientConfig
from tinymq.errors import ClientError, ClosedError, WireError
from tinymq.ground import Ground
from tinymq.limits import KIB
from tinymq.meta.lookup import CALL_TOPICS
from tinymq.meta.registry import Registry
from tinymq.meta.server import MetaServer
from tinymq.stats import ANNOUNCER_CLIENT

#: Seconds between two signs of life; a server forgets who is silent for three of them.
BEAT_SECONDS: Final = 5.0
#: Changes within this time are told together.
GATHER_SECONDS: Final = 0.05
#: Seconds after a failure before the next attempt.
PAUSE_SECONDS: Final = 1.0
#: Bytes of names in a call: the meta part of a frame has 64 KiB, also for what else is in it.
CALL_BYTES: Final = 48 * KIB
_OVERHEAD: Final = 3

_CONFIG: Final = ClientConfig(
    client_id=ANNOUNCER_CLIENT, request_timeout_s=BEAT_SECONDS, deadline_s=BEAT_SECONDS
)


class Announcer:
    """
    Tells every lookup server.

    Args:
        ground: What the process stands on.
        meta: Knows the topics.
        broker: Whose topics they are.
    """

    def __init__(self, ground: Ground, meta: MetaServer, broker: Broker) -> None:
        self._tellings = [
            Telling(ground, meta, broker, place) for place in broker.config.cluster.meta
        ]

    def start(self) -> None:
        """Begin."""
        for telling in self._tellings:
            telling.start()

    async def stop(self) -> None:
        """Tell no more; the servers forget this broker in a few seconds."""
        for telling in self._tellings:
            await telling.stop()


class Telling:
    """
    Tells one lookup server.

    Args:
        ground: What the process stands on.
        meta: Knows the topics.
        broker: Whose topics they are.
        place: The server, as HOST:PORT.
    """

    _log = Logger()

    def __init__(self, ground: Ground, meta: MetaServer, broker: Broker, place: str) -> None:
        self._reactor = ground.reactor
        self._meta = meta
        self._broker = broker
        self._place = place
        self._client = ground.client(f"tinymq://{place}", _CONFIG)
        #: What the server knows of our topics; None if that is not sure.
        self._told: set[str] | None = None
        self._running: Deferred[None] | None = None
        self._woken: Deferred[None] | None = None
        self._unwatch = meta.watch(self._changed)
        self._client.on_links(self._link_changed)
        self._heard = True
        #: Whether topics came or went since the server was told last.
        self._news = False

    def start(self) -> None:
        """Begin."""
        self._running = ensureDeferred(self._run())
        self._running.addErrback(self._ended)

    def _ended(self, failure: Any) -> None:
        if not failure.check(CancelledError, ClosedError):
            self._log.failure("announcing to {place} has ended", failure, place=self._place)

    async def stop(self) -> None:
        """Tell no more."""
        self._unwatch()
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
        await self._client.close()

    def _changed(self, before: Registry, after: Registry) -> None:
        if after.touched:
            self._wake()

    def _link_changed(self) -> None:
        if self._client.failing:  # a server that comes back knows nothing
            self._wake()

    def _wake(self) -> None:
        self._news = True
        if self._woken is not None and not self._woken.called:
            self._woken.callback(None)

    async def _run(self) -> None:
        while True:
            self._news, sure = False, self._told is not None
            try:
                await self._tell()
            except (ClientError, WireError) as error:
                self._note_silence(error)
                await self._pause(PAUSE_SECONDS)
                continue
            self._note_answer()
            if sure and self._told is None:  # it had forgotten: say everything, now
                continue
            if not self._news:
                self._woken = Deferred()
                await self._woken.addTimeout(BEAT_SECONDS, self._reactor, lambda *_: None)
            await self._pause(GATHER_SECONDS)

    async def _pause(self, seconds: float) -> None:
        done: Deferred[None] = Deferred()
        await done.addTimeout(seconds, self._reactor, lambda *_: None)

    async def _tell(self) -> None:
        names, told = set(self._meta.registry.names), self._told
        self._told = None
        new = sorted(names if told is None else names - told)
        gone = [] if told is None else sorted(told - names)
        known: object = None
        for part in parts(new, gone, replace=told is None):
            reply = await self._client.admin.operate(
                "lookup.announce", **self._introduction(), **part
            )
            known = reply.get("known")
        # Another number means that the server has forgotten us meanwhile.
        self._told = names if known == len(names) else None

    def _introduction(self) -> dict[str, Any]:
        broker = self._broker
        host, port = broker.address
        return {
            "node": self._meta.registry.cluster.hex(),
            "name": broker.name,
            "host": host,
            "port": port,
            "zone": broker.config.cluster.zone,
        }

    def _note_silence(self, error: Exception) -> None:
        if self._heard:
            self._log.warn(
                "the lookup server at {place} cannot be told of this broker: {error}",
                place=self._place,
                error=error,
            )
        self._heard = False

    def _note_answer(self) -> None:
        if not self._heard:
            self._log.info("the lookup server at {place} answers again", place=self._place)
        self._heard = True


def parts(new: list[str], gone: list[str], *, replace: bool) -> Iterator[dict[str, Any]]:
    """
    Cut news into calls; there is one even if there is nothing new: a sign of life.

    Args:
        new: Names of topics to tell of.
        gone: Names to take back.
        replace: Whether all that was told before is to be forgotten first.
    """
    first, *others = tuple(_calls(new)) or ([],)
    yield {"topics": first, "replace": replace}
    for names in others:
        yield {"topics": names}
    for names in _calls(gone):
        yield {"gone": names}


def _calls(names: list[str]) -> Iterator[list[str]]:
    """Cut names into lists of which each fits into a call."""
    some: list[str] = []
    size = 0
    for name in names:
        if len(some) == CALL_TOPICS or size + len(name) > CALL_BYTES:
            yield some
            some, size = [], 0
        some.append(name)
        size += len(name) + _OVERHEAD
    if some:
        yield some
