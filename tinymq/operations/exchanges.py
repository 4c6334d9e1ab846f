"""Making, describing, trying and deleting exchanges and their bindings."""

from __future__ import annotations

import binascii
import fnmatch
from base64 import b64decode
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from heapq import nsmallest
from itertools import islice
from typing import Any, Final

from attrs import define, field

from tinymq.broker.routing.tables import Tables
from tinymq.caller import Caller
from tinymq.catalog import PUBLIC
from tinymq.catalog.exchanges import MOST_EDGES, MOST_NODES, MOST_SHOWN
from tinymq.errors import InvalidRequest
from tinymq.meta.registry import Registry, Topic
from tinymq.node import NODE_OPERATIONS
from tinymq.operation import Operation, Result, table
from tinymq.operations.base import Answers, author_of
from tinymq.operations.leaders import Leaders
from tinymq.routing import Binding, Exchange, Table, Terms

#: What a broker tells of its exchanges, where it can.
_FIGURES: Final = "node.exchanges"
_SUMMED: Final = ("in_s", "out_s", "unroutable", "failed", "lag")
_MOST_STUCK: Final = 100
#: Most ways that `exchange.test` tells.
_MOST_WAYS: Final = 500
_LABEL: Final = 80


class Exchanges(Leaders):
    """Exchanges over all brokers."""

    #: By which messages are tried that nobody publishes, once there was one.
    _trials: Tables | None = None

    # --- making and changing ------------------------------------------------------

    async def create_exchange(
        self, caller: Caller, name: str, *, dry_run: bool, **wish: Any
    ) -> Result:
        """Make a topic an exchange; the topic is made if it is not there."""
        self._check_running()
        topic = self._registry.by_name.get(name)
        existed = topic is not None and topic.id in self._registry.exchanges
        with self._meta.on_behalf_of(author_of(caller)):
            made = self._meta.create_exchange(
                name,
                wish["kind"],
                wish["dead_letter"],
                wish["partitions"],
                wish["config"],
                dry_run=dry_run,
            )
        if not dry_run:
            await self._spread(made[0])
        return {"exchange": _facts(*made), "created": not existed, "dry_run": dry_run}

    async def alter_exchange(self, name: str, dead_letter: str | None, *, dry_run: bool) -> Result:
        """Change where an exchange sends what no binding takes."""
        exchange = self._meta.alter_exchange(name, dead_letter, dry_run=dry_run)
        topic = self.find(name)
        if not dry_run:
            await self._spread(topic)
        return {"exchange": _facts(topic, exchange), "dry_run": dry_run}

    async def delete_exchange(self, name: str, *, force: bool, dry_run: bool) -> Result:
        """Let an exchange be a plain topic again; its messages stay."""
        topic = self.find(name)
        was = self._meta.delete_exchange(name, force=force, dry_run=dry_run)
        if not dry_run:
            await self._spread(topic)
        return {"exchange": _facts(topic, was), "dry_run": dry_run}

    async def add_binding(
        self,
        exchange: str,
        target: str,
        key: str | None,
        headers: list[str] | None,
        rule: str | None,
        *,
        dry_run: bool,
    ) -> Result:
        """Add a binding to an exchange; one that is there already is no error."""
        terms = Terms(key, tuple(headers or ()), rule)
        made, created = self._meta.add_binding(exchange, target, terms, dry_run=dry_run)
        if created and not dry_run:
            await self._spread(self.find(exchange))
        return {"binding": _row(exchange, made), "created": created, "dry_run": dry_run}

    async def delete_binding(self, exchange: str, id: str, *, dry_run: bool) -> Result:  # noqa: A002
        """Remove a binding."""
        was = self._meta.delete_binding(exchange, id, dry_run=dry_run)
        if not dry_run:
            await self._spread(self.find(exchange))
        return {"binding": _row(exchange, was), "dry_run": dry_run}

    # --- looking ------------------------------------------------------------------

    async def exchanges(self, filter: str, after: str, limit: int) -> Result:  # noqa: A002
        """List exchanges in order of their names."""
        names = [
            name
            for name in _exchange_names(self._registry)
            if not filter or fnmatch.fnmatchcase(name, filter)
        ]
        first = bisect_right(names, after)
        page = [self._meta.describe_exchange(name) for name in names[first : first + limit]]
        figures, silent = await self._figures([topic for topic, _ in page])
        more = len(names) > first + limit
        return {
            "exchanges": [
                {**_facts(topic, exchange), **figures[topic.id.hex()]} for topic, exchange in page
            ],
            "more": more,
            "after": page[-1][0].name if more else None,
            "total": len(names),
            "silent": silent,
        }

    async def exchange_info(self, name: str) -> Result:
        """Describe one exchange with its first bindings."""
        topic, exchange = self._meta.describe_exchange(name)
        figures, silent = await self._figures([topic])
        whole = {**_facts(topic, exchange), **figures[topic.id.hex()]}
        bindings = exchange.bindings.values()
        return {
            "exchange": {**whole, "partitions": topic.partitions, "silent": silent},
            "bindings": [_row(name, each) for each in nsmallest(MOST_SHOWN, bindings, _by_target)],
            "more": len(bindings) > MOST_SHOWN,
        }

    async def _figures(self, topics: Sequence[Topic]) -> tuple[dict[str, Result], list[str]]:
        """Ask brokers what they do for exchanges; by the topic's id, and who says nothing."""
        ids = [topic.id.hex() for topic in topics]
        answers = Answers()
        if ids and _FIGURES in NODE_OPERATIONS:
            leaders = {leader for topic in topics for leader in topic.leaders}
            answers = await self._ask(leaders, _FIGURES, {"ids": ids})
        found: dict[str, Result] = {each: {**dict.fromkeys(_SUMMED), "stuck": []} for each in ids}
        for answer in answers.results.values():
            for row in answer["exchanges"]:
                _add(found[row["id"]], row)
        return found, self._silence(answers)

    def bindings(self, exchange: str | None, target: str | None, after: str, limit: int) -> Result:
        """List bindings in order of exchange and id."""
        registry = self._registry
        if exchange is not None:
            self._meta.describe_exchange(exchange)
        names = _exchange_names(registry) if exchange is None else [exchange]
        name, _, place = after.partition("/")
        page: list[tuple[str, Binding]] = []
        total = 0
        for each in names:
            found: Collection[Binding] = registry.exchange(each).bindings.values()
            if target is not None:
                found = [one for one in found if one.target == target]
            total += len(found)
            if each >= name and len(page) <= limit:
                behind = (one for one in found if each > name or one.id > place)
                # Of twenty thousand a page is wanted: they are not sorted for that.
                first = nsmallest(limit + 1 - len(page), behind, _by_id)
                page += ((each, one) for one in first)
        more = len(page) > limit
        del page[limit:]
        return {
            "bindings": [_row(each, one) for each, one in page],
            "more": more,
            "after": f"{page[-1][0]}/{page[-1][1].id}" if more else None,
            "total": total,
        }

    # --- where would this go ------------------------------------------------------

    def test_exchange(
        self,
        name: str,
        key: str | None,
        headers: list[tuple[str, str]] | None,
        value: str | None,
        encoding: str,
    ) -> Result:
        """Say where a message would go, through all exchanges."""
        self._meta.describe_exchange(name)
        if self._trials is None:
            self._trials = Tables(self._broker)
        trial = _Trial(
            registry=self._registry,
            tables=self._trials,
            key=None if key is None else key.encode("utf-8", "surrogatepass"),
            headers=[
                (each, content.encode("utf-8", "surrogatepass")) for each, content in headers or ()
            ],
            value=_decoded(value, encoding),
        )
        trial.follow(name)
        return {
            "targets": sorted(trial.ends),
            "path": trial.path,
            "unroutable": trial.path[:1] == [_dead(name, self._registry.exchange(name))],
            "dead_letter": self._registry.exchange(name).dead_letter,
            "failures": trial.failures,
        }

    def topology(self, exchange: str | None) -> Result:
        """Tell which exchanges and topics lead where."""
        if exchange is not None:
            self._meta.describe_exchange(exchange)
        near = None
        if exchange is not None:
            near = _before(self._registry, exchange) | _behind(self._registry, exchange)
        return _drawn(self._registry, near)


