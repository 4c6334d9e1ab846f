"""What a transport of Twisted keeps, and sending it without a turn of the reactor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from twisted.internet.tcp import Connection

from tinymq.wire.frames import Bytes

#: Bytes that are sent at once, without asking the reactor whether the system takes them.
MOST_SENT: Final = 64 * 1024


def unsent(transport: Any) -> int:
    """
    Say how many bytes a transport keeps because its peer does not read.

    Twisted has no public word for it, and what its producer interface tells (more
    than `bufferSize`, or nothing) is no number. So this reads the two buffers of
    `FileDescriptor`, and says 0 of a transport that has none; a test on a real
    socket fails when they are renamed.

    Args:
        transport: Any transport.
    """
    try:
        unmerged = transport._tempDataLen  # noqa: SLF001 - see above
        return int(len(transport.dataBuffer) - transport.offset + unmerged)
    except AttributeError:
        return 0


def send(transport: Any, pieces: Sequence[Bytes]) -> None:
    """
    Send pieces at once, as far as the system takes them; the transport keeps the rest.

    A transport of Twisted asks the reactor first whether it may write, which costs two
    system calls and a turn. What goes wrong here goes wrong there once more, and is told.

    Args:
        transport: Any transport; one that is no socket of Twisted is given piece by piece.
        pieces: The bytes.
    """
    if not _takes_more(transport):
        for piece in pieces:
            transport.write(piece)
        return
    data = b"".join(pieces)
    if len(data) <= MOST_SENT:
        sent = transport.writeSomeData(data)
        if type(sent) is int and sent > 0:
            data = data[sent:]
    if data:
        transport.write(data)


def _takes_more(transport: Any) -> bool:
    """Whether a transport is a plain socket and keeps nothing."""
    return (
        isinstance(transport, Connection)
        and bool(transport.connected)
        and not (transport.disconnecting or getattr(transport, "TLS", False) or unsent(transport))
    )
