"""The operations on exchanges and their bindings."""

from __future__ import annotations

from typing import Any, Final

from tinymq.catalog.settings import settings
from tinymq.catalog.shapes import (
    DRY_RUN,
    MAYBE_STRING,
    MAYBE_WHOLE,
    MILLISECONDS,
    MORE,
    SILENT,
    STRING,
    TOTAL,
    TRUTH,
    WHOLE,
    said,
    several,
    shape,
)
from tinymq.limits import DEFAULT_LIMITS
from tinymq.operation import (
    AFTER,
    DRY,
    FILTER,
    LIMIT,
    NAME,
    NUMBER,
    Http,
    Operation,
    Parameter,
    table,
)
from tinymq.routing import KINDS
from tinymq.wire.fields import array, boolean, choice, optional, text
from tinymq.wire.fields import told as takes

#: Most bindings that `exchange.info` tells of; `binding.list` has them all.
MOST_SHOWN: Final = 100
#: Most nodes, and most edges, of a topology.
MOST_NODES: Final = 500
MOST_EDGES: Final = 2000
#: Longest value that `exchange.test` takes, in characters.
MOST_TESTED: Final = 40_000

_PATH: Final = "/exchanges/{name}"
_CONDITION: Final = 500
_CONDITIONS: Final = 32
_RULE: Final = 4000
_MOST_PLACE: Final = 1024 + 10


@takes(
    "an object of texts, or rows of name and value",
    {"type": ["object", "array"]},
)
def header_pairs(value: Any) -> list[tuple[str, str]]:
    """Headers of a message."""
    pairs = list(value.items()) if type(value) is dict else value
    if type(pairs) not in (list, tuple) or len(pairs) > DEFAULT_LIMITS.header_count:
        raise ValueError(header_pairs.must)
    for pair in pairs:
        if type(pair) not in (list, tuple) or [*map(type, pair)] != [str, str]:
            raise ValueError(header_pairs.must)
    return [(name, content) for name, content in pairs]


EXCHANGE_NAME: Final = Parameter("name", NAME, text="Name of the exchange, which is a topic.")
_WHOSE: Final = Parameter("exchange", NAME, text="Name of the exchange.")
_DEAD_LETTER: Final = Parameter(
    "dead_letter",
    optional(NAME),
    default=None,
    text="Topic for what no binding takes; NAME.unroutable if not given.",
)
_CONFIG, _ = settings("retention.ms", "string", "integer", "boolean")
_KEY: Final = text(1024)

