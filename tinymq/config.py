"""
The configuration of a broker: one frozen value, every setting in a group.

A setting is named ``group.name``. The same name is a key of a TOML file
(``[group]`` and ``name = ...``), of the environment (``TINYMQ_GROUP_NAME``)
and of the command line; the later ones win. `tinymq.configfile` reads them.
"""

from __future__ import annotations

import inspect
import ipaddress
import re
from pathlib import Path
from typing import Any, Final

import attrs
from attrs import field, frozen

from tinymq.errors import ConfigError
from tinymq.limits import DEFAULT_LIMITS, KIB, MIB, Limits
from tinymq.names import RULE, valid_name
from tinymq.outbound import Allowed
from tinymq.settings import Row, Setting, Value, declared, setting, shown
from tinymq.topicconfig import DEFAULT_TOPIC, TopicConfig

__all__ = [
    "DEFAULT_CONFIG",
    "DEFAULT_TOPIC",
    "BrokerConfig",
    "ClusterConfig",
    "Config",
    "LoggingConfig",
    "NetworkConfig",
    "ProducersConfig",
    "PushConfig",
    "RetentionConfig",
    "SessionConfig",
    "StorageConfig",
    "TopicConfig",
    "TopicsConfig",
    "WebConfig",
    "settings",
]

#: The levels of log lines, least important first.
LOG_LEVELS: Final = ("debug", "info", "warn", "error", "critical")
_DAY_SECONDS: Final = 24 * 3600


@frozen(kw_only=True)
class BrokerConfig:
    """What this broker is called."""

    name: str = setting("tinymq", f"The broker's name; {RULE}.", low=1, high=200)


@frozen(kw_only=True)
class ClusterConfig:
    """Which part this process is, and what the cluster is called on every page."""

    role: str = setting(
        "all",
        "What runs in this process: MetaServer and broker, only the MetaServer, or a broker "
        "whose MetaServer is elsewhere.",
        choices=("all", "meta", "broker"),
    )
    meta: tuple[str, ...] = setting(
        (),
        "The MetaServers, as HOST:PORT. A broker belongs to them, and the first that answers is "
        "asked; a process that has its own tells these ones what topics it has.",
        low=0,
        high=16,
    )
    zone: str = setting(
        "",
        "Where this broker stands, such as a data centre; clients prefer brokers of their zone.",
        low=0,
        high=200,
    )

    name: str = setting("tinymq", "The cluster's name on every page.", low=1, high=60)
    env: str = setting(
        "", "The kind of environment, shown beside the name: production, staging.", low=0, high=30
    )


@frozen(kw_only=True)
class NetworkConfig:
    """Where clients connect."""

    listen: tuple[str, ...] = setting(
        ("tcp:7800:interface=127.0.0.1",),
        "Where clients connect: Twisted's endpoint strings.",
        low=1,
        high=16,
    )
    advertise: str = setting(
        "",
        "HOST or HOST:PORT where others reach this broker, if that is not where it listens.",
        low=0,
        high=300,
    )
    insecure: bool = setting(
        False, "Whether listeners may be reached from other machines, without any authentication."
    )
    connections: int = setting(
        10_000,
        "Clients that may be connected at the same time; more are closed at once.",
        unit="connections",
        low=1,
        high=1_000_000,
    )
    drain_seconds: int = setting(
        10, "How long a stop waits for open requests.", unit="seconds", low=0, high=600
    )


@frozen(kw_only=True)
class WebConfig:
    """Where the dashboard and the HTTP API are."""

    listen: str | None = setting(
        "tcp:7801:interface=127.0.0.1",
        "Where the dashboard and the HTTP API are: an endpoint string; none turns them off.",
        low=1,
        high=500,
        optional=True,
    )


