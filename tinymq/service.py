"""
The root service: puts the rooms together, starts them in order and stops them in order.

Start: lock the folder, open the store of the MetaServer, recover partitions,
listen. Stop: listen no more, refuse, let what is under way reach the disk,
say goodbye, sync, write the checkpoint, release the lock.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NoReturn

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.endpoints import serverFromString
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort
from twisted.internet.task import deferLater
from twisted.logger import ILogObserver, Logger
from twisted.python.components import Componentized
from twisted.python.failure import Failure
from typing_extensions import override

from tinymq import __version__
from tinymq.broker.broker import Broker
from tinymq.broker.housekeeping import Housekeeping
from tinymq.broker.partitions import PartitionStore
from tinymq.broker.ports import World
from tinymq.cleaner import ProcessWorker
from tinymq.client.core.address import Address, parse_url, url_of
from tinymq.cluster.far import FarMeta
from tinymq.cluster.own import OwnMeta
from tinymq.config import Config, is_local
from tinymq.console import BrokerConsole
from tinymq.errors import ShuttingDown, TinyMQError
from tinymq.ground import Ground, RealGround
from tinymq.logs import Logs
from tinymq.node import Node
from tinymq.operations import Operations
from tinymq.protocol import BrokerFactory
from tinymq.push.guard import Guard
from tinymq.push.pushes import Pushes
from tinymq.push.pushes import World as PushWorld
from tinymq.storage.disk import Disk
from tinymq.storage.folder import DataFolder
from tinymq.storage.forks import close_in_children

#: File in the data folder that says where a running broker listens.
ADDRESS_FILE = "broker.json"
#: How long a stop waits for peers to take its goodbye.
GOODBYE_SECONDS = 1.0
#: Seconds without a settle after which a stop does not wait for consumers any longer.
SETTLING_SECONDS = 2.0
_ANYWHERE = ("0.0.0.0", "::")  # noqa: S104 - recognised, not bound


class NotStarted(SystemExit, Exception):
    """
    Ends the process with status 1.

    It ends without a traceback, as `SystemExit` does. It is an `Exception` as
    well because twistd in the background waits at the terminal until the daemon
    runs, or has told of an `Exception`: of anything else it never hears.

    Args:
        reason: Why there is no broker.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.code = 1


