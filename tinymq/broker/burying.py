"""
Dead letters: what a channel gave up goes to another topic, and is settled when it is there.

The channel is an idempotent producer of that topic, by a producer id that the
MetaServer never gives out, and by the numbers that what it gives up has from the first moment:
after a crash nothing is written twice, wherever the topic is led.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from hashlib import blake2b
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from twisted.logger import Logger

from tinymq.broker.channel.places import Doom
from tinymq.broker.channel.queue import Subscribers
from tinymq.broker.graves import RESERVED_IDS, already, bring
from tinymq.broker.letters import (
    BATCH_BYTES,
    MOST_TOGETHER,
    PARKED,
    Letter,
    Origin,
    dead_letter_topic,
    encoded,
    parking_topic,
    redriven_to,
    stripped,
)
from tinymq.broker.ports import Letters
from tinymq.errors import (
    OutOfOrderSequence,
    TinyMQError,
    UnknownTopic,
    ValueTooLarge,
    WireError,
)
from tinymq.names import DEAD_LETTERS
from tinymq.wire.records import RecordBatch

if TYPE_CHECKING:
    from tinymq.broker.broker import Broker
    from tinymq.broker.hosted import Hosted
    from tinymq.broker.ports import Timer
    from tinymq.meta.registry import Topic

#: Seconds until what could not be buried is tried again: at first, and at most.
AGAIN_SECONDS: Final = 1.0
MOST_SECONDS: Final = 30.0


class _Numbered(NamedTuple):
    """A letter on its way: its number, where it goes (nowhere: it stays), and its doom."""

    number: int
    target: str
    partition: int | None
    letter: Letter
    doom: Doom
    #: Whether it is the last one of its doom.
    last: bool


class _Piece(NamedTuple):
    """Letters that go to one partition together."""

    target: str
    partition: int | None
    letters: list[_Numbered]

    @property
    def done(self) -> list[Doom]:
        """The dooms that end with it."""
        return [each.doom for each in self.letters if each.last]


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
        self._later: dict[str, Timer] = {}
        self._pauses: dict[str, float] = {}
        self._rounds: dict[str, Round] = {}
        self.kept: dict[str, str] = {}

    def stop(self) -> None:
        """Bury no more."""
        for timer in self._later.values():
            if timer.active():
                timer.cancel()
        self._later.clear()
        rounds, self._rounds = self._rounds, {}
        for one in rounds.values():
            one.stopped = True

    def turn(self, now: int) -> None:
        """
        Bring away what was given up since the last turn.

        Args:
            now: The time.
        """
        for name, one in tuple(self._hosted.queue.channels.items()):
            if one.channel.places.doomed and not self._is_busy(name, one):
                found = self._rounds[name] = Round(self._broker, self._hosted, name, one)
                found.begin(partial(self._ended, name, found), self._taken)

    def _is_busy(self, name: str, one: Subscribers) -> bool:
        """Whether a channel's dead letters are on their way; the next ones wait for them."""
        under_way = self._rounds.get(name)
        return name in self._later or (under_way is not None and under_way.one is one)

    def _taken(self, target: str) -> None:
        """Hear that a topic takes dead letters."""
        self.kept.pop(target, None)

    def _ended(self, name: str, ended: Round, target: str, error: Exception | None) -> None:
        if self._rounds.get(name) is not ended:
            return  # the partition or the channel is gone
        del self._rounds[name]
        if error is None:
            self._pauses.pop(name, None)
            self._hosted.mark()
            return
        why = error.text if isinstance(error, WireError) else str(error)
        if self.kept.get(target) != why:
            self._log.warn(
                "{hosted}: what was given up is kept, for {target} does not take it: {why}",
                hosted=self._hosted,
                target=target,
                why=why,
            )
        self.kept[target] = why
        pause = self._pauses.get(name, AGAIN_SECONDS)
        self._pauses[name] = min(2 * pause, MOST_SECONDS)
        self._later[name] = self._broker.scheduler.callLater(pause, self._again, name)

    def _again(self, name: str) -> None:
        self._later.pop(name, None)
        self._hosted.mark()


#: Told when a round has ended: for which topic it was at last, and what was wrong.
Ended = Callable[[str, "Exception | None"], None]


