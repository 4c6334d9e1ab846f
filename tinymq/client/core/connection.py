"""
One connection to a broker as bytes and values: correlation, HELLO, heartbeats.

Invariants, checked by `Connection.check_invariants` in tests:

- a message id is in the table from the moment its request is encoded until its
  answer came, its deadline passed, or the connection ended;
- each request ends exactly once: `done` is called with a reply or an error;
- nothing but HELLO is encoded before HELLO is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import Any, Final

from attrs import fields

from tinymq import __version__
from tinymq.client.core.address import DEFAULT_PORT
from tinymq.client.core.config import ClientConfig
from tinymq.errors import (
    BadMagic,
    ConnectionLost,
    DeadlineExceeded,
    MalformedFrame,
    TinyMQError,
    UnknownType,
    WireError,
)
from tinymq.limits import DEFAULT_LIMITS, Limits
from tinymq.wire.frames import Bytes, Frame, FrameDecoder, encode_frame
from tinymq.wire.header import HEADER, MAGIC, MAX_MESSAGE_ID, REPLY, VERSION, MessageType
from tinymq.wire.messages import (
    PUSHES,
    REPLIES,
    Goodbye,
    Hello,
    HelloReply,
    Message,
    error_from_meta,
    error_meta,
)

#: Told how a request ended: the reply, its payload, or the error instead; and the time.
Done = Callable[[Any, Bytes, TinyMQError | None, float], None]

#: Told what a broker sent by itself: the message, its payload, and the time.
Pushed = Callable[[Message, Bytes, float], None]

#: Bytes of the longest body before HELLO is answered.
_FIRST_BODY: Final = DEFAULT_LIMITS.meta + 4
#: Seconds of silence after which a missing answer speaks against the broker.
UNHEARD_S: Final = 2.0
#: Intervals of silence after which a peer is taken for dead.
_SILENT_INTERVALS: Final = 3

_ERROR: Final = int(MessageType.ERROR)
_LIMITS: Final = tuple(attribute.name for attribute in fields(Limits))


class Pending:
    """A request whose answer has not come."""

    __slots__ = ("deadline", "done", "type")

    def __init__(self, type_: int, deadline: float, done: Done) -> None:
        self.type = type_
        self.deadline = deadline
        self.done = done


class Connection:
    """
    The client's end of one connection.

    Args:
        config: Settings of the client.
        now: The time, seconds on a clock that never goes back.
        session: The session id of a connection before, to go on with it.

    Attributes:
        hello: The broker's answer to HELLO, or None before it came.
        limits: The limits in force.
        closed: Why it ended, or None.
        draining: The broker said that it will close.
        late: Answers that came after their request had ended.
        pushed: Takes what the broker sends by itself, and the time; None for nobody.
        unheard: A request ended without its answer, and nothing else has come for a
            while, nor since: the broker may stand still.
    """

    def __init__(self, config: ClientConfig, now: float, session: bytes | None = None) -> None:
        self.hello: HelloReply | None = None
        self.limits = DEFAULT_LIMITS
        self.closed: TinyMQError | None = None
        self.draining = False
        self.late = 0
        self.pushed: Pushed | None = None
        self.unheard = False
        self._decoder = FrameDecoder(_FIRST_BODY)
        self._pending: dict[int, Pending] = {}
        self._last_id = 0
        self._out: list[Bytes] = []
        self._received = now
        self._pinged = now
        self._heartbeat = float(config.heartbeat_s)
        self._earliest = inf
        hello = Hello(
            client_id=config.client_id,
            software=f"tinymq-python/{__version__}",
            versions=[VERSION],
            session=session,
            heartbeat=config.heartbeat_s,
        )
        self._encode(hello.to_meta(), hello.type, (), now + config.connect_timeout_s, self._greeted)

    @property
    def pending(self) -> int:
        """Requests that wait for their answer."""
        return len(self._pending)

    @property
    def between_frames(self) -> bool:
        """Whether the next byte starts a frame, and everything encoded was taken."""
        return not self._decoder.buffered and not self._out

    @property
    def ready(self) -> bool:
        """Whether requests may be sent."""
        return self.hello is not None and self.closed is None

    def request(
        self,
        kind: int,
        meta: dict[str, Any],
        payload: Iterable[Bytes],
        deadline: float,
        done: Done,
    ) -> int:
        """
        Encode a request.

        Args:
            kind: Its type.
            meta: Its fields.
            payload: Pieces of its payload.
            deadline: When it ends with `DeadlineExceeded`.
            done: Told how it ended.

        Returns:
            The message id, for `forget`.
        """
        assert self.ready
        return self._encode(meta, kind, payload, deadline, done)

    def post(self, kind: int, meta: dict[str, Any], payload: Iterable[Bytes]) -> None:
        """
        Encode a request that wants no answer.

        Args:
            kind: Its type.
            meta: Its fields.
            payload: Pieces of its payload.
        """
        assert self.ready
        self._out += encode_frame(kind, 0, meta, payload)

    def launch(
        self, kind: int, head: bytes, payload: bytes, deadline: float, done: Done
    ) -> tuple[int, bytes]:
        """
        Encode a request in one piece for a caller that writes it at once.

        Args:
            kind: Its type.
            head: Its meta part, length and all.
            payload: Its payload.
            deadline: When it ends with `DeadlineExceeded`.
            done: Told how it ended, unless `landed` is called before.

        Returns:
            The message id and the bytes to be written.
        """
        pending = self._pending
        message_id = self._next_id()
        pending[message_id] = Pending(kind, deadline, done)
        self._earliest = min(self._earliest, deadline)
        length = len(head) + len(payload)
        return message_id, HEADER.pack(MAGIC, VERSION, kind, message_id, length) + head + payload

    def landed(self, message_id: int, now: float) -> None:
        """
        Note that the caller of `launch` read the answer by himself.

        Args:
            message_id: From `launch`.
            now: The time.
        """
        del self._pending[message_id]
        self._received = now
        self.unheard = False

    def forget(self, message_id: int) -> None:
        """
        Stop waiting for an answer; `done` is not called any more.

        Args:
            message_id: From `request`.
        """
        self._pending.pop(message_id, None)

    def data_to_send(self) -> list[Bytes]:
        """Take the bytes to be written, in pieces."""
        out, self._out = self._out, []
        return out

    def receive(self, data: bytes, now: float) -> None:
        """
        Take bytes from the broker and end the requests that they answer.

        Args:
            data: What was read.
            now: The time.

        Raises:
            WireError: The bytes are wrong, or the broker ended the connection
                with an error; the caller closes the link with it.
        """
        self._received = now
        self.unheard = False
        if self.hello is None and data.startswith(b"HTTP/"):
            raise BadMagic(f"this is an HTTP port; clients connect to {DEFAULT_PORT}")
        for frame in self._decoder.feed(data):
            if frame.type & REPLY:
                self._replied(frame, now)
            else:
                self._asked(frame, now)

    def check(self, now: float) -> None:
        """
        See whether the broker was heard lately.

        Args:
            now: The time.

        Raises:
            ConnectionLost: The broker was silent for too long.
        """
        silence = now - self._received
        if self.hello is not None and silence >= _SILENT_INTERVALS * self._heartbeat:
            raise ConnectionLost(f"the other side was silent for {silence:.0f} s")

    def tick(self, now: float) -> None:
        """
        End what is overdue and keep the connection alive.

        Args:
            now: The time.

        Raises:
            ConnectionLost: The broker was silent for too long.
        """
        self.check(now)
        if self.hello is not None and now >= self._next_ping:
            self._pinged = now
            self._encode({}, MessageType.PING, (), inf, _ignore)
        if now >= self._earliest:
            self._expire(now)

    @property
    def wake_at(self) -> float:
        """When `tick` has something to do."""
        if self.hello is None:
            return self._earliest
        dead = self._received + _SILENT_INTERVALS * self._heartbeat
        return min(self._earliest, self._next_ping, dead)

    def goodbye(self, reason: str) -> None:
        """
        Say that the connection is about to be closed.

        Args:
            reason: For the broker's log.
        """
        if self.ready:
            self.post(MessageType.GOODBYE, Goodbye(reason=reason).to_meta(), ())

    def lost(self, error: TinyMQError, now: float) -> None:
        """
        End every pending request.

        Args:
            error: Why.
            now: The time.
        """
        if self.closed is not None:
            return
        self.closed = error
        pending, self._pending = self._pending, {}
        self._earliest = inf
        for request in pending.values():
            request.done(None, b"", error, now)

    def check_invariants(self) -> None:
        """Check what the head of this module promises."""
        assert 0 not in self._pending
        assert self.closed is None or not self._pending
        assert all(request.deadline >= self._earliest for request in self._pending.values())
        if self.hello is None and self.closed is None:
            kinds = [request.type for request in self._pending.values()]
            assert kinds == [MessageType.HELLO], kinds

    @property
    def _next_ping(self) -> float:
        """
        One interval after the last PING, however much came meanwhile.

        What the broker says by itself is no reason to be silent: its own PING comes at
        the same interval, and would keep ours back until it takes us for dead.
        """
        return self._pinged + self._heartbeat

    def _encode(
        self, meta: dict[str, Any], kind: int, payload: Iterable[Bytes], deadline: float, done: Done
    ) -> int:
        pending = self._pending
        message_id = self._next_id()
        self._out += encode_frame(kind, message_id, meta, payload)
        pending[message_id] = Pending(kind, deadline, done)
        self._earliest = min(self._earliest, deadline)
        return message_id

    def _next_id(self) -> int:
        """Count up, wrap to 1, and skip what is still open."""
        message_id = self._last_id % MAX_MESSAGE_ID + 1
        while message_id in self._pending:
            message_id = message_id % MAX_MESSAGE_ID + 1
        self._last_id = message_id
        return message_id

    def _replied(self, frame: Frame, now: float) -> None:
        if frame.type == _ERROR and not frame.message_id:
            raise error_from_meta(frame.split()[0])
        request = self._pending.pop(frame.message_id, None)
        if request is None:
            self.late += 1
            return
        reply, payload, error = _read(frame, request.type)
        request.done(reply, payload, error, now)
        if error is not None and getattr(error, "fatal", False):
            raise error

    def _asked(self, frame: Frame, now: float) -> None:
        if frame.type == MessageType.PING:
            if frame.message_id:
                self._out += encode_frame(MessageType.PING | REPLY, frame.message_id)
        elif frame.type == MessageType.GOODBYE:
            self.draining = True  # answers may still come before it closes
        elif frame.type in PUSHES:
            if self.pushed is not None:
                frame.body = memoryview(frame.body)
                meta, payload = frame.split()
                self.pushed(_read_push(frame.type, meta), payload, now)
        elif frame.message_id:
            unknown = UnknownType(f"clients take no requests of type 0x{frame.type:02x}")
            self._out += encode_frame(_ERROR, frame.message_id, error_meta(unknown))

    def _greeted(self, reply: Any, _payload: Bytes, error: TinyMQError | None, now: float) -> None:
        if self.closed is not None:
            return
        if error is not None:
            raise error  # the link ends with it
        self.hello = reply
        self._earliest = inf  # HELLO was the only request
        self._heartbeat = float(reply.heartbeat)
        self.limits = _limits(reply.limits)
        # A fetch holds what was asked for, and its first batch in any case.
        self._decoder.limit = 4 + self.limits.meta + (1 << 24) + self.limits.payload

    def _expire(self, now: float) -> None:
        overdue = [key for key, request in self._pending.items() if request.deadline <= now]
        ended = [self._pending.pop(key) for key in overdue]
        self._earliest = min((one.deadline for one in self._pending.values()), default=inf)
        if self.hello is None and ended:
            raise ConnectionLost(
                "it takes connections but does not answer: its process hangs, or it is "
                f"something else, such as an HTTP port (brokers have {DEFAULT_PORT})"
            )
        if ended and now - self._received >= UNHEARD_S:
            self.unheard = True
        for request in ended:
            error = DeadlineExceeded(f"no answer came in time{_asked(request.type)}")
            request.done(None, b"", error, now)


def _asked(kind: int) -> str:
    """Name a request; OPERATE says nothing to those who typed something else."""
    return "" if kind == MessageType.OPERATE else f" to {MessageType(kind).name}"


def _read(frame: Frame, kind: int) -> tuple[Any, Bytes, TinyMQError | None]:
    """Read a reply: message, payload and no error, or an error alone."""
    try:
        # The payload of a fetch is looked at in place, not copied once more.
        frame.body = memoryview(frame.body)
        meta, payload = frame.split()
        if frame.type == _ERROR:
            return None, b"", error_from_meta(meta)
        if frame.type != kind | REPLY:
            raise MalformedFrame(f"type 0x{frame.type:02x} does not answer type 0x{kind:02x}")
        return REPLIES[kind].from_meta(meta), payload, None
    except (WireError, ValueError) as error:
        return None, b"", error if isinstance(error, WireError) else MalformedFrame(str(error))


def _read_push(kind: int, meta: dict[str, Any]) -> Message:
    """Read what a broker sent by itself; that it is wrong is no request's fault."""
    try:
        return PUSHES[kind].from_meta(meta)
    except WireError as error:
        raise MalformedFrame(str(error)) from error


def _limits(told: dict[str, int]) -> Limits:
    """Take the limits that a broker told, as far as they are known and sane."""
    try:
        return Limits(**{name: told[name] for name in _LIMITS if name in told})
    except (TypeError, ValueError) as error:
        raise MalformedFrame(f"the limits in the HELLO reply are wrong: {error}") from error


def _ignore(_reply: Any, _payload: Bytes, _error: TinyMQError | None, _now: float) -> None:
    """The answer to a PING is a sign of life and nothing more."""
