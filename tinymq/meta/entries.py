"""What goes into the store and comes out of it: plain values."""

from __future__ import annotations

from typing import Final, TypeAlias

from attrs import frozen

#: Behind every key.
LAST_KEY: Final = "\U0010ffff"


@frozen
class Entry:
    """
    A key as it stood at some revision.

    Attributes:
        key: The key.
        value: The value.
        created: Revision at which the key came to be.
        modified: Revision of the last write.
        version: Writes since the key came to be, beginning with 1.
        lease: The lease that the key lives by; 0 is none.
    """

    key: str
    value: bytes
    created: int
    modified: int
    version: int
    lease: int


@frozen
class Event:
    """
    One change of one key.

    Attributes:
        key: The key.
        revision: The revision that changed it.
        entry: What it is now; None if it was deleted.
    """

    key: str
    revision: int
    entry: Entry | None


@frozen
class Compare:
    """Holds if the key was last modified at this revision; 0: if there is no such key."""

    key: str
    modified: int


@frozen
class Put:
    """Write a key."""

    key: str
    value: bytes
    lease: int = 0


@frozen
class Delete:
    """Delete a key; one that is not there is no error."""

    key: str


Write: TypeAlias = Put | Delete


def prefix(text: str) -> tuple[str, str]:
    """Return the range of all keys that begin with a text."""
    return (text, text[:-1] + chr(ord(text[-1]) + 1)) if text else ("\0", LAST_KEY)
