"""
Bringing copies to their places: one batch of each place at a time, places side by side.

A place that takes nothing holds up no other. It is tried again after a pause; what is for a
topic that was deleted, or what a topic will never take, becomes a dead letter.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from hashlib import blake2b
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Final, NamedTuple

from twisted.logger import Logger

from tinymq.broker.graves import RESERVED_IDS, already, bring
from tinymq.broker.letters import parking_topic
from tinymq.broker.ports import Letters
from tinymq.broker.routing.copying import MOST_TOGETHER, Chunk, Copier
from tinymq.broker.routing.planning import Plan, Planner, Why
from tinymq.broker.routing.routes import DONE, OVER, PLAN, Lane, Piece, Place
from tinymq.broker.window import ColdPiece
from tinymq.errors import BatchTooLarge, OutOfOrderSequence, TinyMQError, ValueTooLarge, WireError
from tinymq.names import DEAD_LETTERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tinymq.broker.broker import Broker
    from tinymq.broker.hosted import Hosted
    from tinymq.broker.ports import Timer
    from tinymq.broker.routing.router import Router
    from tinymq.meta.registry import Topic

#: Seconds until a place that took nothing is tried again: at first, and at most.
AGAIN_SECONDS: Final = 1.0
MOST_SECONDS: Final = 30.0
#: Places to which batches are under way at a time.
MOST_FLYING: Final = 256
#: Seconds for which batches are made before others have their turn.
_CARRY_SECONDS: Final = 0.005
#: How often something is fetched into memory before it is waited for.
_MOST_TRIES: Final = 8
#: Dead letters of one batch: each gets a dozen headers.
_MOST_LETTERS: Final = 300
#: Bytes of a dead letter's text.
_MOST_TEXT: Final = 500


class Stuck(NamedTuple):
    """
    A place that takes nothing.

    Attributes:
        why: What it said.
        since_ms: Since when.
        pause: Seconds until it is tried again.
    """

    why: str
    since_ms: int
    pause: float


class Carrier:
    """
    Brings what is planned of one partition.

    Args:
        broker: The broker.
        hosted: The partition, with its ledger.
        router: What is planned.
        planner: Plans dead letters in place of copies.

    Attributes:
        stuck: Places that take nothing.
        safe: The last plan that is on the disk, with all before it.
    """

    _log = Logger()

    def __init__(self, broker: Broker, hosted: Hosted, router: Router, planner: Planner) -> None:
        self._broker = broker
        self._hosted = hosted
        self._routes = router.routes
        self._counts = router.counts
        self._planner = planner
        self._window = router.window
        self._copier = Copier(hosted.partition, router.window)
        self.stuck: dict[Place, Stuck] = {}
        self.safe = 0
        self._ready: dict[Place, None] = {}
        self._flying: dict[Place, Lane] = {}
        self._timers: dict[Place, Timer] = {}
        #: Up to which number records are brought one by one, for some will not be taken.
        self._apart: dict[Place, int] = {}
        #: Pieces of the log that were fetched for a place, and how often in vain.
        self._warm: dict[Place, tuple[int, int]] = {}
        self._stopped = False

    # --- turns ------------------------------------------------------------------------

    def stop(self) -> None:
        """Bring nothing any more."""
        self._stopped = True
        for timer in self._timers.values():
            if timer.active():
                timer.cancel()
        self._timers.clear()

    def ready(self, places: Iterator[Place]) -> None:
        """
        Say that there is something to bring.

        Args:
            places: Where to.
        """
        self._ready.update(dict.fromkeys(places))

    def turn(self, now: int) -> None:
        """
        Bring what can be brought now.

        Args:
            now: The time.
        """
        seconds = self._broker.scheduler.seconds
        until = seconds() + _CARRY_SECONDS
        waiting, self._ready = self._ready, {}
        later: dict[Place, None] = {}
        while waiting and len(self._flying) < MOST_FLYING:
            if seconds() > until:
                self._hosted.mark()
                break
            place = next(iter(waiting))
            del waiting[place]
            lane = self._routes.lanes.get(place)
            if lane is None or not lane.pieces or place in self._flying or place in self._timers:
                continue
            if lane.pieces[0].plan > self.safe:
                later[place] = None
                continue
            self._begin(lane, now)
        self._ready = {**waiting, **self._ready, **later}

    def _begin(self, lane: Lane, now: int) -> None:
        """Bring the next records of a place, or find out that there is none any more."""
        target, registry = lane.place[0], self._broker.meta.registry
        if isinstance(target, bytes):
            topic = registry.topics.get(target)
            if topic is None:
                self.give_up(lane, self._deleted(target), now)
            else:
                self._bring(lane, topic)
            return
        topic = registry.by_name.get(target)
        if topic is not None and DEAD_LETTERS in registry.channels_of(topic.id):
            self._bring(lane, topic)
            return
        self._flying[lane.place] = lane

        def ensured(found: Topic | WireError) -> None:
            if not self._landed(lane):
                return
            if isinstance(found, WireError):
                self._wait(lane, found.text)
            else:
                self._bring(lane, found)

        origin = self._hosted.partition.topic.name
        self._broker.meta.ensure_dead_letters(origin, target, ensured)

    def _landed(self, lane: Lane) -> bool:
        """Note that nothing is under way to a place; say whether it matters still."""
        self._flying.pop(lane.place, None)
        return not self._stopped and self._routes.lanes.get(lane.place) is lane

    # --- bringing ---------------------------------------------------------------------

    def _bring(self, lane: Lane, topic: Topic) -> None:
        chunk = self._look(lane, partial(self._gather, lane))
        if chunk is None:
            return
        if chunk.batch is None:
            if chunk.unreadable:
                self._counts.unreadable += chunk.records
            else:
                self._counts.missing += chunk.records
            self._log.error(
                "{hosted}: {count} records are not copied to {topic}: they are {what}",
                hosted=self._hosted,
                count=chunk.records,
                topic=topic.name,
                what="unreadable" if chunk.unreadable else "gone",
            )
            self._done(lane, chunk.first + chunk.records)
            return
        index = lane.place[1] % topic.partitions
        letters = Letters(topic.id, index, self._producer(), chunk.first, chunk.batch)
        self._flying[lane.place] = lane
        bring(
            self._broker, topic.leaders[index], letters, partial(self._brought, lane, chunk, topic)
        )

    def _gather(self, lane: Lane) -> Chunk | None:
        safe = takewhile(lambda piece: piece.plan <= self.safe, lane.pieces)
        origin, most = None, MOST_TOGETHER
        if isinstance(lane.place[0], str):
            origin = self._planner.origin(0, lane.place[0])
            most = min(most, _MOST_LETTERS)
        if lane.pieces[0].first < self._apart.get(lane.place, 0):
            most = 1
        return self._copier.gather(safe, origin, most)

    def _look(self, lane: Lane, look: Callable[[], Chunk | None]) -> Chunk | None:
        """Read the log; if the disk would have to be waited for, have it read elsewhere."""
        warm, tries = self._warm.get(lane.place, (-1, 0))
        try:
            if tries >= _MOST_TRIES:
                found = look()
            else:
                with self._window.hasty(warm):
                    found = look()
        except ColdPiece as cold:
            self._warm[lane.place] = cold.offset, tries + 1
            self._flying[lane.place] = lane

            def fetched() -> None:
                if self._landed(lane):
                    self._again(lane.place)

            self._broker.background.submit(self._window.warmer(cold.offset), fetched)
            return None
        except (OSError, TinyMQError) as error:
            self._wait(lane, str(error))
            return None
        self._warm.pop(lane.place, None)
        return found

    def _brought(self, lane: Lane, chunk: Chunk, topic: Topic, error: WireError | None) -> None:
        if not self._landed(lane):
            return
        count = chunk.records
        if isinstance(error, OutOfOrderSequence):
            count = min(already(error, chunk.first), count)
            error = None if count else error
        if isinstance(error, (ValueTooLarge, BatchTooLarge)):
            if chunk.records > 1:
                self._apart[lane.place] = chunk.first + chunk.records
                self._again(lane.place)
            else:
                self._refused(lane, topic, error)
            return
        if error is not None:
            if lane.place[0] not in self._broker.meta.registry.topics and topic.id == lane.place[0]:
                self._again(lane.place)  # it was deleted meanwhile
            else:
                self._wait(lane, error.text)
            return
        if isinstance(lane.place[0], bytes):
            self._counts.copied += count
        else:
            self._counts.letters += count
        self._done(lane, chunk.first + count)

    def _done(self, lane: Lane, number: int) -> None:
        """Write down that records are there, and go on."""
        self._routes.change([DONE, *lane.place, number])
        if self.stuck.pop(lane.place, None) is not None:
            self._planner.stuck.discard(lane.place)
        if number >= self._apart.get(lane.place, number):
            self._apart.pop(lane.place, None)
        if not self._routes.pending:
            self._copier.let_go()
        self._again(lane.place)

    def _again(self, place: Place) -> None:
        self._timers.pop(place, None)
        self._ready[place] = None
        self._hosted.mark()

    def _wait(self, lane: Lane, why: str) -> None:
        """Try again later."""
        known = self.stuck.get(lane.place)
        if known is None or known.why != why:
            self._log.warn(
                "{hosted}: copies for {target} wait, for it does not take them: {why}",
                hosted=self._hosted,
                target=self.named(lane.place),
                why=why,
            )
        pause = AGAIN_SECONDS if known is None else min(2 * known.pause, MOST_SECONDS)
        since = self._broker.channels.now() if known is None else known.since_ms
        self.stuck[lane.place] = Stuck(why, since, pause)
        self._planner.stuck.add(lane.place)
        later = self._broker.scheduler.callLater(pause, self._again, lane.place)
        self._timers[lane.place] = later

    def named(self, place: Place) -> str:
        """
        Call a place by the name of its topic.

        Args:
            place: The place.
        """
        target = place[0]
        if isinstance(target, str):
            return target
        topic = self._broker.meta.registry.topics.get(target)
        return target.hex() if topic is None else topic.name

    def _producer(self) -> int:
        """Return the producer id of this router, the same after each start."""
        topic_id, index = self._hosted.partition.key
        # In memory numbers begin again with each start.
        start = self._broker.channels.epoch if self._hosted.partition.volatile else 0
        text = f"{index}@routes@{self._routes.born}@{start}".encode()
        digest = blake2b(topic_id + text, digest_size=8).digest()
        return RESERVED_IDS | int.from_bytes(digest) >> 2

    # --- giving up ---------------------------------------------------------------------

    def _deleted(self, target: bytes) -> Why:
        return Why("target_deleted", f"its target was deleted: the topic with id {target.hex()}")

    def _refused(self, lane: Lane, topic: Topic, error: WireError) -> None:
        """Bury a record that its target will never take."""
        now = self._broker.channels.now()
        if isinstance(lane.place[0], bytes):
            self.give_up(lane, Why("refused", f"{topic.name}: {error.text}"[:_MOST_TEXT]), now, 1)
            return
        parking = parking_topic(self._hosted.partition.topic.name)
        if lane.place[0] == parking:
            self._wait(lane, error.text)
            return
        piece = lane.pieces[0]
        alone = piece._replace(bits=1, parked=error.text[:_MOST_TEXT])
        moved = self._planner.place_of(parking), alone
        rows = self._routes.numbered([moved])
        self._change(lane, [PLAN, self._routes.cursor, rows], piece.first + 1)

    def give_up(
        self, lane: Lane, why: Why, now: int, most: int = MOST_TOGETHER, below: int | None = None
    ) -> None:
        """
        Let the first copies for a place be dead letters.

        Args:
            lane: The place; nothing is under way to it.
            why: Why.
            now: The time.
            most: Most records.
            below: Only those below an offset, if given.
        """
        if lane.place in self._flying:
            return
        pieces = [*islice(_first(lane, most, below), most)]
        if not pieces:
            return
        found: list[Plan] = []

        def look() -> None:
            found.append(self._planner.give_up(self._routes, pieces, why))

        self._look(lane, look)
        if found:
            self._counts.add(found[0])
            rows = self._routes.numbered(found[0].pieces(now))
            self._change(lane, [PLAN, self._routes.cursor, rows], pieces[-1].behind)

    def _change(self, lane: Lane, plan: list[object], number: int) -> None:
        """Write down a plan in place of records of another lane."""
        self._routes.plan += 1
        over = []
        if (
            lane.place[0] not in self._broker.meta.registry.topics
            and lane.pieces[-1].behind <= number
        ):
            over = [[OVER, *lane.place]] if isinstance(lane.place[0], bytes) else []
        self._routes.change(plan, [DONE, *lane.place, number], *over)
        if over:
            self.stuck.pop(lane.place, None)
            self._planner.stuck.discard(lane.place)
        self.when_safe()
        self.ready(place for place in (*_places(plan), lane.place))
        self._hosted.mark()

    # --- the disk ------------------------------------------------------------------------

    def when_safe(self) -> None:
        """Wait for the disk to have all that is planned by now."""
        self._hosted.ledger.when_synced(partial(self._synced, self._routes.plan))
        self._hosted.mark()

    def _synced(self, plan: int, error: WireError | None) -> None:
        if self._stopped or self._hosted.partition.closed is not None:
            return
        if error is not None:
            # The next thing that is written is a snapshot with all of it.
            self._broker.scheduler.callLater(AGAIN_SECONDS, self._ask_again)
            return
        self.safe = max(self.safe, plan)
        self._hosted.mark()

    def _ask_again(self) -> None:
        if not self._stopped and self._hosted.partition.closed is None:
            self.when_safe()


def _first(lane: Lane, most: int, below: int | None) -> Iterator[Piece]:
    """Yield the first pieces of a lane, cut to some records."""
    left = most
    for piece in lane.pieces:
        taken = piece if below is None else piece.below(below)
        if taken.size > left:
            end = taken.since(taken.first + left)
            taken = taken.below(end.base)
        if not taken.bits:
            return
        yield taken
        left -= taken.size
        if left <= 0 or taken.size < piece.size:
            return


def _places(plan: list[object]) -> Iterator[Place]:
    rows = plan[2]
    assert isinstance(rows, list)
    for row in rows:
        yield row[0], row[1]
