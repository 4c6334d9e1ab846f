"""stdin in pieces: whole, or line by line with bounded memory and without waiting too long."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Iterator
from typing import Final

from tinymq.cli.failure import Failed

#: Bytes that are gathered before lines are handed on.
CHUNK: Final = 512 * 1024

#: Gives some bytes, and none at the end. Whether more could be had at once.
Read = Callable[[], bytes]
Ready = Callable[[], bool]


def stdin_source() -> tuple[Read, Ready]:
    """
    Read stdin as it comes.

    Returns:
        What reads some bytes, and what tells whether more can be read at once.
    """
    stream = sys.stdin.buffer
    try:
        descriptor = stream.fileno()
    except (OSError, AttributeError):
        return (lambda: stream.read(CHUNK)), (lambda: False)

    def ready() -> bool:
        return bool(select.select([descriptor], [], [], 0)[0])

    return (lambda: os.read(descriptor, CHUNK)), ready


def gather(read: Read, ready: Ready) -> Iterator[bytes]:
    """
    Yield what is there: a full chunk when data flows, less when it trickles.

    So a slow writer's line goes out at once, and a fast one's lines go out in
    large batches.
    """
    parts: list[bytes] = []
    size = 0
    while data := read():
        parts.append(data)
        size += len(data)
        if size >= CHUNK or not ready():
            yield b"".join(parts)
            parts.clear()
            size = 0
    if parts:
        yield b"".join(parts)


def lines(chunks: Iterator[bytes], longest: int) -> Iterator[list[bytes]]:
    r"""
    Cut chunks at each newline.

    Args:
        chunks: The bytes.
        longest: Most bytes of a line; more is refused before it is held.

    Yields:
        The complete lines of a chunk, without their ``\n``. A last line without
        one counts as a line.

    Raises:
        Failed: A line is too long.
    """
    rest = b""
    number = 0
    for chunk in chunks:
        *complete, rest = (rest + chunk if rest else chunk).split(b"\n")
        _check(complete, number, longest)
        number += len(complete)
        _check([rest], number, longest)
        if complete:
            yield complete
    if rest:
        yield [rest]


def _check(found: list[bytes], number: int, longest: int) -> None:
    for place, line in enumerate(found):
        if len(line) > longest:
            raise Failed(
                f"line {number + place + 1} is longer than {longest} bytes",
                "the topic's setting max.value.bytes and --max-bytes allow more",
            )


def whole(chunks: Iterator[bytes], longest: int) -> bytes:
    """
    Join all chunks to one value.

    Raises:
        Failed: There are too many bytes; no more than that is ever held.
    """
    parts: list[bytes] = []
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > longest:
            raise Failed(
                f"stdin holds more than {longest} bytes",
                "-l publishes each line as a message of its own; --max-bytes allows more",
            )
        parts.append(chunk)
    return b"".join(parts)
