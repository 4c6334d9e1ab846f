"""
Every error of tinymq, in one tree.

::

    TinyMQError
    ├── UsageError              a mistake in this process; never travels
    │   ├── ConfigError         a setting is wrong
    │   ├── ForkedError         a client was carried over a fork
    │   └── ClosedError         the object was closed before
    ├── ClientError             what a client found out by itself
    │   ├── ConnectionLost      the link died; retriable
    │   ├── DeadlineExceeded    no answer within the deadline
    │   ├── BufferFull          the producer's memory bound was reached
    │   ├── TooFewCopies        fewer nodes stored a record than were asked to
    │   └── UnreachableError    no broker answered at all
    │       └── NoBroker        nor is anybody waited for
    └── WireError               has a code and travels in an error frame
        ├── ProtocolError       the peer's bytes are wrong; fatal
        ├── RequestError        the request is wrong; the connection lives
        ├── StateError          right request, wrong moment; mostly retriable
        └── StorageError        the disk said no

A wire error carries two flags: ``retriable`` (the same request may succeed
later) and ``fatal`` (the answer is the last thing sent on the connection).
Codes are part of the protocol (docs/protocol.md) and are never reused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final


class TinyMQError(Exception):
    """Base of every error that tinymq raises on purpose."""


class UsageError(TinyMQError):
    """A mistake made in this process; it never travels."""


class ConfigError(UsageError):
    """A setting is unknown, of the wrong type, or out of range."""


class ForkedError(UsageError):
    """The client was made in another process; make a new one after a fork."""


class ClosedError(UsageError):
    """The client, producer or consumer was closed before this call."""


class ClientError(TinyMQError):
    """Something that a client found out by itself, without a broker's word."""

    retriable: ClassVar[bool] = True


class ConnectionLost(ClientError):
    """The connection ended before the answer came."""


class DeadlineExceeded(ClientError):
    """No answer came within the deadline of the call."""

    retriable = False


class BufferFull(ClientError):
    """The producer holds as many bytes as it may; wait, or raise the bound."""


class TooFewCopies(ClientError):
    """Fewer nodes stored the record than copies were wanted; those that did have it."""

    retriable = False

    def __init__(self, text: str, stored: Sequence[Any] = ()) -> None:
        super().__init__(text)
        #: Where it is stored all the same.
        self.stored = list(stored)


class UnreachableError(ClientError):
    """No address answered."""


class NoBroker(UnreachableError):
    """No address answered, and the settings of the client say not to wait."""

    retriable = False


class WireError(TinyMQError):
    """
    An error that has a code and travels.

    Args:
        text: One sentence that says what is wrong and what to do.
        data: Facts for programs, such as the valid range of offsets. Must be
            msgpack-able with string keys.
    """

    code: ClassVar[int] = 1
    retriable: ClassVar[bool] = False
    fatal: ClassVar[bool] = False

    def __init__(self, text: str = "", **data: Any) -> None:
        super().__init__(text or (self.__doc__ or "").strip().split("\n")[0])
        self.data = data

    @property
    def text(self) -> str:
        """The sentence for people."""
        return str(self.args[0])


class InternalError(WireError):
    """The broker failed in a way that it did not expect; its log says more."""

    code = 1
    fatal = True


# --- the peer's bytes are wrong: answered, then closed -----------------------


class ProtocolError(WireError):
    """The bytes do not follow the protocol."""

    code = 10
    fatal = True


class BadMagic(ProtocolError):
    """The first bytes are not tinymq's; closed without an answer."""

    code = 11


class UnsupportedVersion(ProtocolError):
    """The protocol version is not spoken here."""

    code = 12


class FrameTooLarge(ProtocolError):
    """A length in a header is over the limit."""

    code = 13


class MalformedFrame(ProtocolError):
    """A frame's body cannot be read."""

    code = 14


class MessageIdInUse(ProtocolError):
    """A request with this message id is still open."""

    code = 15


class HelloRequired(ProtocolError):
    """The first frame of a connection must be HELLO, within the time allowed."""

    code = 16


# --- the request is wrong: answered, the connection lives --------------------


class RequestError(WireError):
    """The request cannot be carried out as it stands."""

    code = 20


class UnknownType(RequestError):
    """This broker does not know the message type."""

    code = 21


class InvalidRequest(RequestError):
    """A field of the request is missing, of the wrong type or out of range."""

    code = 22


class InvalidName(RequestError):
    """A name breaks the rule for names."""

    code = 23


class UnknownTopic(RequestError):
    """There is no topic of this name."""

    code = 24


class UnknownTopicId(RequestError):
    """The topic was deleted, or made anew under the same name."""

    code = 25


class UnknownPartition(RequestError):
    """The topic has no partition of this number."""

    code = 26


class TopicExists(RequestError):
    """There is a topic of this name already, with another configuration."""

    code = 27


class OffsetOutOfRange(RequestError):
    """The offset lies outside what the partition holds."""

    code = 28


class LogTruncated(RequestError):
    """The position lies beyond what survived an unclean stop."""

    code = 29


class CorruptBatch(RequestError):
    """A record batch does not match its checksum or its own header."""

    code = 30


class BatchTooLarge(RequestError):
    """A record batch is over the limit."""

    code = 31