@define
class _Trial:
    """
    A message on its way through exchanges, which nobody publishes.

    Attributes:
        registry: Which exchanges there are.
        tables: Where each sends what: to make one anew for each trial would take long.
        key: The message's key.
        headers: Its headers.
        value: Its value.
        path: The ways that it takes.
        ends: Names of the topics where it ends.
        failures: What went wrong in rules.
    """

    registry: Registry
    tables: Tables
    key: bytes | None
    headers: list[tuple[str, bytes]]
    value: bytes | None
    path: list[Result] = field(factory=list)
    ends: set[str] = field(factory=set)
    failures: list[str] = field(factory=list)

    def follow(self, name: str) -> None:
        """Follow it from an exchange on; each exchange is gone through once."""
        seen, here = {name}, [name]
        while here:
            there = []
            for at in here:
                for target in self._step(at):
                    if _exchange(self.registry, target) is None:
                        self.ends.add(target)
                    elif target not in seen:
                        seen.add(target)
                        there.append(target)
            here = there

    def _step(self, name: str) -> Sequence[str]:
        exchange = self.registry.exchange(name)
        sight = self.tables.sight(self.registry.topic(name).id)
        assert sight is not None, "it is an exchange"
        found = sight.table
        found.failure = ""
        targets = found.targets(self.key, self.headers, self.value)
        if found.failure:
            self.failures.append(f"{name}: {found.failure}")
        if not targets:
            self.path.append(_dead(name, exchange))
            return [exchange.dead_letter]
        for binding in islice(self._met(found), max(0, _MOST_WAYS - len(self.path))):
            self.path.append({"exchange": name, "binding": binding.id, "target": binding.target})
        return targets

    def _met(self, found: Table) -> Iterable[Binding]:
        return found.met(self.key, self.headers, self.value)


