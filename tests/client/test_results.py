"""What calls return is short to look at, however much was sent."""

from __future__ import annotations

import pytest

from tinymq.client.core.batches import Batch, Group
from tinymq.client.core.results import Account, Failed, PartlySent, Run, Sent, joined
from tinymq.errors import StorageFull


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([], []),
        ([(0, 5, 2), (0, 0, 5)], [(0, 0, 7)]),
        ([(1, 0, 1), (0, 0, 1), (1, 1, 1)], [(0, 0, 1), (1, 0, 2)]),
        ([(0, 0, 2), (0, 3, 1)], [(0, 0, 2), (0, 3, 1)]),
        ([(0, 0, 2), (1, 2, 1)], [(0, 0, 2), (1, 2, 1)]),
        ([(0, -1, 2), (0, -1, 3)], [(0, -1, 5)]),
    ],
)
def test_runs_are_joined(runs: list[Run], expected: list[Run]) -> None:
    """What lies one behind the other in a partition is one run, in order."""
    assert expected == joined(runs)


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (Sent(0, []), "<Sent 0 records, nowhere>"),
        (Sent(2, [(0, 7, 2)]), "<Sent 2 records, 0@7..8>"),
        (Sent(2, [(3, -1, 2)]), "<Sent 2 records, 3@?>"),
        (
            Sent(6, [(number, 0, 1) for number in range(6)], volatile=True),
            "<Sent 6 records, 0@0..0, 1@0..0, 2@0..0, 3@0..0 and 2 more, in memory only>",
        ),
    ],
)
def test_sent_is_short(sent: Sent, expected: str) -> None:
    """A person sees how many, where, and what that is worth."""
    assert expected == repr(sent)


def test_account_is_short() -> None:
    """Failed messages are counted, not printed."""
    account = Account(1, 0, 1, (Failed("t", b"x" * 1000, StorageFull()),), 0)

    assert "failed=<1 of them>" in repr(account)
    assert len(repr(account)) < 100


def test_a_group_sums_up() -> None:
    """Batches of one call are one result, volatile if one of them is."""
    ended: list[Group] = []
    group = Group("t", 4, ended.append)
    group.expected = 3
    for base in (2, 0):
        batch = Batch([b"a", b"b"], 0.0, 0)
        batch.base_offset, batch.volatile = base, base == 0
        group.settle(batch, 1)

    assert not ended
    bad = Batch([b"c"], 0.0, 0)
    bad.error = StorageFull()
    group.settle(bad, 1)
    assert ended == [group]
    with pytest.raises(PartlySent) as raised:
        group.result()
    assert raised.value.sent == Sent(4, [(1, 0, 4)], volatile=True)
