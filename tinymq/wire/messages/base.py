"""What all messages are made of: how one is read and written, and words of several."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar, Final, Self, TypeVar, dataclass_transform

from attrs import define

from tinymq.errors import InvalidRequest, MalformedFrame
from tinymq.wire.fields import I64, Schema, integer, row, text, told, wire
from tinymq.wire.header import MessageType

#: Ask for the offset behind the last visible record.
LATEST: Final = -1
#: Ask for the first readable offset.
EARLIEST: Final = -2

NAME_BYTES: Final = 200
#: Most partitions of a topic, and most in one FETCH.
PARTITIONS: Final = 1000
#: Most topics in one METADATA reply.
PAGE: Final = 1000

_T = TypeVar("_T")

NAME: Final = text(1024)  # the rule for names is the domain's and gives the better error
#: Producer id and epoch: of a transaction, they are its own.
Identity = tuple[int, int]
IDENTITY: Final = row(integer(0, I64), integer(0, 32_767))


class Message:
    """Base of all messages."""

    type: ClassVar[MessageType]
    schema: ClassVar[Schema]
    #: Whether a broker's answer is read with it, so that its faults are not a request's.
    reply: ClassVar[bool] = False

    @classmethod
    def from_meta(cls, meta: dict[str, Any]) -> Self:
        """
        Read a message from the meta map of a frame.

        Raises:
            InvalidRequest: A field of a request is missing or wrong.
            MalformedFrame: The same, in a reply.
        """
        return cls(**cls.schema.read(meta, MalformedFrame if cls.reply else InvalidRequest))

    def to_meta(self) -> dict[str, Any]:
        """Build the meta map."""
        return self.schema.write(self)


@dataclass_transform(kw_only_default=True, field_specifiers=(wire,))
def message(kind: MessageType, *, reply: bool = False) -> Callable[[type[_T]], type[_T]]:
    """Make an attrs class of a message and register how it is read."""

    def decorate(cls: type[_T]) -> type[_T]:
        made: Any = define(cls, kw_only=True, slots=True)
        made.type = kind
        made.reply = reply
        made.schema = Schema.of(made)
        return made  # type: ignore[no-any-return]

    return decorate


#: Where a channel may begin, besides at an offset.
START_WORDS: Final = r"earliest|latest|@\d{1,16}"


@told(
    "earliest, latest, an offset or @MILLISECONDS",
    {"type": ["string", "integer"], "pattern": f"^({START_WORDS})$", "minimum": 0},
)
def start_place(value: Any) -> str | int:
    """Where a channel begins: words, an offset, or the first message of a time or later."""
    if type(value) is str and re.fullmatch(START_WORDS, value):
        return value
    if type(value) is int and 0 <= value <= I64:
        return value
    raise ValueError(start_place.must)


def start_time(start: str) -> int:
    """Read a start that is no offset, as OFFSETS takes it."""
    if start.startswith("@"):
        return int(start[1:])
    return EARLIEST if start == "earliest" else LATEST