@frozen(kw_only=True)
class StorageConfig:
    """How this broker uses its disk."""

    data: str = setting("./data", "The folder that holds everything.", low=1, high=4000)
    sync_threads: int = setting(
        4, "Threads that wait for fdatasync.", unit="threads", low=1, high=64
    )
    reserve_bytes: int = setting(
        256 * MIB,
        "Publishing is refused when the disk has less free space than this.",
        unit="bytes",
        low=0,
        high=1024**5,
    )
    max_open_files: int = setting(
        512, "Log files held open at the same time.", unit="files", low=16, high=1_000_000
    )
    checkpoint_seconds: int = setting(
        30,
        "How often recovery's starting point is written; a longer time is a slower recovery.",
        unit="seconds",
        low=1,
        high=3600,
    )
    history_seconds: int = setting(
        _DAY_SECONDS,
        "How long it can be told what channels did with a message; 0 is only what is needed.",
        unit="seconds",
        low=0,
        high=30 * _DAY_SECONDS,
    )
    history_bytes: int = setting(
        256 * MIB,
        "Likewise, how many bytes are kept for that in each partition with channels.",
        unit="bytes",
        low=0,
        high=1024**4,
    )


@frozen(kw_only=True)
class RetentionConfig:
    """How retention works; how much is kept is the topic's matter."""

    check_seconds: int = setting(
        30,
        "How often topics are looked through for what may go.",
        unit="seconds",
        low=1,
        high=3600,
    )
    hold_percent: int = setting(
        80,
        "When logs take so much of the bytes that they may, what channels hold back goes as the "
        "topic's hold.then says, the most first.",
        unit="percent",
        low=1,
        high=100,
    )


@frozen(kw_only=True)
class CompactionConfig:
    """How logs are compacted; which ones is the topic's matter."""

    helper: str = setting(
        "process",
        "Where files are cleaned: in a process of its own, or in a thread of this one, which "
        "takes time from clients.",
        choices=("process", "thread"),
    )
    check_seconds: int = setting(
        15,
        "How often topics are looked through for what is worth it.",
        unit="seconds",
        low=1,
        high=3600,
    )
    memory_bytes: int = setting(
        128 * MIB,
        "Memory for the keys of one partition, about 36 bytes each; where they do not fit, it is "
        "cleaned in several rounds.",
        unit="bytes",
        low=16 * MIB,
        high=64 * 1024 * MIB,
    )
    rate_bytes: int = setting(
        64 * MIB,
        "Bytes that cleaning reads and writes a second at most, so that the disk stays free.",
        unit="bytes",
        low=64 * KIB,
        high=64 * 1024 * MIB,
    )


@frozen(kw_only=True)
class TopicsConfig:
    """How topics come to be."""

    auto_create: bool = setting(True, "Whether the first publish or subscribe makes a topic.")
    most: int = setting(
        100_000,
        "Topics that there may be at most; creating more is refused.",
        unit="topics",
        low=1,
        high=10_000_000,
    )
    channels: int = setting(
        100,
        "Channels that a topic may have at most; creating more is refused.",
        unit="channels",
        low=1,
        high=1000,
    )
    partitions: int = setting(
        1,
        "Partitions of a topic when its creator says nothing.",
        unit="partitions",
        low=1,
        high=DEFAULT_LIMITS.partitions,
    )


@frozen(kw_only=True)
class ProducersConfig:
    """What brokers do for idempotent producers."""

    id_block: int = setting(
        1000, "Producer ids that a broker asks for at a time.", unit="ids", low=1, high=1_000_000
    )
    remembered: int = setting(
        10_000,
        "Producers that a partition remembers; the longest silent is forgotten first.",
        unit="producers",
        low=16,
        high=10_000_000,
    )
    forget_seconds: int = setting(
        7 * _DAY_SECONDS,
        "How long a silent producer is remembered.",
        unit="seconds",
        low=60,
        high=365 * _DAY_SECONDS,
    )
    dedup_ids: int = setting(
        10_000_000,
        "Message ids that this broker remembers for the dedup windows of all topics; each takes "
        "some 150 bytes. At this many, records with new ids are refused for a while.",
        unit="ids",
        low=1000,
        high=1_000_000_000,
    )


@frozen(kw_only=True)
class SessionConfig:
    """What is kept for clients whose connection was lost."""

    grace_seconds: int = setting(
        10,
        "How long a client that is away keeps what it has in hand, and a temporary channel "
        "that nobody subscribes to stays.",
        unit="seconds",
        low=1,
        high=3600,
    )


