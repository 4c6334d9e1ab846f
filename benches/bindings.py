"""Finding the targets of a message among many bindings, without a broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from benches.bench import Bench, Run, Runs
from benches.tasks import Figures
from tinymq.routing import Binding, Exchange, Kind, Table, Terms, binding_id, table

#: Bindings of an exchange, and how many a small one has.
MANY, FEW = 10_000, 10
#: Distinct targets.
_TARGETS = 100
#: Rules are tried one by one, so they are fewer.
_RULES = 1000


def matches(bench: Bench) -> Runs:
    """Look for the targets of one message after the other, by each kind of exchange."""
    for kind, make in _TERMS.items():
        measure = partial(_matched, kind, make, bench.scaled(20_000))
        yield Run(kind, 0, measure)


def _matched(kind: Kind, make: Callable[[int], Terms], count: int) -> Figures:
    many = MANY if kind != "rule" else _RULES
    few = _timed(table(_exchange(kind, make, FEW)), max(10, count // 10), FEW)
    exchange = _exchange(kind, make, many)
    began = time.perf_counter()
    found = table(exchange)
    built = time.perf_counter() - began
    held = dict(exchange.bindings)
    held.popitem()
    began = time.perf_counter()
    table(exchange, held.values(), before=found)
    table(exchange, before=found)
    changed = (time.perf_counter() - began) / 2
    each = _timed(found, max(10, count // (100 if kind in {"rule", "fanout"} else 1)), many)
    return {
        "build_ms": built * 1000,
        "change_ms": changed * 1000,
        "few_us": few * 1e6,
        "match_us": each * 1e6,
    }


def _exchange(kind: Kind, make: Callable[[int], Terms], many: int) -> Exchange:
    bindings = {}
    for number in range(many):
        target, terms = f"target{number % _TARGETS}", make(number)
        if kind == "fanout":
            target = f"target{number}"
        key = binding_id(target, terms)
        bindings[key] = Binding(id=key, target=target, terms=terms, created_ms=1)
    return Exchange(kind=kind, dead_letter="none", created_ms=1, bindings=bindings)


def _timed(found: Table, count: int, many: int) -> float:
    """Return the seconds for one message, of those that some binding takes."""
    messages = [_message(number * 7919 % many) for number in range(count)]
    for key, headers, value in messages[:10]:
        assert found.targets(key, headers, value), "each message has a target"
    began = time.perf_counter()
    for key, headers, value in messages:
        found.targets(key, headers, value)
    return (time.perf_counter() - began) / count


def _message(number: int) -> tuple[bytes, Sequence[tuple[str, bytes]], bytes]:
    headers = [("kind", b"order"), ("user", str(number).encode()), ("zone", b"b")]
    return b"eu.k%d.paid.x" % number, headers, b'{"user":%d,"total":150}' % number


_TERMS: dict[Kind, Callable[[int], Terms]] = {
    "direct": lambda number: Terms(key=f"eu.k{number}.paid.x"),
    "topic": lambda number: Terms(key=f"*.k{number}.#"),
    "fanout": lambda number: Terms(),
    "headers": lambda number: Terms(headers=("kind=order", f"user={number}", "!test")),
    "rule": lambda number: Terms(rule=f"json.user == {number} && json.total > 100"),
}
