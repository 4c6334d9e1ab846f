"""The operations on brokers and clients, on what changes, and of lookup mode."""

from __future__ import annotations

from typing import Final

from tinymq.catalog.shapes import (
    BROKER,
    BROKER_ROW,
    CLIENT,
    DRY_RUN,
    MAYBE_STRING,
    MILLISECONDS,
    MORE,
    SILENT,
    STRING,
    TOTAL,
    TRUTH,
    WHOLE,
    said,
    several,
    shape,
)
from tinymq.config import LOG_LEVELS
from tinymq.operation import (
    AFTER,
    ANY_BROKER,
    DRY,
    FILTER,
    LIMIT,
    THE_BROKER,
    WHICH,
    Http,
    Operation,
    Parameter,
    table,
)
from tinymq.operation import (
    BROKER as WHICH_BROKER,
)
from tinymq.wire.fields import I64, boolean, choice, integer, optional, text

#: Longest wait for a change.
MOST_WAIT_MS: Final = 60_000
#: The least important log lines that are written.
LEVEL: Final = Parameter(
    "level", choice(*LOG_LEVELS), text="The least important log lines that are written."
)
_ONE_BROKER: Final = "/brokers/{broker}"
_ONE_CLIENT: Final = "/clients/{broker}/{id}"
_CLIENT_ID: Final = Parameter(
    "id", integer(0, I64), text="Number of the client's connection at its broker."
)

#: By name.
CLUSTER: Final[dict[str, Operation]] = table(
    Operation(
        "broker.list",
        "viewer",
        False,
        (),
        text="List the brokers, those that are gone but lead partitions among them.",
        http=Http("GET", "/brokers"),
        cli=("node", "ls"),
        result={"brokers": several(BROKER_ROW), "silent": SILENT},
    ),
    Operation(
        "broker.drain",
        "admin",
        True,
        (
            THE_BROKER,
            Parameter("undo", boolean, default=False, text="Give it new partitions again."),
            DRY,
        ),
        text="Give a broker no new partitions, or give it some again; what it leads stays.",
        http=Http("POST", f"{_ONE_BROKER}:drain"),
        cli=("node", "drain"),
        result={
            "broker": shape(id=WHOLE, name=STRING),
            "partitions": said(WHOLE, "How many it leads, and keeps."),
            "draining": said(TRUTH, "Whether it gets no new partitions."),
            "changed": said(TRUTH, "Whether it was not so before."),
            "dry_run": DRY_RUN,
        },
    ),
    Operation(
        "broker.info",
        "viewer",
        False,
        (WHICH_BROKER,),
        text="Describe a broker, and whether it takes publishing.",
        http=Http("GET", _ONE_BROKER),
        cli=("node", "info"),
        usage="BROKER",
        result={
            "broker": BROKER,
            "ready": said(TRUTH, "Whether it takes publishing."),
            "reason": said(MAYBE_STRING, "Why it does not."),
        },
    ),
    Operation(
        "broker.log_level",
        "admin",
        True,
        (LEVEL, WHICH_BROKER, DRY),
        text="Change which log lines a broker writes, until its next start.",
        http=Http("POST", f"{_ONE_BROKER}:log_level"),
        cli=("log-level",),
        result={
            "level": STRING,
            "before": said(STRING, "The level until now."),
            "dry_run": DRY_RUN,
        },
    ),
    Operation(
        "client.list",
        "viewer",
        False,
        (ANY_BROKER, FILTER, AFTER, LIMIT),
        text="List clients, slow ones first, then by name and number.",
        http=Http("GET", "/clients"),
        cli=("clients", "ls"),
        result={
            "clients": several(CLIENT),
            "more": MORE,
            "after": said(MAYBE_STRING, "Where the next page begins; null when there is none."),
            "total": TOTAL,
            "silent": SILENT,
        },
    ),
    Operation(
        "client.info",
        "viewer",
        False,
        (THE_BROKER, _CLIENT_ID),
        text="Describe one client.",
        http=Http("GET", _ONE_CLIENT),
        cli=("clients", "info"),
        usage="BROKER/ID",
        result={"client": CLIENT},
    ),
    Operation(
        "client.kick",
        "operator",
        True,
        (
            THE_BROKER,
            _CLIENT_ID,
            Parameter(
                "reason",
                text(500),
                default="an operator ended it",
                text="Told to the client and written to the log.",
            ),
            DRY,
        ),
        text="Tell a client why, and end its connection; it may come back by itself.",
        http=Http("POST", f"{_ONE_CLIENT}:kick"),
        cli=("clients", "kick"),
        usage="BROKER/ID",
        result={"client": CLIENT, "dry_run": DRY_RUN},
    ),
    Operation(
        "cluster.watch",
        "viewer",
        False,
        (
            Parameter(
                "revision",
                optional(integer(0, I64)),
                default=None,
                text="Tell what has changed since this revision; without it, only which it is now.",
            ),
            Parameter(
                "wait_ms",
                integer(0, MOST_WAIT_MS),
                default=30_000,
                text="How long to wait for a change, in milliseconds.",
            ),
        ),
        text="Tell what has changed since a revision, waiting for something if need be.",
        http=Http("GET", "/cluster/changes"),
        cli=("watch",),
        result={
            "revision": said(WHOLE, "What to ask with next."),
            "changes": several(
                shape(
                    what={"type": "string", "enum": ["topic", "channel", "broker"]},
                    name=STRING,
                    change={"type": "string", "enum": ["made", "changed", "gone"]},
                )
            ),
        },
    ),
    Operation(
        "lookup.find",
        "viewer",
        False,
        (WHICH,),
        text="Tell which independent brokers have a topic.",
        http=Http("GET", "/lookup/topics/{name}"),
        cli=("lookup", "find"),
        result={
            "nodes": several(
                shape(
                    node=said(STRING, "Id of the broker's data, 32 hex digits."),
                    name=STRING,
                    host=STRING,
                    port=WHOLE,
                    zone=STRING,
                    since_ms=MILLISECONDS,
                )
            )
        },
    ),
    Operation(
        "lookup.list",
        "viewer",
        False,
        (AFTER, LIMIT),
        text="List the topics of independent brokers in order of their names.",
        http=Http("GET", "/lookup/topics"),
        cli=("lookup", "ls"),
        result={"topics": several(STRING), "more": MORE},
    ),
)
