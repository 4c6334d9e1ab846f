"""Tables are not made anew for each binding that comes or goes."""

from __future__ import annotations

from types import MappingProxyType

import attrs
import pytest

from tests.broker.routing.exchanging import exchange_of
from tests.fakes.broker import BrokerFixture
from tinymq.broker.routing.tables import Sight
from tinymq.routing import Binding, Exchange, Kind, Terms
from tinymq.wire.records import RecordBatch, encode_batch


def binding(number: int, kind: Kind, target: str) -> Binding:
    """Make a binding that is met by a number."""
    terms = {
        "direct": Terms(key=str(number)),
        "topic": Terms(key=f"*.{number}"),
        "headers": Terms(headers=(f"n={number}",)),
        "rule": Terms(rule=f"key == '{number}'"),
        "fanout": Terms(),
    }
    return Binding(id=f"{number:08x}", target=target, terms=terms[kind], created_ms=1)


def exchange(kind: Kind, *bindings: Binding) -> Exchange:
    """Make an exchange."""
    found = MappingProxyType({each.id: each for each in bindings})
    return Exchange(kind=kind, dead_letter="d", created_ms=1, bindings=found)


def targets(sight: Sight, number: int, kind: Kind) -> tuple[str, ...]:
    """Find the targets of a record that meets the bindings of a number."""
    key = b"x.%d" % number if kind == "topic" else b"%d" % number
    batch = RecordBatch(encode_batch([b""], keys=[key], headers=[[("n", b"%d" % number)]]))
    return sight.targets(sight.look(batch), 0)


@pytest.mark.parametrize("kind", ["direct", "topic", "headers", "fanout", "rule"])
def test_one_more_or_less_is_taken_over(kind: Kind) -> None:
    """The same table has what is there now: some came, one went, another took its id."""
    old = [binding(number, kind, f"t{number % 3}") for number in range(20)]
    sight = first = Sight(exchange(kind, *old))
    more = [binding(20, kind, "t9"), binding(21, kind, "a")]
    for now in (
        [*old, *more],
        [*old[1:], *more],
        [attrs.evolve(old[0], target="v"), *old[1:]],
        [],
        more,
    ):
        sight, fresh = Sight(exchange(kind, *now), sight), Sight(exchange(kind, *now))
        assert sight.table is first.table
        assert sight.constant == fresh.constant
        for number in (0, 5, 19, 20, 21):
            assert targets(sight, number, kind) == targets(fresh, number, kind)


def test_another_kind_has_another_table() -> None:
    """The exchange was deleted and made anew."""
    first = Sight(exchange("direct", binding(1, "direct", "t")))
    second = Sight(exchange("topic", binding(1, "topic", "u")), first)

    assert second.table is not first.table
    assert targets(second, 1, "topic") == ("u",)


def test_tables_of_exchanges_that_are_gone_are_forgotten(fixture: BrokerFixture) -> None:
    """Though nobody asks for them any more."""
    tables = fixture.broker.routing.tables
    gone = exchange_of(fixture, "fanout", name="gone")
    assert tables.sight(gone.id) is not None
    fixture.meta.delete_topic("gone")
    stays = exchange_of(fixture, "fanout", name="stays")
    assert tables.sight(stays.id) is not None

    assert list(tables._made) == [stays.id]


def test_the_table_is_that_of_the_exchange_now(fixture: BrokerFixture) -> None:
    """A topic that is no exchange has none."""
    assert fixture.broker.routing.tables.sight(fixture.topic().id) is None
