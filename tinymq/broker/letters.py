"""
Dead letters: what is written on them, and how it is read again.

A dead letter is the message as it was, with headers that say where it comes from and
why it is there. Headers of an earlier death stay before those of the last one, so
the last of a name counts, and all of them together are the message's way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

from tinymq.broker.channel.marks import Mark
from tinymq.broker.channel.places import Doom
from tinymq.limits import DEFAULT_LIMITS, MIB
from tinymq.names import group_of
from tinymq.wire.records import Headers, encode_batch

#: Headers of a dead letter begin so.
ORIGIN: Final = "tinymq-"
#: Those that the broker writes; all else in a message is its producer's.
TOPIC: Final = f"{ORIGIN}topic"
TOPIC_ID: Final = f"{ORIGIN}topic-id"
PARTITION: Final = f"{ORIGIN}partition"
OFFSET: Final = f"{ORIGIN}offset"
CHANNEL: Final = f"{ORIGIN}channel"
REASON: Final = f"{ORIGIN}reason"
TEXT: Final = f"{ORIGIN}text"
DELIVERIES: Final = f"{ORIGIN}deliveries"
FAILURES: Final = f"{ORIGIN}failures"
FIRST: Final = f"{ORIGIN}first"
TIME: Final = f"{ORIGIN}time"
CLIENT: Final = f"{ORIGIN}client"
HOPS: Final = f"{ORIGIN}hops"
REDRIVEN: Final = f"{ORIGIN}redriven"
PARKED: Final = f"{ORIGIN}parked"
GONE: Final = f"{ORIGIN}gone"
_OURS: Final = frozenset(
    [
        *(TOPIC, TOPIC_ID, PARTITION, OFFSET, CHANNEL, REASON, TEXT, DELIVERIES, FAILURES),
        *(FIRST, TIME, CLIENT, HOPS, REDRIVEN, PARKED, GONE),
    ]
)
#: Headers by which a producer wants a message to come later, or not too late: a dead letter
#: is neither delayed nor does it expire.
TIMED: Final = frozenset((f"{ORIGIN}delay", f"{ORIGIN}ttl", f"{ORIGIN}expires"))

_ID: Final = re.compile(r"[0-9a-f]{32}")

#: In so many dead-letter topics a message may be; then it is parked.
MOST_HOPS: Final = 5
#: What a parking place is called after.
_PARKING: Final = ".parking"
_DEAD: Final = ".dead"
#: Bytes of one batch of dead letters, about.
BATCH_BYTES: Final = MIB // 2
#: Letters in one batch.
MOST_TOGETHER: Final = 1000


class Letter(NamedTuple):
    """
    A message on its way.

    Attributes:
        key: Its key.
        value: Its value.
        headers: Its headers.
        created: When its producer says that it was made, or None.
    """

    key: bytes | None
    value: bytes | None
    headers: Headers
    created: int | None = None

    @property
    def size(self) -> int:
        """About how many bytes it has."""
        headers = sum(len(name) + len(value) for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers


class Facts(NamedTuple):
    """
    What a dead letter says of its last death.

    Attributes:
        topic: Where it comes from; empty if it does not say.
        topic_id: The topic's id; None if it does not say.
        partition: Its partition there, or None.
        offset: Its offset there, or None.
        channel: The channel that gave it up.
        reason: One word.
        text: The last error.
        deliveries: How often it was given out.
        failures: How often that failed.
        first_ms: When it failed first, or None.
        last_ms: When it was given up, or None.
        client: Who had it last.
        hops: In how many dead-letter topics it was.
        redriven: How often it was sent back.
        parked: Why it is in a parking place; empty if it is in none.
    """

    topic: str
    topic_id: bytes | None
    partition: int | None
    offset: int | None
    channel: str
    reason: str
    text: str
    deliveries: int
    failures: int
    first_ms: int | None
    last_ms: int | None
    client: str
    hops: int
    redriven: int
    parked: str

    @property
    def loop(self) -> bool:
        """Whether it was sent back before, or went in circles."""
        return self.redriven > 0 or bool(self.parked)


class Origin(NamedTuple):
    """
    Where a message was given up, and where to it goes.

    Attributes:
        topic: The topic.
        topic_id: The topic's id.
        partition: The partition's number.
        offset: The offset.
        channel: The channel.
        target: The channel's dead-letter topic.
    """

    topic: str
    topic_id: bytes
    partition: int
    offset: int
    channel: str
    target: str

    def address(
        self, before: Headers, doom: Doom, mark: Mark, client: str, *, gone: bool
    ) -> tuple[list[tuple[str, bytes]], str]:
        """
        Write a dead letter's headers, and say where it goes.

        Args:
            before: Those that the message has.
            doom: Why it was given up, and after what.
            mark: What is remembered of it.
            client: Who had it last.
            gone: Whether the message itself does not exist any more.

        Returns:
            The headers, and the name of a topic: the dead-letter topic, or a parking
            place for what went in circles; empty if it stays where it is.
        """
        headers = self.told(before, doom, mark)
        if client:
            headers.append((CLIENT, client.encode()))
        if gone:
            headers.append((GONE, b"1"))
        target, why = self.way_out(before)
        return ([*headers, (PARKED, why.encode())] if why else headers), target

    def told(self, before: Headers, doom: Doom, mark: Mark) -> list[tuple[str, bytes]]:
        """
        Write a dead letter's headers.

        Args:
            before: Those that the message has.
            doom: Why it was given up, and after what.
            mark: What is remembered of it.
        """
        past = facts_of(before)
        headers = [
            *untimed(before),
            (TOPIC, self.topic.encode()),
            (TOPIC_ID, self.topic_id.hex().encode()),
            (PARTITION, b"%d" % self.partition),
            (OFFSET, b"%d" % self.offset),
            (CHANNEL, self.channel.encode()),
            (REASON, doom.reason.encode()),
            (TEXT, doom.text.encode("utf-8", "replace")),
            (DELIVERIES, b"%d" % doom.history.deliveries),
            (FAILURES, b"%d" % doom.history.failures),
            (TIME, b"%d" % doom.time),
            (HOPS, b"%d" % (len(way_of(before)) + 1)),
        ]
        if mark.failed:
            headers.append((FIRST, b"%d" % mark.failed))
        redriven = max(past.redriven, mark.redriven)
        if redriven:
            headers.append((REDRIVEN, b"%d" % redriven))
        return headers

    def way_out(self, before: Headers) -> tuple[str, str]:
        """
        Say where a dead letter goes.

        Args:
            before: The headers that the message has.

        Returns:
            The name of a topic: the dead-letter topic, or a parking place for what went in
            circles, empty if it stays where it is; and why it is parked, if it is.
        """
        why = self._circles(before, len(way_of(before)) + 1)
        if not why:
            return self.target, ""
        parking = parking_topic(self.topic)
        return "" if parking == self.topic else parking, why

    def _circles(self, before: Headers, hops: int) -> str:
        """Say why a message must not go on; nothing if it may."""
        way = [*way_of(before), self.topic]
        if is_parking(self.topic) and facts_of(before).parked:
            return "it was parked already"
        if self.target in way:
            return f"it went in circles: {' -> '.join([*way, self.target])}"
        if hops > MOST_HOPS:
            return f"it was given up {hops} times, in {', '.join(way)}"
        return ""


def redriven_to(reason: str) -> tuple[str, int | None]:
    """
    Read where to a letter is sent back.

    Args:
        reason: As `redrive_reason` wrote it.

    Returns:
        The topic, and its partition if that matters.
    """
    _, _, rest = reason.partition(":")
    partition, _, topic = rest.partition(":")
    return topic, int(partition) if partition.isdigit() else None


def redrive_reason(topic: str, partition: int | None) -> str:
    """
    Write where to a letter is sent back, as the reason of its leaving.

    Args:
        topic: The topic.
        partition: Its partition, or None for that of its key.
    """
    return f"redrive:{'' if partition is None else partition}:{topic}"


def facts_of(headers: Headers) -> Facts:
    """
    Read what a dead letter says of itself.

    Args:
        headers: All its headers; what is not there, or not as the broker writes it, is unknown.
    """
    last = dict(headers)

    def text(name: str) -> str:
        return last.get(name, b"").decode("utf-8", "replace")

    def number(name: str) -> int | None:
        found = last.get(name, b"")
        return int(found) if found.isdigit() and len(found) < 19 else None

    topic_id = text(TOPIC_ID)
    hexes = _ID.fullmatch(topic_id) is not None
    return Facts(
        topic=text(TOPIC),
        topic_id=bytes.fromhex(topic_id) if hexes else None,
        partition=number(PARTITION),
        offset=number(OFFSET),
        channel=text(CHANNEL),
        reason=text(REASON),
        text=text(TEXT),
        deliveries=number(DELIVERIES) or 0,
        failures=number(FAILURES) or 0,
        first_ms=number(FIRST),
        last_ms=number(TIME),
        client=text(CLIENT),
        hops=number(HOPS) or sum(name == TOPIC for name, _ in headers),
        redriven=number(REDRIVEN) or 0,
        parked=text(PARKED),
    )


def way_of(headers: Headers) -> list[str]:
    """
    Name the topics in which a message was given up before, the first one first.

    Args:
        headers: All its headers.
    """
    return [value.decode("utf-8", "replace") for name, value in headers if name == TOPIC]


def untimed(headers: Headers) -> list[tuple[str, bytes]]:
    """
    Leave out what delays a message or lets it expire.

    Args:
        headers: All its headers.
    """
    return [each for each in headers if each[0] not in TIMED]


def stripped(headers: Headers) -> list[tuple[str, bytes]]:
    """
    Return the headers of a message that is sent back: its producer's, and a count.

    Args:
        headers: Those of the dead letter.
    """
    times = facts_of(headers).redriven + 1
    kept = [each for each in untimed(headers) if each[0] not in _OURS]
    return [*kept, (REDRIVEN, b"%d" % times)]


def dead_letter_topic(topic: str, channel: str, given: str) -> str:
    """
    Return the name of a channel's dead-letter topic; all instances of a group have one.

    Args:
        topic: The topic's name.
        channel: The channel's.
        given: What the policy says, maybe nothing.
    """
    return given or _named(f"{topic}.{group_of(channel)}", _DEAD)


def parking_topic(topic: str) -> str:
    """
    Return the name of the place for what went in circles.

    Args:
        topic: The topic in which it was given up at last.
    """
    return topic if is_parking(topic) else _named(topic, _PARKING)


def is_parking(topic: str) -> bool:
    """
    Whether a topic is a parking place.

    Args:
        topic: Its name.
    """
    return topic.endswith(_PARKING)


def _named(name: str, ending: str) -> str:
    """Add an ending to a name; a long one is cut, and told from others by a hash."""
    if len(name) + len(ending) <= DEFAULT_LIMITS.name:
        return name + ending
    short = blake2b(name.encode(), digest_size=8).hexdigest()
    return f"{name[: DEFAULT_LIMITS.name - len(ending) - len(short) - 1]}-{short}{ending}"


def encoded(letters: Sequence[Letter]) -> bytes:
    """
    Encode letters as one batch.

    Args:
        letters: At least one; all of them say when they were made, or none does.
    """
    times = [letter.created for letter in letters if letter.created is not None]
    return encode_batch(
        [letter.value for letter in letters],
        keys=[letter.key for letter in letters],
        headers=[letter.headers for letter in letters],
        times=times if len(times) == len(letters) else None,
    )
