"""Patterns of topic names: whole names, in linear time, never internal ones."""

from __future__ import annotations

import pytest

from tests.groups.stage import topic, topics_of
from tinymq.errors import InvalidRequest
from tinymq.groups.patterns import Pattern
from tinymq.names import TRANSACTIONS

NAMES = [*(f"orders.{n}" for n in range(40)), "old-orders", "x1", "x2", TRANSACTIONS, "Zeta"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (r"orders\.\d", {f"orders.{n}" for n in range(10)}),
        (r".*", {name for name in NAMES if name != TRANSACTIONS}),
        (r"tinymq\..*", set()),
        (r"x1|x2", {"x1", "x2"}),
        (r"(?i)zeta", {"Zeta"}),
        (r"[^o].*", {"x1", "x2", "Zeta"}),
        (r"\Ax1\z", {"x1"}),
        (r"^x1$", {"x1"}),
        (r"[\d\wé]\d", {"x1", "x2"}),
        (r"^orders.*$", {f"orders.{n}" for n in range(40)}),
        (r"(?s)orders.*", {f"orders.{n}" for n in range(40)}),
        (r"(?i:ZETA)|x1$|^x2", {"Zeta", "x1", "x2"}),
        (r"orders", set()),
        (r"", set()),
        (r"(?:x)[12]", {"x1", "x2"}),
        (r'"\n', set()),
    ],
)
def test_whole_names(text: str, found: set[str]) -> None:
    """A pattern means a whole name, with either way of looking, and no internal one."""
    pattern, single = Pattern(text), Pattern(text)
    pattern.begin(NAMES)
    while pattern.pending:
        pattern.step()
    assert pattern.names == found
    single.came(NAMES)
    assert single.names == found


@pytest.mark.parametrize(
    "text", ["(", "a)(b", r"(a)\1", "(?=a)", "a{900}", "(?:a{30}){30}", "(?x) a", "*"]
)
def test_what_is_no_pattern(text: str) -> None:
    """What is no expression, looks around, or is too large, is refused with its reason."""
    with pytest.raises(InvalidRequest, match="pattern"):
        Pattern(text)


def test_no_expression_takes_long() -> None:
    """What takes other libraries for ever is answered at once."""
    pattern = Pattern("(a*)*(a|aa)*b")
    pattern.came(["a" * 200])
    assert pattern.names == set()


def test_patterns_follow_topics() -> None:
    """Topics that come, go and are made anew are found by those who hold a pattern."""
    found = topics_of(topic("a1", 1), topic("b1", 1))
    pattern = found.pattern("a.*")
    assert found.pattern("a.*") is pattern
    assert pattern.names == {"a1"}
    before = [*found.by_id]
    now = [topic("a1", 1, version=1), topic("a2", 1), topic("b2", 1)]
    by_id = {each.id: each for each in now}
    by_name = {each.name: each for each in now}
    changed = found.follow(by_id, by_name, [*before, *by_id])
    assert changed == {"a1", "b1", "a2", "b2"}
    assert pattern.names == {"a1", "a2"}
    assert found.follow(by_id, by_name, [*by_id]) == frozenset()