class ValueTooLarge(RequestError):
    """A record's value, key or headers are over the limit."""

    code = 32


class OutOfOrderSequence(RequestError):
    """A batch of an idempotent producer does not follow its predecessor."""

    code = 33


class ProducerFenced(RequestError):
    """A newer incarnation of this producer is at work."""

    code = 34


class UnknownProducer(RequestError):
    """The broker no longer remembers this producer; start a new one."""

    code = 35


class NothingToUndo(RequestError):
    """There is nothing left that could be undone."""

    code = 36


class UnknownClient(RequestError):
    """No client of this number is connected."""

    code = 37


class UnknownBroker(RequestError):
    """There is no broker of this name or number; `tinymq node ls` lists them."""

    code = 38


class Forbidden(RequestError):
    """The role of the caller does not allow this."""

    code = 39


class UnknownChannel(RequestError):
    """The topic has no channel of this name."""

    code = 40


class ChannelExists(RequestError):
    """The topic has a channel of this name already, with another configuration."""

    code = 41


class LeaseLost(RequestError):
    """The lease is over: what was in it may be in the hands of another consumer."""

    code = 42


class UnknownSubscription(RequestError):
    """This connection has no subscription of this number; subscribe again."""

    code = 43


class InvalidDelay(RequestError):
    """A due time lies beyond the year 9999, or a time to live is not above zero."""

    code = 44


class UnknownDelayed(RequestError):
    """There is no such message that is not due yet: it came, or was cancelled."""

    code = 45


class Unroutable(RequestError):
    """No binding of the exchange takes this message; it is in the exchange's dead-letter topic."""

    code = 46


class UnknownSchedule(RequestError):
    """There is no schedule of this name; `tinymq schedule ls` lists them."""

    code = 47


class UnknownExchange(RequestError):
    """There is no exchange of this name; `tinymq exchange ls` lists them."""

    code = 48


class UnknownBinding(RequestError):
    """The exchange has no such binding."""

    code = 49


class UnknownEndpoint(RequestError):
    """The channel has no push endpoint."""

    code = 70


class EndpointRefused(RequestError):
    """The address of a push endpoint is private, or not one to which messages may be sent."""

    code = 71


class UnknownGroup(RequestError):
    """There is no group of this name; `tinymq group ls` lists them."""

    code = 80


class UnknownMember(RequestError):
    """The group does not know this member, maybe no longer; it has to join again."""

    code = 81


class FencedGeneration(RequestError):
    """Somebody else was given this partition since; what was committed by then counts."""

    code = 82


class InconsistentGroup(RequestError):
    """The members of a group must agree on how its partitions are divided."""

    code = 83


class InvalidTransaction(RequestError):
    """This cannot be part of a transaction, or not of one in this state."""

    code = 84


class TransactionAborted(RequestError):
    """The transaction was aborted: nothing of it counts; begin it again."""

    code = 85


# --- the right request at the wrong moment -----------------------------------


class StateError(WireError):
    """The broker cannot do this just now."""

    code = 50
    retriable = True


class ShuttingDown(StateError):
    """The broker is stopping and takes no new work."""

    code = 51


class NotLeader(StateError):
    """Another broker leads this partition; refresh the metadata."""

    code = 52


class Overloaded(StateError):
    """The broker is at one of its limits; try again later."""

    code = 53


class MetaUnavailable(StateError):
    """The MetaServer does not answer; publishing and reading go on without it."""

    code = 54


class BrokerSilent(StateError):
    """A broker that is needed does not answer; it may come back."""

    code = 55


class ForeignCluster(StateError):
    """The broker's data folder and the MetaServer are of different clusters."""

    code = 56
    retriable = False


class NotCoordinator(StateError):
    """Another broker looks after this group or transaction; the data say which."""

    code = 57


class UnstablePosition(StateError):
    """A transaction that moves this position is not decided yet; ask again."""

    code = 58


class GroupBusy(StateError):
    """The group has live members; stop them first, or use force."""

    code = 59
    retriable = False


# --- the disk said no --------------------------------------------------------


class StorageError(WireError):
    """The disk said no."""

    code = 60


class StorageFull(StorageError):
    """The disk is full; publishing is refused until space is free again."""

    code = 61
    retriable = True


class PartitionOffline(StorageError):
    """The partition was taken offline after a failure of its storage."""

    code = 62


class TooManyOpenFiles(StorageError):
    """The process has no file descriptor left; the files are untouched."""

    code = 63
    retriable = True


def _tree(root: type[WireError]) -> dict[int, type[WireError]]:
    found = {root.code: root} if "code" in root.__dict__ else {}
    for child in root.__subclasses__():
        found.update(_tree(child))
    return found


#: Wire code to class, for every class of the tree.
BY_CODE: Final[dict[int, type[WireError]]] = {**_tree(WireError), 1: InternalError}


def from_wire(code: int, text: str, data: dict[str, Any] | None = None) -> WireError:
    """
    Build the error that an error frame describes.

    Args:
        code: The wire code. An unknown one becomes a plain `WireError` that
            keeps the code, so that a newer broker can be understood.
        text: The sentence for people.
        data: Facts for programs.

    Returns:
        An instance of the class with this code.
    """
    error = BY_CODE.get(code, WireError)(text, **(data or {}))
    if error.code != code:
        error.__dict__["code"] = code
    return error
