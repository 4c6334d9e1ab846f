"""
The protocol of the broker's side: what each request does, and the factory of connections.

A `BrokerProtocol` is a thin shell around the wire: bytes go into the frame
decoder (connection.py), each frame goes to one small method by a table, answers
come back through plain callbacks. It never waits, so nothing here is a coroutine.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from attrs import asdict
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress
from typing_extensions import override

from tinymq import __version__
from tinymq.broker.broker import Broker
from tinymq.broker.groups.coordinating import Waiting
from tinymq.broker.partition import Appended
from tinymq.broker.reading import Reader
from tinymq.broker.searching import Searches
from tinymq.caller import Caller
from tinymq.connection import (
    FRAME_SECONDS,
    FRAMES_PER_TURN,
    MOST_PENDING,
    READ_SIZE,
)
from tinymq.connections import Connections
from tinymq.consuming import Consuming
from tinymq.errors import (
    Overloaded,
    ProtocolError,
    RequestError,
    UnsupportedVersion,
    WireError,
)
from tinymq.groups.values import Client
from tinymq.operations import Operator
from tinymq.wire.batch import record_count
from tinymq.wire.codec import pack
from tinymq.wire.frames import Bytes, Frame
from tinymq.wire.header import VERSION, MessageType
from tinymq.wire.messages import (
    ACKS_NONE,
    Commit,
    Committed,
    EndTransaction,
    Fetch,
    FetchReply,
    Goodbye,
    Hello,
    HelloReply,
    InitProducer,
    Member,
    MemberReply,
    Message,
    Metadata,
    Offsets,
    OffsetsReply,
    Operate,
    OperateReply,
    Ping,
    Produce,
    ProduceReply,
    known_rows,
)

__all__ = [
    "FRAMES_PER_TURN",
    "FRAME_SECONDS",
    "MOST_FETCHES",
    "MOST_MEMBERS",
    "MOST_OPERATIONS",
    "MOST_PENDING",
    "MOST_SEARCHES",
    "READ_SIZE",
    "SOFTWARE",
    "BrokerFactory",
    "BrokerProtocol",
]

#: FETCH requests that one connection may have waiting.
MOST_FETCHES: Final = 100
#: OFFSETS requests that one connection may have waiting.
MOST_SEARCHES: Final = 100
#: MEMBER requests that one connection may have waiting.
MOST_MEMBERS: Final = 100
#: Producers of transactions, and ends of theirs, that one connection may have waiting.
MOST_ENDS: Final = 100
#: Operations that one connection may have waiting.
MOST_OPERATIONS: Final = 100

SOFTWARE: Final = f"tinymq/{__version__}"


class BrokerProtocol(Consuming):
    """
    One client's connection, and what its requests do.

    Args:
        factory: What all connections share.
        peer: Where the client is, for people.
    """

    shared: BrokerFactory

    def __init__(self, factory: BrokerFactory, peer: str) -> None:
        # Everybody is nobody until there is something to prove.
        super().__init__(factory, factory.number(), Caller(peer=peer))
        self._searches = 0
        #: Requests of members of groups that wait.
        self._members: set[Waiting] = set()
        self._operations = 0
        self._transacting = 0

    # --- one method for each type -----------------------------------------------

    def _on_hello(self, frame: Frame) -> None:
        hello = Hello.from_meta(frame.split()[0])
        if self.hello is not None:
            raise ProtocolError("HELLO was said before on this connection; say it once")
        if hello.versions is not None and VERSION not in hello.versions:
            raise UnsupportedVersion(
                f"versions {hello.versions} are not spoken here; use {VERSION}", versions=[VERSION]
            )
        if hello.mechanism != "anonymous":
            raise RequestError(f"mechanism {hello.mechanism!r} is not offered; use anonymous")
        broker = self.shared.broker
        self.hello = hello
        self.heartbeat = min(hello.heartbeat, broker.limits.heartbeat_seconds)
        self._decoder.limit = broker.limits.body
        resumed = self.shared.enter(self, hello)
        self.reply(
            frame.type,
            frame.message_id,
            HelloReply(
                broker_id=broker.id,
                name=broker.name,
                software=SOFTWARE,
                cluster=broker.meta.registry.cluster,
                session=self.session,
                resumed=resumed,
                heartbeat=self.heartbeat,
                limits=asdict(broker.limits),
            ),
        )

    def _on_ping(self, frame: Frame) -> None:
        self.reply(frame.type, frame.message_id, Ping())

    def _on_goodbye(self, frame: Frame) -> None:
        Goodbye.from_meta(frame.split()[0])
        self._leave_all()
        self._close()

    def _on_produce(self, frame: Frame) -> None:
        meta, batch = frame.split()
        request = Produce.from_meta(meta)
        size = len(batch)
        self._pending += size
        if request.acks == ACKS_NONE:
            self._open.pop(frame.message_id, None)
        # The level "all" is the same as "leader" while there is one copy.
        message_id = frame.message_id if request.acks else 0
        answer = partial(self._produced, message_id, size, record_count(batch))
        self.shared.broker.produce(request.topic_id, request.partition, batch, answer)
        if self._pending >= MOST_PENDING:
            self._flow()

    def _produced(
        self, message_id: int, size: int, records: int, result: Appended | WireError
    ) -> None:
        was_full = self._pending >= MOST_PENDING
        self._pending -= size
        if isinstance(result, WireError):
            self._refuse(message_id, result)
        else:
            if not result.duplicate:
                self.traffic.messages_in += records
            if message_id:
                known, payload = known_rows(result.known)
                self.reply(
                    MessageType.PRODUCE,
                    message_id,
                    ProduceReply(
                        base_offset=result.base_offset,
                        timestamp=result.timestamp,
                        duplicate=result.duplicate,
                        volatile=result.volatile,
                        unroutable=result.unroutable,
                        delayed=result.delayed,
                        known=known,
                    ),
                    payload,
                )
        if was_full:
            self._flow()
        if not (self._listening or self._pending):
            self._part()

    def _on_fetch(self, frame: Frame) -> None:
        request = Fetch.from_meta(frame.split()[0])
        if not frame.message_id:
            return
        if len(self._readers) + len(self._parked) >= MOST_FETCHES:
            raise Overloaded(_too_many(MOST_FETCHES, "FETCH requests"))
        if self.paused_since is not None:
            self._parked.append(partial(self._fetch, frame.message_id, request))
        else:
            self._fetch(frame.message_id, request)

    def _fetch(self, message_id: int, request: Fetch) -> None:
        reader: Reader | None = None

        def answer(reply: FetchReply, payload: list[Bytes]) -> None:
            if reader is not None:
                self._readers.discard(reader)
                self.traffic.messages_out += reader.records
            self.reply(MessageType.FETCH, message_id, reply, payload)

        def full() -> bool:
            """Keep the request, not its data, while the peer does not read."""
            if self.paused_since is None:
                return False
            if reader is not None:
                self._readers.discard(reader)
            self._parked.append(partial(self._fetch, message_id, request))
            return True

        reader = self.shared.broker.fetch(request, answer, full)
        if reader.finished:
            self.traffic.messages_out += reader.records
        else:
            self._readers.add(reader)

    def _on_offsets(self, frame: Frame) -> None:
        request = Offsets.from_meta(frame.split()[0])
        if not frame.message_id:
            return
        if self._searches >= MOST_SEARCHES:
            raise Overloaded(_too_many(MOST_SEARCHES, "OFFSETS requests"))

        def found(reply: OffsetsReply) -> None:
            self._searches -= 1
            self.reply(frame.type, frame.message_id, reply)

        self._searches += 1
        self.shared.searches.add(request, lambda: self._listening, found)

    def _on_init_producer(self, frame: Frame) -> None:
        request = InitProducer.from_meta(frame.split()[0])
        if request.transactional_id is None:
            self.shared.broker.init_producer(partial(self._settle, frame.type, frame.message_id))
            return
        name, client, told = request.transactional_id, self.client_id, self._transacts(frame)
        self.shared.broker.transacting.init_producer(name, request.timeout_ms, client, told)

    def _on_end_transaction(self, frame: Frame) -> None:
        request = EndTransaction.from_meta(frame.split()[0])
        self.shared.broker.transacting.end(request, self._transacts(frame))

    def _transacts(self, frame: Frame) -> Callable[[Message | WireError], None]:
        """Return what answers a producer of transactions, who may wait for the disk."""
        if self._transacting >= MOST_ENDS:
            raise Overloaded(_too_many(MOST_ENDS, "producers and ends of transactions"))
        self._transacting += 1

        def told(found: Message | WireError) -> None:
            self._transacting -= 1
            self._settle(frame.type, frame.message_id, found)

        return told

    def _on_commit(self, frame: Frame) -> None:
        request = Commit.from_meta(frame.split()[0])
        told = partial(self._settle, frame.type, frame.message_id)
        self.shared.broker.committing.commit(request, told)

    def _on_committed(self, frame: Frame) -> None:
        request = Committed.from_meta(frame.split()[0])
        told = partial(self._settle, frame.type, frame.message_id)
        self.shared.broker.committing.committed(request, told)

    def _on_member(self, frame: Frame) -> None:
        request = Member.from_meta(frame.split()[0])
        if len(self._members) >= MOST_MEMBERS:
            raise Overloaded(_too_many(MOST_MEMBERS, "MEMBER requests"))
        client = Client(self.client_id, self.peer)
        waiting: Waiting | None = None
        answered = False

        def answer(result: MemberReply | WireError) -> None:
            nonlocal answered
            answered = True
            if waiting is not None:
                self._members.discard(waiting)
            self._settle(frame.type, frame.message_id, result)

        waiting = self.shared.broker.coordinating.member(request, client, answer)
        if not answered:
            self._members.add(waiting)

    @override
    def _cancel_reads(self) -> None:
        super()._cancel_reads()
        members, self._members = self._members, set()
        for waiting in members:
            waiting.cancel()

    def _on_metadata(self, frame: Frame) -> None:
        request = Metadata.from_meta(frame.split()[0])
        self.shared.broker.metadata(request, partial(self.reply, frame.type, frame.message_id))

    def _on_operate(self, frame: Frame) -> None:
        request = Operate.from_meta(frame.split()[0])
        if self._operations >= MOST_OPERATIONS:
            raise Overloaded(_too_many(MOST_OPERATIONS, "operations"))
        self._operations += 1
        Deferred.fromCoroutine(self._operate(frame, request))

    async def _operate(self, frame: Frame, request: Operate) -> None:
        """Carry out an operation, which may have to wait for other brokers."""
        operator, arguments = self.shared.operations, request.arguments or {}
        try:
            result = pack(await operator.run(request.name, arguments, self.caller))
        except Exception as error:  # noqa: BLE001 - told to the peer
            self._failed(frame, error)
        else:
            self.reply(frame.type, frame.message_id, OperateReply(), [result])
        finally:
            self._operations -= 1

    def _settle(self, frame_type: int, message_id: int, result: Message | WireError) -> None:
        if isinstance(result, WireError):
            self._refuse(message_id, result)
        else:
            self.reply(frame_type, message_id, result)

    HANDLERS = {  # noqa: RUF012 - the base says that it is the class's
        **Consuming.HANDLERS,
        MessageType.HELLO: _on_hello,
        MessageType.PING: _on_ping,
        MessageType.GOODBYE: _on_goodbye,
        MessageType.PRODUCE: _on_produce,
        MessageType.FETCH: _on_fetch,
        MessageType.OFFSETS: _on_offsets,
        MessageType.INIT_PRODUCER: _on_init_producer,
        MessageType.MEMBER: _on_member,
        MessageType.COMMIT: _on_commit,
        MessageType.COMMITTED: _on_committed,
        MessageType.END_TRANSACTION: _on_end_transaction,
        MessageType.METADATA: _on_metadata,
        MessageType.OPERATE: _on_operate,
    }


def _too_many(most: int, what: str) -> str:
    return f"at most {most} {what} wait on one connection; wait for an answer, then ask again"


class BrokerFactory(Connections):
    """
    What all connections of a broker share, and what makes them.

    Args:
        broker: The domain.
        operations: The administrative operations.
    """

    def __init__(self, broker: Broker, operations: Operator) -> None:
        super().__init__(broker)
        self.operations = operations
        self.searches = Searches(broker)

    @override
    def buildProtocol(self, addr: IAddress | None) -> BrokerProtocol | None:
        if not self.admits():
            return None
        host = getattr(addr, "host", None)
        peer = f"{host}:{getattr(addr, 'port', '')}" if host else str(addr)
        return BrokerProtocol(self, peer)
