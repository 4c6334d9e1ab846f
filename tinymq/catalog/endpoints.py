"""The operations on push endpoints: where the messages of a channel are sent to."""

from __future__ import annotations

from typing import Any, Final

from tinymq.catalog.channels import CHANNEL_NAME, CHANNEL_PATH, WHOSE
from tinymq.catalog.shapes import (
    DRY_RUN,
    MAYBE_STRING,
    MAYBE_WHOLE,
    MILLISECONDS,
    MORE,
    NUMBER,
    SILENT,
    STRING,
    TOTAL,
    TRUTH,
    WHOLE,
    said,
    several,
    shape,
)
from tinymq.operation import DRY, FILTER, LIMIT, NAME, Http, Operation, Parameter, table
from tinymq.outbound import MOST_URL
from tinymq.wire.fields import integer, optional, text
from tinymq.wire.fields import told as takes

PUSH_PATH: Final = f"{CHANNEL_PATH}/push"
#: How many headers an endpoint may add, and how long the value of one may be.
MOST_HEADERS: Final = 20
MOST_HEADER: Final = 2000
_MOST_SECRET: Final = 200


@takes(
    f"a map of at most {MOST_HEADERS} names to strings of at most {MOST_HEADER} characters",
    {
        "type": "object",
        "additionalProperties": {"type": "string", "maxLength": MOST_HEADER},
        "maxProperties": MOST_HEADERS,
    },
)
def headers(value: Any) -> dict[str, str]:
    """A map of names to strings; which names and characters may be is seen to where it is used."""
    if type(value) is not dict or len(value) > MOST_HEADERS:
        raise ValueError(headers.must)
    for name, content in value.items():
        if type(name) is not str or type(content) is not str or len(content) > MOST_HEADER:
            raise ValueError(headers.must)
    return value


#: A push endpoint in a list.
ENDPOINT: Final = shape(
    topic=said(STRING, "Name of the topic."),
    channel=said(STRING, "Name of the channel whose messages are sent."),
    url=said(STRING, "Where to."),
    timeout_ms=said(WHOLE, "How long an answer may take, in milliseconds."),
    concurrency=said(WHOLE, "Requests that each broker has open at once at most."),
    give_up=said(WHOLE, "Failures in a row after which it is paused."),
    headers=said(several(STRING), "Names of the headers that are added; values are not told."),
    set_ms=said(MILLISECONDS, "When it was set, or last let go on."),
    state=said(
        {"type": "string", "enum": ["active", "paused", "offline"]},
        "Offline: a broker that leads partitions of the topic does not answer.",
    ),
    why=said(STRING, "Why nothing is sent just now, or it is offline; empty if all is well."),
    since_ms=said(MILLISECONDS, "Since when the state is what it is, as far as is known."),
    in_flight=said(WHOLE, "Requests that are open."),
    delivered=said(WHOLE, "Messages that it took, since the brokers started."),
    failed=said(WHOLE, "Requests that failed, likewise."),
    delivered_s=said(NUMBER, "Messages that it takes in a second."),
    failed_s=said(NUMBER, "Requests that fail in a second."),
    last_status=said(MAYBE_WHOLE, "The last status that it answered; null before the first."),
    last_error=said(STRING, "What went wrong last; empty if nothing did."),
    last_error_ms=said(MAYBE_WHOLE, "When that was, in milliseconds since 1970."),
    p50_ms=said({"type": ["number", "null"]}, "Time until its answer, the median of the last."),
    p95_ms=said({"type": ["number", "null"]}, "The same of the slowest of twenty."),
    retry_at_ms=said(
        MAYBE_WHOLE, "Until when it asked to be left alone; null if it did not, or that is over."
    ),
)
_ONE: Final = {"endpoint": ENDPOINT, "silent": SILENT}
_CHANGED: Final = {**_ONE, "dry_run": DRY_RUN}

