"""The operations on messages that wait for their next attempt in a channel."""

from __future__ import annotations

from typing import Final

from tinymq.catalog.channels import CHANNEL_NAME, CHANNEL_PATH, WHOSE
from tinymq.catalog.inflight import MOST_OFFSETS
from tinymq.catalog.shapes import DRY_RUN, MILLISECONDS, WHOLE, Schema, said, several
from tinymq.operation import DRY, Http, Operation, Parameter, table
from tinymq.wire.fields import I64, array, integer, optional

_WHOLE: Final = integer(0, I64)
_INDEX: Final = Parameter("partition", _WHOLE, text="Number of the partition.")
_OFFSETS: Final = Parameter(
    "offsets",
    array(_WHOLE, MOST_OFFSETS),
    text=f"Offsets of the messages, 1 to {MOST_OFFSETS}.",
)
_DONE: Final[dict[str, Schema]] = {
    "done": said(several(WHOLE), "Offsets with which it was done."),
    "missing": said(several(WHOLE), "Offsets that do not wait for their next attempt."),
}

#: By name.
RETRIES: Final[dict[str, Operation]] = table(
    Operation(
        "channel.wake",
        "operator",
        True,
        (WHOSE, CHANNEL_NAME, _INDEX, _OFFSETS, DRY),
        text="Let messages that wait for their next attempt come now.",
        http=Http("POST", f"{CHANNEL_PATH}:wake"),
        cli=("channel", "wake"),
        usage="MESSAGE",
        result={**_DONE, "dry_run": DRY_RUN},
    ),
    Operation(
        "channel.delay",
        "operator",
        True,
        (
            WHOSE,
            CHANNEL_NAME,
            _INDEX,
            _OFFSETS,
            Parameter(
                "due_ms",
                optional(_WHOLE),
                default=None,
                text="When they come then, in milliseconds since 1970; one of due_ms and delay_ms.",
            ),
            Parameter(
                "delay_ms",
                optional(_WHOLE),
                default=None,
                text="In how many milliseconds from now they come then.",
            ),
            DRY,
        ),
        text="Let messages that wait for their next attempt come at another time.",
        http=Http("POST", f"{CHANNEL_PATH}:delay"),
        cli=("channel", "delay"),
        usage="MESSAGE",
        result={**_DONE, "due_ms": said(MILLISECONDS, "When they come now."), "dry_run": DRY_RUN},
    ),
)
