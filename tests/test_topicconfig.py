"""The settings of a topic, from requests and from the store."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinymq.config import DEFAULT_TOPIC, TopicConfig
from tinymq.errors import ConfigError, InvalidRequest


def test_defaults() -> None:
    """Acknowledged means on disk, and records stay a week, unless told otherwise."""
    assert DEFAULT_TOPIC.to_mapping() == {
        "storage": "disk",
        "sync": "always",
        "sync.interval.ms": 200,
        "retention.ms": 604_800_000,
        "retention.bytes": None,
        "retention.mode": "limits",
        "compact.min.dirty": 50,
        "compact.lag.ms": 0,
        "compact.tombstone.ms": 86_400_000,
        "ttl.ms": None,
        "hold.max.ms": 1_209_600_000,
        "hold.max.bytes": None,
        "hold.then": "dead_letter",
        "segment.bytes": 128 * 1024 * 1024,
        "max.value.bytes": 16 * 1024 * 1024,
        "memory.bytes": 64 * 1024 * 1024,
        "undo.ms": 600_000,
        "dedup.ms": None,
        "dedup.by": "id",
        "min.in.sync": 1,
    }


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "sync": st.sampled_from(["always", "interval", "os"]),
            "storage": st.sampled_from(["disk", "memory"]),
            "retention.ms": st.none() | st.integers(1, 10**12),
            "retention.bytes": st.none() | st.integers(1, 10**12),
            "segment.bytes": st.integers(4096, 2**31 - 1),
        },
    )
)
def test_there_and_back(given_: dict[str, str | int | None]) -> None:
    """What is stored is what was given, with the defaults for the rest."""
    config = TopicConfig.from_mapping(given_)
    assert config.to_mapping() == {**DEFAULT_TOPIC.to_mapping(), **given_}
    assert TopicConfig.from_stored(config.to_mapping()) == config


@pytest.mark.parametrize(
    ("given_", "expected"),
    [("60000", 60000), (60000, 60000), (None, None), ("none", None), (" 5 ", 5)],
)
def test_texts_are_read(given_: str | int | None, expected: int | None) -> None:
    """A number may come as a text, as a form or a command line gives it."""
    assert TopicConfig.from_mapping({"retention.ms": given_}).retention_ms == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sync", "sometimes"),
        ("sync", 1),
        ("retention.ms", 0),
        ("retention.ms", -1),
        ("retention.ms", "1.5"),
        ("retention.ms", True),
        ("retention.ms", 10**30),
        ("retention.ms", "9" * 100_000),
        ("segment.bytes", 4095),
        ("segment.bytes", "none"),
        ("min.in.sync", 2),
        ("unknown", 1),
        ("retention_ms", 1),
        ("x" * 1000, 1),
    ],
)
def test_wrong_values(name: str, value: str | int) -> None:
    """What does not fit is refused with the setting's name in the error."""
    with pytest.raises(InvalidRequest) as caught:
        TopicConfig.from_mapping({name: value})
    assert caught.value.data["field"] == name[:200]
    assert len(str(caught.value)) < 400


def test_the_error_says_what_would_fit() -> None:
    """A range is part of the error, for people and for programs."""
    with pytest.raises(
        InvalidRequest, match="a whole number from 1 to 60000 milliseconds"
    ) as caught:
        TopicConfig.from_mapping({"sync.interval.ms": 0})
    assert caught.value.data["allowed"] == "a whole number from 1 to 60000 milliseconds"


def test_a_wrong_value_in_code_is_a_usage_error() -> None:
    """A configuration that cannot be is never constructed."""
    with pytest.raises(ConfigError, match="undo_ms"):
        TopicConfig(undo_ms=-1)


def test_altered() -> None:
    """An alteration keeps the rest, and None brings back the default."""
    config = TopicConfig(sync="os", undo_ms=5, retention_ms=10)
    changed = config.altered({"undo.ms": None, "retention.ms": None})
    assert changed == TopicConfig(sync="os", retention_ms=None)
    assert config.altered({"undo.ms": None}, TopicConfig(undo_ms=7)).undo_ms == 7


def test_storage_is_fixed() -> None:
    """A topic does not move between memory and disk."""
    with pytest.raises(InvalidRequest, match="fixed") as caught:
        TopicConfig().altered({"storage": "memory"})
    assert caught.value.data == {"field": "storage"}
    assert TopicConfig().altered({"storage": "disk"}) == TopicConfig()


def test_stored_settings_of_a_newer_version_are_left_out() -> None:
    """A store written by a newer version can be read."""
    assert TopicConfig.from_stored({"sync": "os", "shiny": 1}) == TopicConfig(sync="os")


def test_rows() -> None:
    """The table for people shows the value, the broker's default and the range."""
    rows = TopicConfig(retention_ms=None).rows(TopicConfig(undo_ms=3))
    by_name = {row.name: row for row in rows}
    assert by_name["retention.ms"].value == "none"
    assert by_name["retention.ms"].changed
    assert by_name["undo.ms"].default == "3"
    assert not by_name["sync"].changed
    assert all(row.text and row.allowed for row in rows)
