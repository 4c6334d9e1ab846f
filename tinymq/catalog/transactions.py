"""The operations on transactions that are under way."""

from __future__ import annotations

from typing import Final

from tinymq.catalog.shapes import (
    DRY_RUN,
    MAYBE_STRING,
    MILLISECONDS,
    MORE,
    SILENT,
    STRING,
    WHOLE,
    said,
    several,
    shape,
)
from tinymq.operation import AFTER, DRY, LIMIT, NAME, Http, Operation, Parameter, table
from tinymq.wire.fields import choice, optional

#: What may become of a transaction.
STATES: Final = ("open", "committing", "aborting")

_ID: Final = Parameter("transactional_id", NAME, text="The producer's transactional id.")

#: A transaction that is under way.
TRANSACTION: Final = shape(
    transactional_id=STRING,
    producer_id=WHOLE,
    epoch=said(WHOLE, "With the producer id, the identity of this one transaction."),
    state=said(
        {"type": "string", "enum": list(STATES)},
        "Open, or decided but not known to all of its partitions yet.",
    ),
    since_ms=said(MILLISECONDS, "Since when it is open, or decided."),
    timeout_ms=said(WHOLE, "After how many milliseconds it is aborted if nobody ends it."),
    partitions=said(
        several(shape(topic=STRING, partition=WHOLE)),
        "Where it has something, as far as they told; of a decided one those that do not know yet.",
    ),
    client=said(STRING, "What the producer's client calls itself."),
)

#: By name.
TRANSACTIONS: Final[dict[str, Operation]] = table(
    Operation(
        "transaction.list",
        "viewer",
        False,
        (
            Parameter(
                "state",
                optional(choice(*STATES)),
                default=None,
                text="Only those in this state: open, committing or aborting.",
            ),
            LIMIT,
            AFTER,
        ),
        text="List the transactions that are under way, by the names of their producers.",
        http=Http("GET", "/transactions"),
        cli=("transaction", "ls"),
        result={
            "transactions": several(TRANSACTION),
            "more": MORE,
            "after": said(MAYBE_STRING, "Where the next page begins; null when there is none."),
            "silent": SILENT,
        },
    ),
    Operation(
        "transaction.abort",
        "operator",
        True,
        (_ID, DRY),
        text="Abort the transaction of a producer; the producer hears of it when it goes on.",
        http=Http("POST", "/transactions/{transactional_id}:abort"),
        cli=("transaction", "abort"),
        result={"transaction": TRANSACTION, "dry_run": DRY_RUN},
    ),
)
