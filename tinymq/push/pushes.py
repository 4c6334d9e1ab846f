"""All push endpoints on one broker: follows the MetaServer, and tells how they do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Any, Final, Protocol

from attrs import define, frozen
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.task import deferLater
from twisted.logger import Logger

from tinymq.client.client import Client
from tinymq.client.core.config import ClientConfig
from tinymq.errors import TinyMQError
from tinymq.meta.endpoint import Endpoint
from tinymq.meta.observers import Observer
from tinymq.meta.registry import Registry
from tinymq.push.counting import Tally
from tinymq.push.guard import Guard
from tinymq.push.inside import InsideEndpoint
from tinymq.push.pusher import Means, Pusher, Sending
from tinymq.push.request import Parcel
from tinymq.push.sending import Sender
from tinymq.push.turnstile import Turnstile

#: What the client of this room calls itself.
CLIENT_ID: Final = "tinymq-push"
#: Longest time that a made-up message is waited for: a broker elsewhere is asked for it.
TEST_S: Final = 2.5
#: Bytes of an answer to one that are told.
_TOLD: Final = 1024
#: Endpoints of one client: whatever it does, it looks at all its subscriptions.
_MOST_OF_CLIENT: Final = 8
#: Seconds until the MetaServer is told again what it did not take.
_AGAIN_S: Final = 5.0

#: Topic id and channel.
_Place = tuple[bytes, str]


class Knowing(Protocol):
    """Knows which endpoints there are."""

    @property
    def registry(self) -> Registry:
        """What there is."""

    def watch(self, observer: Observer) -> Callable[[], None]:
        """Call an observer after every change."""


class Home(Protocol):
    """The broker of this process."""

    id: int


@frozen(kw_only=True)
class World:
    """
    What this room stands on.

    Attributes:
        reactor: Time and connecting.
        wall: The wall clock, in milliseconds.
        guard: Knows which addresses may be.
        tell: Carries out an operation of the MetaServer.
        requests: Requests that may be open at once.
    """

    reactor: Any
    wall: Callable[[], int]
    guard: Guard
    tell: Callable[[str, dict[str, Any]], Awaitable[object]]
    requests: int


@define(eq=False)
class _Line:
    """
    A client of this broker.

    Attributes:
        client: The client.
        count: How many endpoints take messages with it.
    """

    client: Client
    count: int = 0


@frozen
class _Live:
    """
    An endpoint that this broker sends to.

    Attributes:
        endpoint: The endpoint.
        led: The partitions that this broker leads.
        pusher: Sends.
        line: The client that it takes messages with.
    """

    endpoint: Endpoint
    led: tuple[int, ...]
    pusher: Pusher
    line: _Line


class Pushes:
    """
    All endpoints on this broker.

    Args:
        world: What this room stands on.
        broker: The broker of this process.
        meta: Knows which endpoints there are.
        factory: Makes the broker's side of a connection within this process.
    """

    _log = Logger()

    def __init__(self, world: World, broker: Home, meta: Knowing, factory: Any) -> None:
        self._world = world
        self._broker = broker
        self._meta = meta
        self._turnstile = Turnstile(world.requests)
        self._inside = InsideEndpoint(world.reactor, factory)
        self._lines: list[_Line] = []
        self._live: dict[_Place, _Live] = {}
        self._tallies: dict[_Place, Tally] = {}
        #: Those that send no more but are not at their end.
        self._ending: dict[Pusher, Deferred[None]] = {}
        self._unwatch: Callable[[], None] | None = None
        self._stopped = False

    # --- life -------------------------------------------------------------------

    def start(self) -> None:
        """Send what lies in the partitions that this broker leads."""
        self._unwatch = self._meta.watch(self._changed)
        self._follow(self._meta.registry)

    def _join(self) -> _Line:
        """Find a client that has few endpoints, or make one."""
        line = next((each for each in self._lines if each.count < _MOST_OF_CLIENT), None)
        if line is None:

            def within(*_: object) -> IStreamClientEndpoint:
                return self._inside

            client = Client(
                self._world.reactor,
                "tinymq://127.0.0.1",  # where the endpoint leads is not asked
                ClientConfig(client_id=CLIENT_ID),
                endpoint_for=within,
                environment={},
            )
            line = _Line(client)
            self._lines.append(line)
        line.count += 1
        return line

    def _part(self, line: _Line) -> None:
        """Close a client that nobody needs any more."""
        line.count -= 1
        if not line.count and not self._stopped:
            self._lines.remove(line)
            line.client.close()

    def _means(self, line: _Line) -> Means:
        return Means(
            reactor=self._world.reactor,
            wall=self._world.wall,
            broker=self._broker.id,
            subscribe=line.client.subscription,
            sender=self._sender,
            turnstile=self._turnstile,
        )

    def _sender(self, endpoint: Endpoint) -> Sending:
        return Sender(self._world.guard, endpoint)

    async def stop(self, within_s: float) -> None:
        """
        Send nothing more.

        Args:
            within_s: Seconds for requests that are open; then their messages are given back.
        """
        self._stopped = True
        if self._unwatch is not None:
            self._unwatch()
        live, self._live = self._live, {}
        pushers = [*(each.pusher for each in live.values()), *self._ending]
        ends = [pusher.stop(within_s) for pusher in pushers]
        await DeferredList(ends, consumeErrors=True)
        await DeferredList([line.client.close() for line in self._lines], consumeErrors=True)

    # --- following --------------------------------------------------------------

    def _changed(self, before: Registry, after: Registry) -> None:
        touched = after.touched
        if before.endpoints is not after.endpoints or (
            touched and any(topic_id in touched for topic_id, _ in after.endpoints)
        ):
            try:
                self._follow(after)
            except Exception:  # noqa: BLE001 - who wrote the change has no part in this
                self._log.failure("push endpoints cannot be followed")

    def _follow(self, registry: Registry) -> None:
        """Begin and end sending, as the MetaServer has it."""
        if self._stopped:
            return
        wanted = self._wanted(registry)
        for place, live in tuple(self._live.items()):
            if wanted.get(place) != (live.endpoint, live.led):
                del self._live[place]
                self._end(live)
        for place in self._tallies.keys() - registry.endpoints.keys():
            del self._tallies[place]
        for place, (endpoint, led) in wanted.items():
            if place not in self._live:
                self._begin(place, registry.topics[place[0]].name, endpoint, led)

    def _wanted(self, registry: Registry) -> dict[_Place, tuple[Endpoint, tuple[int, ...]]]:
        """Say which endpoints this broker sends to, and which partitions it leads of each."""
        found = {}
        for place, endpoint in registry.endpoints.items():
            topic = registry.topics.get(place[0])
            if topic is None or endpoint.paused or place[1] not in registry.channels_of(place[0]):
                continue
            led = tuple(
                index for index, leader in enumerate(topic.leaders) if leader == self._broker.id
            )
            if led:
                found[place] = (endpoint, led)
        return found

    def _begin(self, place: _Place, topic: str, endpoint: Endpoint, led: tuple[int, ...]) -> None:
        line = self._join()
        tally = self._tallies.setdefault(place, Tally())
        give_up = partial(self._gave_up, place, endpoint)
        pusher = Pusher(topic, endpoint, self._means(line), tally, give_up)
        self._live[place] = _Live(endpoint, led, pusher, line)
        pusher.begin()

    def _end(self, live: _Live) -> None:
        pusher = live.pusher
        ending = self._ending[pusher] = pusher.stop()

        def ended(_: object) -> None:
            self._ending.pop(pusher, None)
            self._part(live.line)

        ending.addBoth(ended)

    # --- giving up --------------------------------------------------------------

    def _gave_up(self, place: _Place, endpoint: Endpoint, reason: str) -> None:
        telling = Deferred.fromCoroutine(self._tell(place, endpoint, reason))
        telling.addErrback(lambda failure: self._log.failure("an endpoint is not paused", failure))

    async def _tell(self, place: _Place, endpoint: Endpoint, reason: str) -> None:
        """Have the MetaServer pause an endpoint; here nothing is sent already."""
        arguments = {
            "topic_id": place[0].hex(),
            "name": place[1],
            "set_ms": endpoint.set_ms,
            "reason": reason[:500],
        }
        while not self._stopped and self._meta.registry.endpoints.get(place) == endpoint:
            try:
                await self._world.tell("meta.give_endpoint_up", arguments)
            except TinyMQError as error:
                self._log.warn(
                    "the MetaServer is not told yet that an endpoint is paused: {error}",
                    error=error,
                )
                await deferLater(self._world.reactor, _AGAIN_S)
            else:
                return

    # --- for operations ---------------------------------------------------------

    def figures(self, topic_ids: Collection[bytes]) -> list[dict[str, Any]]:
        """
        Tell of the endpoints of some topics what this broker did for them.

        Args:
            topic_ids: The topics.
        """
        wanted, now = set(topic_ids), self._world.reactor.seconds()
        rows = []
        for place, tally in self._tallies.items():
            topic_id, channel = place
            endpoint = self._meta.registry.endpoints.get(place)
            if topic_id in wanted and endpoint is not None:
                live = self._live.get(place)
                state = _nothing(endpoint) if live is None else live.pusher.told()
                told = {"id": topic_id.hex(), "channel": channel, **tally.told(now), **state}
                rows.append(told)
        return rows

    async def test(self, topic_id: bytes, channel: str) -> dict[str, Any]:
        """
        Send one made-up message to an endpoint, and tell what it answers.

        Args:
            topic_id: The topic.
            channel: The channel.

        Raises:
            UnknownEndpoint: There is none.
        """
        registry, world = self._meta.registry, self._world
        endpoint = registry.endpoint(topic_id, channel)
        wall = world.wall()
        parcel = Parcel(
            topic=registry.topic_of(topic_id).name,
            channel=channel,
            partition=0,
            offset=wall,
            attempt=1,
            key=None,
            headers=[("content-type", b"application/json")],
            value=b'{"test":true}',
            made_up=True,
        )
        sender = Sender(world.guard, endpoint)
        seconds = min(TEST_S, endpoint.timeout_ms / 1000)
        try:
            answer = await sender.post(parcel, wall, seconds)
        finally:
            sender.close()
        return {
            "ok": answer.ok,
            "status": answer.status,
            "error": answer.error,
            "ms": round(answer.seconds * 1000, 1),
            "answer": answer.body[:_TOLD].decode("utf-8", "replace"),
        }


def _nothing(endpoint: Endpoint) -> dict[str, Any]:
    """Tell of an endpoint that nothing is sent to."""
    return {
        "set_ms": endpoint.set_ms,
        "row": 0,
        "halted": "",
        "trouble": "",
        "retry_at_ms": None,
    }
