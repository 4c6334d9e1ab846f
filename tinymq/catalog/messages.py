"""The operations on single messages."""

from __future__ import annotations

from typing import Final

from tinymq.catalog.shapes import (
    MAYBE_MILLISECONDS,
    MAYBE_STRING,
    MILLISECONDS,
    STRING,
    TRUTH,
    WHOLE,
    said,
    several,
    shape,
)
from tinymq.operation import NAME, Http, Operation, Parameter, table
from tinymq.wire.fields import I64, integer

_WHOLE: Final = integer(0, I64)

#: What can happen to a message in a channel.
HAPPENINGS: Final = (
    "delivered",
    "finished",
    "requeued",
    "rejected",
    "timed_out",
    "lost",
    "given_back",
    "given_up",
    "expired",
    "dead_lettered",
    "skipped",
    "removed",
    "revived",
    "rescheduled",
)
#: Where a message of a channel can be.
STATES: Final = ("new", "ready", "in_flight", "waiting", "parked", "given_up", "settled")

#: By name.
MESSAGES: Final[dict[str, Operation]] = table(
    Operation(
        "message.life",
        "viewer",
        False,
        (
            Parameter("topic", NAME, text="Name of the topic."),
            Parameter("partition", _WHOLE, text="The partition's number."),
            Parameter("offset", _WHOLE, text="The message's offset."),
        ),
        text="Tell what the channels of a topic did with one message.",
        http=Http("GET", "/topics/{topic}/partitions/{partition}/messages/{offset}/life"),
        cli=("message", "life"),
        result={
            "events": said(
                several(
                    shape(
                        channel=said(STRING, "Name of the channel."),
                        time_ms=MILLISECONDS,
                        what={"type": "string", "enum": list(HAPPENINGS)},
                        attempt=said(WHOLE, "Which delivery it is about; 0 if about none."),
                        client_id=said(
                            MAYBE_STRING,
                            "What the client calls itself, or its address; null if about none.",
                        ),
                        text=said(STRING, "More about it, for people; may be empty."),
                    )
                ),
                "What happened, in order.",
            ),
            "channels": several(
                shape(
                    channel=said(STRING, "Name of the channel."),
                    state=said({"type": "string", "enum": list(STATES)}, "Where it is now."),
                )
            ),
            "since_ms": said(
                MAYBE_MILLISECONDS, "What is older has been forgotten; null if nothing has."
            ),
            "more": said(TRUTH, "Whether there was more than could be read or shown."),
        },
    ),
)
