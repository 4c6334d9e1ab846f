"""Tables of many bindings are not made anew for each one that comes."""

from __future__ import annotations

from types import MappingProxyType

import attrs
import pytest

from tests.fakes.broker import BrokerFixture
from tinymq.broker.routing.tables import Sight, _Grown
from tinymq.routing import Binding, Exchange, Kind, Terms
from tinymq.wire.records import RecordBatch, encode_batch

#: More than a small table has.
MANY = 600


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


@pytest.mark.parametrize("kind", ["direct", "topic", "headers", "fanout"])
def test_one_more_is_a_small_table_beside_the_large_one(kind: Kind) -> None:
    """What was there and what came are found together, each target once, in order."""
    old = [binding(number, kind, f"t{number % 3}") for number in range(MANY)]
    first = Sight(exchange(kind, *old))
    more = [binding(MANY, kind, "t9"), attrs.evolve(binding(5, kind, "t0"), id="ffffffff")]
    second = Sight(exchange(kind, *old, *more), first)
    third = Sight(exchange(kind, *old, *more, binding(MANY + 1, kind, "a")), second)

    assert isinstance(second.table, _Grown)
    assert isinstance(third.table, _Grown)
    for sight in (second, third):
        fresh = Sight(sight.exchange)
        assert not isinstance(fresh.table, _Grown)
        for number in (0, 5, 599, MANY, MANY + 1):
            assert targets(sight, number, kind) == targets(fresh, number, kind)


def test_it_is_made_anew_when_one_goes_or_many_came() -> None:
    """Or another one took its id."""
    old = [binding(number, "direct", "t") for number in range(MANY)]
    first = Sight(exchange("direct", *old))
    gone = Sight(exchange("direct", *old[1:]), first)
    many = [binding(number, "direct", "u") for number in range(MANY, 2 * MANY)]
    grown = Sight(exchange("direct", *old, *many), first)
    other = Sight(exchange("direct", attrs.evolve(old[0], target="v"), *old[1:]), first)

    for sight in (gone, grown, other):
        assert not isinstance(sight.table, _Grown)
    assert targets(gone, 0, "direct") == ()
    assert targets(grown, MANY, "direct") == ("u",)
    assert targets(other, 0, "direct") == ("v",)


def test_failures_of_both_parts_are_counted() -> None:
    """A rule of either may fail."""
    old = [binding(number, "rule", "t") for number in range(2)]
    sight = Sight(exchange("rule", *old))
    grown = _Grown(sight.table, sight.exchange, [])  # type: ignore[arg-type]

    assert (grown.failed, grown.failure) == (0, "")
    assert "key" in grown.looks_at


def test_the_table_is_that_of_the_exchange_now(fixture: BrokerFixture) -> None:
    """A topic that is no exchange has none."""
    assert fixture.broker.routing.tables.sight(fixture.topic().id) is None
