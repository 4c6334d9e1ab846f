"""Rules: what they see of a message, and what they are not let do."""

from __future__ import annotations

import json
import time

import pytest

from tinymq.errors import InvalidRequest
from tinymq.routing.rules import (
    MOST_RULE,
    MOST_SPENT,
    VARIABLES,
    Input,
    RuleFailedError,
    check_rule,
    compiled,
)

#: Of the processor: far more than a rule may take.
SECONDS = 2.0


def met(
    rule: str,
    key: bytes | None = None,
    headers: tuple[tuple[str, bytes], ...] = (),
    value: bytes | None = None,
) -> bool:
    """Whether a message meets a rule."""
    return compiled(rule).matches(Input(key, headers, value, frozenset(VARIABLES)))


def of(content: object) -> bytes:
    """Write a value as JSON."""
    return json.dumps(content).encode()


HUGE = b"[" + b"1" * 400 + b"]"
SURROGATE = b'{"a": "\\ud800"}'


@pytest.mark.parametrize("value", [HUGE, SURROGATE])
def test_what_cel_cannot_say(value: bytes) -> None:
    """JSON that the library cannot take is null; rules that do not look at it are not touched."""
    assert met("json == null", value=value)
    assert met("key == 'k'", key=b"k", value=value)


def test_what_cel_cannot_say_is_tried_once() -> None:
    """However many rules there are: it takes long to find out."""
    given = Input(None, (), b"[" + b"[]," * 19_000 + b"1" * 400 + b"]", frozenset(VARIABLES))
    assert compiled("json == null").matches(given)
    began = time.process_time()
    for number in range(300):
        assert not compiled(f"json == {number}").matches(given)
    assert time.process_time() - began < SECONDS


@pytest.mark.parametrize("rule", ["true) ? true : (false", "true) || (true", "key == 'a'\n) ? (b"])
def test_no_bracket_of_a_rule_closes_ours(rule: str) -> None:
    """A rule has to be one by itself."""
    with pytest.raises(InvalidRequest):
        check_rule(rule)


def test_too_many_parts() -> None:
    """A value of very many parts takes long to hand over: what looks at its JSON fails."""
    value = b"[" + b"{}," * 20_000 + b"1]"
    with pytest.raises(RuleFailedError, match="more than 20000 parts"):
        met("size(json) > 1", value=value)
    assert met("size > 1 && key == 'k'", key=b"k", value=value)


def test_additions_are_counted() -> None:
    """Each makes what it is given longer."""
    value = b"a" * 200_000

    def spent(rule: str) -> int:
        given = Input(None, (("h", b"b" * 30_000),), value[:30_000], frozenset(VARIABLES))
        compiled(rule).matches(given)
        return given._spent

    plain, much = spent("value == 'b'"), spent("value + value + value + value == 'b'")
    assert much > 10 * plain
    searched = spent("headers.h.matches('a[a-z]{90}')")
    assert spent("(headers.h + headers.h).matches('a[a-z]{90}')") > 1.9 * searched


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("key == 'eu.de'", True),
        ("key.startsWith('us')", False),
        ("headers.region == 'eu'", True),
        ("headers['twice'] == 'second'", True),
        ("'region' in headers && !('zone' in headers)", True),
        ("has(headers.zone)", False),
        ("size == 35", True),
        ("size(key) == 5", True),
        ("value.contains('total')", True),
        ("json.total > 100", True),
        ("json.total > 100.5 && json.total < 151", True),
        ("json.items.exists(i, i.price >= 50)", True),
        ("json.items.all(i, i.price in [50, 60])", True),
        ("key.matches('^eu[.][a-z]{2}$')", True),
        ("key.matches(r'^\\d+$')", False),
        ("type(json.total) == int", True),
        ("timestamp('2026-01-31T06:00:00Z').getHours() < 7", True),
        ("true // whatever", True),
    ],
)
def test_what_a_rule_sees(rule: str, expected: bool) -> None:
    """A rule looks at key, headers, size, text and JSON of a message."""
    headers = (("region", b"eu"), ("twice", b"first"), ("twice", b"second"))
    value = b'{"total":150,"items":[{"price":50}]}'[:-1] + b"}"
    value = of({"total": 150, "items": [{"price": 50}]})
    if rule.startswith("size =="):
        value = b"x" * 35
    assert met(rule, b"eu.de", headers, value) is expected


