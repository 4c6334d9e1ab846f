"""
A broker's MetaServer, somewhere else.

What there is comes as a replica of the registry, kept up to date by questions
that wait for changes; each of them is a sign of life, too. While no MetaServer
answers, the replica serves, also across a restart of the broker.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVar

from attrs import define
from twisted.internet.defer import CancelledError, Deferred, DeferredSemaphore, ensureDeferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from tinymq import __version__
from tinymq.broker.ports import Wanted
from tinymq.caller import LOCAL, Caller
from tinymq.client.client import Client
from tinymq.cluster.spare import SpareIds
from tinymq.config import Config
from tinymq.errors import (
    ClientError,
    ClosedError,
    MetaUnavailable,
    Overloaded,
    ShuttingDown,
    StateError,
    TinyMQError,
    WireError,
)
from tinymq.meta.changes import Changes
from tinymq.meta.observers import Observer
from tinymq.meta.registry import ChannelInfo, GroupInfo, Registry, Topic
from tinymq.meta.replica import Replica
from tinymq.names import DEAD_LETTERS
from tinymq.operation import Result
from tinymq.operations.waiting import until

T = TypeVar("T")

#: How long a question for changes waits, in milliseconds; also the longest silence of a broker.
WAIT_MS: Final = 5_000
#: Seconds between attempts while the MetaServer does not answer, first and longest.
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 2.0
#: Seconds that the MetaServer has to take note that a broker leaves.
LEAVE_SECONDS: Final = 2.0
#: Seconds that a topic made elsewhere has to arrive here.
ARRIVAL_SECONDS: Final = 5.0
#: Questions on their way over one connection; the MetaServer refuses more than 100.
MOST_ASKED: Final = 64
#: Seconds that a question waits for its turn.
TURN_SECONDS: Final = 8.0


@define
class Member:
    """
    What the MetaServer knows a broker by.

    Attributes:
        id: Its number.
        name: Its name.
        incarnation: Which start of it this is.
        lease: What its registration lives by.
    """

    id: int
    name: str
    incarnation: int
    lease: int


class Home(Protocol):
    """
    The broker that asks.

    Attributes:
        spare: Producer ids put by.
    """

    spare: SpareIds

    @property
    def load(self) -> dict[str, Any]:
        """How much the broker has to do, for placement."""

    @property
    def used_channels(self) -> list[int]:
        """What the temporary channels live by that somebody subscribes to."""

    def save(self) -> None:
        """Bring the replica, which has changed, to the disk."""

    def registered(self, member: Member) -> None:
        """
        Hear that the broker is registered.

        Args:
            member: As what.
        """

    def refused(self, error: StateError) -> None:
        """
        Hear that the broker cannot be registered: another process has its number or name.

        Args:
            error: Why.
        """


class RemoteMeta:
    """
    The MetaServer as a broker sees it: `tinymq.broker.ports.Directory` from afar.

    Args:
        reactor: The clock.
        client: Makes clients of the MetaServers, whichever answers.
        replica: What was known when the broker ran last.
        config: The broker's settings.
        home: The broker.
    """

    _log = Logger()

    def __init__(
        self,
        reactor: IReactorTime,
        client: Callable[[], Client],
        replica: Replica,
        config: Config,
        home: Home,
    ) -> None:
        self._reactor = reactor
        #: A connection for being a member, and one for all else: there may be much of it.
        self._membership, self._client = client(), client()
        self._turns = DeferredSemaphore(MOST_ASKED)
        self._replica = replica
        self._config = config
        self._home = home
        self._places = ", ".join(config.cluster.meta)
        self._member: Member | None = None
        self._address: tuple[str, int] | None = None
        self._following: Deferred[None] | None = None
        #: Why nobody is asked; None while the MetaServer answers.
        self._trouble: MetaUnavailable | None = None
        self._complaint = ""
        self._refilling = False

    # --- the directory ------------------------------------------------------------

    @property
    def registry(self) -> Registry:
        """What there is, as far as is known here."""
        return self._replica.registry

    def watch(self, observer: Observer) -> Callable[[], None]:
        """Call an observer after every change that arrives here."""
        return self._replica.watch(observer)

    def ensure_topic(self, name: str, done: Callable[[Topic | WireError], None]) -> None:
        """Have a topic made for its first use, and wait until it is known here."""
        ensureDeferred(_told(self._ensure(name), done))

    async def _ensure(self, name: str) -> Topic:
        await self.ask("meta.ensure_topic", name=name)

        # Not for a revision: that of a MetaServer which was restored from a backup
        # is lower than the one that is known here.
        def known() -> bool:
            return name in self.registry.by_name

        if not await until(self.watch, known, ARRIVAL_SECONDS, self._reactor):
            raise MetaUnavailable(
                f"the MetaServer at {self._places} made the topic {name}, but does not tell of it"
            )
        return self.registry.topic(name)

    def ensure_channel(
        self, topic: str, wanted: Wanted, done: Callable[[ChannelInfo | WireError], None]
    ) -> None:
        """Have a channel made for its first use, and wait until it is known here."""
        ensureDeferred(_told(self._ensure_channel(topic, wanted), done))

    async def _ensure_channel(self, topic: str, wanted: Wanted) -> ChannelInfo:
        name = wanted.name
        await self.ask("meta.ensure_channel", topic=topic, **wanted._asdict())

        def known() -> bool:
            found = self.registry.by_name.get(topic)
            return found is not None and name in self.registry.channels_of(found.id)

        if not await until(self.watch, known, ARRIVAL_SECONDS, self._reactor):
            raise MetaUnavailable(
                f"the MetaServer at {self._places} made the channel {name}, but does not tell of it"
            )
        return self.registry.channel(self.registry.topic(topic).id, name)

    def ensure_dead_letters(
        self, origin: str, name: str, done: Callable[[Topic | WireError], None]
    ) -> None:
        """Have a topic for dead letters made, and wait until it is known here."""
        ensureDeferred(_told(self._ensure_dead_letters(origin, name), done))

    async def _ensure_dead_letters(self, origin: str, name: str) -> Topic:
        await self.ask("meta.ensure_dead_letters", origin=origin, name=name)

        def known() -> bool:
            found = self.registry.by_name.get(name)
            return found is not None and DEAD_LETTERS in self.registry.channels_of(found.id)

        if not await until(self.watch, known, ARRIVAL_SECONDS, self._reactor):
            raise MetaUnavailable(
                f"the MetaServer at {self._places} made the topic {name}, but does not tell of it"
            )
        return self.registry.topic(name)

    def ensure_group(self, name: str, done: Callable[[GroupInfo | WireError], None]) -> None:
        """Have a consumer group made for its first use, and wait until it is known here."""
        known = self.registry.groups.get(name)
        if known is not None:
            done(known)
        else:
            ensureDeferred(_told(self._ensure_group(name), done))

    async def _ensure_group(self, name: str) -> GroupInfo:
        await self.ask("meta.ensure_group", name=name)

        def known() -> bool:
            return name in self.registry.groups

        if not await until(self.watch, known, ARRIVAL_SECONDS, self._reactor):
            raise MetaUnavailable(
                f"the MetaServer at {self._places} made the group {name}, but does not tell of it"
            )
        return self.registry.group(name)

    async def changed_since(self, revision: int, seconds: float, caller: Caller = LOCAL) -> bool:
        """
        Wait until something newer than a revision is known here.

        Args:
            revision: The revision.
            seconds: For how long.
            caller: Who wants to know.

        Returns:
            Whether that is so.
        """

        def newer() -> bool:
            return self.registry.revision > revision

        return await until(self.watch, newer, seconds, self._reactor, caller)

    def producer_ids(self, done: Callable[[range | WireError], None]) -> None:
        """Ask for producer ids; one block is kept for when the MetaServer is away."""
        spare = self._home.spare.take()
        if not spare:
            ensureDeferred(_told(self._block(), done))
        else:
            done(spare)
            ensureDeferred(self._refill())

    async def _block(self) -> range:
        result = await self.ask("meta.producer_ids")
        ids = range(result["first"], result["first"] + result["count"])
        self._home.spare.given(ids)
        return ids

    async def _refill(self) -> None:
        """Have a block in store; if that fails, the next answer of the MetaServer has it tried."""
        if self._refilling or self._home.spare:
            return
        self._refilling = True
        with suppress(TinyMQError):
            self._home.spare.put(await self._block())
        self._refilling = False

    async def ask(self, operation: str, /, **arguments: Any) -> Result:
        """
        Carry out an operation at the MetaServer.

        Args:
            operation: Its name.
            **arguments: By name.

        Raises:
            MetaUnavailable: It does not answer, or did not a moment ago.
            Overloaded: Too many others wait for it.
            WireError: What the operation can fail with.
        """
        if self._trouble is not None:
            raise self._trouble.with_traceback(None)
        await self._turn()
        try:
            return await self._answer(self._client, operation, arguments)
        finally:
            self._turns.release()

    async def _turn(self) -> None:
        """Wait until the MetaServer takes one more question over the connection."""
        turn = self._turns.acquire()
        try:
            await turn.addTimeout(TURN_SECONDS, self._reactor)
        except DeferredTimeout as error:
            raise Overloaded(
                f"many operations wait for the MetaServer at {self._places}; try again later"
            ) from error

    async def _tell(self, operation: str, /, **arguments: Any) -> Result:
        """Ask as a member: over the connection whose end is the broker's."""
        return await self._answer(self._membership, operation, arguments)

    async def _answer(self, client: Client, operation: str, arguments: dict[str, Any]) -> Result:
        try:
            result = await client.admin.operate(operation, **arguments)
        except (ClientError, ShuttingDown) as error:
            raise MetaUnavailable(
                f"the MetaServer at {self._places} does not answer ({error}); publishing and "
                "reading go on, but topics cannot be made, changed or listed until it is back"
            ) from error
        self._note_reached()
        return result

    # --- being a member -----------------------------------------------------------

    async def register(self, broker_id: int, address: tuple[str, int]) -> Member:
        """
        Register, once.

        Args:
            broker_id: The broker's number; 0 asks for one.
            address: Where clients reach it.

        Returns:
            What the MetaServer knows it by.

        Raises:
            MetaUnavailable: It does not answer.
            StateError: Another process has this number or name, or the MetaServer
                is another cluster's.
        """
        host, port = address
        config = self._config
        result = await self._tell(
            "meta.register",
            id=broker_id,
            name=config.broker.name,
            host=host,
            port=port,
            zone=config.cluster.zone,
            version=__version__,
            producers=self._home.spare.end,
            cluster="" if self._replica.is_empty else self.registry.cluster.hex(),
        )
        self._replica.check_cluster(bytes.fromhex(result["cluster"]))
        self._address = address
        self._member = Member(result["id"], result["name"], result["incarnation"], result["lease"])
        return self._member

    async def catch_up(self) -> None:
        """
        Learn everything that the MetaServer knows now.

        Raises:
            MetaUnavailable: It does not answer.
            StateError: It knows this broker no more.
        """
        while await self._follow_once(0):
            pass

    def start(self, broker_id: int, address: tuple[str, int]) -> None:
        """
        Follow the MetaServer until `stop`, registering again whenever that is needed.

        Args:
            broker_id: The broker's number.
            address: Where clients reach it.
        """
        self._address = address
        self._following = ensureDeferred(self._follow(broker_id))
        self._following.addErrback(self._ended)
        ensureDeferred(self._refill())

    def _ended(self, failure: Any) -> None:
        failure.trap(CancelledError, ClosedError)

    async def stop(self) -> None:
        """Follow no more, and leave."""
        following, self._following = self._following, None
        if following is not None:
            following.cancel()
        member, self._member = self._member, None
        if member is not None and self._trouble is None:
            telling = self._tell("meta.leave", id=member.id, lease=member.lease)
            try:
                await Deferred.fromCoroutine(telling).addTimeout(LEAVE_SECONDS, self._reactor)
            except (TinyMQError, DeferredTimeout) as error:
                self._log.info("leaving failed: {error}", error=error)
        await self._membership.close()
        await self._client.close()

    async def _follow(self, broker_id: int) -> None:
        pause = FIRST_PAUSE
        while True:
            try:
                if self._member is None:
                    assert self._address is not None
                    self._home.registered(await self.register(broker_id, self._address))
                # One that comes back says so at once.
                await self._follow_once(WAIT_MS if self._trouble is None else 0)
                ensureDeferred(self._refill())
                self._complaint, pause = "", FIRST_PAUSE
                continue
            except MetaUnavailable as error:
                self._note_unreached(error)
            except StateError as error:
                # Taken for dead, or the MetaServer was restarted without knowing us.
                if self._member is None:
                    self._home.refused(error)
                self._member = None
            except WireError as error:
                self._complain(error)
            except (CancelledError, ClosedError):
                raise
            except Exception:  # noqa: BLE001 - a broker that follows no more is taken for dead
                self._log.failure("following the MetaServer failed")
            await deferLater(self._reactor, pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _follow_once(self, wait_ms: int) -> bool:
        """Ask what has changed, take it, and say whether there is more."""
        member, replica = self._member, self._replica
        if member is None:
            raise StateError("this broker is not registered")
        page = Changes.from_mapping(
            await self._tell(
                "meta.watch",
                id=member.id,
                lease=member.lease,
                cursor=replica.cursor,
                revision=-1 if replica.is_empty else replica.registry.revision,
                wait_ms=wait_ms,
                load=self._home.load,
                producers=self._home.spare.end,
                channels=self._home.used_channels,
            )
        )
        replica.apply(page)
        for note in replica.take_notes():
            self._log.warn("{note}", note=note)
        if replica.unsaved and not page.more:
            self._home.save()
        if replica.stray_channels and not page.more:
            await self._give_back_channels()
        if replica.stray_groups and not page.more:
            await self._give_back_groups()
        return page.more

    async def _give_back_channels(self) -> None:
        """Tell a MetaServer that was restored from a backup of channels and endpoints it lost."""
        replica = self._replica
        for topic_id, name in sorted(replica.stray_channels):
            channel = replica.registry.channels_of(topic_id).get(name)
            if channel is not None:
                told = {"name": name, "stored": channel.encode().decode()}
                endpoint = replica.registry.endpoints.get((topic_id, name))
                if endpoint is not None:
                    told["push"] = endpoint.encode().decode()
                try:
                    result = await self.ask("meta.keep_channel", topic_id=topic_id.hex(), **told)
                except MetaUnavailable:
                    return  # with the next page
                except WireError as error:
                    self._log.warn("channel {name} is not taken: {error}", name=name, error=error)
                else:
                    self._log.info("channel {name} is told of: {result}", name=name, result=result)
            replica.given(topic_id, name)

    async def _give_back_groups(self) -> None:
        """Tell a MetaServer that was restored from a backup of groups that it lost."""
        replica = self._replica
        for name in sorted(replica.stray_groups):
            group = replica.registry.groups.get(name)
            if group is not None:
                try:
                    await self.ask("meta.keep_group", name=name, created_ms=group.created_ms)
                except MetaUnavailable:
                    return  # with the next page
                except WireError as error:
                    self._log.warn("group {name} is not taken: {error}", name=name, error=error)
                else:
                    self._log.info("group {name} is told of", name=name)
            replica.given_group(name)

    def _complain(self, error: WireError) -> None:
        """Log, once, why following gets no further."""
        if self._complaint != type(error).__name__:
            self._complaint = type(error).__name__
            self._log.error("the MetaServer cannot be followed: {error}", error=error)

    def _note_reached(self) -> None:
        if self._trouble is not None:
            self._log.info("the MetaServer at {places} answers again", places=self._places)
        self._trouble = None

    def _note_unreached(self, error: MetaUnavailable) -> None:
        if self._trouble is None:
            self._log.warn("{error}", error=error)
        self._trouble = error


async def _told(answer: Coroutine[Any, Any, T], done: Callable[[T | WireError], None]) -> None:
    """Tell a callback what a coroutine came to."""
    try:
        found: T | WireError = await answer
    except WireError as error:
        found = error.with_traceback(None)
    except TinyMQError as error:  # the client was closed: this broker stops
        found = MetaUnavailable(str(error))
    done(found)