#: By name.
ENDPOINTS: Final[dict[str, Operation]] = table(
    Operation(
        "push.set",
        "operator",
        True,
        (
            WHOSE,
            CHANNEL_NAME,
            Parameter("url", text(MOST_URL), text="Where to: an http:// or https:// URL."),
            Parameter(
                "secret",
                optional(text(_MOST_SECRET)),
                default=None,
                text="What requests are signed with, whsec_ and base64; if it is not given, the "
                "present one stays, or one is made and told once.",
            ),
            Parameter(
                "timeout_ms",
                integer(100, 600_000),
                default=10_000,
                text="How long an answer may take, in milliseconds.",
            ),
            Parameter(
                "concurrency",
                integer(1, 1000),
                default=10,
                text="Requests that each broker has open at once at most.",
            ),
            Parameter(
                "headers",
                optional(headers),
                default=None,
                text="Headers that are added to each request; their values are never told again. "
                "If they are not given, the present ones stay.",
            ),
            Parameter(
                "give_up",
                integer(1, 1_000_000),
                default=20,
                text="Failures in a row after which it is paused.",
            ),
            DRY,
        ),
        text="Have the messages of a channel sent to a URL, in place of what was set before.",
        http=Http("PUT", PUSH_PATH),
        cli=("push", "set"),
        result={
            **_CHANGED,
            "secret": said(MAYBE_STRING, "The secret, if it was made just now; told only once."),
        },
    ),
    Operation(
        "push.list",
        "viewer",
        False,
        (
            Parameter("topic", optional(NAME), default=None, text="Only those of this topic."),
            FILTER,
            Parameter(
                "after",
                text(2049),
                default="",
                text="Begin behind this one, what the page before said.",
            ),
            LIMIT,
        ),
        text="List push endpoints in order of topic and channel.",
        http=Http("GET", "/push"),
        cli=("push", "ls"),
        result={
            "endpoints": several(ENDPOINT),
            "more": MORE,
            "after": said(MAYBE_STRING, "Where the next page begins; null when there is none."),
            "total": TOTAL,
            "silent": SILENT,
        },
    ),
    Operation(
        "push.info",
        "viewer",
        False,
        (WHOSE, CHANNEL_NAME),
        text="Describe the push endpoint of a channel.",
        http=Http("GET", PUSH_PATH),
        cli=("push", "info"),
        result=_ONE,
    ),
    Operation(
        "push.delete",
        "operator",
        True,
        (WHOSE, CHANNEL_NAME, DRY),
        text="Send the messages of a channel nowhere any more; the channel stays.",
        http=Http("DELETE", PUSH_PATH),
        cli=("push", "rm"),
        result=_CHANGED,
    ),
    Operation(
        "push.pause",
        "operator",
        True,
        (WHOSE, CHANNEL_NAME, Parameter("reason", text(200), default="", text="Why."), DRY),
        text="Send nothing to an endpoint until it is resumed; its messages wait.",
        http=Http("POST", f"{PUSH_PATH}:pause"),
        cli=("push", "pause"),
        result=_CHANGED,
    ),
    Operation(
        "push.resume",
        "operator",
        True,
        (WHOSE, CHANNEL_NAME, DRY),
        text="Let an endpoint go on that was paused, or that asked to be left alone.",
        http=Http("POST", f"{PUSH_PATH}:resume"),
        cli=("push", "resume"),
        result=_CHANGED,
    ),
    Operation(
        "push.test",
        "operator",
        True,
        (WHOSE, CHANNEL_NAME, DRY),
        text="Send one made-up message to an endpoint, and tell what it answers.",
        http=Http("POST", f"{PUSH_PATH}:test"),
        cli=("push", "test"),
        result={
            "ok": said(TRUTH, "Whether it would have been taken."),
            "status": said(MAYBE_WHOLE, "The status of the answer; null if there was none."),
            "error": said(STRING, "What went wrong; empty if nothing did."),
            "ms": said(NUMBER, "Milliseconds until the answer."),
            "answer": said(STRING, "The first KiB of the answer, as text."),
            "broker": said(STRING, "Name of the broker that sent it."),
            "dry_run": DRY_RUN,
        },
    ),
)