#: A binding.
BINDING: Final = shape(
    id=said(STRING, "8 hex digits; the same for the same binding."),
    exchange=said(STRING, "Name of its exchange."),
    target=said(STRING, "Name of the topic that it leads to, which may be an exchange."),
    key=said(MAYBE_STRING, "Of direct and topic exchanges: the key, or the pattern of keys."),
    headers=said(several(STRING), "Of headers exchanges: conditions, all of which must hold."),
    rule=said(MAYBE_STRING, "Of rule exchanges: the rule."),
    created_ms=MILLISECONDS,
)
_KIND: Final = said({"type": "string", "enum": list(KINDS)}, "How bindings are found.")
_FACTS: Final = {
    "name": STRING,
    "kind": _KIND,
    "bindings": said(WHOLE, "How many it has."),
    "dead_letter": said(STRING, "Topic for what no binding takes; it may not be there yet."),
    "created_ms": MILLISECONDS,
}
_RATE: Final = {"type": ["number", "null"]}
#: What brokers tell of an exchange; null is what none told.
EXCHANGE_FIGURES: Final = {
    "in_s": said(_RATE, "Messages routed in a second."),
    "out_s": said(_RATE, "Messages written to targets in a second."),
    "unroutable": said(MAYBE_WHOLE, "Messages that no binding took, since the brokers started."),
    "failed": said(MAYBE_WHOLE, "Times that a rule failed on a message, since then."),
    "lag": said(MAYBE_WHOLE, "Messages that are not routed yet."),
    "stuck": said(
        several(
            shape(
                target=said(STRING, "Name of the topic that takes nothing."),
                why=said(STRING, "Why, for people."),
                since_ms=MILLISECONDS,
            )
        ),
        "Where messages cannot go just now.",
    ),
}
#: An exchange in a list.
EXCHANGE_ROW: Final = shape(**_FACTS, **EXCHANGE_FIGURES)
#: An exchange that a dry run would make, or that just came, or went.
EXCHANGE_PLANNED: Final = shape(**_FACTS)
#: One exchange with its partitions.
EXCHANGE: Final = shape(
    **_FACTS,
    **EXCHANGE_FIGURES,
    partitions=said(WHOLE, "How many its topic has."),
    silent=SILENT,
)
_CHANGED: Final = {"exchange": EXCHANGE_PLANNED, "dry_run": DRY_RUN}
_NODE: Final = shape(
    name=STRING,
    kind={"type": "string", "enum": ["exchange", "topic"]},
    exchange_kind=said({"type": ["string", "null"]}, "How its bindings are found; null of topics."),
    dead_letter=said(MAYBE_STRING, "Topic for what no binding takes; null of topics."),
)
_EDGE: Final = {
    "type": "object",
    "properties": {
        "from": STRING,
        "to": STRING,
        "id": said(MAYBE_STRING, "Of the binding; null of a dead letter's way, or of several."),
        "label": said(STRING, "What a message must meet, for people."),
        "bindings": said(WHOLE, "How many bindings it stands for; 0 of a dead letter's way."),
        "dead_letter": said(TRUTH, "Whether it is the way of what no binding takes."),
    },
    "required": ["from", "to", "id", "label", "bindings", "dead_letter"],
    "additionalProperties": False,
}

