"""The administrative calls on messages that are not due yet."""

from __future__ import annotations

from typing import Any, TypeVar

from tinymq.client.core.calls import Calls
from tinymq.client.core.results import Delayed, Position
from tinymq.client.core.timing import Moment, Span, at_ms, delay_ms
from tinymq.errors import UsageError

#: What a call returns: a result, or what becomes one.
R = TypeVar("R")

#: A delayed message: what `send` gave, or its place as text, such as ``orders/0~17``.
Place = Delayed | Position | str


class DelayedCalls(Calls[R]):
    """Administrative operations on delayed messages; every one ends as `operate` does."""

    def list_delayed(
        self, topic: str | None = None, *, after: str = "", limit: int = 100, **which: Any
    ) -> R:
        """
        List messages that are not due yet, in order of their time.

        Args:
            topic: Only those of this topic.
            after: Where the last answer said that the next page begins.
            limit: Most messages in the answer.
            **which: Only some: of a ``partition``, with a ``key``, due from
                ``since_ms`` to ``until_ms``, of a ``schedule``. With a ``channel``
                instead: what waits for its next attempt there.
        """
        return self.operate("delayed.list", topic=topic, after=after, limit=limit, **which)

    def delayed_histogram(self, topic: str | None = None, *, channel: str | None = None) -> R:
        """
        Count messages that are not due yet by when they are.

        Args:
            topic: Only those of this topic.
            channel: Instead, what waits for its next attempt in this channel of it.
        """
        return self.operate("delayed.histogram", topic=topic, channel=channel)

    def delayed(self, place: Place) -> R:
        """
        Look at one message that is not due yet.

        Args:
            place: What `send` gave, or ``TOPIC/PARTITION~ID``.
        """
        topic, partition, (number,) = _places((place,))
        return self.operate("delayed.get", topic=topic, partition=partition, id=number)

    def cancel_delayed(self, *places: Place, dry_run: bool = False) -> R:
        """
        Cancel messages that are not due yet; they never come.

        Args:
            *places: Which, of one partition: what `send` gave, or ``TOPIC/PARTITION~ID``.
            dry_run: Say what would happen, and change nothing.
        """
        topic, partition, ids = _places(places)
        return self.operate(
            "delayed.cancel", topic=topic, partition=partition, ids=ids, dry_run=dry_run
        )

    def delayed_now(self, *places: Place, dry_run: bool = False) -> R:
        """
        Let messages that are not due yet come now.

        Args:
            *places: Which, of one partition, as for `cancel_delayed`.
            dry_run: Say what would happen, and change nothing.
        """
        topic, partition, ids = _places(places)
        return self.operate(
            "delayed.now", topic=topic, partition=partition, ids=ids, dry_run=dry_run
        )

    def move_delayed(
        self,
        *places: Place,
        delay: Span | None = None,
        at: Moment | None = None,
        dry_run: bool = False,
    ) -> R:
        """
        Let messages that are not due yet come at another time.

        Args:
            *places: Which, of one partition, as for `cancel_delayed`.
            delay: How long from now: seconds or a timedelta.
            at: When instead: a datetime with its zone, or milliseconds since the epoch.
            dry_run: Say what would happen, and change nothing.

        Raises:
            InvalidDelay: The time is out of its range.
            UsageError: Not one of delay and at.
        """
        topic, partition, ids = _places(places)
        return self.operate(
            "delayed.move",
            topic=topic,
            partition=partition,
            ids=ids,
            dry_run=dry_run,
            **_time(delay, at),
        )

    def apply_delayed(  # noqa: PLR0913 - the arguments of the operation
        self,
        act: str,
        topic: str,
        *,
        delay: Span | None = None,
        at: Moment | None = None,
        after: str = "",
        limit: int = 100,
        dry_run: bool = False,
        **which: Any,
    ) -> R:
        """
        Cancel, release or move what fits a filter, one step.

        The answer says where the next step begins.

        Args:
            act: ``cancel``, ``now`` or ``move``.
            topic: The topic.
            delay: To ``move``: how long from now.
            at: To ``move``: when instead.
            after: Where the last answer said that the next step begins.
            limit: Most messages of this step.
            dry_run: Say what would happen, and change nothing.
            **which: As for `list_delayed`, but for a ``channel``.
        """
        return self.operate(
            "delayed.apply",
            act=act,
            topic=topic,
            after=after,
            limit=limit,
            dry_run=dry_run,
            **(_time(delay, at) if act == "move" else {}),
            **which,
        )


def _time(delay: Span | None, at: Moment | None) -> dict[str, int]:
    if (delay is None) == (at is None):
        raise UsageError("give one of delay and at")
    return {"due_ms": at_ms(at)} if delay is None else {"delay_ms": delay_ms(delay)}


def _places(places: tuple[Place, ...]) -> tuple[str, int, list[int]]:
    """Tell topic, partition and ids of places."""
    found: list[Delayed] = []
    for place in places:
        if isinstance(place, Position):
            raise UsageError(f"{place} was sent at once, and waits no longer")
        found.append(place if isinstance(place, Delayed) else Delayed.parse(place))
    homes = {(place.topic, place.partition) for place in found}
    if len(homes) != 1:
        raise UsageError("name one or more delayed messages of one partition in a call")
    ((topic, partition),) = homes
    return topic, partition, [place.id for place in found]
