"""
Which broker leads a new partition; what exists is never moved.

Brokers that lead the fewest partitions come first, and equal ones take turns. A topic
is spread evenly, too, as long as the brokers are about equal (`_NEAR`): what matters to
its users is that all of them serve it. Where they are not, the emptier ones get more of
it, but no broker more than twice its share: a new and empty one must not become the
only one that serves what is made next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from attrs import frozen

from tinymq.errors import InvalidRequest, StateError

#: Brokers are about equal when they lead so many partitions more than the least,
#: or this share more, whichever is more.
_NEAR: Final = 2
_NEAR_SHARE: Final = 0.1

_MOST_SHARE: Final = 2
_MOST_TEXT: Final = 500


@frozen(kw_only=True)
class Load:
    """
    What a broker says of itself with each sign of life.

    Attributes:
        partitions: How many it has open.
        bytes: What they take on its disk.
        rate_in: Bytes that are published to it in a second.
        refusing: Why it refuses to be published to; None if it does not.
    """

    partitions: int = 0
    bytes: int = 0
    rate_in: float = 0.0
    refusing: str | None = None

    def to_mapping(self) -> dict[str, int | float | str | None]:
        """Return it as it travels."""
        return {
            "partitions": self.partitions,
            "bytes": self.bytes,
            "rate_in": self.rate_in,
            "refusing": self.refusing,
        }

    @classmethod
    def from_mapping(cls, given: Mapping[str, Any]) -> Load:
        """
        Read what `to_mapping` gave; what is not there has its default.

        Raises:
            InvalidRequest: Something is of the wrong kind.
        """
        match {**cls().to_mapping(), **given}:
            case {
                "partitions": int() as partitions,
                "bytes": int() as size,
                "rate_in": int() | float() as rate_in,
                "refusing": str() | None as refusing,
            }:
                return cls(
                    partitions=partitions,
                    bytes=size,
                    rate_in=float(rate_in),
                    refusing=None if refusing is None else refusing[:_MOST_TEXT],
                )
        raise InvalidRequest("the load of a broker is of the wrong kind", field="load")


class Standing(NamedTuple):
    """
    How full a broker is.

    Attributes:
        led: How many partitions it leads.
        bytes: What it has on its disk.
    """

    led: int
    bytes: int = 0


def place(
    count: int, standings: Mapping[int, Standing], leaders: Iterable[int] = ()
) -> tuple[int, ...]:
    """
    Choose the leaders of new partitions of one topic.

    Args:
        count: How many partitions are new.
        standings: The brokers that may lead them, by id.
        leaders: Those of the partitions that the topic has.

    Returns:
        A broker's id for each new partition.

    Raises:
        StateError: No broker may.
    """
    if not standings:
        raise StateError("no broker is registered yet; try again in a moment")
    taken = Counter(leaders)
    most = _MOST_SHARE * -(-(count + taken.total()) // len(standings))
    led = {broker: standing.led for broker, standing in standings.items()}

    def order(broker: int) -> tuple[int, int, int, int]:
        return taken[broker], led[broker], standings[broker].bytes, broker

    chosen = []
    for _ in range(count):
        free = [broker for broker in led if taken[broker] < most]
        least = min(led[broker] for broker in free)
        near = least + max(_NEAR, int(least * _NEAR_SHARE))
        best = min((broker for broker in free if led[broker] <= near), key=order)
        chosen.append(best)
        taken[best] += 1
        led[best] += 1
    return tuple(chosen)
