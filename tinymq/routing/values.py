"""What an exchange and a binding are, and what may be said of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, get_args

from attrs import field, frozen

from tinymq.conditions import Condition
from tinymq.errors import InvalidRequest
from tinymq.routing.rules import check_rule

#: How an exchange finds the bindings that a message meets.
Kind: TypeAlias = Literal["direct", "topic", "fanout", "headers", "rule"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

#: Most bytes of a binding's key, as in AMQP.
MOST_KEY: Final = 255
#: Most conditions of a binding, and most bytes of all of them.
MOST_CONDITIONS: Final = 32
MOST_CONDITIONS_BYTES: Final = 2000
#: What follows an exchange's name in that of the topic for what no binding takes.
UNROUTABLE: Final = ".unroutable"

#: What a binding of each kind needs, for people.
NEEDS: Final[Mapping[Kind, str]] = MappingProxyType(
    {
        "direct": "a key",
        "topic": "a key, with * for one word and # for any number of words",
        "fanout": "nothing but its target",
        "headers": "conditions on headers, such as region=eu",
        "rule": "a rule, such as json.total > 100",
    }
)
_BYTES_OF_ID: Final = 4


@frozen
class Terms:
    """
    What a message must meet to take the way of a binding.

    Attributes:
        key: The key, of direct and topic exchanges.
        headers: Conditions on headers, all of which must hold.
        rule: The rule, in CEL.
    """

    key: str | None = None
    headers: tuple[str, ...] = ()
    rule: str | None = None

    def check(self, kind: Kind) -> None:
        """
        Make sure that these are terms of an exchange of a kind.

        Args:
            kind: How the exchange finds bindings.

        Raises:
            InvalidRequest: Something is missing, too much or wrong; the text says what to do.
        """
        wants = {"direct": "key", "topic": "key"}.get(kind, kind)
        given = {"key": self.key is not None, "headers": bool(self.headers)}
        given["rule"] = self.rule is not None
        wrong = [name for name, there in given.items() if there and name != wants]
        if wrong or not given.get(wants, True):
            field = wrong[0] if wrong else wants
            raise InvalidRequest(
                f"a binding of a {kind} exchange has {NEEDS[kind]}"
                + (f", and no {wrong[0]}" if wrong else ""),
                field=field,
            )
        if self.key is not None:
            _check_key(self.key)
        _check_headers(self.headers)
        if self.rule is not None:
            check_rule(self.rule)

    @property
    def label(self) -> str:
        """The terms in one line, for people."""
        return self.rule or " ".join(self.headers) or (self.key or "")


def _check_key(key: str) -> None:
    if len(key.encode("utf-8", "surrogatepass")) > MOST_KEY:
        raise InvalidRequest(
            f"the key of a binding has at most {MOST_KEY} bytes", field="key", high=MOST_KEY
        )


def _check_headers(headers: Sequence[str]) -> None:
    size = sum(len(text.encode("utf-8", "surrogatepass")) for text in headers)
    if len(headers) > MOST_CONDITIONS or size > MOST_CONDITIONS_BYTES:
        raise InvalidRequest(
            f"a binding has at most {MOST_CONDITIONS} conditions of {MOST_CONDITIONS_BYTES} bytes "
            "together",
            field="headers",
            high=MOST_CONDITIONS,
        )
    for text in headers:
        try:
            Condition.parse(text)
        except ValueError as error:
            raise InvalidRequest(str(error), field="headers") from None


@frozen(kw_only=True)
class Binding:
    """
    A way from an exchange to a topic.

    Attributes:
        id: 8 hex digits, made of the terms and the target.
        target: Name of the topic, which may be an exchange.
        terms: What a message must meet.
        created_ms: When it was made.
    """

    id: str
    target: str
    terms: Terms
    created_ms: int

    def is_same(self, target: str, terms: Terms) -> bool:
        """Whether it leads to a target on the same terms."""
        return (self.target, self.terms) == (target, terms)

    def encode(self) -> bytes:
        """Return the binding as it is stored."""
        facts: dict[str, Any] = {"target": self.target, "created_ms": self.created_ms}
        terms = self.terms
        if terms.key is not None:
            facts["key"] = terms.key
        if terms.headers:
            facts["headers"] = terms.headers
        if terms.rule is not None:
            facts["rule"] = terms.rule
        return _json(facts)

    @classmethod
    def decode(cls, binding_id: str, stored: bytes) -> Binding:
        """Read what `encode` gave."""
        facts = json.loads(stored)
        terms = Terms(facts.get("key"), tuple(facts.get("headers", ())), facts.get("rule"))
        created = facts["created_ms"]
        return cls(id=binding_id, target=facts["target"], terms=terms, created_ms=created)


def binding_id(target: str, terms: Terms, attempt: int = 0) -> str:
    """
    Return the id of a binding, which is the same for the same one.

    Args:
        target: Name of its topic.
        terms: What a message must meet.
        attempt: How many ids before this one were taken by other bindings.
    """
    text = _json([target, terms.key, terms.headers, terms.rule, attempt])
    return blake2b(text, digest_size=_BYTES_OF_ID).hexdigest()


def _none() -> Mapping[str, Binding]:
    return MappingProxyType({})


@frozen(kw_only=True, slots=False)
class Exchange:
    """
    A topic whose messages go on to others.

    Attributes:
        kind: How bindings are found.
        dead_letter: Name of the topic for what no binding takes.
        created_ms: When the topic became an exchange.
        bindings: By their ids.
    """

    kind: Kind
    dead_letter: str
    created_ms: int
    bindings: Mapping[str, Binding] = field(factory=_none)

    @cached_property
    def targets(self) -> frozenset[str]:
        """Names of the topics that bindings lead to."""
        return frozenset(each.target for each in self.bindings.values())

    @property
    def leads_to(self) -> frozenset[str]:
        """Names of all topics that a message may go to from here."""
        return self.targets | {self.dead_letter}

    def encode(self) -> bytes:
        """Return the exchange as it is stored, without its bindings."""
        facts = {"kind": self.kind, "dead_letter": self.dead_letter, "created_ms": self.created_ms}
        return _json(facts)

    @classmethod
    def decode(cls, stored: bytes) -> Exchange:
        """Read what `encode` gave."""
        facts = json.loads(stored)
        names = ("dead_letter", "created_ms")
        if facts["kind"] not in KINDS:
            raise ValueError(f"there is no kind {facts['kind']}")
        return cls(kind=facts["kind"], **{name: facts[name] for name in names})


def exchange_key(topic_id: bytes) -> str:
    """Return the key of an exchange in the store."""
    return f"exchange/{topic_id.hex()}"


def binding_key(topic_id: bytes, binding: str) -> str:
    """Return the key of a binding in the store."""
    return f"binding/{topic_id.hex()}/{binding}"


def _json(facts: object) -> bytes:
    return json.dumps(facts, separators=(",", ":")).encode()