def test_what_is_no_text() -> None:
    """Bytes that are no text are base64 in key and headers, and null as a value."""
    assert met("key == '/w==' && headers.a == '/g=='", b"\xff", (("a", b"\xfe"),))
    assert met("value == null && json == null && size == 1", value=b"\xff")
    assert met("key == '' && json == null && size == 0")


@pytest.mark.parametrize(
    "value", [b"", b"{", b"[" * 100_000, b"[" * 70 + b"]" * 70, b"1" * 5000, b'{"a":1}x']
)
def test_what_is_no_json(value: bytes) -> None:
    """A value that is no JSON, or is nested too deep, is null as such."""
    assert met("json == null", value=value)


def test_numbers_of_any_size() -> None:
    """Numbers that do not fit into a word are taken for what they are about."""
    assert met("json.n > 1", value=of({"n": 2**70}))
    assert met("json.n < 1", value=of({"n": -(2**70)}))


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("json.total > 100", "total"),
        ("headers.region == 'eu'", "region"),
        ("key > 1", "No such overload"),
        ("json.text > 100", "No such overload"),
        ("size", "No such overload"),
        ("'text'", "No such overload"),
        ("1 / size == 1", "zero"),
        ("9223372036854775807 + size(key) > 0", "verflow"),
        ("[1][5] == 1", "5"),
        ("timestamp(key).getHours() == 1", "timestamp"),
    ],
)
def test_failures(rule: str, why: str) -> None:
    """A rule that cannot be applied, or gives no truth value, fails and says why."""
    with pytest.raises(RuleFailedError, match=why):
        met(rule, b"k", value=None if "size ==" in rule or "/ size" in rule else of({"text": "x"}))


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("", "mismatched input"),
        ("json.total >", "1:13"),
        ("a == 1", "there is no a; a rule looks at key, headers, size, value, json"),
        ("now() > 1", "there is no function now"),
        ("__import__('os').system('x')", "there is no function __import__"),
        ("key.__class__()", "there is no function __class__"),
        ("open('/etc/passwd') == ''", "there is no function open"),
        ("().__class__", "Syntax error"),
        ("9**9**9", "Syntax error"),
        ("cel.bind(x, 1, x) == 1", "there is no"),
        ("strings.quote(key) == 'a'", "there is no"),
        ("a.b.C{x: 1} == 1", "no messages"),
        ("x" * (MOST_RULE + 1), "1001 characters"),
        ("1 " + "+ 1 " * 9 + "== 10", "9 additions"),
        ("json.map(a, a.map(b, b.map(c, c))) == []", "no third"),
        ("[1].map(a, a).map(a, a).map(a, a).map(a, a) == []", "4 macros"),
        ("json.all(x, json.all(y, y > x))", "json cannot stand within a macro"),
        ("[1].map(x, [x, x]) == []", "a list of other things"),
        ("[1].map(x, {'a': x}) == []", "cannot stand within a macro"),
        ("[value].map(x, x + x) == []", "[+] cannot stand within a macro"),
        ("json.all(x, x.matches('a'))", r"matches\(\) cannot stand within a macro"),
        ("json.all(x, string(x) == '')", r"string\(\) cannot stand within a macro"),
        ("json.all(key, key == 1)", "cannot call its elements key"),
        ("[" + "json, " * 10 + "json].all(x, x == x)", "large values 11 times"),
        ("key.matches(value)", "plain text"),
        ("matches(key, 'a')", "plain text"),
        ("key.matches(b'a')", "not bytes"),
        ("key.matches('(a{1,100}){1,90}b')", "too large"),
        ("key.matches('(a{100}){100}')", "too large"),
        ("key.matches(r'\\pL{200}')", "too large"),
        ("key.matches(r'[\\p{Greek}\\d]{40}')", "too large"),
        ("key.matches(r'\\p{Greek}{60}')", "too large"),
        ("key.matches('[a-z]{1000}')", "too large"),
        ("key.matches('[]a]{1000}')", "too large"),
        ("key.matches('(abc|.){200}')", "too large"),
        ("key.matches('a{999999999999}')", "too many digits"),
        ("key.matches('(?x)a {1 00}')", "flag x"),
        ("key.matches('a\\x7b1000}')", "raw text"),
        ("json.`a-b` == 1", "names in `|Syntax"),
    ],
)
def test_refused(rule: str, why: str) -> None:
    """What is no rule, or could take long, is refused with the reason."""
    with pytest.raises(InvalidRequest, match=why) as caught:
        check_rule(rule)
    assert caught.value.data["field"] == "rule"


