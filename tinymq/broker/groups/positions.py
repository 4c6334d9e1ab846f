"""
How far each consumer group is in one partition; how the ledger says so.

A position never goes back, but when somebody moves it by hand. Who was given the
partition last stands before all others: the *fence* is the generation in which it was,
and what comes from a lower one is refused. What a transaction would commit is held
until it is decided.

Every change is an entry; a restarted broker applies the same entries by the same
function. Those of a snapshot stand in one record and begin with one that forgets all
before, since the changes that a failed write lost are among what it stands for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgpack

from tinymq.broker.groups.position import NONE, Move, Place, Position
from tinymq.errors import CorruptBatch, FencedGeneration, Overloaded, UnstablePosition

__all__ = ["GROUPS_KEY", "MOST_HELD", "NONE", "Identity", "Move", "Place", "Position", "Positions"]

#: The key of these records in the ledger; no channel is called so.
GROUPS_KEY: Final = b"tinymq.groups@0"

#: Kinds of entries: a commit; somebody was given the partition; all of one position; a
#: transaction would move positions; all that one would move; it is decided; a group is no more;
#: nothing of what was before holds.
COMMIT: Final = 0
TAKE: Final = 1
PUT: Final = 2
HOLD: Final = 3
HELD: Final = 4
DECIDE: Final = 5
FORGET: Final = 6
ANEW: Final = 7

#: Commits that one transaction holds at most: one for each group, but for some odd ones.
MOST_HELD: Final = 200

#: A transaction: producer id and epoch.
Identity: TypeAlias = tuple[int, int]
#: One change.
Entry: TypeAlias = "list[Any]"


_NOWHERE: Final = Position()


class Positions:
    """
    The positions of all groups in one partition.

    Attributes:
        known: They, by the group's mark.
    """

    def __init__(self) -> None:
        self.known: dict[str, Position] = {}
        self._held: dict[Identity, list[Move]] = {}
        #: How many moves are held of each group.
        self._unstable: dict[str, int] = {}
        #: Whether the ledger may say something.
        self._used = False
        self._fresh: list[Entry] = []
        #: The commit of each group among them that a later one may take the place of.
        self._latest: dict[str, Entry] = {}

    # --- what is known ----------------------------------------------------------------

    def of(self, group: str) -> Position:
        """
        Return what is known of a group.

        Args:
            group: Its mark.
        """
        return self.known.get(group, _NOWHERE)

    @property
    def held(self) -> Collection[Identity]:
        """The transactions that would move positions and are not decided."""
        return self._held.keys()

    def held_since(self) -> dict[Identity, int]:
        """Return the transactions that would move positions, each with the time since when."""
        return {
            identity: min(move.time for move in moves) for identity, moves in self._held.items()
        }

    def marks(self) -> set[str]:
        """Return the marks of all groups, those that only a transaction would move among them."""
        return {*self.known, *self._unstable}

    def knows(self, group: str) -> bool:
        """
        Say whether there is something of a group here.

        Args:
            group: Its mark.
        """
        return group in self.known or group in self._unstable

    def unstable(self, group: str) -> bool:
        """
        Say whether a transaction that is not decided would move a group.

        Args:
            group: Its mark.
        """
        return group in self._unstable

    def facts(self) -> list[Any]:
        """Return everything that a restart must bring back."""
        known = sorted((group, each.row()) for group, each in self.known.items())
        held = sorted((identity, [*map(list, rows)]) for identity, rows in self._held.items())
        return [known, held]

    # --- what clients do --------------------------------------------------------------

    def take(self, group: str, generation: int, member: str) -> Position:
        """
        Give the partition to a member: what older generations commit is refused from now on.

        Args:
            group: The group's mark.
            generation: In which it is the member's.
            member: Who that is.

        Raises:
            FencedGeneration: Somebody was given it in a later one, or somebody else in this.
        """
        found = self.of(group)
        # Two coordinators, for the moment in which there are two, may give one generation twice.
        twice = generation == found.fence and found.taken and bool(member and found.member)
        if generation < found.fence or (twice and member != found.member):
            raise _fenced(found.fence)
        if not found.taken or generation > found.fence:
            self._change([TAKE, group, generation, member])
        return self.of(group)

    def check(self, generation: int, group: str) -> None:
        """
        Refuse who may not commit.

        Args:
            generation: In which the partition was given to the one who wants to.
            group: The group's mark.

        Raises:
            FencedGeneration: Somebody was given it since, or members read it.
        """
        found = self.of(group)
        if generation == NONE:
            if found.taken:
                raise FencedGeneration(
                    f"members of group {_name(group)} read this partition, and only they commit "
                    "there: join the group, or stop them and move it by "
                    f"`tinymq group seek {_name(group)}`",
                    generation=found.fence,
                )
        elif generation < found.fence:
            raise _fenced(found.fence)

    def commit(self, move: Move) -> None:
        """
        Take a commit; one below the present position changes nothing, for all below is handled.

        Args:
            move: What it says.

        Raises:
            FencedGeneration: It is not for this one to commit.
        """
        self.check(move.generation, move.group)
        found = self.of(move.group)
        if move.offset >= found.place.offset or move.generation > found.fence:
            self._change([COMMIT, *move])

    def hold(self, identity: Identity, rows: Iterable[Move]) -> None:
        """
        Take commits that count when a transaction is committed.

        Args:
            identity: The transaction.
            rows: What they say.

        Raises:
            FencedGeneration: One is not for this one to commit; nothing was taken.
            Overloaded: The transaction holds as much as it may.
        """
        moves = list(rows)
        for move in moves:
            self.check(move.generation, move.group)
        if len(self._held.get(identity, ())) + len(moves) > MOST_HELD:
            raise Overloaded(
                f"transaction {identity[0]}:{identity[1]} has {MOST_HELD} commits here that say "
                "different things; end it",
                limit=MOST_HELD,
            )
        if moves:
            self._change([HOLD, *identity, [[*move] for move in moves]])

    def decide(self, identity: Identity, commit: bool) -> bool:
        """
        End a transaction: what it would move is moved, or is not.

        Args:
            identity: The transaction.
            commit: Whether it counts.

        Returns:
            Whether it had something here.
        """
        if identity not in self._held:
            return False
        self._change([DECIDE, *identity, commit])
        return True

    # --- what people do ---------------------------------------------------------------

    def move(self, group: str, place: Place, until: int) -> None:
        """
        Move a group by hand; whoever has the partition is refused from now on.

        Args:
            group: The group's mark.
            place: Where to; an offset of -1 forgets where it is.
            until: Until when it can be taken back.

        Raises:
            UnstablePosition: A transaction that is not decided would move it.
        """
        self.check_stable(group)
        found = self.of(group)
        self._put(group, _moved(found, place, found.place, until))

    def take_back(self, group: str, now: int) -> bool:
        """
        Take the last move by hand back, wherever the group has gone since.

        Args:
            group: The group's mark.
            now: The time.

        Returns:
            Whether there was one that is not too old.

        Raises:
            UnstablePosition: A transaction that is not decided would move it.
        """
        self.check_stable(group)
        found = self.of(group)
        if found.former is None or not found.takes_back(now):
            return False
        self._put(group, _moved(found, found.former, None, 0))
        return True

    def check_stable(self, group: str) -> None:
        """
        Refuse to move a group while it is not known where it is.

        Args:
            group: Its mark.

        Raises:
            UnstablePosition: A transaction that is not decided would move it.
        """
        if group in self._unstable:
            raise UnstablePosition(
                f"a transaction that moves group {_name(group)} is not decided yet; try again"
            )

    # --- what becomes of groups and of the log -----------------------------------------

    def forget(self, group: str) -> None:
        """
        Forget a group that was deleted.

        Args:
            group: Its mark.
        """
        if self.knows(group):
            self._change([FORGET, group])

    def rename(self, old: str, new: str) -> None:
        """
        Let a group go on under another mark: the MetaServer lost it, and it was made anew.

        Args:
            old: Its mark until now.
            new: Its mark from now on; what is known under it stays, if something is. What a
                transaction would move is moved under it, beyond that.
        """
        found = self.known.get(old)
        if found is not None and new not in self.known:
            self._put(new, found)
        for identity, rows in [*self._held.items()]:
            # In no generation: those of the one that was made anew are others.
            moves = [
                move._replace(group=new, generation=NONE) if move.group == old else move
                for move in rows
            ]
            if moves != rows:
                self._change([HELD, *identity, [[*move] for move in moves]])
        self._change([FORGET, old])

    def cut_back(self, end: int) -> list[str]:
        """
        Have nobody beyond the end of the log, which did not survive an unclean stop as it was.

        Args:
            end: The end of the log.

        Returns:
            The marks of those that were beyond it.
        """
        cut: list[str] = []
        for group, found in [*self.known.items()]:
            former = found.former
            if former is not None and former.offset > end:
                former = former._replace(offset=end)
            if found.place.offset > end:
                cut.append(group)
                place = found.place._replace(offset=end)
                self._put(group, found._replace(place=place, cut=found.place.offset, former=former))
            elif former != found.former:
                self._put(group, found._replace(former=former))
        for identity, rows in [*self._held.items()]:
            kept = [move._replace(offset=min(end, move.offset)) for move in rows]
            if kept != rows:
                self._change([HELD, *identity, [[*move] for move in kept]])
        return cut

    def lowest(self, freed: Mapping[str, int]) -> tuple[int, str] | None:
        """
        Return the lowest position, and the mark of the group that is there; None without groups.

        Args:
            freed: Offsets below which a group does not count.
        """
        found = (
            (max(0, each.place.offset, freed.get(group, 0)), group)
            for group, each in self.known.items()
            if each.taken or each.place.offset != NONE
        )
        return min(found, default=None)

    # --- changes ------------------------------------------------------------------------

    def _put(self, group: str, position: Position) -> None:
        self._change([PUT, group, position.row()])

    def _change(self, entry: Entry) -> None:
        self.apply(entry)
        if entry[0] == COMMIT:
            # Of a thousand commits in one turn the last one says it all.
            latest = self._latest.get(entry[1])
            if latest is not None and latest[2] <= entry[2] and latest[3] <= entry[3]:
                latest[:] = entry
                return
            self._latest[entry[1]] = entry
        elif entry[0] in {HOLD, HELD, DECIDE}:
            self._latest.clear()
        else:
            self._latest.pop(entry[1], None)
        self._fresh.append(entry)

    def apply(self, entry: Entry) -> None:
        """
        Make a change.

        Args:
            entry: As it is stored.
        """
        kind, *facts = entry
        self._used = True
        if kind == COMMIT:
            self._follow(Move(*facts))
        elif kind == TAKE:
            group, generation, member = facts
            found = self.of(group)
            fence = max(found.fence, generation)
            self.known[group] = found._replace(fence=fence, taken=True, member=member)
        elif kind == PUT:
            group, row = facts
            self.known[group] = Position.of(row)
        elif kind in {HOLD, HELD}:
            producer, epoch, rows = facts
            before = self._let_go((producer, epoch))
            moves = [Move(*row) for row in rows]
            self._keep((producer, epoch), _joined(before, moves) if kind == HOLD else moves)
        elif kind == DECIDE:
            producer, epoch, commit = facts
            for move in self._let_go((producer, epoch)):
                if commit:
                    self._follow(move)
        elif kind == FORGET:
            self._drop(facts[0])
        elif kind == ANEW:
            self.known, self._held, self._unstable = {}, {}, {}
        else:
            raise ValueError(f"{kind!r} is no kind of entry")

    def _follow(self, move: Move) -> None:
        """Carry a commit out; who may was looked at when it was taken."""
        found = self.of(move.group)
        fence = max(found.fence, move.generation)
        taken = found.taken or move.generation > found.fence
        if move.offset < found.place.offset:
            self.known[move.group] = found._replace(fence=fence, taken=taken)
            return
        place = Place(move.offset, move.epoch, move.note, move.time)
        # Of a transaction that is decided after somebody else was given the partition.
        member = found.member if move.generation < found.fence else move.member
        self.known[move.group] = found._replace(
            fence=fence, taken=taken, member=member, place=place, cut=NONE
        )

    def _keep(self, identity: Identity, moves: list[Move]) -> None:
        if moves:
            self._held[identity] = moves
        for move in moves:
            self._unstable[move.group] = self._unstable.get(move.group, 0) + 1

    def _let_go(self, identity: Identity) -> list[Move]:
        moves = self._held.pop(identity, [])
        for move in moves:
            left = self._unstable[move.group] - 1
            if left:
                self._unstable[move.group] = left
            else:
                del self._unstable[move.group]
        return moves

    def _drop(self, group: str) -> None:
        self.known.pop(group, None)
        if group in self._unstable:
            for identity in [*self._held]:
                moves = self._let_go(identity)
                self._keep(identity, [move for move in moves if move.group != group])

    # --- the ledger ----------------------------------------------------------------------

    def drain(self) -> list[bytes]:
        """Return what is to be written: the changes since the last call."""
        fresh, self._fresh = self._fresh, []
        self._latest.clear()
        return [msgpack.packb(fresh)] if fresh else []

    def snapshot(self) -> list[bytes]:
        """Return what stands for everything before."""
        self._fresh = []
        self._latest.clear()
        return [msgpack.packb([*self._whole()])] if self._used else []

    def _whole(self) -> Iterator[Entry]:
        yield [ANEW]
        for group, position in self.known.items():
            yield [PUT, group, position.row()]
        for identity, moves in self._held.items():
            yield [HELD, *identity, [[*move] for move in moves]]

    def restore(self, value: bytes) -> None:
        """
        Make the changes of a record of the ledger.

        Args:
            value: Of a record with `GROUPS_KEY`.

        Raises:
            CorruptBatch: It cannot be read.
        """
        try:
            for entry in msgpack.unpackb(value, strict_map_key=False):
                self.apply(entry)
        except (msgpack.UnpackException, LookupError, TypeError, ValueError) as error:
            raise CorruptBatch(f"a position in the ledger cannot be read: {error}") from error


def _joined(held: list[Move], moves: Iterable[Move]) -> list[Move]:
    """Put commits behind those that a transaction holds."""
    for move in moves:
        _join(held, move)
    return held


def _join(held: list[Move], move: Move) -> None:
    """
    Put a commit behind those that a transaction holds, so that they do not become many.

    Those of its group that say nothing beyond it go, and so does itself if it says nothing
    beyond one of them. The first of all stays, for it says since when something is held.
    """
    same = [each for each in held[1:] if each.group == move.group]
    for each in same:
        if each.offset > move.offset and each.generation >= move.generation:
            return
    for each in same:
        if each.offset <= move.offset and each.generation <= move.generation:
            held.remove(each)
    held.append(move)


def _moved(found: Position, place: Place, former: Place | None, until: int) -> Position:
    """Move by hand: it is nobody's from then on, and who had it is refused."""
    fence = found.fence + 1 if found.fence != NONE else NONE
    return Position(fence, False, "", place, NONE, former, until)


def _fenced(fence: int) -> FencedGeneration:
    return FencedGeneration(
        f"the partition was given to somebody else, or moved by hand, in generation {fence}; "
        "ask the group's coordinator again",
        generation=fence,
    )


def _name(group: str) -> str:
    return group.rpartition("@")[0]
