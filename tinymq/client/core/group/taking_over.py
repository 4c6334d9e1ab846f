"""Taking over what a member is given: where to go on, who is to be told, and reading."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any, Final

from tinymq.client.core.cluster import Cluster
from tinymq.client.core.fetching import MOVED
from tinymq.client.core.group.asking import Asking, Found, TakeOver
from tinymq.client.core.group.hands import Hands
from tinymq.client.core.group.names import TopicNames
from tinymq.client.core.group.settings import GroupConfig
from tinymq.client.core.group.share import HeldShare, Stage
from tinymq.client.core.group.tally import Tally
from tinymq.client.core.starts import EARLIEST, WORDS, Mark, Place
from tinymq.errors import ClosedError, FencedGeneration, UnknownTopicId

#: Seconds after which taking over is tried again, when a leader refused it.
_AGAIN_S: Final = 5.0
#: Seconds between two looks whether positions were moved by hand.
LOOK_S: Final = 5.0

#: Told that shares were lost, why, and when.
Fenced = Callable[[list[HeldShare], FencedGeneration, float], None]


class TakingOver:
    """
    Takes shares over.

    Args:
        cluster: The brokers.
        hands: The shares.
        wanted: The names of topics that the member says, and whether it says patterns.
        config: Settings.
        fenced: Told of shares that somebody else has by now.
        opened: Called when some are read.

    Attributes:
        names: Finds topics by their ids.
    """

    def __init__(
        self,
        cluster: Cluster,
        hands: Hands,
        wanted: tuple[list[str], bool],
        config: GroupConfig,
        fenced: Fenced,
        opened: Callable[[], None],
    ) -> None:
        self.names = TopicNames(cluster, *wanted, self._named)
        self._cluster = cluster
        self._hands = hands
        self._config = config
        self._fenced = fenced
        self._opened = opened
        self._who = ("", "")
        self._again_at = inf
        self._look_at = inf
        #: The id that each topic had when it was last taken over.
        self._ids: dict[str, bytes] = {}

    @property
    def wake_at(self) -> float:
        """When `tick` has something to do."""
        return min(self.names.wake_at, self._again_at, self._look_at)

    def tick(self, now: float) -> None:
        """
        Do what is due.

        Args:
            now: The time.
        """
        if self.names.wake_at <= now:
            self.names.tick(now)
        if self._again_at <= now:
            self._named(now)
        if self._look_at <= now:
            self._look_at = now + LOOK_S
            self._look(now)

    def begin(self, group: str, member: str, now: float) -> None:
        """
        Ask leaders where to go on in what is new.

        Args:
            group: Name of the group.
            member: Who asks.
            now: The time.
        """
        self._who = group, member
        self._again_at = inf
        if self._look_at == inf:
            self._look_at = now + LOOK_S
        asked: dict[Place, list[HeldShare]] = {}
        unknown: set[bytes] = set()
        for share in self._hands.shares.values():
            if share.stage is not Stage.TAKING or share.asked is not None:
                continue
            share.info = share.info or self.names.get(share.topic_id)
            if share.info is None:
                unknown.add(share.topic_id)
            else:
                share.place = self._start_of(share)
                asked.setdefault(share.place, []).append(share)
        self.names.want(unknown, now)
        for place, shares in asked.items():
            asking = self._ask(shares, self._taken, now, start=place)
            for share in shares:
                share.asked = asking if share.stage is Stage.TAKING else None

    def _start_of(self, share: HeldShare) -> Place:
        """Where the group begins in a partition of which it has committed nothing."""
        if self._ids.get(share.topic) in (None, share.topic_id):
            return self._config.place
        return WORDS.get(self._config.out_of_range, EARLIEST)

    def _look(self, now: float) -> None:
        """
        Ask leaders whether all is still ours of which nothing was committed lately.

        Who commits is told when somebody moved a position by hand; who has nothing to
        commit would never hear of it.
        """
        self._ask(
            [
                share
                for share in self._hands.shares.values()
                if share.stage is Stage.READING and share.flying is None and not share.dirty
            ],
            self._looked,
            now,
            now + LOOK_S,
        )

    def _looked(self, share: HeldShare, found: Found, now: float) -> bool:
        if isinstance(found.error, FencedGeneration):
            self._fenced([share], found.error, now)
        return False

    def _ask(
        self,
        shares: list[HeldShare],
        answered: Callable[[HeldShare, Found, float], bool],
        now: float,
        deadline: float = inf,
        start: Place | None = None,
    ) -> Asking:
        """Ask the leaders of some shares; those that it was true for are opened then."""
        asked = {share.spot: share for share in shares}

        def told(found: list[Found], now: float) -> None:
            answers = [(asked[one.spot], one) for one in found]
            live = [(share, one) for share, one in answers if share.stage is not Stage.GONE]
            taken = [share for share, one in live if answered(share, one, now)]
            if taken:
                then = partial(self._open, taken)
                self._hands.notice(self._config.on_assigned, taken, then)

        rows = {spot: (share.partition, share.generation) for spot, share in asked.items()}
        asking = Asking(self._cluster, TakeOver(*self._who, start), told, deadline)
        if rows:
            asking.start(rows, now)
        return asking

    def _named(self, now: float) -> None:
        self.begin(*self._who, now)

    def _taken(self, share: HeldShare, found: Found, now: float) -> bool:
        """Take a leader's answer; true if it is ours."""
        error, share.asked = found.error, None
        if error is None:
            self._opening(share, found.row)
            return True
        if isinstance(error, FencedGeneration):
            self._fenced([share], error, now)
        elif isinstance(error, MOVED):
            self._hands.drop(share)  # the coordinator will hear of it
        elif not isinstance(error, ClosedError):
            self._again_at = now + _AGAIN_S
            self._hands.trouble(share, error)
        return False

    def _opening(self, share: HeldShare, row: Any) -> None:
        _, offset, epoch, note, _, start, end, _ = row
        share.stage = Stage.OPENING
        share.note = share.noted = note
        before = self._ids.get(share.topic)
        if offset >= 0:
            share.committed = Mark(offset, epoch)
            share.tally = Tally(share.committed)
            share.place = share.committed
        if before not in (None, share.topic_id) and self._config.out_of_range == "error":
            self._hands.troubles.append(_anew(share, start, end))
            self._hands.face.wake()
        self._ids[share.topic] = share.topic_id
        old = self._hands.by_where.get(share.where)
        if old is not None:
            self._fenced([old], FencedGeneration(), self._hands.face.seconds())
        self._hands.by_where[share.where] = share

    def _open(self, taken: list[HeldShare]) -> None:
        """Read what was taken over, now that the user knows of it."""
        now = self._hands.face.seconds()
        for share in taken:
            if share.stage is Stage.OPENING:
                if share.place != share.committed:
                    share.tally = Tally()
                self._hands.go_on(share, now)
        self._opened()


def _anew(share: HeldShare, start: int, end: int) -> UnknownTopicId:
    return UnknownTopicId(
        f"topic {share.topic} was deleted and made anew: the group goes on with the new one",
        topic=share.topic,
        partition=share.partition,
        start=start,
        end=end,
    )