def test_nesting_of_brackets_is_bounded() -> None:
    """A rule of nothing but brackets is refused, and breaks nothing."""
    for rule in ("(" * 499 + "1" + ")" * 499, "[" * 499 + "]" * 499, "!" * 999 + "1", "-" * 999):
        try:
            check_rule(rule)
        except InvalidRequest:
            continue
        with pytest.raises(RuleFailedError):
            met(rule)


@pytest.mark.parametrize(
    "rule",
    [
        "key.matches('^(a+)+$')",
        "key.matches('(a|aa)+$')",
        "key.matches('(.*)(.*)(.*)(.*)(.*)x')",
        "key.matches('^(([a-z])+.)+[A-Z]([a-z])+$')",
        "key.matches('(a?){20}a{20}$')",
        "key.matches('(a{1,20}){1,20}b')",
        "value.matches('(x+x+)+y')",
    ],
)
def test_regular_expressions_take_linear_time(rule: str) -> None:
    """Expressions that take for ever elsewhere end soon, on the longest text there may be."""
    started = time.process_time()
    met(rule, b"a" * 32_000, value=b"x" * 32_000)
    assert time.process_time() - started < SECONDS


def test_long_lists() -> None:
    """Macros go through so many elements as a moment allows, and fail on more."""
    one, two = "json.all(x, x >= 0)", "json.all(x, x.all(y, y >= 0))"
    assert met(one, value=of([1] * 10_000))
    assert met(two, value=of([[1] * 10] * 10))
    assert met(two, value=of([[1] * 100] * 100))
    square = of([[1] * 300] * 40)
    with pytest.raises(RuleFailedError, match="too many elements"):
        met(two, value=square)
    with pytest.raises(RuleFailedError, match="more than 65536 bytes"):
        met(one, value=of([1] * 100_000))


def test_long_values() -> None:
    """A value that is too long fails what looks at it, and nothing else."""
    value = b"x" * (256 * 1024 + 1)
    assert met("size > 1000", value=value)
    with pytest.raises(RuleFailedError, match="262144"):
        met("value == ''", value=value)
    with pytest.raises(RuleFailedError, match="32768"):
        met("value.matches('a')", value=b"x" * 32_769)
    with pytest.raises(RuleFailedError, match="key or headers"):
        met("key.matches('a')", b"x" * 32_769)


def test_doubling() -> None:
    """A rule cannot make much of little."""
    started = time.process_time()
    rule = "size(" + "+".join(["value"] * 9) + ") > 1"
    assert met(rule, value=b"x" * 256 * 1024)
    assert met("json == json", value=of([{"a": [1, 2, 3]}] * 2000))
    assert time.process_time() - started < SECONDS


def test_all_rules_together() -> None:
    """What rules cost on one message is added up; beyond a bound the rest of them fail."""
    rules = [compiled(f"json.all(x, x >= 0) && size >= {n}") for n in range(3)]
    given = Input(None, (), of([1] * 1000), frozenset(VARIABLES))
    assert rules[0].matches(given)
    given._spent = MOST_SPENT - given._spent
    assert rules[1].matches(given)
    with pytest.raises(RuleFailedError, match="together"):
        rules[2].matches(given)
    assert given._spent <= MOST_SPENT


def test_each_text_is_compiled_once() -> None:
    """The same text gives the same rule as long as somebody has it."""
    assert compiled("json.total > 7") is compiled("json.total > 7")


def test_what_is_not_asked_for_is_not_opened() -> None:
    """Only the variables that rules mention are made of a message."""
    rule = compiled("key == 'k'")
    given = Input(b"k", (), b"{}", frozenset({"key"}))
    assert rule.matches(given)
    assert set(given.context.variables) == {"key"}