def _dead(name: str, exchange: Exchange) -> Result:
    return {"exchange": name, "binding": None, "target": exchange.dead_letter}


def _decoded(value: str | None, encoding: str) -> bytes | None:
    if value is None:
        return None
    try:
        if encoding == "base64":
            return b64decode(value, validate=True)
        return value.encode()
    except (binascii.Error, UnicodeEncodeError, ValueError):
        raise InvalidRequest(f"the value is no {encoding}", field="value") from None


def _add(figures: Result, row: Result) -> None:
    """Add what one broker told of an exchange."""
    for name in _SUMMED:
        if row[name] is not None:
            figures[name] = (figures[name] or 0) + row[name]
    known = {each["target"]: each for each in figures["stuck"]}
    for each in row["stuck"]:
        other = known.get(each["target"])
        if other is None or each["since_ms"] < other["since_ms"]:
            known[each["target"]] = each
    figures["stuck"] = [known[name] for name in sorted(known)][:_MOST_STUCK]


def _facts(topic: Topic, exchange: Exchange) -> Result:
    """What an exchange is, without what it does."""
    return {
        "name": topic.name,
        "kind": exchange.kind,
        "bindings": len(exchange.bindings),
        "dead_letter": exchange.dead_letter,
        "created_ms": exchange.created_ms,
    }


def _row(exchange: str, binding: Binding) -> Result:
    terms = binding.terms
    return {
        "id": binding.id,
        "exchange": exchange,
        "target": binding.target,
        "key": terms.key,
        "headers": list(terms.headers),
        "rule": terms.rule,
        "created_ms": binding.created_ms,
    }


def _by_id(binding: Binding) -> str:
    return binding.id


def _by_target(binding: Binding) -> tuple[str, str]:
    return binding.target, binding.id


def _exchange_names(registry: Registry) -> list[str]:
    topics = registry.topics
    return sorted(topics[each].name for each in registry.exchanges if each in topics)


