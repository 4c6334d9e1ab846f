"""Whether a process that runs also answers; asked now and then, without waiting."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Final

#: Seconds between an answer and the next question.
_PAUSE_S: Final = 3.0
#: Seconds for a connection within one machine.
_CONNECT_S: Final = 0.2
_MOST: Final = 4096


class Pulse:
    """
    Greets a broker again and again, and hangs up when it answers.

    A process that was stopped still gets connections, from its kernel: only an
    answer shows that it lives. Nothing here waits; `silent` is to be called often.

    Args:
        address: Host and port.
    """

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._sock: socket.socket | None = None
        self._asked: float | None = None
        self._due = 0.0

    def silent(self, now: float) -> float:
        """
        Ask if it is time, and look for the answer.

        Args:
            now: The time.

        Returns:
            Seconds since the question that is not answered yet, or 0.
        """
        if self._asked is None:
            if now < self._due:
                return 0.0
            self._asked = now
        if self._sock is None:
            self._ask()
        elif self._heard():
            self._asked, self._due = None, now + _PAUSE_S
            return 0.0
        return now - self._asked

    def close(self) -> None:
        """Hang up."""
        if self._sock is not None:
            self._sock.close()
        self._sock = self._asked = None

    def _ask(self) -> None:
        """Connect and greet; this machine's own ports accept at once, or refuse."""
        six = socket.AF_INET6 if ":" in self._address[0] else socket.AF_INET
        sock = socket.socket(six, socket.SOCK_STREAM)
        sock.settimeout(_CONNECT_S)
        try:
            sock.connect(self._address)
            sock.sendall(_greeting())
        except OSError:
            sock.close()
        else:
            sock.setblocking(False)
            self._sock = sock

    def _heard(self) -> bool:
        assert self._sock is not None
        heard = b""
        try:
            heard = self._sock.recv(_MOST)
            with suppress(OSError):
                self._sock.sendall(_goodbye())
        except BlockingIOError:
            return False
        except OSError:  # cut: it is asked again
            pass
        self._sock.close()
        self._sock = None
        return bool(heard)


def _greeting() -> bytes:
    from tinymq.stats import UP_CLIENT  # noqa: PLC0415 - not needed for --help
    from tinymq.wire.frames import encode_frame  # noqa: PLC0415
    from tinymq.wire.messages import Hello  # noqa: PLC0415

    hello = Hello(client_id=UP_CLIENT, software="tinymq up")
    return b"".join(map(bytes, encode_frame(hello.type, 1, hello.to_meta())))


def _goodbye() -> bytes:
    from tinymq.wire.frames import encode_frame  # noqa: PLC0415 - not needed for --help
    from tinymq.wire.messages import Goodbye  # noqa: PLC0415

    goodbye = Goodbye()
    return b"".join(map(bytes, encode_frame(goodbye.type, 0, goodbye.to_meta())))
