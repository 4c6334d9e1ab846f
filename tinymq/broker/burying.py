"""
Dead letters: what a channel gave up goes to another topic, and is settled when it is there.

The channel is an idempotent producer of that topic, by a producer id that the
MetaServer never gives out, and by the numbers that what it gives up has from the first moment:
after a crash nothing is written twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

from twisted.logger import Logger

from tinymq.broker.channel.places import Doom
from tinymq.broker.channel.queue import Subscribers
from tinymq.broker.channel.runs import Run, runs_in
from tinymq.broker.partition import Appended, Partition
from tinymq.errors import OutOfOrderSequence, TinyMQError, WireError
from tinymq.limits import MIB
from tinymq.names import group_of
from tinymq.wire.batch import sequence
from tinymq.wire.records import Headers, RecordBatch, encode_batch

if TYPE_CHECKING:
    from tinymq.broker.broker import Broker
    from tinymq.broker.hosted import Hosted
    from tinymq.broker.ports import Timer
    from tinymq.meta.registry import Topic

#: Seconds until what could not be buried is tried again.
AGAIN_SECONDS: Final = 5.0
#: Producer ids from here on are the brokers' own.
RESERVED_IDS: Final = 1 << 62
#: Sequences of producers wrap here.
_SEQUENCES: Final = 1 << 31
#: Bytes of one batch of dead letters, about.
_BATCH_BYTES: Final = MIB // 2

#: Headers of a dead letter say where it comes from and why it is there.
ORIGIN: Final = "tinymq-"


class _Letter(NamedTuple):
    """A message on its way."""

    key: bytes | None
    value: bytes | None
    headers: Headers

    @property
    def size(self) -> int:
        """About how many bytes it has."""
        headers = sum(len(name) + len(value) for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers


def dead_letter_topic(topic: str, channel: str, given: str) -> str:
    """
    Return the name of a channel's dead-letter topic.

    Args:
        topic: The topic's name.
        channel: The channel's.
        given: What the policy says, maybe nothing.
    """
    return given or f"{topic}.{group_of(channel)}.dead"


class Burying:
    """
    Buries what the channels of one partition gave up.

    Args:
        broker: The broker, which may lead the dead-letter topic.
        hosted: The channels.

    Attributes:
        kept: Why dead letters are kept, by the name of the topic they are for.
    """

    _log = Logger()

    def __init__(self, broker: Broker, hosted: Hosted) -> None:
        self._broker = broker
        self._hosted = hosted
        self._later: Timer | None = None
        self._asked: set[str] = set()
        self.kept: dict[str, str] = {}

    def stop(self) -> None:
        """Bury no more."""
        if self._later is not None and self._later.active():
            self._later.cancel()
        self._later = None

    def turn(self, now: int) -> None:
        """
        Append what was given up since the last turn.

        Args:
            now: The time.
        """
        if self._later is not None:
            return
        for name, one in tuple(self._hosted.queue.channels.items()):
            if one.channel.places.doomed:
                self._bury_all(name, one)

    def _bury_all(self, name: str, one: Subscribers) -> None:
        origin = self._hosted.partition
        target = dead_letter_topic(origin.topic.name, name, one.channel.policy.dead_letter)
        grave = self._grave(target)
        if grave is None:
            return
        dooms = one.steering.dead_letters()
        if dooms:
            # Their numbers must never be given to others, not even by a crash.
            self._hosted.ledger.when_safe(partial(self._numbered, name, one, dooms, grave))

    def _numbered(
        self,
        name: str,
        one: Subscribers,
        dooms: list[Doom],
        grave: Partition,
        why: WireError | None,
    ) -> None:
        for doom in dooms:
            try:
                if why is not None:
                    raise why.with_traceback(None)
                self._bury(name, one, doom, grave)
            except (OSError, TinyMQError) as error:
                self._failed(one, doom, grave.topic.name, error)

    def _grave(self, target: str) -> Partition | None:
        """Find the partition for dead letters; None if they have to be kept."""
        topic = self._broker.meta.registry.by_name.get(target)
        if topic is None:
            if target not in self._asked:
                self._asked.add(target)
                self._broker.meta.ensure_topic(target, partial(self._ensured, target))
            return None
        here = {each.index: each for each in self._broker.partitions_of(topic)}
        if not here:
            self._keep(target, "another broker leads the dead-letter topic")
            return None
        self.kept.pop(target, None)
        wanted = self._hosted.index % topic.partitions
        return here.get(wanted) or here[min(here)]

    def _ensured(self, target: str, found: Topic | WireError) -> None:
        self._asked.discard(target)
        if isinstance(found, WireError):
            self._keep(target, found.text)
        else:
            self._hosted.mark()

    def _keep(self, target: str, why: str) -> None:
        if self.kept.get(target) != why:
            self._log.warn(
                "{hosted}: what was given up is kept, for {target} does not take it: {why}",
                hosted=self._hosted,
                target=target,
                why=why,
            )
        self.kept[target] = why
        self._try_later()

    def _try_later(self) -> None:
        if self._later is None:
            self._later = self._broker.scheduler.callLater(AGAIN_SECONDS, self._again)

    def _again(self) -> None:
        self._later = None
        self._hosted.mark()

    def _bury(self, name: str, one: Subscribers, doom: Doom, grave: Partition) -> None:
        if self._hosted.queue.channels.get(name) is not one:
            return  # the channel was deleted, and all that it gave up with it
        batches = [*_batches([*self._letters(name, doom)])]
        left = len(batches)

        def answer(result: Appended | WireError) -> None:
            nonlocal left
            # What is older than the broker remembers has been there for long.
            if isinstance(result, WireError) and not isinstance(result, OutOfOrderSequence):
                if left > 0:
                    self._failed(one, doom, grave.topic.name, result)
                left = -1
                return
            left -= 1
            if left == 0:
                one.steering.buried(doom, self._broker.channels.now())
                self._hosted.mark()

        producer, number = self._producer(name), doom.number
        for batch, count in batches:
            first = number % _SEQUENCES
            grave.producers.expect(producer, first)
            self._broker.produce(*grave.key, sequence(batch, producer, 0, first), answer)
            number += count

    def _failed(self, one: Subscribers, doom: Doom, target: str, error: Exception) -> None:
        one.steering.unburied(doom)
        self._keep(target, str(error))

    def _producer(self, name: str) -> int:
        """Return the producer id of a channel of this partition, the same after each start."""
        topic_id, index = self._hosted.partition.key
        info = self._hosted.infos[name]
        # In memory numbers begin again with each start.
        start = self._broker.channels.epoch if self._hosted.partition.volatile else 0
        text = f"{index}@{info.created_ms}@{name}@{start}".encode()
        digest = blake2b(topic_id + text, digest_size=8).digest()
        return RESERVED_IDS | int.from_bytes(digest, "big") & (RESERVED_IDS - 1)

    # --- what they say -------------------------------------------------------------

    def _letters(self, name: str, doom: Doom) -> Iterator[_Letter]:
        """Yield the messages of a doom, one for each of its offsets, so that numbers fit."""
        origin = self._hosted.partition
        runs: list[Run] = [*runs_in(doom.base, doom.bits)]
        common = [
            (f"{ORIGIN}topic", origin.topic.name.encode()),
            (f"{ORIGIN}partition", b"%d" % origin.index),
            (f"{ORIGIN}channel", name.encode()),
            (f"{ORIGIN}reason", doom.reason.encode()),
            (f"{ORIGIN}text", doom.text.encode("utf-8", "replace")),
            (f"{ORIGIN}deliveries", b"%d" % doom.history.deliveries),
            (f"{ORIGIN}failures", b"%d" % doom.history.failures),
            (f"{ORIGIN}time", b"%d" % doom.time),
        ]
        found: dict[int, tuple[bytes | None, bytes | None, Headers]] = {}
        for header, data in self._hosted.window.over(runs):
            batch = RecordBatch(data, header)
            rows = zip(batch.offsets, batch.keys, batch.values, batch.headers, strict=True)
            for offset, key, value, headers in rows:
                if offset - doom.base >= 0 and doom.bits >> offset - doom.base & 1:
                    found[offset] = key, value, headers
        for start, end in runs:
            for offset in range(start, end):
                key, value, headers = found.get(offset, (None, None, ()))
                mine = [*headers, *common, (f"{ORIGIN}offset", b"%d" % offset)]
                if offset not in found:
                    mine.append((f"{ORIGIN}gone", b"1"))
                yield _Letter(key, value, mine)


def _batches(letters: list[_Letter]) -> Iterator[tuple[bytes, int]]:
    """Encode letters as batches, and say how many each holds."""
    part: list[_Letter] = []
    size = 0
    for letter in letters:
        if part and size + letter.size > _BATCH_BYTES:
            yield _encoded(part), len(part)
            part, size = [], 0
        part.append(letter)
        size += letter.size
    if part:
        yield _encoded(part), len(part)


def _encoded(letters: list[_Letter]) -> bytes:
    return encode_batch(
        [letter.value for letter in letters],
        keys=[letter.key for letter in letters],
        headers=[letter.headers for letter in letters],
    )