def _exchange(registry: Registry, name: str) -> Exchange | None:
    topic = registry.by_name.get(name)
    return None if topic is None else registry.exchanges.get(topic.id)


# --- drawing ----------------------------------------------------------------------


def _behind(registry: Registry, name: str) -> set[str]:
    """Return where messages of an exchange may go, with itself."""
    found, here = {name}, [name]
    while here:
        exchange = _exchange(registry, here.pop())
        if exchange is not None:
            new = exchange.leads_to - found
            found |= new
            here += new
    return found


def _before(registry: Registry, name: str) -> set[str]:
    """Return from where messages of a topic may come, with itself."""
    origins: dict[str, list[str]] = {}
    for each in _exchange_names(registry):
        for target in registry.exchange(each).leads_to:
            origins.setdefault(target, []).append(each)
    found, here = {name}, [name]
    while here:
        new = {each for each in origins.get(here.pop(), ()) if each not in found}
        found |= new
        here += new
    return found


def _drawn(registry: Registry, near: set[str] | None) -> Result:
    """Draw exchanges with their targets, as far as there is room; exchanges first."""
    names = [name for name in _exchange_names(registry) if near is None or name in near]
    edges = [
        edge
        for name in names
        for edge in _edges(name, registry.exchange(name))
        if near is None or edge["to"] in near
    ]
    nodes = {*names, *(edge["to"] for edge in edges)}
    inner = [name for name in names if name in nodes]
    outer = sorted(nodes.difference(inner))
    shown = [*inner, *outer][:MOST_NODES]
    there = {*shown}
    kept = [edge for edge in edges if edge["from"] in there and edge["to"] in there][:MOST_EDGES]
    return {
        "nodes": [_node(registry, name) for name in shown],
        "edges": kept,
        "left_out": {"nodes": len(nodes) - len(shown), "edges": len(edges) - len(kept)},
    }


def _node(registry: Registry, name: str) -> Result:
    exchange = _exchange(registry, name)
    return {
        "name": name,
        "kind": "topic" if exchange is None else "exchange",
        "exchange_kind": exchange and exchange.kind,
        "dead_letter": exchange and exchange.dead_letter,
    }


def _edges(name: str, exchange: Exchange) -> list[Result]:
    """Return an edge for each target, and that of what no binding takes."""
    by_target: dict[str, list[Binding]] = {}
    for binding in exchange.bindings.values():
        by_target.setdefault(binding.target, []).append(binding)
    found = [
        {
            "from": name,
            "to": target,
            "id": several[0].id if len(several) == 1 else None,
            "label": _label(several),
            "bindings": len(several),
            "dead_letter": False,
        }
        for target, several in sorted(by_target.items())
    ]
    dead = {"id": None, "label": "no binding takes it", "bindings": 0, "dead_letter": True}
    return [*found, {"from": name, "to": exchange.dead_letter, **dead}]


def _label(several: Sequence[Binding]) -> str:
    """Say in one line what leads to a target."""
    labels = [each.terms.label for each in several[:3]]
    text = ", ".join(label for label in labels if label)
    if len(several) > len(labels):
        text += f" and {len(several) - len(labels)} more"
    return text if len(text) <= _LABEL else text[: _LABEL - 1] + "…"


EXCHANGE_OPERATIONS: Final[dict[str, Operation]] = table(
    PUBLIC["exchange.create"].by(Exchanges.create_exchange, caller=True),
    PUBLIC["exchange.alter"].by(Exchanges.alter_exchange),
    PUBLIC["exchange.delete"].by(Exchanges.delete_exchange),
    PUBLIC["exchange.list"].by(Exchanges.exchanges),
    PUBLIC["exchange.info"].by(Exchanges.exchange_info),
    PUBLIC["exchange.test"].by(Exchanges.test_exchange),
    PUBLIC["exchange.topology"].by(Exchanges.topology),
    PUBLIC["binding.add"].by(Exchanges.add_binding),
    PUBLIC["binding.delete"].by(Exchanges.delete_binding),
    PUBLIC["binding.list"].by(Exchanges.bindings),
)
