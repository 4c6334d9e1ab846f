"""The configuration and the three sources it is read from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tinymq.config import DEFAULT_CONFIG, Config, NetworkConfig, StorageConfig, is_local, settings
from tinymq.configfile import default_toml, load
from tinymq.errors import ConfigError
from tinymq.limits import Limits


def write(folder: Path, text: str) -> Path:
    """Write a configuration file."""
    file = folder / "tinymq.toml"
    file.write_text(text)
    return file


def test_nothing_given() -> None:
    """Without any source all defaults hold, and they are safe."""
    config = load()
    assert config == DEFAULT_CONFIG
    assert config.network.listen == ("tcp:7800:interface=127.0.0.1",)
    assert not config.network.insecure
    assert config.data == Path("data")


def test_every_setting_is_documented() -> None:
    """Each setting has a sentence, a range and a default within it."""
    for name, kind in settings().items():
        assert kind.text.endswith("."), name
        assert kind.fits(DEFAULT_CONFIG.value(name)), name
        assert kind.kind != "int" or kind.low < kind.high or name == "defaults.min_in_sync", name


def test_the_default_file_changes_nothing(tmp_path: Path) -> None:
    """The written file loads, as it is and with every line in force."""
    text = default_toml()
    assert load(write(tmp_path, text)) == DEFAULT_CONFIG
    in_force = re.sub(r"^#(?=\w)", "", text, flags=re.MULTILINE)
    assert in_force.count(" = ") >= len(settings())
    assert load(write(tmp_path, in_force)) == DEFAULT_CONFIG
    assert max(map(len, text.splitlines())) <= 100


def test_sources_in_order(tmp_path: Path) -> None:
    """The environment wins over the file, the command line over both."""
    file = write(
        tmp_path,
        '[storage]\ndata = "file"\nsync_threads = 2\nmax_open_files = 100\n[defaults]\nsync="os"',
    )
    environment = {"TINYMQ_STORAGE_DATA": "variable", "TINYMQ_STORAGE_SYNC_THREADS": "3"}
    config = load(file, environment, {"storage.data": "line"})
    assert config.storage == StorageConfig(data="line", sync_threads=3, max_open_files=100)
    assert config.defaults.sync == "os"


def test_the_environment_may_name_the_file(tmp_path: Path) -> None:
    """TINYMQ_CONFIG stands in for --config."""
    file = write(tmp_path, "[topics]\nauto_create = false")
    assert not load(environment={"TINYMQ_CONFIG": str(file)}).topics.auto_create


def test_all_kinds_from_the_environment() -> None:
    """Numbers, switches, lists and none can all be said in a variable."""
    config = load(
        environment={
            "TINYMQ_NETWORK_LISTEN": "tcp:1:interface=127.0.0.1 unix:/tmp/x",
            "TINYMQ_TOPICS_AUTO_CREATE": "no",
            "TINYMQ_WEB_LISTEN": "none",
            "TINYMQ_DEFAULTS_RETENTION_MS": "none",
            "TINYMQ_LIMITS_HEARTBEAT_SECONDS": "30",
            "TINYMQ_LONG": "1",
            "PATH": "/bin",
        }
    )
    assert config.network.listen == ("tcp:1:interface=127.0.0.1", "unix:/tmp/x")
    assert not config.topics.auto_create
    assert config.web.listen is None
    assert config.defaults.retention_ms is None
    assert config.limits == Limits(heartbeat_seconds=30)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[storage]\nsync_thread = 1", "unknown setting storage.sync_thread; did you mean"),
        (
            "[storage]\nsync_threads = '4'",
            "storage.sync_threads = '4' is wrong: it must be a whole",
        ),
        ("[storage]\nsync_threads = 0", "a whole number from 1 to 64 threads"),
        ("[storage]\nsync_threads = true", "storage.sync_threads = True is wrong"),
        ("[storage]\nsync_threads = 1.5", "storage.sync_threads = 1.5 is wrong"),
        ("[limits]\nbatch = 99999999", "limits.batch = 99999999 is wrong"),
        ("[network]\nlisten = []", "network.listen = [] is wrong"),
        ("[network]\nlisten = [1]", "network.listen = [1] is wrong"),
        ("[network]\ninsecure = 1", "network.insecure = 1 is wrong: it must be true or false"),
        ("[network]\nlisten = 'tcp:7800'", "can be reached from other machines"),
        ("[network]\nlisten = 'banana'", "it must be an endpoint string"),
        ("[broker]\nname = '../x'", "broker.name = '../x' is wrong"),
        ("[logging]\nlevel = 'loud'", "debug or info or warn or error or critical"),
        ("[sundry]\nx = 1", "unknown group [sundry]; there are broker, cluster"),
        ("sync_threads = 1", "outside of any [group]; did you mean storage.sync_threads?"),
        ("x = = 1", "not TOML"),
        ("[storage]\ndata = 'a\\u0000b'", "is wrong"),
    ],
)
def test_mistakes_in_a_file(tmp_path: Path, text: str, message: str) -> None:
    """A mistake is one line that names the file, the setting and what would fit."""
    file = write(tmp_path, text.replace("'a\\u0000b'", '"a\\u0000b"'))
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{file}: ")
    assert "\n" not in str(caught.value)


def test_a_missing_file(tmp_path: Path) -> None:
    """A file that is not there is an error that names it."""
    with pytest.raises(ConfigError, match=r"nowhere\.toml: cannot be read"):
        load(tmp_path / "nowhere.toml")


def test_mistakes_elsewhere() -> None:
    """The error names the variable, or the command line."""
    with pytest.raises(ConfigError, match="environment variable TINYMQ_STORAGE_SYNK: unknown"):
        load(environment={"TINYMQ_STORAGE_SYNK": "always"})
    with pytest.raises(ConfigError, match=r"command line: defaults\.sync = 'x' is wrong"):
        load(overrides={"defaults.sync": "x"})
    with pytest.raises(ConfigError, match="command line: unknown setting nothing"):
        load(overrides={"nothing": "x"})


def test_typed_overrides() -> None:
    """A program may give values of the right type."""
    config = load(overrides={"web.listen": None, "topics.partitions": 3})
    assert config.web.listen is None
    assert config.topics.partitions == 3


def test_long_values_are_cut() -> None:
    """An error does not repeat a value of a megabyte."""
    with pytest.raises(ConfigError) as caught:
        load(overrides={"storage.sync_threads": "x" * 1_000_000})
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("endpoint", "local"),
    [
        ("tcp:1:interface=127.0.0.1", True),
        ("tcp:1:interface=127.9.9.9", True),
        ("tcp:1:interface=localhost", True),
        ("tcp6:1:interface=\\:\\:1", True),
        ("unix:/run/tinymq.sock", True),
        ("tcp:1", False),
        ("tcp:1:interface=0.0.0.0", False),
        ("tcp:1:interface=", False),
        ("tcp6:1:interface=\\:\\:", False),
        ("tcp:1:interface=127.0.0.1:interface=0.0.0.0", False),
        ("systemd:domain=INET:index=0", False),
    ],
)
def test_local_endpoints(endpoint: str, local: bool) -> None:
    """Only what surely stays on this machine needs no authentication."""
    assert is_local(endpoint) == local


def test_insecure_opens_the_listener() -> None:
    """Saying it aloud is enough to listen for other machines."""
    network = NetworkConfig(listen=("tcp:7800",), insecure=True)
    assert Config(network=network).network.listen == ("tcp:7800",)


def test_rows() -> None:
    """The table shows every setting, and which were changed."""
    rows = load(overrides={"storage.sync_threads": "9"}).rows()
    assert [row.name for row in rows] == list(settings())
    assert [row.name for row in rows if row.changed] == ["storage.sync_threads"]
