"""
The policy of a channel: how its messages are given out, tried again and given up.

All settings can be altered while the channel runs: what is in flight keeps its
deadline, all else follows the new policy from then on.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final, Literal

from attrs import frozen

from tinymq.conditions import Condition
from tinymq.dotted import Dotted
from tinymq.errors import InvalidRequest
from tinymq.names import valid_name
from tinymq.settings import parse_duration, setting

_SECOND: Final = 1000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_YEAR: Final = 365 * _DAY


def _delay(text: str) -> int:
    if "," in text:
        raise ValueError(f"{text!r}: write several delays with spaces between them, not commas")
    delay = int(parse_duration(text) * _SECOND)
    if delay > _YEAR:
        raise ValueError(f"{text} is longer than a year")
    return delay


@frozen(kw_only=True)
class ChannelPolicy(Dotted):
    """How a channel treats its messages; a frozen value."""

    what = "channel"

    order: Literal["none", "key", "strict"] = setting(
        "none",
        "What is given out in the order of the log: nothing for sure, the messages of each key, "
        "or all messages of a partition.",
        choices=("none", "key", "strict"),
    )
    delivery: Literal["at_least_once", "at_most_once"] = setting(
        "at_least_once",
        "Whether a message comes again until it is settled, or counts as settled "
        "before it is given out.",
        choices=("at_least_once", "at_most_once"),
    )
    lease_ms: int = setting(
        _MINUTE,
        "How long a consumer may keep a message before it comes again; clients renew it.",
        unit="milliseconds",
        low=100,
        high=7 * _DAY,
    )
    handler_ms: int | None = setting(
        12 * _HOUR,
        "How long a handler may run, however often its lease is renewed; none is no bound.",
        unit="milliseconds",
        low=100,
        high=_YEAR,
        optional=True,
    )
    attempts: int = setting(
        10,
        "How often a message may fail before it goes to the dead-letter topic.",
        unit="failures",
        low=1,
        high=1_000_000_000,
    )
    backoff: tuple[str, ...] = setting(
        ("1s", "5s", "30s", "2m", "10m"),
        "Delays before a failed message comes again, after the first failure, the second and "
        "so on; the last one stands for all that follow.",
        low=1,
        high=100,
    )
    jitter_percent: int = setting(
        20,
        "By how much a delay of the back-off may be longer, by chance.",
        unit="percent",
        low=0,
        high=100,
    )
    dead_letter: str = setting(
        "",
        "The topic for messages that are given up; empty is the one named after topic and channel.",
        low=0,
        high=200,
    )
    max_length: int | None = setting(
        None,
        "How many unsettled messages a partition of the channel may have; none is no bound.",
        unit="messages",
        low=1,
        high=10**15,
        optional=True,
    )
    overflow: Literal["dead_letter", "refuse"] = setting(
        "dead_letter",
        "What happens beyond max.length: the oldest messages go to the dead-letter topic, "
        "or producers are refused.",
        choices=("dead_letter", "refuse"),
    )
    filter: tuple[str, ...] = setting(
        (),
        "Conditions on headers, all of which a message must meet: name, !name, name=value "
        "or name!=value.",
        low=0,
        high=20,
    )

    def __attrs_post_init__(self) -> None:
        for name, check in (("backoff", lambda: self.delays), ("filter", lambda: self.conditions)):
            try:
                check()
            except ValueError as error:
                raise InvalidRequest(f"{name}: {error}", field=name) from None
        if self.dead_letter:
            valid_name(self.dead_letter)

    @cached_property
    def delays(self) -> tuple[int, ...]:
        """The back-off in milliseconds."""
        return tuple(_delay(text) for text in self.backoff)

    @cached_property
    def conditions(self) -> tuple[Condition, ...]:
        """The filter, ready for use."""
        return tuple(Condition.parse(text) for text in self.filter)

    @property
    def looks(self) -> bool:
        """Whether somebody must look at messages before they are given out."""
        return self.order == "key" or bool(self.filter)

    def delay(self, failures: int, chance: float) -> int:
        """
        Return how long a message waits that failed.

        Args:
            failures: How often it failed by now, at least once.
            chance: From 0 to 1, for the jitter.

        Returns:
            Milliseconds.
        """
        delay = self.delays[min(failures, len(self.delays)) - 1]
        return delay + int(delay * self.jitter_percent / 100 * chance)


DEFAULT_POLICY: Final = ChannelPolicy()
