"""Tables: which topics a message of an exchange goes to."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinymq.errors import InvalidRequest
from tinymq.routing import Binding, Exchange, Kind, Table, Terms, binding_id, table
from tinymq.routing.trie import Trie, words_of

WORDS = st.sampled_from(["a", "b", "c", ""])
PATTERNS = st.lists(st.sampled_from(["a", "b", "", "*", "#"]), max_size=5).map(".".join)
KEYS = st.lists(WORDS, max_size=6).map(".".join)


def bound(target: str, terms: Terms | None = None) -> Binding:
    """Make a binding."""
    found = terms or Terms()
    return Binding(id=binding_id(target, found), target=target, terms=found, created_ms=1)


def made(kind: Kind, *bindings: Binding) -> Table:
    """Make the table of an exchange."""
    held = {each.id: each for each in bindings}
    return table(Exchange(kind=kind, dead_letter="none", created_ms=1, bindings=held))


def like(pattern: list[bytes], words: list[bytes]) -> bool:
    """Say the slow way whether words are like a pattern."""
    if not pattern:
        return not words
    if pattern[0] == b"#":
        return any(like(pattern[1:], words[at:]) for at in range(len(words) + 1))
    return bool(words) and pattern[0] in (b"*", words[0]) and like(pattern[1:], words[1:])


def test_direct() -> None:
    """A message goes where its key is bound, once to each topic, in order of names."""
    found = made(
        "direct",
        bound("z", Terms(key="eu")),
        bound("a", Terms(key="eu")),
        bound("u", Terms(key="us")),
        bound("n", Terms(key="")),
    )
    assert found.looks_at == {"key"}
    assert found.targets(b"eu", (), None) == ("a", "z")
    assert found.targets(b"eu.de", (), None) == ()
    assert found.targets(None, (), None) == found.targets(b"", (), None) == ("n",)


def test_fanout() -> None:
    """Every message goes everywhere, and nothing of it is looked at."""
    found = made("fanout", bound("b"), bound("a"), bound("b", Terms(key=None)))
    assert found.looks_at == set()
    assert found.targets(None, (), None) == ("a", "b")
    assert made("fanout").targets(b"k", (), b"v") == ()


@pytest.mark.parametrize(
    ("pattern", "takes", "leaves"),
    [
        ("eu.#", ["eu", "eu.de", "eu.de.paid", "eu."], ["us", "", "eux", "x.eu"]),
        ("eu.*", ["eu.de", "eu."], ["eu", "eu.de.paid"]),
        ("*.de", ["eu.de", ".de"], ["de", "eu.fr", "a.eu.de"]),
        ("#", ["", "a", "a.b", "..."], []),
        ("*", ["a"], ["", "a.b"]),
        ("", [""], ["a", "."]),
        ("#.de.#", ["de", "eu.de", "de.eu", "a.de.b.c"], ["", "eu"]),
        ("#.#", ["", "a", "a.b"], []),
        ("#.*", ["a", "a.b"], [""]),
        ("a..b", ["a..b"], ["a.b", "a...b"]),
        ("a.*.b", ["a..b", "a.x.b"], ["a.b"]),
        ("a.#.b", ["a.b", "a..b", "a.x.y.b"], ["a", "b"]),
        ("*.*", ["."], ["a"]),
    ],
)
def test_patterns(pattern: str, takes: list[str], leaves: list[str]) -> None:
    """Patterns of topic exchanges take what they do in AMQP, empty words among them."""
    found = made("topic", bound("t", Terms(key=pattern)))
    assert [key for key in takes if not found.targets(key.encode(), (), None)] == []
    assert [key for key in leaves if found.targets(key.encode(), (), None)] == []


@given(patterns=st.lists(PATTERNS, max_size=12), key=KEYS)
def test_patterns_together(patterns: list[str], key: str) -> None:
    """A tree of many patterns finds exactly those that a key is like."""
    found = made("topic", *(bound(f"t{n}", Terms(key=text)) for n, text in enumerate(patterns)))
    expected = [
        f"t{n}"
        for n, text in enumerate(patterns)
        if like(words_of(text.encode()), words_of(key.encode()))
    ]
    assert list(found.targets(key.encode(), (), None)) == sorted(expected)


def test_headers() -> None:
    """All conditions of a binding must hold; a value of a name that repeats is enough."""
    found = made(
        "headers",
        bound("eu", Terms(headers=("region=eu",))),
        bound("both", Terms(headers=("region=eu", "kind=order"))),
        bound("real", Terms(headers=("region", "!test"))),
        bound("other", Terms(headers=("region!=eu",))),
        bound("eu", Terms(headers=("region=de", "kind=order"))),
    )
    assert found.looks_at == {"headers"}
    assert found.targets(None, [("region", b"eu")], None) == ("eu", "real")
    headers = [("region", b"eu"), ("kind", b"order"), ("test", b"1")]
    assert found.targets(None, headers, None) == ("both", "eu")
    assert found.targets(None, [("region", b"us"), ("region", b"de")], None) == ("other", "real")
    assert found.targets(None, [("kind", b"order"), ("region", b"de")], None) == (
        "eu",
        "other",
        "real",
    )
    assert found.targets(None, (), None) == ("other",)


def test_rules() -> None:
    """A rule that fails on a message does not match, and is counted with the reason."""
    found = made(
        "rule",
        bound("large", Terms(rule="json.total > 100")),
        bound("eu", Terms(rule="key.startsWith('eu')")),
        bound("also", Terms(rule="key.startsWith('eu')")),
        bound("long", Terms(rule="size > 1000")),
    )
    assert found.looks_at == {"key", "value"}
    assert found.targets(b"eu", (), b'{"total":150}') == ("also", "eu", "large")
    assert (found.failed, found.failure) == (0, "")
    assert found.targets(b"us", (), b"text") == ()
    assert found.failed == 1
    assert found.failure.startswith("json.total > 100: ")


def test_rules_of_another_version() -> None:
    """A stored rule that cannot be compiled matches nothing, is counted, and harms no other."""
    found = made("rule", bound("a", Terms(rule="no such")), bound("b", Terms(rule="true")))
    assert found.targets(None, (), None) == ("b",)
    assert (found.failed, found.looks_at) == (1, frozenset())


@pytest.mark.parametrize(
    ("kind", "terms"),
    [
        ("direct", Terms(key="k")),
        ("topic", Terms(key="#.k")),
        ("headers", Terms(headers=("a=b",))),
        ("rule", Terms(rule="key == 'k'")),
        ("fanout", Terms()),
    ],
)
def test_which_bindings(kind: Kind, terms: Terms) -> None:
    """Tables name the bindings that a message meets, in order of their targets."""
    one, two = bound("b", terms), bound("a", terms)
    met = list(made(kind, one, two).met(b"k", [("a", b"b")], b"v"))
    assert met == [two, one]
    if kind != "fanout":
        assert list(made(kind, one, two).met(b"x", (), b"v")) == []


HEADERS = st.lists(
    st.sampled_from(["a=1", "a=2", "b=1", "b", "!a", "b!=1"]), min_size=1, max_size=3
)
TERMS: dict[Kind, st.SearchStrategy[Terms]] = {
    "direct": st.builds(Terms, key=KEYS),
    "topic": st.builds(Terms, key=PATTERNS),
    "fanout": st.builds(Terms),
    "headers": st.builds(Terms, headers=HEADERS.map(tuple)),
    "rule": st.sampled_from(["key == 'a'", "size > 1", "no such", "headers.a == '1'"]).map(
        lambda rule: Terms(rule=rule)
    ),
}
MESSAGES: list[tuple[bytes, list[tuple[str, bytes]], bytes]] = [
    (b"a", [("a", b"1")], b"xy"),
    (b"a.b", [("a", b"2"), ("b", b"1")], b""),
    (b"", [], b"x"),
    (b"a..b", [("b", b"2"), ("a", b"1")], b"xyz"),
]


@pytest.mark.parametrize("kind", TERMS)
@given(data=st.data())
@settings(max_examples=10, deadline=None)
def test_changes(kind: Kind, data: st.DataObject) -> None:
    """A table that is changed again and again leads where one made anew does."""
    steps = data.draw(
        st.lists(st.lists(st.tuples(st.sampled_from("tuv"), TERMS[kind]), max_size=6), max_size=6)
    )
    found: Table | None = None
    for step in [*steps, []]:
        bindings = {each.id: each for each in (bound(*pair) for pair in step)}
        exchange = Exchange(kind=kind, dead_letter="none", created_ms=1, bindings=bindings)
        found = table(exchange, before=found)
        anew = table(exchange)
        assert found.looks_at == anew.looks_at
        for message in MESSAGES:
            assert found.targets(*message) == anew.targets(*message)
            assert list(found.met(*message)) == list(anew.met(*message))


def test_nothing_is_left_of_patterns() -> None:
    """A tree from which all patterns were removed holds nothing."""
    trie = Trie()
    patterns = [b"a.b.#", b"a.*", b"#.#.a", b"", b"a", b"#"]
    for _ in range(2):
        for pattern in patterns:
            trie.add(pattern, "t")
    for pattern in patterns * 2:
        trie.remove(pattern, "t")
    assert trie._root.is_bare


def test_another_kind() -> None:
    """An exchange that was made anew with another kind has a table of that kind."""
    before = made("direct", bound("t", Terms(key="k")))
    exchange = Exchange(kind="topic", dead_letter="none", created_ms=2)
    after = table(exchange, [bound("t", Terms(key="#"))], before=before)
    assert after is not before
    assert after.targets(b"x", (), None) == ("t",)


@pytest.mark.parametrize(
    ("kind", "terms", "text"),
    [
        ("direct", Terms(), "a binding of a direct exchange has a key"),
        ("topic", Terms(rule="true"), "a binding of a topic exchange has a key, with"),
        ("fanout", Terms(key="k"), "nothing but its target, and no key"),
        ("headers", Terms(), "conditions on headers"),
        ("headers", Terms(headers=("a=b",), key="k"), "and no key"),
        ("rule", Terms(), "a rule, such as json.total > 100"),
        ("direct", Terms(key="k" * 256), "at most 255 bytes"),
        ("headers", Terms(headers=("=b",)), "is no condition"),
        ("headers", Terms(headers=("a",) * 33), "at most 32 conditions"),
        ("rule", Terms(rule="no such"), "the rule 'no such'"),
    ],
)
def test_terms(kind: Kind, terms: Terms, text: str) -> None:
    """Terms that are not those of the kind are refused, with what to say instead."""
    with pytest.raises(InvalidRequest, match=text):
        terms.check(kind)


def test_stored() -> None:
    """What is stored of a binding and an exchange is read back as it was."""
    for terms in (Terms(key="ä.#"), Terms(headers=("a=b", "!c")), Terms(rule="true"), Terms()):
        one = bound("t", terms)
        assert Binding.decode(one.id, one.encode()) == one
    exchange = Exchange(kind="topic", dead_letter="d", created_ms=5)
    assert Exchange.decode(exchange.encode()) == exchange
    with pytest.raises(ValueError, match="no kind"):
        Exchange.decode(b'{"kind":"x","dead_letter":"d","created_ms":1}')


def _many(make: Callable[[int], Terms]) -> list[Binding]:
    return [bound(f"t{n}", make(n)) for n in range(3000)]


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        ("direct", lambda n: Terms(key=f"k{n}")),
        ("topic", lambda n: Terms(key=f"*.k{n}.#")),
        ("headers", lambda n: Terms(headers=("kind=order", f"user={n}"))),
    ],
)
def test_cost_does_not_grow_with_what_cannot_match(
    kind: Kind, make: Callable[[int], Terms]
) -> None:
    """Among thousands of bindings those of a message are found as among a few."""
    found = made(kind, *_many(make))
    headers = [("kind", b"order"), ("user", b"77")]
    key = b"k77" if kind == "direct" else b"x.k77.y"
    started = time.process_time()
    for _ in range(300):
        assert found.targets(key, headers, None) == ("t77",)
    assert time.process_time() - started < 0.5  # a look at each would take seconds
