"""
The short way of a single record: one write, one read, as little Python as can be.

It is taken when nothing else is under way, and left as soon as anything but the
expected answer comes: the common way then goes on from exactly the same state.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from tinymq.client.core.flights import Flight, Flights
from tinymq.client.core.lane import Lane
from tinymq.client.core.link import Link
from tinymq.client.core.partitioners import Key, key_bytes
from tinymq.client.core.producer import ProducerCore
from tinymq.client.core.results import Position
from tinymq.errors import MalformedFrame, TinyMQError
from tinymq.sync.loop import Loop
from tinymq.sync.network import Plug
from tinymq.wire.codec import pack, unpack_meta
from tinymq.wire.frames import Bytes
from tinymq.wire.header import HEADER_SIZE, MAGIC, REPLY, VERSION, MessageType
from tinymq.wire.messages import Produce

#: Larger records take the common way.
_MOST: Final = 16 * 1024
_PRODUCE: Final = int(MessageType.PRODUCE)
_ANSWER: Final = struct.pack(">HBB", MAGIC, VERSION, _PRODUCE | REPLY)
#: Message id, body length and meta length, as they follow `_ANSWER`.
_REST: Final = struct.Struct(">III")
_META_LENGTH: Final = struct.Struct(">I")
_META: Final = HEADER_SIZE + _META_LENGTH.size
_READ: Final = 64 * 1024


class Express:
    """
    The short way of one producer.

    Args:
        loop: Shared with the client.
        core: The producer.

    Attributes:
        strayed: The last record was written and goes on by the common way.
    """

    def __init__(self, loop: Loop, core: ProducerCore) -> None:
        self.strayed = False
        self._loop = loop
        self._core = core
        self._flights = Flights(core)
        self._heads: dict[Lane, tuple[bytes, bytes]] = {}
        self._plug: Plug | None = None

    def send(
        self, topic: str, value: Any, key: Key | None, token: object, now: float
    ) -> Position | None:
        """
        Send a record, if nothing speaks against it.

        Args:
            topic: Name of the topic.
            value: Its value.
            key: Its key.
            token: What is told when it strays.
            now: The time.

        Returns:
            Where it is stored; None when that is not known, or it was not sent.
        """
        self.strayed = False
        loop, core = self._loop, self._core
        if type(value) is not bytes or len(value) > _MOST:
            return None
        plain = None if key is None else key_bytes(key)
        if plain is not None and len(plain) > _MOST:
            return None
        if now >= loop.quiet_until:
            loop.glance()
        lane = core.calm_lane(topic, plain)
        if lane is None:
            return None
        link = core.sending.link(lane)
        plug = self._ready(link)
        if plug is None:
            return None
        flight = self._flights.launch(lane, value, plain, token, now)
        try:
            data, message_id = self._exchange(flight, plug)
        except BaseException:
            self._flights.strayed(flight)
            raise
        now = loop.now()
        found = _position(data, message_id)
        if found is not None and link.connection is not None:
            link.connection.landed(message_id, now)
            self._flights.landed(flight)
            offset, timestamp, volatile = found
            return Position(topic, lane.partition, offset, timestamp, volatile)
        self.strayed = True
        self._flights.strayed(flight)
        if data is not None:
            plug.received(data, now)
        return None

    def _ready(self, link: Link) -> Plug | None:
        connection = link.connection
        if connection is None or not connection.ready or not connection.between_frames:
            return None
        plug = self._plug
        if plug is None or not plug.serves(link):
            plug = self._plug = self._loop.network.plug(link)
        return plug if plug is not None and plug.idle else None

    def _exchange(self, flight: Flight, plug: Plug) -> tuple[bytes | None, int]:
        """Write and read once; None means that no answer came yet."""
        flights = self._flights

        def done(reply: Any, _payload: Bytes, error: TinyMQError | None, now: float) -> None:
            flights.returned(flight, reply, error, now)

        connection = flight.link.connection
        assert connection is not None
        message_id, frame = connection.launch(
            _PRODUCE, self._head(flight.lane), flight.data, flight.batch.deadline, done
        )
        plug.write((frame,))
        try:
            return plug.sock.recv(_READ), message_id
        except BlockingIOError:
            return None, message_id
        except OSError:
            return b"", message_id

    def _head(self, lane: Lane) -> bytes:
        known = self._heads.get(lane)
        if known is None or known[0] != lane.topic_id:
            request = Produce(
                topic_id=lane.topic_id, partition=lane.partition, acks=self._core.sending.acks
            )
            meta = pack(request.to_meta())
            known = self._heads[lane] = lane.topic_id, _META_LENGTH.pack(len(meta)) + meta
        return known[1]


def _position(data: bytes | None, message_id: int) -> tuple[int, int, bool] | None:
    """Read offset, time and volatility, if these bytes are the expected answer and no more."""
    if data is None or data[:4] != _ANSWER or len(data) < _META:
        return None
    answered, length, meta_length = _REST.unpack_from(data, 4)
    if answered != message_id or not length + HEADER_SIZE == len(data) == _META + meta_length:
        return None
    try:
        meta = unpack_meta(data[_META:])
    except MalformedFrame:
        return None
    offset, timestamp = meta.get("o"), meta.get("d")
    if type(offset) is not int or type(timestamp) is not int or "u" in meta or "k" in meta:
        return None
    return offset, timestamp, meta.get("v") is True
