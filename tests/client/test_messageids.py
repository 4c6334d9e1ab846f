"""Message ids: how they are given, where their records go, and what is told of repeats."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any
from uuid import UUID

import pytest

from tinymq.client.core.batches import Batch, Group
from tinymq.client.core.intake import many_records, one_record
from tinymq.client.core.messageids import message_id
from tinymq.client.core.metadata import TopicInfo
from tinymq.client.core.outcomes import outcomes
from tinymq.client.core.results import Position, Sent
from tinymq.client.core.routes import Route
from tinymq.client.core.timing import timing_of, timings_of
from tinymq.errors import UsageError
from tinymq.limits import DEFAULT_LIMITS

TEXT = "0189d6f0-7c1e-7000-8000-000000000001"


class TestIds:
    def test_forms(self) -> None:
        """An id is 16 bytes, a UUID as object or text, or any text by its hash."""
        plain = bytes(range(16))
        assert message_id(plain) == message_id(bytearray(plain)) == plain
        assert message_id(UUID(TEXT)) == message_id(TEXT) == UUID(TEXT).bytes
        for text in ("order-17", "", "x" * 36, "ä\udc80"):
            data = text.encode("utf-8", "surrogatepass")
            assert message_id(text) == blake2b(data, digest_size=16).digest()

    @pytest.mark.parametrize("given", [b"", b"x" * 15, b"x" * 17, 5, 1.5, ["x"], object()])
    def test_wrong(self, given: Any) -> None:
        """Anything else is refused, with what there is."""
        with pytest.raises(UsageError, match="16 bytes"):
            timing_of(None, None, None, 0.0, given)

    def test_many(self) -> None:
        """Many records need as many ids, of which some may be None."""
        ids = timings_of(None, None, None, 0.0, ["a", None])
        assert ids is not None
        found = ids(2)
        assert found is not None
        assert found.ids == [message_id("a"), None]
        assert (found.dues, found.ttls) == (None, None)
        for wrong in (["a"], "ab", b"ab", 5):
            timing = timings_of(None, None, None, 0.0, wrong)
            assert timing is not None
            with pytest.raises(UsageError, match="2 values need as many ids"):
                timing(2)


class TestPlace:
    def route(self, config: dict[str, Any]) -> Route:
        """A route to a topic of eight partitions."""
        route = Route("t", "sticky", lambda: 0.5)
        route.learn(TopicInfo("t", bytes(16), (1,) * 8, config))
        return route

    def test_by_id(self) -> None:
        """Records with the same id and no key come to the same partition; keys go before."""
        route = self.route({})
        for number in range(20):
            row = one_record(
                b"v", None, None, DEFAULT_LIMITS, timing_of(None, None, None, 0, str(number))
            )
            mark = route.mark(row)
            assert mark == message_id(str(number))
            assert mark is not None
            assert route.with_mark(mark) == route.choose(mark)
        ids = [message_id("1"), message_id("2"), None]
        parts = {
            place: part
            for part, places in route.split([None, b"k", None], 3, ids).items()
            for place in places
        }
        assert parts[0] == route.with_mark(message_id("1"))
        assert parts[1] == route.choose(b"k")

    def test_by_header(self) -> None:
        """So do records with the header by which their topic knows them."""
        route = self.route({"dedup.by": "header:order"})
        headers: Any = [[("x", b"1"), ("order", b"17")], [], {"order": b"18"}]
        rows = many_records([b"a", b"b", b"c"], None, headers, DEFAULT_LIMITS)
        assert route.marks(rows) == [b"17", None, b"18"]
        assert route.mark(one_record(b"a", None, headers[0], DEFAULT_LIMITS)) == b"17"
        for config in ({}, {"dedup.by": "id"}, {"dedup.by": 5}):
            assert self.route(config).marks(rows) is None
            assert (
                self.route(config).mark(one_record(b"a", None, headers[0], DEFAULT_LIMITS)) is None
            )


class TestTold:
    @pytest.fixture
    def batch(self) -> Batch:
        """Return a stored batch of which some were there before."""
        batch = Batch([b"a", b"b", b"c", b"d"], 0.0, 0)
        batch.base_offset, batch.timestamp = 100, 5
        batch.known = {1: 7, 2: 8}
        return batch

    def test_each(self, batch: Batch) -> None:
        """A repeat is told with the offset of the first one, others with their own."""
        assert batch.mixed
        assert [*outcomes("t", 3, batch)] == [
            Position("t", 3, 100, 5, volatile=False),
            Position("t", 3, 7, -1, volatile=False, duplicate=True),
            Position("t", 3, 8, -1, volatile=False, duplicate=True),
            Position("t", 3, 103, 5, volatile=False),
        ]

    def test_many(self, batch: Batch) -> None:
        """Of many the repeats are counted, and stand apart."""
        told: list[Sent] = []
        group = Group("t", 4, lambda group: told.append(group.result()))
        group.expected = 1
        group.settle(batch, 3)
        (sent,) = told
        assert sent.count == 4
        assert sent.positions == [(3, 100, 1), (3, 103, 1)]
        assert sent.duplicates == [(3, 7, 2)]
        assert "3=7..8" in repr(sent)