#: By name.
EXCHANGES: Final[dict[str, Operation]] = table(
    Operation(
        "exchange.create",
        "operator",
        True,
        (
            EXCHANGE_NAME,
            Parameter("kind", choice(*KINDS), text="How bindings are found."),
            _DEAD_LETTER,
            Parameter(
                "partitions",
                optional(NUMBER),
                default=None,
                text="How many partitions its topic gets if it is made.",
            ),
            _CONFIG,
            DRY,
        ),
        text="Make a topic an exchange; the topic is made if it is not there.",
        http=Http("PUT", _PATH),
        cli=("exchange", "create"),
        usage="NAME",
        result={
            "exchange": EXCHANGE_PLANNED,
            "created": said(TRUTH, "Whether it was none before."),
            "dry_run": DRY_RUN,
        },
    ),
    Operation(
        "exchange.alter",
        "operator",
        True,
        (EXCHANGE_NAME, _DEAD_LETTER, DRY),
        text="Change where an exchange sends what no binding takes.",
        http=Http("PATCH", _PATH),
        cli=("exchange", "alter"),
        result=_CHANGED,
    ),
    Operation(
        "exchange.delete",
        "admin",
        True,
        (
            EXCHANGE_NAME,
            Parameter(
                "force", boolean, default=False, text="Also delete the bindings that lead to it."
            ),
            DRY,
        ),
        text="Let an exchange be a plain topic again: its bindings go, its messages stay.",
        http=Http("DELETE", _PATH),
        cli=("exchange", "rm"),
        result=_CHANGED,
    ),
    Operation(
        "exchange.list",
        "viewer",
        False,
        (FILTER, AFTER, LIMIT),
        text="List exchanges in order of their names.",
        http=Http("GET", "/exchanges"),
        cli=("exchange", "ls"),
        result={
            "exchanges": several(EXCHANGE_ROW),
            "more": MORE,
            "after": said(MAYBE_STRING, "Where the next page begins; null when there is none."),
            "total": TOTAL,
            "silent": SILENT,
        },
    ),
    Operation(
        "exchange.info",
        "viewer",
        False,
        (EXCHANGE_NAME,),
        text="Describe one exchange with its first bindings.",
        http=Http("GET", _PATH),
        cli=("exchange", "info"),
        result={
            "exchange": EXCHANGE,
            "bindings": said(several(BINDING), f"The first {MOST_SHOWN}, in order of targets."),
            "more": said(TRUTH, "Whether there are more; binding.list has them."),
        },
    ),
    Operation(
        "exchange.test",
        "viewer",
        False,
        (
            EXCHANGE_NAME,
            Parameter(
                "key",
                optional(_KEY),
                default=None,
                text="The message's key, by which direct and topic exchanges find bindings.",
            ),
            Parameter(
                "headers",
                optional(header_pairs),
                default=None,
                text="Its headers: an object of texts, or rows of name and value.",
            ),
            Parameter("value", optional(text(MOST_TESTED)), default=None, text="Its value."),
            Parameter(
                "encoding",
                choice("string", "base64"),
                default="string",
                text="How the value is written.",
            ),
        ),
        text="Say where a message would go, through all exchanges; none is published.",
        http=Http("POST", f"{_PATH}:test"),
        cli=("exchange", "test"),
        result={
            "targets": said(several(STRING), "Names of the topics where it would end."),
            "path": said(
                several(
                    shape(
                        exchange=said(STRING, "From this exchange."),
                        binding=said(MAYBE_STRING, "By this binding; null: none took it."),
                        target=said(STRING, "To this topic."),
                    )
                ),
                "Each way that it would take, those of the first exchange first.",
            ),
            "unroutable": said(TRUTH, "Whether no binding of this exchange takes it."),
            "dead_letter": said(STRING, "Where it would go then."),
            "failures": said(several(STRING), "Rules that fail on this message, and why."),
        },
    ),
    Operation(
        "exchange.topology",
        "viewer",
        False,
        (
            Parameter(
                "exchange",
                optional(NAME),
                default=None,
                text="Only what lies before and behind this exchange.",
            ),
        ),
        text="Tell which exchanges and topics lead where.",
        http=Http("GET", "/topology"),
        cli=("exchange", "topology"),
        result={
            "nodes": several(_NODE),
            "edges": several(_EDGE),
            "left_out": said(
                shape(nodes=WHOLE, edges=WHOLE), "How many were too many for this answer."
            ),
        },
    ),
    Operation(
        "binding.add",
        "operator",
        True,
        (
            _WHOSE,
            Parameter("target", NAME, text="Name of the topic that it leads to."),
            Parameter(
                "key",
                optional(_KEY),
                default=None,
                text="The key, or of topic exchanges the pattern of keys.",
            ),
            Parameter(
                "headers",
                optional(array(text(_CONDITION), _CONDITIONS)),
                default=None,
                text="Conditions on headers, such as region=eu, of which all must hold.",
            ),
            Parameter("rule", optional(text(_RULE)), default=None, text="The rule, in CEL."),
            DRY,
        ),
        text="Add a binding to an exchange; one that is there already is no error.",
        http=Http("POST", "/exchanges/{exchange}/bindings"),
        cli=("binding", "add"),
        result={
            "binding": BINDING,
            "created": said(TRUTH, "Whether it was not there before."),
            "dry_run": DRY_RUN,
        },
    ),
    Operation(
        "binding.delete",
        "operator",
        True,
        (_WHOSE, Parameter("id", text(64), text="Id of the binding, 8 hex digits."), DRY),
        text="Remove a binding; what went its way stays where it is.",
        http=Http("DELETE", "/exchanges/{exchange}/bindings/{id}"),
        cli=("binding", "rm"),
        result={"binding": BINDING, "dry_run": DRY_RUN},
    ),
    Operation(
        "binding.list",
        "viewer",
        False,
        (
            Parameter(
                "exchange", optional(NAME), default=None, text="Only those of this exchange."
            ),
            Parameter("target", optional(NAME), default=None, text="Only those to this topic."),
            Parameter(
                "after",
                text(_MOST_PLACE),
                default="",
                text="Begin behind this one, what the page before said.",
            ),
            LIMIT,
        ),
        text="List bindings in order of exchange and id.",
        http=Http("GET", "/bindings"),
        cli=("binding", "ls"),
        result={
            "bindings": several(BINDING),
            "more": MORE,
            "after": said(MAYBE_STRING, "Where the next page begins; null when there is none."),
            "total": TOTAL,
        },
    ),
)
