"""The operations on members of channels, and on single messages of a running channel."""

from __future__ import annotations

from typing import Any, Final

from tinymq.catalog.channels import CHANNEL_NAME, CHANNEL_PATH, WHOSE
from tinymq.catalog.figures import MAYBE_NUMBER
from tinymq.catalog.shapes import (
    DRY_RUN,
    MAYBE_MILLISECONDS,
    MAYBE_STRING,
    MAYBE_WHOLE,
    MILLISECONDS,
    MORE,
    SILENT,
    STRING,
    TOTAL,
    WHOLE,
    Schema,
    said,
    several,
    shape,
)
from tinymq.operation import DRY, LIMIT, NAME, PARTITION, Http, Operation, Parameter, table
from tinymq.wire.fields import I64, array, choice, integer, optional, text

#: What can be asked for.
STATES: Final = ("any", "ready", "in_flight", "waiting", "parked", "given_up")
#: What can be done with a message in flight.
ACTS: Final = ("requeue", "finish", "extend", "dead_letter")
#: A year: longest delay.
_LONGEST_MS: Final = 365 * 24 * 3600 * 1000
MOST_OFFSETS: Final = 1000
_ENCODING: Final[Schema] = {"type": "string", "enum": ["string", "base64"]}
_AFTER: Final = Parameter(
    "after",
    optional(text(2400)),
    default=None,
    text="Begin behind this one, as the page before said.",
)
_NEXT: Final = said(MAYBE_STRING, "Where the next page begins; null when there is none.")

#: Of a record that may be gone by now.
_RECORD: Final[dict[str, Schema]] = {
    "size": said(MAYBE_WHOLE, "Bytes of its value; null if it was not looked up, or is gone."),
    "key": MAYBE_STRING,
    "key_encoding": _ENCODING,
}
#: Who holds something.
_HOLDER: Final[dict[str, Schema]] = {
    "broker": said(STRING, "Name of the broker that the consumer is connected to."),
    "broker_id": WHOLE,
    "client": said(MAYBE_WHOLE, "Number of its connection there; null while it has none."),
    "client_id": said(STRING, "What it calls itself; empty if that was forgotten."),
    "address": STRING,
}
#: A consumer of a channel at one broker.
MEMBER: Final = shape(
    **_HOLDER,
    agent=said(STRING, "Its software and version."),
    partitions=said(several(WHOLE), "Those that it takes messages of here."),
    credit=said(WHOLE, "Messages that it may still be given."),
    in_flight=said(WHOLE, "Messages that it holds."),
    oldest_ms=said(MAYBE_WHOLE, "For how long it has held the oldest of them."),
    delivered=said(WHOLE, "Messages given to it since it subscribed."),
    finished=WHOLE,
    requeued=WHOLE,
    timed_out=WHOLE,
    finished_s=said(MAYBE_NUMBER, "Messages a second, lately; null when not known yet."),
    slow_since_ms=said(MAYBE_MILLISECONDS, "Since when it is slow; null if it is not."),
    slow=said(STRING, "In what it is slow; empty if it is not."),
    absent_until_ms=said(
        MAYBE_MILLISECONDS, "Its link is lost; until then its messages are kept for it."
    ),
)
#: A message of a channel, as a look at it finds it.
PEEKED: Final = shape(
    partition=WHOLE,
    offset=WHOLE,
    state={"type": "string", "enum": list(STATES[1:])},
    attempt=said(WHOLE, "How often it was given out."),
    failures=said(WHOLE, "How often that failed."),
    due_ms=said(MAYBE_MILLISECONDS, "When it comes again, if it waits."),
    deadline_ms=said(MAYBE_MILLISECONDS, "When its lease is over, if it is in flight."),
    time_ms=said(MAYBE_MILLISECONDS, "When it was appended; null if it is gone."),
    **_RECORD,
    preview=said(MAYBE_STRING, "The beginning of its value."),
    preview_encoding=_ENCODING,
)
#: A message in the hands of a consumer.
IN_FLIGHT: Final = shape(
    topic=STRING,
    channel=STRING,
    partition=WHOLE,
    offset=WHOLE,
    **_HOLDER,
    attempt=said(WHOLE, "The number of this delivery, from 1."),
    failures=said(WHOLE, "How often it failed before."),
    since_ms=said(MILLISECONDS, "When it was given out."),
    deadline_ms=said(MILLISECONDS, "When its lease is, or was, over."),
    lease_ms=said(WHOLE, "How long a lease of the channel lasts; clients renew it in time."),
    state=said(
        {"type": "string", "enum": ["in_flight", "timed_out"]},
        "Those whose lease was over stay in the list for ten seconds.",
    ),
    **_RECORD,
)


