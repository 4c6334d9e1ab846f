"""A client on a plain blocking socket that sends frames by hand."""

from __future__ import annotations

import socket
from collections import deque
from types import TracebackType
from typing import Any, Self

from tinymq.wire.frames import Frame, FrameDecoder, encode_frame
from tinymq.wire.messages import Hello, Message

#: Seconds after which an answer has not come.
PATIENCE = 10.0


class RawPeer:
    """
    One connection.

    Args:
        url: As the broker tells it: ``tinymq://host:port``.
    """

    def __init__(self, url: str) -> None:
        host, _, port = url.removeprefix("tinymq://").rpartition(":")
        self.socket = socket.create_connection((host, int(port)), PATIENCE)
        self._decoder = FrameDecoder(1 << 30)
        self._frames: deque[Frame] = deque()
        self._next = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.socket.close()

    def post(self, message: Message, payload: bytes = b"") -> int:
        """Send a request and return its id."""
        self._next += 1
        pieces = encode_frame(message.type, self._next, message.to_meta(), [payload])
        self.socket.sendall(b"".join(pieces))
        return self._next

    def frame(self) -> Frame | None:
        """The next frame, None at the end of the connection."""
        while not self._frames:
            data = self.socket.recv(65_536)
            if not data:
                return None
            self._frames.extend(self._decoder.feed(data))
        return self._frames.popleft()

    def ask(self, message: Message, payload: bytes = b"") -> Frame:
        """Send a request and return its answer."""
        message_id = self.post(message, payload)
        while True:
            frame = self.frame()
            assert frame is not None, "the connection ended"
            if frame.message_id == message_id:
                return frame

    def hello(self, **said: Any) -> Frame:
        """Say HELLO."""
        return self.ask(Hello(**said))
