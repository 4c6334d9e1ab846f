"""Numbers with units, wherever a setting is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from tinymq.configfile import load
from tinymq.errors import ConfigError, InvalidRequest
from tinymq.settings import Setting
from tinymq.topicconfig import TopicConfig

BYTES = Setting(text="", kind="int", unit="bytes", low=1, high=1 << 40)
MILLISECONDS = Setting(text="", kind="int", unit="milliseconds", low=0, high=10**12, optional=True)
SECONDS = Setting(text="", kind="int", unit="seconds", low=0, high=10**6)
TOPICS = Setting(text="", kind="int", unit="topics", low=0, high=10**6)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (BYTES, "1GiB", 1 << 30),
        (BYTES, " 64 KiB ", 65536),
        (BYTES, "1.5m", 3 << 19),
        (BYTES, "512", 512),
        (MILLISECONDS, "7d", 604_800_000),
        (MILLISECONDS, "7 d", 604_800_000),
        (MILLISECONDS, "1h30m", 5_400_000),
        (MILLISECONDS, "1.1s", 1100),
        (MILLISECONDS, "1500", 1500),
        (MILLISECONDS, "none", None),
        (SECONDS, "2m", 120),
        (SECONDS, "1500ms", None),
    ],
)
def test_units(kind: Setting, text: str, value: int | None) -> None:
    """A bare number counts in the setting's unit, any other in its own, if that comes out even."""
    if value is None and text != "none":
        with pytest.raises(ValueError, match="a whole number"):
            kind.parse(text)
    else:
        assert kind.parse(text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (BYTES, "7d"),
        (BYTES, "2 PiB"),
        (BYTES, "9" * 400 + "k"),
        (BYTES, ""),
        (BYTES, "k"),
        (MILLISECONDS, "1GiB"),
        (MILLISECONDS, "-1d"),
        (MILLISECONDS, "9" * 400 + "d"),
        (MILLISECONDS, "0.1ms"),
        (TOPICS, "1k"),
        (TOPICS, "7d"),
    ],
)
def test_units_that_do_not_fit(kind: Setting, text: str) -> None:
    """A unit of something else, too large a number, and nonsense are refused."""
    with pytest.raises(ValueError, match="a whole number"):
        kind.parse(text)


def test_every_source(tmp_path: Path) -> None:
    """File, environment and command line of the broker take units."""
    file = tmp_path / "tinymq.toml"
    file.write_text('[defaults]\nretention_ms = "7d"\n[storage]\nreserve_bytes = "1GiB"\n')
    variables = {"TINYMQ_DEFAULTS_SEGMENT_BYTES": "64MiB"}
    config = load(file, variables, {"network.drain_seconds": "1m"})
    assert config.defaults.retention_ms == 604_800_000
    assert config.storage.reserve_bytes == 1 << 30
    assert config.defaults.segment_bytes == 64 << 20
    assert config.network.drain_seconds == 60


def test_a_number_as_text_in_a_file_is_a_mistake(tmp_path: Path) -> None:
    """TOML has numbers; a text is one only with a unit."""
    file = tmp_path / "tinymq.toml"
    file.write_text('[network]\ndrain_seconds = "60"\n')
    with pytest.raises(ConfigError, match="drain_seconds = '60' is wrong"):
        load(file)


def test_topics() -> None:
    """Settings of a topic take units from every face, for all of them give texts."""
    config = TopicConfig.from_mapping({"retention.ms": "7 d", "segment.bytes": "1GiB"})
    assert (config.retention_ms, config.segment_bytes) == (604_800_000, 1 << 30)
    with pytest.raises(InvalidRequest, match=r"retention\.ms = '7x' is wrong"):
        TopicConfig.from_mapping({"retention.ms": "7x"})