class Round:
    """
    Brings away what one channel gave up by now, in order, one piece at a time.

    A piece that fails ends it: were those behind it brought all the same, it would
    look like a repeat when it is brought again.

    Args:
        broker: The broker.
        hosted: The channels of the partition.
        name: The channel's name.
        one: The channel.
    """

    def __init__(self, broker: Broker, hosted: Hosted, name: str, one: Subscribers) -> None:
        self._broker = broker
        self._hosted = hosted
        self._name = name
        self.one = one
        self.stopped = False
        topic, given = hosted.partition.topic.name, one.channel.policy.dead_letter
        self._target = dead_letter_topic(topic, name, given)
        #: Whether there is a step to make, and whether one is being made.
        self._due = self._going = False
        self._left: dict[int, Doom] = {}
        self._pieces: Iterator[_Piece] = iter(())

    def begin(self, ended: Ended, taken: Callable[[str], None]) -> None:
        """
        Begin.

        Args:
            ended: Called once, maybe before this returns.
            taken: Called with each topic that took some.
        """
        self._tell, self._taken = ended, taken
        dooms = self.one.steering.dead_letters()
        self._left = {doom.base: doom for doom in dooms}
        self._pieces = _pieces(self._numbered(dooms))
        # Their numbers must never be given to others, not even by a crash.
        self._hosted.ledger.when_safe(self._safe)

    def _safe(self, why: WireError | None) -> None:
        if why is not None:
            self._end(why)
        else:
            self._go_on()

    def _end(self, error: Exception | None = None) -> None:
        for doom in self._left.values():
            self.one.steering.unburied(doom)
        self._left.clear()
        self._tell(self._target, error)

    @property
    def _is_over(self) -> bool:
        """Whether the channel was deleted, with all that it gave up, or the broker stops."""
        return self.stopped or self._hosted.queue.channels.get(self._name) is not self.one

    def _go_on(self) -> None:
        """Bring the next piece; answers that come at once do not pile up."""
        self._due = True
        while self._due and not self._going:
            self._due, self._going = False, True
            self._step()
            self._going = False

    def _step(self) -> None:
        if self._is_over:
            self._end()
            return
        try:
            piece = next(self._pieces, None)
            while piece is not None and not piece.target:
                self._buried(piece)  # it stays where it is
                piece = next(self._pieces, None)
        except (OSError, TinyMQError) as error:
            self._end(error)
            return
        if piece is None:
            self._end()
            return
        self._target = piece.target
        self._find(piece)

    def _buried(self, piece: _Piece) -> None:
        if self._is_over:
            return
        now = self._broker.channels.now()
        for doom in piece.done:
            self.one.steering.buried(doom, now)
            self._left.pop(doom.base, None)
        self._hosted.mark()

    # --- where to -------------------------------------------------------------------

    def _find(self, piece: _Piece) -> None:
        """Find the topic, or have it made."""
        registry = self._broker.meta.registry
        topic = registry.by_name.get(piece.target)
        if self._name == DEAD_LETTERS:
            if topic is None:
                self._recall(piece, UnknownTopic(f"there is no topic {piece.target} any more"))
            else:
                self._bring(piece, topic)
        elif topic is not None and DEAD_LETTERS in registry.channels_of(topic.id):
            self._bring(piece, topic)
        else:
            ensured = partial(self._ensured, piece)
            origin = self._hosted.partition.topic.name
            self._broker.meta.ensure_dead_letters(origin, piece.target, ensured)

    def _ensured(self, piece: _Piece, found: Topic | WireError) -> None:
        if isinstance(found, WireError):
            self._end(found)
        elif self._is_over:
            self._end()
        else:
            self._bring(piece, found)

    def _recall(self, piece: _Piece, error: WireError) -> None:
        """Leave letters where they are, for they cannot be where they were to go to."""
        now = self._broker.channels.now()
        for doom in {each.doom.base: each.doom for each in piece.letters}.values():
            self.one.steering.recall(doom, now)
            self._left.pop(doom.base, None)
        self._end(error)

    def _bring(self, piece: _Piece, topic: Topic) -> None:
        index = self._index(piece, topic)
        first = piece.letters[0].number
        letters = Letters(
            topic.id,
            index,
            self._producer(),
            first,
            encoded([each.letter for each in piece.letters]),
        )

        def brought(error: WireError | None) -> None:
            if isinstance(error, OutOfOrderSequence):
                there = already(error, first)
                if there >= len(piece.letters):
                    error = None
                elif there:
                    self._bring(piece._replace(letters=piece.letters[there:]), topic)
                    self._buried(piece._replace(letters=piece.letters[:there]))
                    return
            if isinstance(error, ValueTooLarge) and self._name == DEAD_LETTERS:
                self._recall(piece, error)
                return
            if isinstance(error, ValueTooLarge):
                self._pieces = chain(self._apart(piece, error), self._pieces)
                self._go_on()
                return
            if error is not None:
                self._end(error)
                return
            self._taken(piece.target)
            self._buried(piece)
            self._go_on()

        bring(self._broker, topic.leaders[index], letters, brought)

    def _apart(self, piece: _Piece, error: ValueTooLarge) -> Iterator[_Piece]:
        """Bring letters one by one, and park the one that will never fit."""
        if len(piece.letters) > 1:
            for each in piece.letters:
                yield piece._replace(letters=[each])
            return
        (each,) = piece.letters
        parking = parking_topic(self._hosted.partition.topic.name)
        if piece.target != parking:
            told = [*each.letter.headers, (PARKED, error.text.encode())]
            moved = each._replace(target=parking, letter=each.letter._replace(headers=told))
            yield _Piece(parking, piece.partition, [moved])
        else:
            self._end(error)

    def _index(self, piece: _Piece, topic: Topic) -> int:
        key = piece.letters[0].letter.key
        if piece.partition is None and key is not None:
            return self._broker.neighbours.place(key, topic.partitions)
        return (piece.partition or 0) % topic.partitions

    def _producer(self) -> int:
        """Return the producer id of a channel of this partition, the same after each start."""
        topic_id, index = self._hosted.partition.key
        info = self._hosted.infos[self._name]
        # In memory numbers begin again with each start.
        start = self._broker.channels.epoch if self._hosted.partition.volatile else 0
        text = f"{index}@{info.created_ms}@{self._name}@{start}".encode()
        digest = blake2b(topic_id + text, digest_size=8).digest()
        return RESERVED_IDS | int.from_bytes(digest, "big") & (RESERVED_IDS - 1)

    # --- what they say -----------------------------------------------------------------

    def _numbered(self, dooms: list[Doom]) -> Iterator[_Numbered]:
        """Yield the messages of dooms, one for each of their offsets, so that numbers fit."""
        for doom in dooms:
            number = doom.number
            end = doom.base + doom.bits.bit_length()
            for offset, message in self._messages(doom):
                yield self._letter(number, offset, message, doom, last=offset == end - 1)
                number += 1

    def _messages(self, doom: Doom) -> Iterator[tuple[int, Letter | None]]:
        """Yield the messages of a doom, in order; None is one that exists no more."""
        runs = doom.runs
        found: dict[int, Letter] = {}
        behind = 0
        batches = self._hosted.window.over(runs)
        for start, end in runs:
            for offset in range(start, end):
                while offset >= behind and (stored := next(batches, None)) is not None:
                    header, data = stored
                    batch, behind = RecordBatch(data, header), header.next_offset
                    found = {
                        each.offset: Letter(each.key, each.value, each.headers, each.created)
                        for each in batch
                    }
                yield offset, found.get(offset)

    def _letter(
        self, number: int, offset: int, message: Letter | None, doom: Doom, *, last: bool
    ) -> _Numbered:
        partition, places = self._hosted.partition, self.one.channel.places
        known = message or Letter(None, None, ())
        if self._name == DEAD_LETTERS:
            target, index = redriven_to(doom.reason)
            if index is None and known.key is None:
                index = partition.index
            letter = known._replace(headers=stripped(known.headers))
            return _Numbered(number, target, index, letter, doom, last)
        given = self.one.channel.policy.dead_letter
        origin = Origin(
            topic=partition.topic.name,
            topic_id=partition.topic.id,
            partition=partition.index,
            offset=offset,
            channel=self._name,
            target=dead_letter_topic(partition.topic.name, self._name, given),
        )
        mark = places.marks.of(offset)
        headers, target = origin.address(
            known.headers, doom, mark, self._client(doom.who), gone=message is None
        )
        letter = known._replace(headers=headers)
        return _Numbered(number, target, partition.index, letter, doom, last)

    def _client(self, who: str) -> str:
        """Name the client of a consumer; one that was forgotten by its session."""
        return self._broker.channels.client_known_as(who) or who.partition(":")[0]


def _pieces(letters: Iterator[_Numbered]) -> Iterator[_Piece]:
    """Put letters together that go to the same place and have numbers in a row."""
    part: list[_Numbered] = []
    size = 0
    for each in letters:
        together = part and (
            (part[-1].target, part[-1].partition) == (each.target, each.partition)
            and part[-1].number + 1 == each.number
            and (each.partition is not None or part[-1].letter.key == each.letter.key)
            and (part[-1].letter.created is None) == (each.letter.created is None)
        )
        full = size + each.letter.size > BATCH_BYTES or len(part) >= MOST_TOGETHER
        if part and (full or not together):
            yield _Piece(part[0].target, part[0].partition, part)
            part, size = [], 0
        part.append(each)
        size += each.letter.size
    if part:
        yield _Piece(part[0].target, part[0].partition, part)
