"""The ids that a partition has seen, without any broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import pytest
from typing_extensions import override

from tinymq.broker.dedup.seen import Known, Room, SeenIds


class Counted(bytes):
    """An id that counts how often one is compared."""

    compared: ClassVar[list[int]] = [0]

    @override
    def __eq__(self, other: object) -> bool:
        self.compared[0] += 1
        return bytes.__eq__(self, other)

    __hash__ = bytes.__hash__


def ids(count: int) -> list[bytes | None]:
    """Make ids."""
    return [Counted(number.to_bytes(16, "big")) for number in range(count)]


@pytest.mark.parametrize(
    "look",
    [
        lambda seen, again: seen.repeats(again, 5000, 8),
        lambda seen, again: seen.before(again, 5000),
    ],
    ids=["published", "answered"],
)
def test_a_batch_that_comes_again_is_looked_up_at_once(
    look: Callable[[SeenIds, list[bytes | None]], Known],
) -> None:
    """Its ids are not each looked for among all that came with them."""
    count = 1000
    seen = SeenIds(Room(10_000), 1000)
    seen.add([each for each in ids(count) if each is not None], range(7, 7 + count), 5)
    Counted.compared[0] = 0

    found = look(seen, ids(count))
    assert found == [(place, 7 + place) for place in range(count)]
    assert Counted.compared[0] < 10 * count
