"""What a transport of Twisted keeps, and sending it without a turn of the reactor."""

from __future__ import annotations

from typing import Any, Final

from twisted.internet.abstract import FileDescriptor

#: Bytes that are sent at once, without asking the reactor whether the system takes them.
MOST_PUSHED: Final = 64 * 1024


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


def push(transport: Any) -> None:
    """
    Send what a transport keeps, if it is little and its producer was not told to wait.

    The reactor would let it do the same when it has asked the system whether it may,
    one turn later. What cannot be sent, and what went wrong, stays for the reactor.

    Args:
        transport: Any transport; one that is no socket of Twisted sends by itself.
    """
    if not isinstance(transport, FileDescriptor) or not transport.connected:
        return
    if transport.disconnecting or transport.producerPaused:
        return
    if 0 < unsent(transport) <= MOST_PUSHED:
        transport.doWrite()
