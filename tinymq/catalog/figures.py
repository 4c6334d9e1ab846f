"""The shapes of what a running channel does: rates, totals, how it stands and why."""

from __future__ import annotations

from typing import Any, Final

from tinymq.catalog.shapes import MAYBE_WHOLE, STRING, WHOLE, Schema, said, several, shape

#: How a channel stands.
STATES: Final = ("consuming", "idle", "falling_behind", "paused", "no_consumers", "stuck")
#: Why a channel does not do more.
CAUSES: Final = (
    "offline",
    "paused",
    "no_consumers",
    "no_credit",
    "in_flight_limit",
    "full",
    "set_apart",
    "slow_consumer",
    "falling_behind",
    "poison",
    "waiting",
    "parked",
    "partition_skew",
    "expiring",
    "dead_letters_kept",
)
MAYBE_NUMBER: Final[Schema] = {"type": ["number", "null"]}
_A_SECOND: Final = said(MAYBE_NUMBER, "Messages a second, lately; null when not known yet.")

#: What is counted since the broker started, in the order in which people read it.
TOTALLED: Final = {
    "delivered": "Messages given out.",
    "redelivered": "Those of them that were given out before.",
    "finished": "Messages that were settled for good.",
    "requeued": "Messages that consumers gave back to come again.",
    "rejected": "Messages that consumers gave up.",
    "timed_out": "Messages whose lease was over.",
    "lost": "Messages whose consumer did not come back.",
    "given_up": "Messages that went, or will go, to the dead-letter topic.",
    "expired": "Those of them whose time to live was over.",
    "skipped": "Messages that retention took before they were settled.",
    "late": "Settles that came when the lease was lost.",
}
#: What is told by the second.
RATED: Final = (
    "delivered_s",
    "finished_s",
    "requeued_s",
    "timed_out_s",
    "published_s",
    "expired_s",
)

RATES: Final = shape(**dict.fromkeys(RATED, _A_SECOND))
TOTALS: Final = shape(**{name: said(WHOLE, text) for name, text in TOTALLED.items()})
_ORNULL: Final[dict[str, Any]] = {"type": ["object", "null"]}
_LAG_MS: Final = said(MAYBE_WHOLE, "Age of the oldest unsettled message; null if there is none.")

#: What a channel does, on all partitions or on one.
PACE: Final[dict[str, Schema]] = {
    "rates": RATES,
    "totals": said(TOTALS, "Since the brokers started."),
    "lag_ms": _LAG_MS,
    "trend_s": said(
        MAYBE_NUMBER, "By how many messages a second the lag grows; less than 0 if it shrinks."
    ),
    "clear_ms": said(MAYBE_WHOLE, "Until nothing is left, at this speed; null if it grows."),
}
#: The same of one partition; null is what its broker did not tell.
PARTITION_PACE: Final[dict[str, Schema]] = {
    "rates": {**RATES, **_ORNULL},
    "totals": {**TOTALS, **_ORNULL},
    "lag_ms": _LAG_MS,
    "trend_s": PACE["trend_s"],
    "clear_ms": PACE["clear_ms"],
}
#: How a channel stands, and why it does not do more.
STANDING: Final[dict[str, Schema]] = {
    "state": {"type": "string", "enum": list(STATES)},
    "why": said(
        several(
            shape(
                cause={"type": "string", "enum": list(CAUSES)},
                text=said(STRING, "A sentence with figures, for people."),
            )
        ),
        "What keeps it from doing more, the first cause first; empty if nothing does.",
    ),
}
