"""The policy of a channel: checked, read from texts, shown, altered."""

from __future__ import annotations

import pytest

from tinymq.channelpolicy import DEFAULT_POLICY, ChannelPolicy
from tinymq.conditions import Condition, matches
from tinymq.errors import InvalidName, InvalidRequest


def test_every_setting_has_a_row_with_its_default() -> None:
    """Tables of settings derive from the declaration, by external names."""
    rows = {row.name: row for row in DEFAULT_POLICY.rows()}

    assert rows.keys() == DEFAULT_POLICY.to_mapping().keys()
    assert "max.length" in rows
    assert rows["attempts"].value == "10", "there is a bound on attempts by default"
    assert not any(row.changed for row in rows.values())


def test_what_is_stored_is_read_again() -> None:
    """A policy survives its mapping, and settings of a newer version are passed over."""
    policy = DEFAULT_POLICY.altered({"order": "key", "backoff": "1s 2m", "max.length": "10"})

    stored = {**policy.to_mapping(), "from.the.future": 1}
    assert ChannelPolicy.from_stored(stored) == policy


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("order", "random"),
        ("lease.ms", 1),
        ("attempts", 0),
        ("backoff", ""),
        ("backoff", "1s soon"),
        ("backoff", "1s,5s"),
        ("backoff", "400d"),
        ("filter", "="),
        ("nothing", 1),
    ],
)
def test_what_does_not_fit_is_refused(name: str, value: str | int) -> None:
    """A wrong setting is refused with its name, and nothing is changed."""
    with pytest.raises(InvalidRequest) as raised:
        DEFAULT_POLICY.altered({name: value})

    assert raised.value.data["field"] == name


def test_a_dead_letter_topic_has_a_valid_name() -> None:
    """The name of the dead-letter topic keeps the rule for names."""
    with pytest.raises(InvalidName):
        DEFAULT_POLICY.altered({"dead.letter": "../x"})


def test_none_means_the_default() -> None:
    """A setting that cannot be none goes back to its default, one that can becomes none."""
    policy = DEFAULT_POLICY.altered({"attempts": 3, "handler.ms": 1000})

    back = policy.altered({"attempts": None, "handler.ms": None})

    assert (back.attempts, back.handler_ms) == (DEFAULT_POLICY.attempts, None)


def test_back_off_follows_its_table_and_chance() -> None:
    """Delays rise by the table, the last one repeats, and chance only lengthens them."""
    policy = ChannelPolicy(backoff=("1s", "10s"), jitter_percent=50)

    assert [policy.delay(failures, 0.0) for failures in (1, 2, 3, 1000)] == [
        1000,
        10_000,
        10_000,
        10_000,
    ]
    assert policy.delay(2, 0.5) == 12_500


@pytest.mark.parametrize(
    ("text", "met"),
    [
        ("kind", True),
        ("!kind", False),
        ("other", False),
        ("!other", True),
        ("kind=a", True),
        ("kind=b", True),
        ("kind=c", False),
        ("kind!=c", True),
        ("kind!=a", False),
        ("other!=a", True),
        ("kind=", False),
    ],
)
def test_conditions(text: str, met: bool) -> None:
    """A condition looks at all values of its header."""
    headers = [("kind", b"a"), ("size", b"9"), ("kind", b"b")]

    assert Condition.parse(text).met(headers) is met
    assert matches([Condition.parse("size=9"), Condition.parse(text)], headers) is met
    assert not matches([Condition.parse("size=8"), Condition.parse(text)], headers)