@frozen(kw_only=True)
class PushConfig:
    """How messages are sent to push endpoints."""

    allow: tuple[str, ...] = setting(
        (),
        "Where push endpoints may be beside public addresses: networks such as 10.0.0.0/8, or "
        "names, of which .example.com stands for all that end so. The same at every process of a "
        "cluster.",
        low=0,
        high=100,
    )
    requests: int = setting(
        200,
        "Requests to push endpoints that this broker has open at the same time.",
        unit="requests",
        low=1,
        high=10_000,
    )

    @property
    def allowed(self) -> Allowed:
        """Where endpoints may be."""
        return Allowed.of(self.allow)


@frozen(kw_only=True)
class LoggingConfig:
    """What the broker writes about itself."""

    format: str = setting("text", "The form of log lines.", choices=("text", "json"))
    level: str = setting(
        "info",
        "The least important lines that are written.",
        choices=LOG_LEVELS,
    )


@frozen(kw_only=True)
class Config:
    """
    Everything that can be set on a broker.

    Attributes:
        broker: What this broker is called.
        cluster: Which part this process is.
        network: Where clients connect.
        web: Where the dashboard is.
        storage: How the disk is used.
        retention: How retention works.
        compaction: How logs are compacted.
        topics: How topics come to be.
        defaults: The settings of a topic whose creator says nothing.
        producers: What is done for idempotent producers.
        session: What is kept for clients whose connection was lost.
        push: How messages are sent to push endpoints.
        limits: The numbers that a peer's input is checked against.
        logging: What the broker writes about itself.
    """

    broker: BrokerConfig = field(factory=BrokerConfig)
    cluster: ClusterConfig = field(factory=ClusterConfig)
    network: NetworkConfig = field(factory=NetworkConfig)
    web: WebConfig = field(factory=WebConfig)
    storage: StorageConfig = field(factory=StorageConfig)
    retention: RetentionConfig = field(factory=RetentionConfig)
    compaction: CompactionConfig = field(factory=CompactionConfig)
    topics: TopicsConfig = field(factory=TopicsConfig)
    defaults: TopicConfig = field(default=DEFAULT_TOPIC)
    producers: ProducersConfig = field(factory=ProducersConfig)
    session: SessionConfig = field(factory=SessionConfig)
    push: PushConfig = field(factory=PushConfig)
    limits: Limits = field(default=DEFAULT_LIMITS)
    logging: LoggingConfig = field(factory=LoggingConfig)

    def __attrs_post_init__(self) -> None:
        """Check what concerns more than one setting."""
        for name, endpoints in (
            ("network.listen", self.network.listen),
            ("web.listen", (self.web.listen,) if self.web.listen else ()),
        ):
            for endpoint in endpoints:
                self._check_endpoint(name, endpoint)
        valid_broker_name(self.broker.name)
        self._check_cluster()
        try:
            self.push.allowed  # noqa: B018 - reads the setting
        except ValueError as error:
            raise ConfigError(f"push.allow is wrong: {error}") from error

    def _check_cluster(self) -> None:
        cluster = self.cluster
        if cluster.role == "broker" and not cluster.meta:
            raise ConfigError(
                "cluster.role = broker needs to know its MetaServer: "
                "say cluster.meta (--meta HOST:PORT)"
            )
        if cluster.role == "meta" and cluster.meta:
            raise ConfigError(
                "cluster.meta is for brokers; a process of the role meta is a MetaServer itself"
            )
        for place in filter(None, (*cluster.meta, self.network.advertise)):
            if not _PLACE.fullmatch(place):
                raise ConfigError(f"{place!r} is wrong: it must be HOST:PORT")
        if cluster.zone:
            try:
                valid_name(cluster.zone)
            except Exception as error:
                raise ConfigError(f"cluster.zone = {cluster.zone!r} is wrong: {RULE}") from error

    def _check_endpoint(self, name: str, endpoint: str) -> None:
        if not _ENDPOINT.match(endpoint):
            raise ConfigError(
                f"{name} = {endpoint!r} is wrong: it must be an endpoint string "
                "such as tcp:7800:interface=127.0.0.1"
            )
        if not self.network.insecure and not is_local(endpoint):
            raise ConfigError(
                f"{name} = {endpoint!r} can be reached from other machines, and there is no "
                "authentication yet: add :interface=127.0.0.1, or set network.insecure = true "
                "(--insecure) where everyone who can connect may do everything"
            )

    @property
    def data(self) -> Path:
        """The folder that holds everything."""
        return Path(self.storage.data)

    def value(self, name: str) -> Value:
        """Return the value of ``group.name``."""
        group, _, attribute = name.partition(".")
        return getattr(getattr(self, group), attribute)  # type: ignore[no-any-return]

    def changed(self, values: dict[str, Any]) -> Config:
        """
        Return this configuration with other values.

        Args:
            values: ``group.name`` to values of the right type.

        Raises:
            ConfigError: The values do not go together.
        """
        groups: dict[str, dict[str, Any]] = {}
        for name, value in values.items():
            group, _, attribute = name.partition(".")
            groups.setdefault(group, {})[attribute] = value
        evolved = {
            group: attrs.evolve(getattr(self, group), **changes)
            for group, changes in groups.items()
        }
        return attrs.evolve(self, **evolved)

    def rows(self) -> tuple[Row, ...]:
        """Return the table of all settings, for pages and the command line."""
        return tuple(
            Row(
                name=name,
                value=shown(self.value(name)),
                default=shown(DEFAULT_CONFIG.value(name)),
                text=kind.text,
                allowed=kind.allowed,
            )
            for name, kind in settings().items()
        )


