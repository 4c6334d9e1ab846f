"""The waiting messages of a partition, by the delay log that the broker has for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tinymq.broker.producers import SCHEDULE_COPIES, SCHEDULES
from tinymq.broker.schedules.ports import Due
from tinymq.errors import WireError

if TYPE_CHECKING:
    from tinymq.broker.delays.delays import Delays


class DelayStore:
    """
    What schedules need of the waiting messages of a partition.

    Args:
        delays: All that waits in the partition.
    """

    def __init__(self, delays: Delays) -> None:
        self._delays = delays

    @property
    def next_id(self) -> int:
        """The delay id of the next message that is put."""
        return self._delays.log.end_offset

    def waiting(self, schedule: str) -> Sequence[tuple[int, int]]:
        """Return what waits, what is on its way into the topic among it."""
        delays = self._delays
        return sorted([*delays.scheduled(schedule), *delays.releasing.leaving(schedule)])

    def put(self, message: Due, schedule: str, done: Callable[[int | WireError], None]) -> None:
        """Let a message wait."""

        def told(ids: list[int] | WireError) -> None:
            done(ids if isinstance(ids, WireError) else ids[0])

        self._delays.put([message], schedule, told)

    def cancel(self, ids: Sequence[int], done: Callable[[list[int] | WireError], None]) -> None:
        """Take messages back."""
        self._delays.cancel(ids, done)

    def put_since(self, schedule: str, first: int) -> bool:
        """Look through the end of the delay log for a message of a schedule."""
        delays = self._delays
        log = delays.log
        if log.start_offset > first:
            return True  # it was freed since, for what lay there was dealt with
        for header in log.headers(max(first, log.start_offset)):
            if header.producer_id in (SCHEDULES, SCHEDULE_COPIES):
                batch = delays.batch(header.base_offset)
                if any(
                    each >= first and batch.schedule(place) == schedule
                    for place, each in enumerate(batch.ids)
                ):
                    return True
        return False
