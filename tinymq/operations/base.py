"""What all administrative operations stand on: the MetaServer, and the way to ask brokers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from attrs import field, frozen
from twisted.internet.defer import Deferred, DeferredList
from twisted.logger import Logger

from tinymq.broker.broker import Broker
from tinymq.caller import Caller
from tinymq.errors import (
    BrokerSilent,
    ClientError,
    InvalidRequest,
    Overloaded,
    ShuttingDown,
    UnknownBroker,
    UnknownChannel,
    UnknownTopicId,
)
from tinymq.figures.board import Board
from tinymq.meta.history import Author
from tinymq.meta.lookup import Announcements
from tinymq.meta.registry import Registry, Topic
from tinymq.meta.server import MetaServer
from tinymq.operation import Nodes, Result
from tinymq.operations.waiting import until

#: Seconds that brokers have to open the partitions of a topic before its creator is answered.
SPREAD_SECONDS: Final = 2.0


@frozen
class Answers:
    """
    What several brokers said.

    Attributes:
        results: By broker.
        silent: Why a broker said nothing, by broker.
    """

    results: dict[int, Result] = field(factory=dict)
    silent: dict[int, str] = field(factory=dict)

    @property
    def rows(self) -> dict[int, Result]:
        """The rows of ``partitions`` of all answers, by the partition's number."""
        every = (row for result in self.results.values() for row in result["partitions"])
        return {row["partition"]: row for row in every}


