"""
A coordinator: decides the transactions of the producers whose names belong to one place.

It is the leader of one partition of the topic of transactions. What it says is in that
log before anybody hears of it, so another start says the same: a transaction is
committed if there is a record that says so, and aborted if its producer went on to
the next one without. Whatever it does not know was aborted, or is done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from attrs import define, evolve, field

from tinymq.broker.transactions.deciding import Place, Question
from tinymq.broker.transactions.opened import Identity
from tinymq.broker.transactions.producing import (
    LAST_EPOCH,
    By,
    Producing,
    Undone,
    decoded,
    encoded,
)
from tinymq.errors import (
    InvalidTransaction,
    Overloaded,
    ProducerFenced,
    TransactionAborted,
    UnknownProducer,
    WireError,
)
from tinymq.wire.messages import AHEAD

#: Producers that one place knows at most.
MOST_PRODUCERS: Final = 100_000
#: A producer that ended nothing for so long is forgotten: 7 days.
FORGET_MS: Final = 7 * 24 * 3_600_000

#: Called once with an identity, or with what is wrong.
Identified = Callable[["Identity | WireError"], None]
#: Called once with a producer id, or with what is wrong.
Given = Callable[["int | WireError"], None]


class World(Protocol):
    """What a coordinator asks of the world around it."""

    def now(self) -> int:
        """The wall clock, in milliseconds."""

    def write(
        self, name: str, value: bytes | None, done: Callable[[WireError | None], None]
    ) -> None:
        """Write what is known of a producer, and wait for the disk; None forgets it."""

    def producer_id(self, done: Given) -> None:
        """Give a producer id that belongs to this place."""

    def bring(
        self,
        identity: Identity,
        places: Iterable[Place],
        done: Callable[[Place], None],
        *,
        commit: bool,
    ) -> None:
        """Bring what was decided to partitions; `done` is called for each."""

    def tidy(self) -> None:
        """Call `tidy` of the coordinator soon."""


class Row(NamedTuple):
    """
    A transaction that is under way, for people.

    Attributes:
        name: The transactional id.
        identity: Its own.
        state: What becomes of it.
        since_ms: Since when it is open, or was decided.
        timeout_ms: After how long it is aborted.
        places: Where it is known to have something.
        client: What its client calls itself.
    """

    name: str
    identity: Identity
    state: str
    since_ms: int
    timeout_ms: int
    places: list[Place]
    client: str


@define(eq=False)
class _Heard:
    """What partitions told of the transaction that is open."""

    since_ms: int
    places: dict[Place, None] = field(factory=dict)


@define(eq=False)
class _Way:
    """What is on its way to partitions."""

    commit: bool
    since_ms: int
    left: dict[Place, None]


class _Entry:
    """A producer, what was decided for it, and what waits for its turn with it."""

    __slots__ = ("busy", "going_on", "heard", "name", "state", "waiting", "ways")

    def __init__(self, name: str) -> None:
        self.name = name
        #: None while it is written for the first time.
        self.state: Producing | None = None
        self.heard: _Heard | None = None
        #: What not all partitions have heard of.
        self.ways: dict[Identity, _Way] = {}
        self.busy = self.going_on = False
        self.waiting: deque[Callable[[], None]] = deque()

    @property
    def undone(self) -> Undone:
        """What is committed, and where that is not known yet."""
        return {identity: [*way.left] for identity, way in self.ways.items() if way.commit}


class Coordinator:
    """
    The producers of one place.

    Args:
        world: Its log, its clock, and the way to partitions.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._entries: dict[str, _Entry] = {}
        self._by_producer: dict[int, _Entry] = {}
        #: Producers by what was decided and is on its way to partitions.
        self._ways: dict[Identity, _Entry] = {}
        #: Producers of which the log says that something is undone that is done.
        self._done: dict[str, _Entry] = {}
        #: Why nothing can be decided here any more: what the log says is not known.
        self.broken: WireError | None = None

    def __len__(self) -> int:
        return len(self._entries)

    # --- the start -------------------------------------------------------------------

    def replay(self, name: str, value: bytes | None) -> None:
        """
        Take a record of the log.

        Args:
            name: Its key.
            value: Its value; None forgets the producer.

        Raises:
            CorruptBatch: It cannot be read.
        """
        state, undone = (None, Undone()) if value is None else decoded(value)
        entry = self._entries.get(name)
        if entry is not None:
            for identity in entry.ways:
                del self._ways[identity]
            entry.ways.clear()
        if state is None:
            if entry is not None:
                self._drop(entry)
            return
        entry = entry or _Entry(name)
        self._take(entry, state)
        for identity, places in undone.items():
            self._decided(
                entry,
                identity,
                _Way(commit=True, since_ms=state.updated_ms, left=dict.fromkeys(places)),
            )

    def begin(self) -> None:
        """Bring to partitions what they may not have heard of, now that all is known."""
        for identity, entry in tuple(self._ways.items()):
            self._bring(entry, identity)

    def _take(self, entry: _Entry, state: Producing) -> None:
        if entry.state is not None and entry.state.producer_id != state.producer_id:
            self._by_producer.pop(entry.state.producer_id, None)
        entry.state = state
        self._entries[entry.name] = entry
        self._by_producer[state.producer_id] = entry

    def _drop(self, entry: _Entry) -> None:
        self._entries.pop(entry.name, None)
        if entry.state is not None:
            self._by_producer.pop(entry.state.producer_id, None)
        entry.state = None

    def _decided(self, entry: _Entry, identity: Identity, way: _Way) -> None:
        entry.ways[identity] = way
        self._ways[identity] = entry

    # --- what producers ask ------------------------------------------------------------

    def init(self, name: str, timeout_ms: int, client: str, done: Identified) -> None:
        """
        Give a producer its next identity, and let whoever had the last one be fenced.

        Args:
            name: The transactional id.
            timeout_ms: After how long an open transaction is aborted.
            client: What the client calls itself.
            done: Called once, when that is on the disk.
        """
        entry = self._entries.get(name)
        if entry is None:
            if len(self._entries) >= MOST_PRODUCERS:
                done(
                    Overloaded(
                        f"{MOST_PRODUCERS} producers of transactions are known here; use the same "
                        "transactional ids again"
                    )
                )
                return
            entry = self._entries[name] = _Entry(name)
        self._in_turn(entry, done, partial(self._init, entry, timeout_ms, client))

    def _init(self, entry: _Entry, timeout_ms: int, client: str, done: Identified) -> None:
        before, now = entry.state, self._world.now()

        def given(identity: Identity | WireError) -> None:
            if isinstance(identity, WireError):
                done(identity)
                return
            state = Producing(*identity, timeout_ms, now, client)
            if before is not None:
                over = before.after(identity, now, "fence", commit=False)
                state = evolve(state, last=over.last, told=over.told)
            self._write(entry, state, [] if before is None else [self._aborting(entry)], done)

        if before is None:
            self._new_identity(given)
        else:
            # Whoever is fenced may have begun transactions under the next identities, while
            # its last one is being decided: these stay nobody's.
            self._next_identity(before, given, AHEAD)

    def end(
        self,
        name: str,
        identity: Identity,
        places: Sequence[list[Place]],
        done: Identified,
        *,
        commit: bool,
    ) -> None:
        """
        Decide transactions, as their producer wants.

        Args:
            name: The transactional id.
            identity: The transaction.
            places: Where it has something; and where those with the epochs behind have,
                which are to count, too.
            done: Called once, when it is decided, with the identity of the next one.
            commit: Whether it is to count.
        """
        entry = self._entries.get(name)
        if entry is None:
            done(
                UnknownProducer(f"no producer of transactions is known as {name}; start a new one")
            )
            return
        wanted = partial(self._end, entry, identity, places, commit=commit)
        self._in_turn(entry, done, wanted)

    def _end(
        self,
        entry: _Entry,
        identity: Identity,
        places: Sequence[list[Place]],
        done: Identified,
        *,
        commit: bool,
    ) -> None:
        state, name = entry.state, entry.name
        if state is None:
            done(
                UnknownProducer(f"no producer of transactions is known as {name}; start a new one")
            )
        elif len(places) > 1 and (not commit or identity[1] + len(places) - 1 > LAST_EPOCH):
            done(InvalidTransaction("several transactions are committed, up to the last epoch"))
        elif identity == state.identity:
            self._decide(entry, places, "producer", done, commit=commit)
        else:
            done(self._again(name, state, identity, len(places) if commit else 0))

    @staticmethod
    def _again(
        name: str, state: Producing, identity: Identity, committed: int
    ) -> Identity | WireError:
        """Answer what was decided before, or cannot be decided: so many are to count."""
        which = f"transaction {identity[0]}:{identity[1]} of {name}"
        known = (each for each in (state.last, state.told) if each is not None)
        last = next((each for each in known if each.identity == identity), None)
        if last is None:
            if identity[0] == state.producer_id and identity[1] > state.epoch:
                return InvalidTransaction(f"{which} cannot have begun: that identity is nobody's")
            return ProducerFenced(f"{which} is over; another one is under way")
        if last.by == "fence":
            return ProducerFenced(f"another producer is at work as {name}, and {which} was aborted")
        if committed and not last.commit:
            why = {"timeout": "it took too long", "operator": "people ended it"}.get(last.by, "")
            return TransactionAborted(f"{which} was aborted{': ' if why else ''}{why}")
        if last.commit and committed != last.count:
            return InvalidTransaction(
                f"{which} was committed before, {last.count} with it and those behind; say that "
                "again as it was said"
            )
        return last.following

    def abort(self, name: str, by: By, done: Callable[[WireError | None], None]) -> None:
        """
        Abort whatever transaction a producer has open, and fence it.

        Args:
            name: The transactional id.
            by: Who wants it.
            done: Called once, when that is on the disk.
        """
        entry = self._entries.get(name)
        if entry is None or entry.state is None:
            done(UnknownProducer(f"no producer of transactions is known as {name}"))
            return
        identity = entry.state.identity

        def told(found: Identity | WireError) -> None:
            done(found if isinstance(found, WireError) else None)

        def begin(done: Identified) -> None:
            if entry.state is None or entry.state.identity != identity:
                done(identity)  # it was decided meanwhile
            else:
                self._decide(entry, [[]], by, done, commit=False)

        self._in_turn(entry, told, begin)

    def _decide(
        self,
        entry: _Entry,
        places: Sequence[list[Place]],
        by: By,
        done: Identified,
        *,
        commit: bool,
    ) -> None:
        before = entry.state
        assert before is not None, entry.name
        if commit:
            now = self._world.now()
            ways = [_Way(commit=True, since_ms=now, left=dict.fromkeys(each)) for each in places]
        else:
            ways = [self._aborting(entry, places[0])]

        def given(identity: Identity | WireError) -> None:
            if isinstance(identity, WireError):
                done(identity)
            else:
                state = before.after(identity, self._world.now(), by, commit=commit)
                self._write(entry, state, ways, done)

        # Its producer knows which of the next identities it used; nobody else does.
        self._next_identity(before, given, len(ways) if by == "producer" else AHEAD)

    def _aborting(self, entry: _Entry, places: Iterable[Place] = ()) -> _Way:
        """Say where the present transaction may have something, as far as is known here."""
        left = dict.fromkeys(places)
        if entry.heard is not None:
            left |= entry.heard.places
        return _Way(commit=False, since_ms=self._world.now(), left=left)

    # --- one after the other --------------------------------------------------------------

    def _in_turn(
        self, entry: _Entry, done: Identified, begin: Callable[[Identified], None]
    ) -> None:
        """Do one thing at a time with each producer."""

        def ended(found: Identity | WireError) -> None:
            entry.busy = False
            done(found)
            self._go_on(entry)

        def start() -> None:
            entry.busy = True
            if self.broken is not None:
                ended(self.broken)
            else:
                begin(ended)

        if entry.busy or entry.waiting:
            entry.waiting.append(start)
        else:
            start()

    def _go_on(self, entry: _Entry) -> None:
        """Do what waits, in a loop: many may wait, and have their answers at once."""
        if entry.going_on:
            return
        entry.going_on = True
        try:
            while entry.waiting and not entry.busy:
                entry.waiting.popleft()()
        finally:
            entry.going_on = False
        if entry.state is None and not entry.busy:
            self._entries.pop(entry.name, None)  # it came to nothing

    def _next_identity(self, state: Producing, done: Identified, step: int) -> None:
        if state.epoch + step <= LAST_EPOCH:
            done((state.producer_id, state.epoch + step))
        else:
            self._new_identity(done)

    def _new_identity(self, done: Identified) -> None:
        def given(found: int | WireError) -> None:
            done(found if isinstance(found, WireError) else (found, 0))

        self._world.producer_id(given)

    def _write(
        self, entry: _Entry, state: Producing, ways: Sequence[_Way], done: Identified
    ) -> None:
        """Bring a producer's new state to the disk, and only then believe it."""
        before = entry.state
        decided: dict[Identity, _Way] = {}
        if before is not None:
            producer, epoch = before.identity
            decided = {(producer, epoch + at): way for at, way in enumerate(ways) if way.left}

        def written(error: WireError | None) -> None:
            if error is not None:
                done(error)
                return
            entry.heard = None
            self._take(entry, state)
            for identity, way in decided.items():
                self._decided(entry, identity, way)
            # Whoever decided hears of it first.
            done(state.identity)
            for identity in decided:
                if identity in entry.ways:
                    self._bring(entry, identity)

        committed = {identity: [*way.left] for identity, way in decided.items() if way.commit}
        undone = entry.undone | committed
        self._world.write(entry.name, encoded(state, undone), written)

    # --- what partitions are told, and ask ------------------------------------------------

    def _bring(self, entry: _Entry, identity: Identity) -> None:
        way = entry.ways[identity]

        def done(place: Place) -> None:
            way.left.pop(place, None)
            if not way.left and entry.ways.get(identity) is way:
                del entry.ways[identity], self._ways[identity]
                if way.commit:
                    self._done[entry.name] = entry
                    self._world.tidy()

        self._world.bring(identity, tuple(way.left), done, commit=way.commit)

    def fate(self, asked: Question) -> bool | None:
        """
        Say what became of a transaction that is open in a partition.

        Args:
            asked: Which, and for how long.

        Returns:
            Whether it counts; None if that is not decided.
        """
        identity, place = asked.identity, asked.place
        if self.broken is not None:
            return None
        going = self._ways.get(identity)
        if going is not None:
            way = going.ways[identity]
            # Where it is not known to have anything, nothing of it was acknowledged in time.
            return way.commit and place in way.left
        entry = self._by_producer.get(identity[0])
        if entry is None or entry.state is None:
            return False
        if not 0 <= identity[1] - entry.state.epoch < AHEAD:
            return False
        if identity == entry.state.identity:
            since = self._world.now() - asked.age_ms
            heard = entry.heard
            if heard is None:
                heard = entry.heard = _Heard(since)
            heard.since_ms = min(heard.since_ms, since)
            heard.places[place] = None
        # The next ones may have begun, too, of which the present one may have nothing anywhere.
        if asked.age_ms >= entry.state.timeout_ms and not entry.busy:
            self.abort(entry.name, "timeout", _nothing)
        return None

    # --- for people, and by the clock -----------------------------------------------------

    def rows(self) -> list[Row]:
        """Return the transactions that are under way, as far as is known here."""
        found: list[Row] = []
        for name, entry in self._entries.items():
            state, heard = entry.state, entry.heard
            if state is None:
                continue
            if heard is not None:
                facts = (heard.since_ms, state.timeout_ms, [*heard.places], state.client)
                found.append(Row(name, state.identity, "open", *facts))
            for identity, way in entry.ways.items():
                word = "committing" if way.commit else "aborting"
                facts = (way.since_ms, state.timeout_ms, [*way.left], state.client)
                found.append(Row(name, identity, word, *facts))
        return found

    def find(self, name: str) -> Row | None:
        """
        Describe the present transaction of a producer, though it may not have begun.

        Args:
            name: The transactional id.
        """
        entry = self._entries.get(name)
        if entry is None or entry.state is None:
            return None
        state, heard = entry.state, entry.heard
        since = state.updated_ms if heard is None else heard.since_ms
        places = [] if heard is None else [*heard.places]
        return Row(name, state.identity, "open", since, state.timeout_ms, places, state.client)

    def tidy(self) -> None:
        """Write down that what was undone is done, for whom nothing was written since."""
        done, self._done = self._done, {}
        for name, entry in done.items():
            if entry.busy:
                self._done[name] = entry  # what is being written may say less
            elif entry.state is not None and self.broken is None:
                self._world.write(name, encoded(entry.state, entry.undone), _nothing)
        if self._done:
            self._world.tidy()

    def forget_idle(self) -> None:
        """Forget producers that ended nothing for long, and have nothing open."""
        before = self._world.now() - FORGET_MS
        for entry in tuple(self._entries.values()):
            state = entry.state
            if state is None or state.updated_ms > before or self.broken is not None:
                continue
            if not (entry.busy or entry.heard or entry.ways):
                self._in_turn(entry, _nobody, partial(self._forget, entry))

    def _forget(self, entry: _Entry, done: Identified) -> None:
        def written(error: WireError | None) -> None:
            if error is None:
                self._drop(entry)
                if entry.waiting:
                    self._entries[entry.name] = entry  # somebody wants it after all
            done(error or (0, 0))

        self._world.write(entry.name, None, written)


def _nothing(error: WireError | None) -> None:
    """Write it another time: a start brings it to the partitions again, which know it."""


def _nobody(found: Identity | WireError) -> None:
    """Tell nobody."""
