"""
The settings of clients, producers and consumers, with units and ranges.

Every class is frozen; `attrs.evolve` makes a changed copy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from attrs import Attribute, field, frozen

from tinymq.client.core.starts import At
from tinymq.errors import ConfigError, InvalidName
from tinymq.limits import KIB, MIB
from tinymq.names import INSTANCE, valid_name
from tinymq.wire.batch import Codec
from tinymq.wire.messages import ACKS_ALL, ACKS_LEADER, ACKS_NONE, start_place

#: A partitioner: topic, key and number of partitions to a partition.
Choice = Callable[[str, bytes | None, int], int]
#: Told of offsets that do not exist: topic, partition, expected and found offset.
GapReport = Callable[[str, int, int, int], None]

ACKS: Final = {"none": ACKS_NONE, "leader": ACKS_LEADER, "all": ACKS_ALL}
CODECS: Final = {"none": Codec.NONE, "gzip": Codec.GZIP, "zstd": Codec.ZSTD}
PARTITIONERS: Final = ("sticky", "round_robin", "hash")
OUT_OF_RANGE: Final = ("error", "earliest", "latest")
ON_FULL: Final = ("error", "wait")
ISOLATION: Final = ("committed", "uncommitted")


def _number(low: float, high: float, *, whole: bool = False, optional: bool = False) -> Any:
    def check(instance: Any, attribute: Attribute[Any], value: Any) -> None:
        if optional and value is None:
            return
        kinds = (int,) if whole else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds) or not low <= value <= high:
            kind = "a whole number" if whole else "a number"
            raise ConfigError(
                f"{type(instance).__name__}.{attribute.name} must be {kind} from {low} to {high}, "
                f"not {value!r}"
            )

    return check


def _one_of(allowed: Any, *, function: bool = False) -> Any:
    def check(instance: Any, attribute: Attribute[Any], value: Any) -> None:
        if function and callable(value):
            return
        if not isinstance(value, str) or value not in allowed:
            words = ", ".join(allowed) + (" or a function" if function else "")
            raise ConfigError(
                f"{type(instance).__name__}.{attribute.name} must be one of {words}, not {value!r}"
            )

    return check


def _instance(kind: type, *, optional: bool = False) -> Any:
    def check(instance: Any, attribute: Attribute[Any], value: Any) -> None:
        if not (isinstance(value, kind) or (optional and value is None)):
            raise ConfigError(
                f"{type(instance).__name__}.{attribute.name} must be {kind.__name__}, not {value!r}"
            )

    return check


def _function(instance: Any, attribute: Attribute[Any], value: Any) -> None:
    if value is not None and not callable(value):
        raise ConfigError(f"{type(instance).__name__}.{attribute.name} must be a function")


def _seconds(default: float, low: float = 0.001, high: float = 86_400.0) -> float:
    return field(default=default, validator=_number(low, high))


def _whole(default: int, low: int, high: int) -> int:
    return field(default=default, validator=_number(low, high, whole=True))


def _flag(default: bool) -> bool:
    return field(default=default, validator=_instance(bool))


def _word(default: str, allowed: Any) -> str:
    return field(default=default, validator=_one_of(allowed))


@frozen(kw_only=True)
class Backoff:
    """
    How long to wait before another attempt.

    Attributes:
        first_s: Before the second attempt.
        most_s: Never longer than this.
        factor: Each wait is this many times the one before.
        jitter: Share of the wait that chance decides, 0 to 1.
    """

    first_s: float = _seconds(0.05)
    most_s: float = _seconds(2.0)
    factor: float = field(default=2.0, validator=_number(1, 10))
    jitter: float = field(default=0.2, validator=_number(0, 1))

    def delay(self, attempt: int, chance: float) -> float:
        """
        Work out one wait.

        Args:
            attempt: How many attempts have failed, from 1.
            chance: A random number from 0 to 1.
        """
        full = min(self.first_s * self.factor ** min(attempt - 1, 64), self.most_s)
        return full * (1.0 - self.jitter * chance)


@frozen(kw_only=True)
class ClientConfig:
    """
    Settings of a client and its links.

    Attributes:
        client_id: A name for logs and the dashboard.
        connect_timeout_s: Time for connecting and HELLO at one address.
        request_timeout_s: Time for the answer to a request that the client
            repeats by itself when it stays away: metadata, offsets, fetch.
        deadline_s: Time for a call such as an administrative operation, with
            all its repetitions.
        heartbeat_s: Wanted interval of signs of life; a peer silent for three
            of them is taken for dead.
        metadata_age_s: Known topics are asked for again after this time.
        backoff: Waits between attempts to connect or to ask again.
        read_bytes: Bytes read from the socket at once.
        zone: Where this client runs, such as the name of a data centre. Records
            without key and partition go to partitions whose broker is in the
            same zone, as long as one of them is there.
        wait_for_broker: Whether calls wait, up to their deadlines, for a broker
            that has never answered. Otherwise they end with `NoBroker` as soon
            as every address was tried in vain, which suits commands that people
            type. A broker that answered once is waited for in any case: it may
            be about to start again.
    """

    client_id: str = field(default="", validator=_instance(str))
    connect_timeout_s: float = _seconds(5.0)
    request_timeout_s: float = _seconds(10.0)
    deadline_s: float = _seconds(30.0)
    heartbeat_s: int = _whole(15, 1, 300)
    metadata_age_s: float = _seconds(60.0, 0.1)
    backoff: Backoff = field(factory=Backoff, validator=_instance(Backoff))
    read_bytes: int = _whole(256 * KIB, KIB, 16 * MIB)
    wait_for_broker: bool = _flag(True)
    zone: str = field(default="", validator=_instance(str))


@frozen(kw_only=True)
class LookupConfig:
    """
    Settings of a client that finds independent brokers by lookup servers.

    Attributes:
        refresh_s: Nodes of topics in use are asked for again after this time.
        timeout_s: Time for the answer of a lookup server.
        patience_s: How long a caller waits for the other lookup servers after
            the first of them has answered.
        attempt_s: Time that a producer gives one node before it takes another.
        client: Settings of the clients of nodes and lookup servers. Its zone
            says which nodes a producer prefers.
    """

    refresh_s: float = _seconds(10.0, 0.1)
    timeout_s: float = _seconds(3.0)
    patience_s: float = _seconds(0.5)
    attempt_s: float = _seconds(5.0)
    client: ClientConfig = field(factory=ClientConfig, validator=_instance(ClientConfig))


@frozen(kw_only=True)
class ProducerConfig:
    """
    Settings of a producer.

    Attributes:
        acks: ``leader`` and ``all`` wait for the broker's word that a record is
            stored as its topic promises. ``none`` asks for no word at all: a
            record is lost without notice when anything goes wrong.
        linger_ms: How long an open batch waits for more records. 0 sends at the
            end of the turn of the reactor or of asyncio's loop, or at once from
            the blocking face.
        batch_bytes: A batch is closed before it grows over this.
        in_flight: Most unanswered batches of one partition; never more than the
            broker remembers.
        buffer_bytes: Most bytes of records that wait for their answer. One call
            that is larger by itself is taken when nothing else waits.
        on_full: What the blocking face does then: ``wait`` or ``error``. The
            Deferred face and the asyncio face always answer `BufferFull`.
        deadline_s: Time from taking a record to its answer, with all retries.
        backoff: Waits between retries.
        partitioner: Where records without a partition go. With a key the
            murmur2 hash of the key decides, as in Kafka. Without one: ``sticky``
            (and ``hash``) change the partition with each batch, ``round_robin``
            with each record. A function is given topic, key and the number of
            partitions for every record.
        idempotent: A record is stored once even when an answer is lost. Without
            effect when `acks` is ``none``.
        codec: Compression of values and headers: ``none``, ``gzip``, ``zstd``.
        create_topics: Create a topic on its first use.
    """

    acks: str = _word("leader", ACKS)
    linger_ms: float = field(default=0.0, validator=_number(0, 60_000))
    batch_bytes: int = _whole(64 * KIB, 1, 16 * MIB)
    in_flight: int = _whole(32, 1, 1024)
    buffer_bytes: int = _whole(32 * MIB, 1, 1 << 40)
    on_full: str = _word("wait", ON_FULL)
    deadline_s: float = _seconds(30.0)
    backoff: Backoff = field(factory=Backoff, validator=_instance(Backoff))
    partitioner: str | Choice = field(
        default="sticky", validator=_one_of(PARTITIONERS, function=True)
    )
    idempotent: bool = _flag(True)
    codec: str = _word("none", CODECS)
    create_topics: bool = _flag(True)


@frozen(kw_only=True)
class ConsumerConfig:
    """
    Settings of a consumer.

    Attributes:
        max_wait_ms: How long the broker holds a fetch that finds too little.
        min_bytes: What is too little.
        max_bytes: Most bytes that one fetch asks for; a larger batch comes alone.
        prefetch_bytes: No further fetch is sent while this many bytes lie ready.
        out_of_range: When a position does not exist any more: ``error`` tells,
            with the valid range; ``earliest`` and ``latest`` jump there.
        check_crc: Check the checksum of every batch.
        deadline_s: Time for `assign`, `end_offsets`, and other calls with an end.
        give_up_s: A call that waits for a batch fails when no broker answered for
            this long. None waits for ever, says so in the log, and goes on when
            a broker is back.
        create_topics: Create a topic on its first use.
        isolation: ``committed`` shows records of transactions once they count, and so
            nothing behind the first one that is open; ``uncommitted`` shows all at once,
            those of aborted ones too.
        on_gap: Called with topic, partition, expected and found offset when
            offsets are missing, because records were compacted or damaged; with
            the next offset to be read as found, when no record follows.
    """

    max_wait_ms: int = _whole(500, 0, 60_000)
    min_bytes: int = _whole(1, 0, 1 << 24)
    max_bytes: int = _whole(MIB, 1, 1 << 24)
    prefetch_bytes: int = _whole(2 * MIB, 1, 1 << 40)
    out_of_range: str = _word("error", OUT_OF_RANGE)
    check_crc: bool = _flag(True)
    deadline_s: float = _seconds(30.0)
    give_up_s: float | None = field(default=None, validator=_number(0.001, 1e9, optional=True))
    create_topics: bool = _flag(False)
    isolation: str = _word("committed", ISOLATION)
    on_gap: GapReport | None = field(default=None, validator=_function)


def _begin(instance: Any, attribute: Attribute[Any], value: Any) -> None:
    given = f"@{value.ms}" if isinstance(value, At) else value
    try:
        if given is not None:
            start_place(given)
    except ValueError:
        raise ConfigError(
            f"{type(instance).__name__}.{attribute.name} must be earliest, latest, an offset "
            f"or At(milliseconds), not {value!r}"
        ) from None


def _instance_name(instance: Any, attribute: Attribute[Any], value: Any) -> None:
    if value is not None:
        try:
            valid_name(value)
        except InvalidName as error:
            where = f"{type(instance).__name__}.{attribute.name}"
            raise ConfigError(f"{where}: {error.text}") from None


@frozen(kw_only=True)
class SubscriptionConfig:
    """
    Settings of a subscription to a channel.

    Attributes:
        max_in_flight: Most messages that are delivered and not settled, over all
            brokers; each gets an equal share of it. With fewer than there are
            brokers, the brokers take turns.
        buffer_bytes: No more messages are asked for while those that are here take
            about this much.
        create: Make the channel where there is none.
        start: Where a channel that is made begins: ``earliest``, ``latest``, an
            offset, or `At` for the first message of a time or later. None is
            ``earliest``, and ``latest`` for a temporary one.
        temporary: A channel that is made goes when nobody subscribes to it for a
            while (`session.grace_seconds` of the broker, and up to five more).
        instance: Have a channel of its own within the group that is named by the
            channel, ``CHANNEL@INSTANCE``: those with the same instance share the
            messages, and each instance gets all of them.
        create_topics: Create the topic where there is none.
        only_broker: Take only what lies on the broker of this number.
        deadline_s: Time for the first word of a broker, for those who wait for it.
        leave_s: Time for a broker to take the last settles when the subscription
            ends.
    """

    max_in_flight: int = _whole(1000, 1, 1_000_000)
    buffer_bytes: int = _whole(32 * MIB, 1, 1 << 40)
    create: bool = _flag(True)
    start: str | int | At | None = field(default=None, validator=_begin)
    temporary: bool = _flag(False)
    instance: str | None = field(default=None, validator=_instance_name)
    create_topics: bool = _flag(False)
    only_broker: int | None = None
    deadline_s: float = _seconds(30.0)
    leave_s: float = _seconds(5.0)

    @property
    def begins(self) -> str | int:
        """Where a channel that is made begins."""
        if isinstance(self.start, At):
            return f"@{self.start.ms}"
        if self.start is not None:
            return self.start
        return "latest" if self.temporary else "earliest"

    def channel_of(self, group: str) -> str:
        """
        Return the name of the channel that is subscribed to.

        Args:
            group: What the caller calls it.
        """
        return group if self.instance is None else f"{group}{INSTANCE}{self.instance}"