class BrokerService(Service):
    """
    A broker with everything it needs.

    Args:
        reactor: Twisted's reactor.
        config: All settings.
        logs: Where log lines go.
        ground: Makes what the process stands on, of reactor and settings.
    """

    _log = Logger()
    #: Whether a failing start is told by its exception alone, and not to the terminal.
    quiet = False

    def __init__(
        self,
        reactor: Any,
        config: Config,
        logs: Logs | None = None,
        ground: Callable[[Any, Config], Ground] = RealGround,
    ) -> None:
        self._reactor = reactor
        self._config = config
        self._logs = logs
        self._make_ground = ground
        self._ports: list[IListeningPort] = []
        self._entering: Deferred[None] | None = None
        #: Whether the partitions were opened, so that the stop has something to bring to the disk.
        self._began = False
        #: Until when a stop lets what is under way end.
        self._drain_until = 0.0
        #: What a start that fails has to close again.
        self._opened = ExitStack()

    @override
    def setServiceParent(self, parent: Any) -> None:
        if self._logs is not None and isinstance(parent, Componentized):
            parent.setComponent(ILogObserver, self._logs.observer)
        super().setServiceParent(parent)

    # --- start ----------------------------------------------------------------

    @override
    def startService(self) -> None:
        started = self._reactor.seconds()
        super().startService()
        try:
            self._open()
            self._listen()
            entering = self._meta.enter()
            if entering is None:
                self._begin(started)
        except TinyMQError as error:
            self._give_up(str(error))
        except CannotListenError as error:
            self._give_up(
                f"cannot listen on {error.interface or '*'}:{error.port}: {error.socketError}; "
                "stop what listens there, or choose another port with --listen or --http "
                "(LISTEN= and HTTP= of `make run`)"
            )
        except OSError as error:
            self._give_up(f"the data folder cannot be used: {error}")
        if entering is not None:
            self._entering = entering
            entering.addCallback(lambda _: self._begin(started))
            entering.addErrback(self._failed)

    def _begin(self, started: float) -> None:
        """Open the partitions and take clients, now that the MetaServer knows this broker."""
        self._recover()
        self._began, self._entering = True, None
        self.factory.accept()
        self._housekeeping.start()
        self._meta.start()
        self._pushes.start()
        self._node.vitals.start()
        if self._console is not None:
            self._console.start()
        self._announce(self._reactor.seconds() - started)

    def _failed(self, failure: Failure) -> None:
        """End the process, which runs already, because it cannot become a broker."""
        self._entering = None
        if failure.check(CancelledError):
            return
        reason = str(failure.value)
        (sys.__stderr__ or sys.stderr).write(f"tinymq: error: {reason}\n")
        self._log.critical("{reason}", reason=reason)
        # twistd knows no other way to end with a status after its reactor ran.
        self._reactor.addSystemEventTrigger("after", "shutdown", os._exit, 1)
        self._reactor.stop()

    def _open(self) -> None:
        config = self._config
        self._ground = ground = self._make_ground(self._reactor, config)
        self._opened.callback(ground.close)
        self._folder = DataFolder.open(config.storage.data, ground.disk, self._open_files())
        self._opened.callback(self._folder.close)
        make = FarMeta if config.cluster.role == "broker" else OwnMeta
        self._meta: FarMeta | OwnMeta = make(ground, config, self._folder, self._opened)
        self._new = self._meta.is_new
        world = World(self._reactor, ground.wall, ground.background)
        store = PartitionStore(self._folder, config.limits, config.producers)
        self.broker = Broker(config, self._meta.directory, store, world, ground.syncer)
        if config.compaction.helper == "process" and type(ground.disk) is Disk:
            self.broker.cleaning.worker = ProcessWorker(self._reactor)
        self._node = Node(self.broker, self._logs)
        self.operations = self._meta.join(self.broker, self._node)
        self.factory = self._node.connected = BrokerFactory(self.broker, self.operations)
        self.factory.refuse("the broker is starting")
        self._housekeeping = Housekeeping(self.broker)
        self._open_push()
        self._node.vitals.connections = self.factory.connections
        self._node.vitals.housekeeping = self._housekeeping
        self._console: BrokerConsole | None = None
        if isinstance(self._meta, OwnMeta) and isinstance(self.operations, Operations):
            self._console = BrokerConsole(
                self.broker, self.operations, self._node, self._meta.nodes
            )
            self.operations.board = self._console.board
            self.operations.arrivals = self._console.arrivals

    def _open_push(self) -> None:
        """Make what sends messages to push endpoints, and what looks at their addresses."""
        config, reactor = self._config, self._reactor
        guard = Guard(reactor, config.push.allowed)
        if isinstance(self.operations, Operations):
            self.operations.gate = guard
        meta = self._meta

        async def tell(operation: str, arguments: dict[str, Any]) -> object:
            if isinstance(meta, OwnMeta):
                return await self.operations.run(operation, arguments)
            return await meta.directory.ask(operation, **arguments)

        world = PushWorld(
            reactor=reactor,
            wall=self._ground.wall,
            guard=guard,
            tell=tell,
            requests=config.push.requests,
        )
        self._pushes = Pushes(world, self.broker, meta.directory, self.factory)
        self._node.pushes = self._pushes

    def _open_files(self) -> int:
        """Return how many log files may stay open; clients need descriptors, too."""
        wanted = self._config.storage.max_open_files
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft == resource.RLIM_INFINITY or wanted <= soft // 2:
            return wanted
        most = 2 * wanted if hard == resource.RLIM_INFINITY else min(2 * wanted, hard)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
        if wanted > soft // 2:
            self._log.warn(
                "this process may open {soft} files only, so {half} log files stay open, not "
                "{wanted}; raise `ulimit -n`",
                soft=soft,
                half=soft // 2,
                wanted=wanted,
            )
        return min(wanted, soft // 2)

    def _recover(self) -> None:
        """Open what this broker leads."""
        how = "after a clean stop" if self._folder.clean else "after an unclean stop"
        self._log.info(
            "opening {data}, {how}",
            data=self._folder.path,
            how="a new data folder" if self._new else how,
        )
        for note in self._folder.notes:
            self._log.warn("{note}", note=note)
        self.broker.open()

    def _listen(self) -> None:
        close_in_children(self)
        for endpoint in self._config.network.listen:
            self._ports.append(self._bind(endpoint, self.factory))
        # Others find nothing at their own loopback.
        self.broker.address = self._advertised(self._address(self._ports[0], socket.gethostname()))
        self.web_port: IListeningPort | None = None
        if self._config.web.listen and self._console is not None:
            self.web_port = self._bind(self._config.web.listen, self._site(self._console))
            self._ports.append(self.web_port)

    def _site(self, console: BrokerConsole) -> Any:
        """Make the dashboard; late, since Klein installs a reactor when it is imported."""
        from tinymq.web.config import LOOPBACK, SiteConfig  # noqa: PLC0415
        from tinymq.web.site import make_site  # noqa: PLC0415

        local = is_local(self._config.web.listen or "")
        config = SiteConfig(hosts=LOOPBACK if local else frozenset(), limits=self._config.limits)
        return make_site(console, self._reactor, config)

    def _bind(self, endpoint: str, factory: Any) -> IListeningPort:
        """Listen at once: a busy port must end the process, not be logged."""
        outcome: list[Any] = []
        serverFromString(self._reactor, endpoint).listen(factory).addBoth(outcome.append)
        (result,) = outcome
        if isinstance(result, Failure):
            result.raiseException()
        return result  # type: ignore[no-any-return]

    def _give_up(self, reason: str) -> NoReturn:
        """End the process with one clear line; used before the reactor runs."""
        if not self.quiet:
            # twistd has sent what goes to sys.stderr into the log by now.
            (sys.__stderr__ or sys.stderr).write(f"tinymq: error: {reason}\n")
        if self._logs is not None and not self._logs.on_console:
            self._log.critical("{reason}", reason=reason)
        for port in self._ports:
            port.stopListening()
        self._opened.close()
        raise NotStarted(reason)

    def _advertised(self, listening: tuple[str, int]) -> tuple[str, int]:
        """Where others are told to find this broker."""
        if not self._config.network.advertise:
            return listening
        host, port = parse_url(f"tinymq://{self._config.network.advertise}")[0]
        named = ":" in self._config.network.advertise.rpartition("]")[2]
        return host, port if named else listening[1]

    @staticmethod
    def _address(port: IListeningPort, anywhere: str = "127.0.0.1") -> tuple[str, int]:
        """Where a port listens; `anywhere` names this machine if it does so at every interface."""
        address: Any = port.getHost()
        host = getattr(address, "host", "127.0.0.1")
        return (anywhere if host in _ANYWHERE else host), getattr(address, "port", 0)

    def _announce(self, seconds: float) -> None:
        listen, http = self._url(*self.broker.address), ""
        if self.web_port is not None:
            http = "http://{}:{}".format(*self._address(self.web_port))
        local = self._url(*self._advertised(self._address(self._ports[0])))
        facts = {"pid": os.getpid(), "listen": local, "http": http, "version": __version__}
        try:
            self._folder.disk.replace_file(
                f"{self._folder.path}/{ADDRESS_FILE}", json.dumps(facts).encode() + b"\n"
            )
        except (OSError, TinyMQError) as error:  # a full disk can still be read from
            self._log.error("{file} is not written: {error}", file=ADDRESS_FILE, error=error)
        self._log.info(
            "tinymq {version} is ready after {seconds:.2f} s with {topics} topics",
            version=__version__,
            seconds=seconds,
            topics=len(self.broker.meta.registry.topics),
        )
        self._log.info("clients connect to {listen}", listen=listen)
        if http:
            self._log.info("dashboard: {http}", http=http)
        self._log.info("try: tinymq --url {listen} pub greetings hello", listen=listen)

    @staticmethod
    def _url(host: str, port: int) -> str:
        return url_of([Address(host, port)])

    def _withdraw(self) -> None:
        """Take back what `_announce` wrote."""
        Path(self._folder.path, ADDRESS_FILE).unlink(missing_ok=True)

    def forked(self) -> None:
        """Close the sockets in a forked child, or they would stay open when this process ends."""
        transports = (connection.transport for connection in self.factory.connections)
        for each in (*self._ports, *transports):
            socket = getattr(each, "socket", None)
            if socket is not None:
                socket.close()

    # --- stop -----------------------------------------------------------------

    @override
    def stopService(self) -> Deferred[None]:
        super().stopService()
        self._stop_once()
        return Deferred.fromCoroutine(self._stop())

    def _stop_once(self) -> None:
        """Let further signals do nothing: the reactor fails at the second one."""

        def again(number: int, frame: Any) -> None:
            self._log.info("{name}: stopping already", name=signal.Signals(number).name)

        stopping = (getattr(self._reactor, name, None) for name in ("sigTerm", "sigInt"))
        for number, handler in zip((signal.SIGTERM, signal.SIGINT), stopping, strict=True):
            if handler is not None and signal.getsignal(number) == handler:
                signal.signal(number, again)

    async def _stop(self) -> None:
        if not self._began:
            await self._never_began()
            return
        self._log.info("stopping: no new connections, no new work")
        for stage in (self._refuse, self._rest, self._drain, self._part, self._synced, self._close):
            try:
                await stage()
            except Exception:  # noqa: BLE001 - the stages behind it matter all the more
                self._log.failure("stopping: {stage} failed", stage=stage.__name__)
        self._log.info("stopped")

    async def _never_began(self) -> None:
        """Stop before the partitions were opened: nothing of theirs may be written."""
        if self._entering is not None:
            self._entering.cancel()
        for port in self._ports:
            await _settled(port.stopListening())
        await self._meta.leave()
        self._opened.close()

    async def _refuse(self) -> None:
        self._drain_until = self._reactor.seconds() + self._config.network.drain_seconds
        self.factory.refuse("the broker is stopping")
        for port in self._ports:
            await _settled(port.stopListening())
        self.broker.refuse(ShuttingDown("the broker is stopping; connect again in a moment"))
        self.broker.channels.rest()

    async def _rest(self) -> None:
        """Send nothing more to push endpoints; what is under way may end."""
        await self._pushes.stop(max(0.0, self._drain_until - self._reactor.seconds()))

    async def _part(self) -> None:
        self.factory.close_all("the broker is stopping; connect again in a moment")
        self._housekeeping.stop()
        self._meta.pause()
        self._node.vitals.stop()
        if self._console is not None:
            self._console.stop()
        # The reactor ends with this service, and would keep what was not sent.
        until = self._reactor.seconds() + GOODBYE_SECONDS
        while self.factory.connections and self._reactor.seconds() < until:
            await deferLater(self._reactor, 0.01)

    async def _drain(self) -> None:
        """
        Let what was taken reach the disk and be acknowledged.

        Consumers may settle what they have in hand, as long as they do: of a handler that
        takes longer the lease is kept, and the client tells the next start.
        """
        seconds = self._reactor.seconds
        in_hand, since = -1, 0.0
        while seconds() < self._drain_until:
            busy = any(connection.busy for connection in self.factory.connections)
            if in_hand != self.broker.channels.in_flight:
                in_hand, since = self.broker.channels.in_flight, seconds()
            busy = busy or (in_hand > 0 and seconds() < since + SETTLING_SECONDS)
            if not busy and self.broker.committer.idle:
                return
            await deferLater(self._reactor, 0.02)
        self._log.warn("stopping although work is still under way")

    async def _synced(self) -> None:
        await self._idle()
        self.broker.committer.sync_all(
            [each for each in self.broker.partitions() if each.failure is None]
        )
        await self._idle()

    def _idle(self) -> Deferred[None]:
        done: Deferred[None] = Deferred()
        self.broker.committer.when_idle(lambda: done.callback(None))
        return done

    async def _close(self) -> None:
        self.broker.committer.stop()
        self._ground.close()
        partitions = self.broker.partitions()
        self.broker.close()
        for partition in partitions:
            partition.close(ShuttingDown("the broker is stopping"))
        self._withdraw()  # before the folder is unlocked, and another broker writes its own
        try:
            self.broker.store.close(partitions)
        finally:
            await self._meta.leave()


async def _settled(result: Deferred[Any] | Awaitable[Any] | None) -> None:
    if result is not None:
        await result