def valid_broker_name(name: str) -> str:
    """Return the broker's name if it keeps the rule for names."""
    try:
        return valid_name(name)
    except Exception as error:
        raise ConfigError(f"broker.name = {name!r} is wrong: {RULE}") from error


_PLACE: Final = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\s:/\[\]@?#]+)(:\d{1,5})?")
_ENDPOINT: Final = re.compile(r"(tcp6?|ssl):\d{1,5}(:|$)|(unix|systemd|fd|tls|haproxy):\S")


def is_local(endpoint: str) -> bool:
    """Whether an endpoint string can be reached from this machine only."""
    parts = [part.replace("\\:", ":") for part in re.split(r"(?<!\\):", endpoint)]
    if parts[0] == "unix":
        return True
    interfaces = [part.partition("=")[2] for part in parts if part.startswith("interface=")]
    return bool(interfaces) and all(_is_loopback(interface) for interface in interfaces)


def _is_loopback(interface: str) -> bool:
    try:
        return ipaddress.ip_address(interface).is_loopback
    except ValueError:
        return interface == "localhost"


def settings() -> dict[str, Setting]:
    """Return the declarations of all settings by ``group.name``, in order."""
    found: dict[str, Setting] = {}
    for group in attrs.fields(Config):
        value = getattr(DEFAULT_CONFIG, group.name)
        kinds = _limits() if isinstance(value, Limits) else declared(type(value))
        found.update({f"{group.name}.{name}": kind for name, kind in kinds.items()})
    return found


def _limits() -> dict[str, Setting]:
    """Return the table of limits as settings, its texts taken from its docstring."""
    texts = _attribute_texts(Limits)
    return {
        limit.name: Setting(
            text=texts.get(limit.name, ""),
            kind="int",
            unit=_unit(limit.name),
            low=1,
            high=limit.metadata["most"],
        )
        for limit in attrs.fields(Limits)
    }


def _unit(limit: str) -> str:
    if limit.endswith("_seconds"):
        return "seconds"
    counted = {"records", "header_count", "partitions", "producer_window"}
    return "" if limit in counted else "bytes"


def group_text(group: str) -> str:
    """Return the sentence that says what a group of settings is about."""
    return _attribute_texts(Config).get(group, "")


def _attribute_texts(documented: type) -> dict[str, str]:
    """Return what a class's docstring says about its attributes."""
    _, _, section = (inspect.getdoc(documented) or "").partition("Attributes:\n")
    found = re.findall(r"^ {4}(\w+): (.+(?:\n {8}.+)*)", section, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in found}


DEFAULT_CONFIG: Final = Config()
