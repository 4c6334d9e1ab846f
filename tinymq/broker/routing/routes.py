"""
What the router of a partition has planned and not yet brought; how the ledger says so.

A record is planned once, under the number that its copy has for the target's partition,
and brought when the plan is on the disk. Whatever happens then, it is brought again under
the same number, by which the target knows a repeat. Every change is an entry; a restarted
broker applies the same entries by the same function.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgpack

from tinymq.broker.channel.runs import bits_of, lowest, runs_in
from tinymq.errors import CorruptBatch

#: The key of these records in the ledger; no channel is called so.
ROUTES_KEY: Final = b"tinymq.routes@0"

#: Kinds of entries: the exchange began; a plan; a lane is done up to a number; it is no more;
#: all of it, which stands for everything before.
BEGIN: Final = 0
PLAN: Final = 1
DONE: Final = 2
OVER: Final = 3
WHOLE: Final = 4

#: Where copies go: a topic by its id, or one for dead letters by its name; and the partition.
Place: TypeAlias = "tuple[bytes | str, int]"
#: One change.
Entry: TypeAlias = "list[Any]"


class Piece(NamedTuple):
    """
    Records that go to one place, with numbers in a row.

    Attributes:
        first: The number of the first one.
        base: The offset of bit 0, which is set.
        bits: Which offsets.
        reason: Why they are dead letters, in one word; empty for copies.
        text: The same in a sentence.
        parked: Why dead letters go to a parking place; empty if they do not.
        time: When they were planned.
        plan: The plan that made it, counted from this start on; 0 for those before.
    """

    first: int
    base: int
    bits: int
    reason: str = ""
    text: str = ""
    parked: str = ""
    time: int = 0
    plan: int = 0

    @property
    def size(self) -> int:
        """How many records there are."""
        return self.bits.bit_count()

    @property
    def behind(self) -> int:
        """The number behind the last one."""
        return self.first + self.bits.bit_count()

    def since(self, number: int) -> Piece:
        """
        Leave out the records below a number.

        Args:
            number: One of its numbers.
        """
        left = number - self.first
        if left <= 0:
            return self
        for start, end in runs_in(0, self.bits):
            if left < end - start:
                return self._moved(start + left, number)
            left -= end - start
        return self._replace(first=number, bits=0)

    def _moved(self, shift: int, number: int) -> Piece:
        bits = self.bits >> shift
        more = lowest(bits) if bits else 0
        return self._replace(first=number, base=self.base + shift + more, bits=bits >> more)

    def below(self, offset: int) -> Piece:
        """
        Leave out the records from an offset on.

        Args:
            offset: The offset.
        """
        return self._replace(bits=self.bits & bits_of(max(0, offset - self.base)))

    def row(self) -> list[Any]:
        """Return it as it is stored."""
        found: list[Any] = [self.first, self.base, _packed(self.bits), self.time]
        if self.reason:
            found += [self.reason, self.text, self.parked]
        return found

    @classmethod
    def of(cls, row: Sequence[Any], plan: int = 0) -> Piece:
        """
        Read what `row` gave.

        Args:
            row: The row.
            plan: The plan that makes it.
        """
        first, base, bits, time, *why = row
        reason, text, parked = why or ("", "", "")
        return cls(first, base, _unpacked(bits), reason, text, parked, time, plan)


def _packed(bits: int) -> bytes | list[int]:
    size = (bits.bit_length() + 7) // 8
    if 3 * bits.bit_count() < size:
        return [at for start, end in runs_in(0, bits) for at in range(start, end)]
    return bits.to_bytes(size, "little")


def _unpacked(stored: bytes | list[int]) -> int:
    if isinstance(stored, bytes):
        return int.from_bytes(stored, "little")
    return bits_at(stored)


def bits_at(places: Sequence[int]) -> int:
    """
    Return a set as bits.

    Args:
        places: Its numbers, rising, not below 0.
    """
    if not places:
        return 0
    first, last = places[0], places[-1]
    if last - first + 1 == len(places):
        return bits_of(len(places)) << first
    found = bytearray((last >> 3) + 1)
    for at in places:
        found[at >> 3] |= 1 << (at & 7)
    return int.from_bytes(found, "little")


class Lane:
    """
    All that goes to one place.

    Attributes:
        place: The place.
        next: The number of the next record that is planned for it.
        pieces: What is planned and not there yet, in order.
    """

    __slots__ = ("next", "pending", "pieces", "place")

    def __init__(self, place: Place) -> None:
        self.place = place
        self.next = 0
        self.pieces: deque[Piece] = deque()
        #: How many records that are.
        self.pending = 0

    def add(self, piece: Piece) -> None:
        """
        Plan more.

        Args:
            piece: Numbered from `next` on.
        """
        self.next = max(self.next, piece.behind)
        if piece.bits:
            self.pieces.append(piece)
            self.pending += piece.size

    def done(self, number: int) -> int:
        """
        Forget what is there.

        Args:
            number: Records below it are.

        Returns:
            How many that were.
        """
        before = self.pending
        while self.pieces and self.pieces[0].behind <= number:
            self.pending -= self.pieces.popleft().size
        if self.pieces and self.pieces[0].first < number:
            old, new = self.pieces[0], self.pieces[0].since(number)
            self.pieces[0] = new
            self.pending -= old.size - new.size
        return before - self.pending

    def row(self) -> list[Any]:
        """Return it as it is stored."""
        return [*self.place, self.next, [piece.row() for piece in self.pieces]]


class Routes:
    """
    The plans of one partition.

    Attributes:
        since: When the exchange was made for which is planned; 0 for none.
        born: A number of this ledger; were it lost, another one would be in its place.
        cursor: Everything below it is planned.
        lanes: What goes to each place.
        pending: Records that are planned and not brought.
        plan: The plans of this start.
    """

    def __init__(self) -> None:
        self.since = self.born = self.cursor = 0
        self.lanes: dict[Place, Lane] = {}
        self.pending = 0
        self.plan = 0
        self._fresh: list[Entry] = []

    # --- changes --------------------------------------------------------------------

    def change(self, *entries: Entry) -> None:
        """
        Make changes that belong together, and write them down.

        Args:
            entries: The changes.
        """
        for entry in entries:
            self.apply(entry)
        self._fresh.append([*entries])

    def apply(self, entry: Entry) -> None:
        """
        Make a change.

        Args:
            entry: As it is stored.
        """
        kind, *facts = entry
        if kind == BEGIN:
            self.since, self.born, self.cursor = facts
        elif kind == PLAN:
            self.cursor, rows = facts
            for target, partition, *row in rows:
                piece = Piece.of(row, self.plan)
                self.lane((target, partition)).add(piece)
                self.pending += piece.size
        elif kind == DONE:
            target, partition, number = facts
            lane = self.lanes.get((target, partition))
            if lane is not None:
                self.pending -= lane.done(number)
        elif kind == OVER:
            target, partition = facts
            gone = self.lanes.pop((target, partition), None)
            self.pending -= 0 if gone is None else gone.pending
        elif kind == WHOLE:
            self.since, self.born, self.cursor, lanes = facts
            self.lanes, self.pending = {}, 0
            for target, partition, following, rows in lanes:
                lane = self.lane((target, partition))
                for row in rows:
                    lane.add(Piece.of(row))
                lane.next = following
                self.pending += lane.pending

    def lane(self, place: Place) -> Lane:
        """
        Return the lane to a place, a new one if there is none.

        Args:
            place: The place.
        """
        found = self.lanes.get(place)
        if found is None:
            found = self.lanes[place] = Lane(place)
        return found

    def forget(self, deleted: Container[bytes]) -> None:
        """
        Forget lanes to topics that were deleted and to which nothing is under way.

        A snapshot has to follow: entries know nothing of it.

        Args:
            deleted: Ids of topics, which no other topic will have.
        """
        for place, lane in [*self.lanes.items()]:
            if not lane.pieces and isinstance(place[0], bytes) and place[0] in deleted:
                del self.lanes[place]

    def numbered(self, places: Iterable[tuple[Place, Piece]]) -> list[list[Any]]:
        """
        Give the pieces of one plan their numbers, without planning them yet.

        Args:
            places: Pieces, and where they go.

        Returns:
            Rows of a plan.
        """
        rows: list[list[Any]] = []
        following: dict[Place, int] = {}
        for place, piece in places:
            lane = self.lanes.get(place)
            first = following.get(place, 0 if lane is None else lane.next)
            following[place] = first + piece.size
            rows.append([*place, *piece._replace(first=first).row()])
        return rows

    def cut_back(self, end: int) -> bool:
        """
        Forget records that did not survive an unclean stop; their numbers are not given again.

        Args:
            end: The end of the log.

        Returns:
            Whether there were some.
        """
        if self.cursor <= end:
            return False
        self.cursor, self.pending = end, 0
        for lane in self.lanes.values():
            kept = [piece.below(end) for piece in lane.pieces if piece.base < end]
            lane.pieces = deque(kept)
            lane.pending = sum(piece.size for piece in kept)
            self.pending += lane.pending
        return True

    # --- what is known ----------------------------------------------------------------

    @property
    def floor(self) -> int | None:
        """The lowest offset of what is planned and not brought; None if nothing is."""
        firsts = (lane.pieces[0].base for lane in self.lanes.values() if lane.pieces)
        # Dead letters may be older than what was planned before them.
        late = (
            piece.base
            for lane in self.lanes.values()
            if type(lane.place[0]) is str
            for piece in lane.pieces
        )
        return min((*firsts, *late), default=None)

    def facts(self) -> list[Any]:
        """Return everything that a restart must bring back."""
        lanes = sorted((lane.row() for lane in self.lanes.values()), key=repr)
        return [self.since, self.born, self.cursor, self.pending, lanes]

    # --- the ledger ----------------------------------------------------------------------

    def drain(self) -> list[bytes]:
        """Return what is to be written: the changes since the last call."""
        fresh, self._fresh = self._fresh, []
        return [msgpack.packb(entries) for entries in fresh]

    def snapshot(self) -> list[bytes]:
        """Return what stands for everything before."""
        self._fresh = []
        lanes = [lane.row() for lane in self.lanes.values()]
        return [msgpack.packb([[WHOLE, self.since, self.born, self.cursor, lanes]])]

    def restore(self, value: bytes) -> None:
        """
        Make the changes of a record of the ledger.

        Args:
            value: Of a record with `ROUTES_KEY`.

        Raises:
            CorruptBatch: It cannot be read.
        """
        try:
            for entry in msgpack.unpackb(value, strict_map_key=False):
                self.apply(entry)
        except (msgpack.UnpackException, LookupError, TypeError, ValueError) as error:
            raise CorruptBatch(f"a plan in the ledger cannot be read: {error}") from error


def offsets_of(piece: Piece) -> Iterator[int]:
    """
    Yield the offsets of a piece, in order.

    Args:
        piece: The piece.
    """
    for start, end in runs_in(piece.base, piece.bits):
        yield from range(start, end)
