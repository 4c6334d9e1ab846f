"""The waiting messages of a partition, as schedules need them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from tinymq.errors import WireError
from tinymq.wire.records import Headers


class Due(NamedTuple):
    """
    A message that is to come later.

    Attributes:
        key: Its key.
        value: Its value.
        headers: Its headers, but for the one that names its schedule.
        due_ms: When it comes.
    """

    key: bytes | None
    value: bytes
    headers: Headers
    due_ms: int


class Delays(Protocol):
    """The waiting messages of one partition."""

    @property
    def next_id(self) -> int:
        """The delay id of the next message that is put."""

    def waiting(self, schedule: str) -> Sequence[tuple[int, int]]:
        """
        Return the ids and due times of the messages of a schedule that wait, in order of id.

        Args:
            schedule: Its mark.
        """

    def put(self, message: Due, schedule: str, done: Callable[[int | WireError], None]) -> None:
        """
        Let a message wait.

        Args:
            message: The message.
            schedule: The mark of its schedule.
            done: Told its id when it is as safe as the topic promises, or what is wrong.
        """

    def cancel(self, ids: Sequence[int], done: Callable[[list[int] | WireError], None]) -> None:
        """
        Take messages back; those that are on their way already come all the same.

        Args:
            ids: Their ids.
            done: Told those that never come, when that is safe, or what is wrong.
        """

    def put_since(self, schedule: str, first: int) -> bool:
        """
        Whether a message of a schedule was put, whatever became of it.

        Args:
            schedule: Its mark.
            first: Only ids from this one on.
        """