class Base:
    """
    The operations' means.

    Args:
        broker: What answers clients in this process.
        meta: The MetaServer.
        nodes: The way to ask brokers.
    """

    _log = Logger()

    def __init__(self, broker: Broker, meta: MetaServer, nodes: Nodes) -> None:
        self._broker = broker
        self._meta = meta
        self._nodes = nodes
        #: What all brokers reported; None where only that of this process is known.
        self.board: Board | None = None
        #: The revision that each broker elsewhere has followed.
        self._followed: dict[int, int] = {}
        self._following: list[Callable[[], None]] = []
        #: The connection over which a broker elsewhere was heard last.
        self._links: dict[int, Caller] = {}
        self._announcements = Announcements(
            monotonic=broker.scheduler.seconds, wall=lambda: broker.wall() / 1000
        )
        #: The connection over which an independent broker was heard last.
        self._announcers: dict[bytes, Caller] = {}

    # --- waiting ----------------------------------------------------------------

    async def _changed_since(self, revision: int, seconds: float, caller: Caller) -> None:
        """Wait until the registry is newer than a revision, or time is up, or the caller gone."""
        meta, scheduler = self._meta, self._broker.scheduler
        await until(meta.watch, lambda: self._revision > revision, seconds, scheduler, caller)

    @property
    def _revision(self) -> int:
        return self._meta.registry.revision

    async def _spread(self, topic: Topic) -> None:
        """Wait until the leaders of a topic have opened it, so that it can be used at once."""
        revision, live = self._revision, self._meta.registry.brokers
        leaders = {each for each in topic.leaders if each in live and each in self._followed}

        def done() -> bool:
            return all(self._followed.get(each, revision) >= revision for each in leaders)

        await until(self._follow, done, SPREAD_SECONDS, self._broker.scheduler)

    def _follow(self, callback: Callable[..., None]) -> Callable[[], None]:
        self._following.append(callback)
        return lambda: self._following.remove(callback)

    def _has_followed(self, broker_id: int, revision: int | None) -> None:
        """Note how far a broker has followed the registry; None if it does so no more."""
        if revision is None:
            self._followed.pop(broker_id, None)
        else:
            self._followed[broker_id] = revision
        for callback in tuple(self._following):
            callback()

    # --- asking brokers -----------------------------------------------------------

    async def _ask(
        self, brokers: Collection[int], operation: str, arguments: Mapping[str, Any]
    ) -> Answers:
        """
        Ask several brokers at the same time.

        Raises:
            WireError: What one of them refused; silence is no error.
        """
        answers = Answers(silent=self._known_silent(brokers))
        waiting: list[Deferred[None]] = []
        for broker_id in sorted(set(brokers) - answers.silent.keys()):
            one = Deferred.fromCoroutine(self._ask_one(answers, broker_id, operation, arguments))
            waiting.append(one)
        for ok, failure in await DeferredList(waiting, consumeErrors=True):
            if not ok:
                failure.raiseException()  # type: ignore[attr-defined]
        return answers

    async def _ask_alone(
        self, broker_id: int, operation: str, arguments: Mapping[str, Any]
    ) -> Result:
        """
        Ask one broker, whose answer is needed.

        Raises:
            BrokerSilent: It says nothing.
            WireError: What it refused.
        """
        answers = await self._ask([broker_id], operation, arguments)
        if broker_id in answers.silent:
            name, why = self._broker_name(broker_id), answers.silent[broker_id]
            raise BrokerSilent(f"{name} does not answer ({why})", broker=broker_id)
        return answers.results[broker_id]

    def _known_silent(self, brokers: Collection[int]) -> dict[int, str]:
        """Say which of some brokers need not be waited for again, and why."""
        found = {
            broker_id: "it is not there"
            for broker_id in brokers
            if broker_id != self._broker.id and broker_id not in self._meta.registry.brokers
        }
        if self.board is not None:
            self.board.look()
            for each in self.board.silent():
                if each.id in brokers:
                    since = datetime.fromtimestamp(each.since_ms / 1000, UTC)
                    found[each.id] = f"not heard since {since:%H:%M:%S} UTC"
        return found

    async def _ask_one(
        self, answers: Answers, broker_id: int, operation: str, arguments: Mapping[str, Any]
    ) -> None:
        try:
            answers.results[broker_id] = await self._nodes.ask(broker_id, operation, arguments)
        except (BrokerSilent, ClientError, Overloaded, ShuttingDown) as error:
            # What the others know is told all the same.
            answers.silent[broker_id] = str(error)
        except UnknownTopicId:
            answers.silent[broker_id] = "it has not heard of this topic yet"
        except UnknownChannel:
            answers.silent[broker_id] = "it has not heard of this channel yet"

    # --- names --------------------------------------------------------------------

    @property
    def _registry(self) -> Registry:
        return self._meta.registry

    def _broker_name(self, broker_id: int) -> str:
        """Name a broker, live or not."""
        if broker_id == self._broker.id:
            return self._broker.name
        live = self._registry.brokers
        known = live.get(broker_id) or self._registry.known.get(broker_id)
        if known is None:
            return f"broker {broker_id}"
        if broker_id not in live and any(each.name == known.name for each in live.values()):
            return f"{known.name} (broker {broker_id})"  # whose data folder was lost
        return known.name

    def _named_broker(self, broker: str) -> int:
        """
        Find a broker by its name or number.

        Raises:
            UnknownBroker: There is none.
        """
        for known in (self._registry.brokers, self._registry.known):
            for each in known.values():
                if broker in (each.name, str(each.id)):
                    return each.id
        if broker in (str(self._broker.id), self._broker.name):
            return self._broker.id
        names = ", ".join(sorted(each.name for each in self._registry.brokers.values()))
        raise UnknownBroker(f"there is no broker {broker[:100]!r}; there are {names or 'none'}")

    def _silence(self, answers: Answers) -> list[str]:
        return [self._broker_name(each) for each in sorted(answers.silent)]


def only_one(**given: Any) -> None:
    """
    Refuse more than one of several arguments.

    Raises:
        InvalidRequest: More than one was given.
    """
    if sum(each is not None for each in given.values()) > 1:
        *names, last = given
        raise InvalidRequest(f"give one of {', '.join(names)} and {last}", field=names[0])


def author_of(caller: Caller) -> Author:
    """
    Say on whose behalf something is changed.

    Args:
        caller: Who asks.
    """
    return Author(caller.principal, caller.peer)