def _list_of(name: str, rows: Schema, **more: Schema) -> dict[str, Any]:
    return {name: several(rows), "more": MORE, "after": _NEXT, **more, "silent": SILENT}


#: By name.
INFLIGHT: Final[dict[str, Operation]] = table(
    Operation(
        "channel.members",
        "viewer",
        False,
        (WHOSE, CHANNEL_NAME),
        text="List who takes messages of a channel, with what each holds.",
        http=Http("GET", f"{CHANNEL_PATH}/members"),
        cli=("channel", "members"),
        result={"members": several(MEMBER), "silent": SILENT},
    ),
    Operation(
        "channel.peek",
        "viewer",
        False,
        (
            WHOSE,
            CHANNEL_NAME,
            PARTITION,
            Parameter(
                "state",
                choice(*STATES),
                default="any",
                text="Only what is ready, in flight, waiting, parked or given up.",
            ),
            LIMIT,
            _AFTER,
        ),
        text="Look at the unsettled messages of a channel in order, without any effect.",
        http=Http("GET", f"{CHANNEL_PATH}/messages"),
        cli=("channel", "peek"),
        result=_list_of("messages", PEEKED),
    ),
    Operation(
        "inflight.list",
        "viewer",
        False,
        (
            Parameter("topic", optional(NAME), default=None, text="Only those of this topic."),
            Parameter("channel", optional(NAME), default=None, text="Only those of this channel."),
            Parameter(
                "client",
                optional(text(1024)),
                default=None,
                text="Only those of clients that call themselves so.",
            ),
            Parameter(
                "attempts",
                integer(1, I64),
                default=1,
                text="Only those given out so often, or more often.",
            ),
            Parameter(
                "older_ms",
                integer(0, I64),
                default=0,
                text="Only those given out so many milliseconds ago, or longer.",
            ),
            LIMIT,
            _AFTER,
        ),
        text="List messages in the hands of consumers, those given out first before the others.",
        http=Http("GET", "/inflight"),
        cli=("inflight", "ls"),
        result=_list_of("messages", IN_FLIGHT, total=TOTAL),
    ),
    Operation(
        "inflight.settle",
        "operator",
        True,
        (
            WHOSE,
            CHANNEL_NAME,
            Parameter("partition", integer(0, I64), text="Number of the partition."),
            Parameter(
                "offsets",
                array(integer(0, I64), MOST_OFFSETS),
                text=f"Offsets of the messages, 1 to {MOST_OFFSETS}.",
            ),
            Parameter(
                "act",
                choice(*ACTS),
                text="What becomes of them: given out again, settled, kept longer, or given up.",
            ),
            Parameter(
                "delay_ms",
                integer(0, _LONGEST_MS),
                default=0,
                text="Milliseconds until what is requeued comes again.",
            ),
            Parameter(
                "extend_ms",
                optional(integer(0, _LONGEST_MS)),
                default=None,
                text="Milliseconds from now until an extended lease is over; "
                "the channel's lease.ms if not given.",
            ),
            Parameter("reason", text(200), default="", text="Why, for people."),
            DRY,
        ),
        text="Requeue, finish, extend or give up messages that are in the hands of consumers.",
        http=Http("POST", f"{CHANNEL_PATH}/inflight:settle"),
        cli=("inflight", "settle"),
        usage="ACT MESSAGE",
        result={
            "done": said(several(WHOLE), "Offsets with which it was done."),
            "missing": said(several(WHOLE), "Offsets that are not in flight any more."),
            "dry_run": DRY_RUN,
        },
    ),
)
