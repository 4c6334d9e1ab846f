"""The turns of one partition's messages that are not due yet: what is done when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twisted.logger import Logger
from typing_extensions import override

from tinymq.broker.delays.acting import Acting
from tinymq.broker.delays.index import Rebuilt
from tinymq.errors import TinyMQError

if TYPE_CHECKING:
    from tinymq.broker.delays.delaying import Delaying
    from tinymq.broker.delays.index import Index
    from tinymq.broker.partition import Partition
    from tinymq.broker.ports import Timer
    from tinymq.storage.log import Log
    from tinymq.storage.memory import MemoryLog

#: What comes within so many milliseconds is in memory,
HORIZON_MS: Final = 120_000
#: but no longer than so many milliseconds when there are so many.
_NARROW_MS: Final = 5000
_MANY: Final = 100_000
#: Rows that are read from the index before others have their turn.
_LOAD: Final = 500
#: Slices of work in one turn, and seconds of them, before others have theirs.
_SLICES: Final = 4
_TURN_SECONDS: Final = 0.004
#: Entries of the wheel that are touched in a slice.
_RIPEN: Final = 2000
#: Milliseconds before a full disk is tried again.
AGAIN_MS: Final = 500


class Timing(Acting):
    """When what is done."""

    _log = Logger()

    def __init__(
        self, host: Delaying, partition: Partition, log: Log | MemoryLog, index: Index
    ) -> None:
        super().__init__(host, partition, log, index)
        self._timer: Timer | None = None
        self._timer_at = 0
        self._stopped = False

    @override
    def mark(self) -> None:
        """Let it have its turn."""
        self._arm_at(0)

    def _turn(self) -> None:
        self._timer = None
        if self.closed is not None or self._stopped:
            return
        scheduler = self.host.broker.scheduler
        until = scheduler.seconds() + _TURN_SECONDS
        more = True
        try:
            for _ in range(_SLICES):
                more = self._slice(self.host.now())
                if not more or scheduler.seconds() >= until:
                    break
        except Exception:  # noqa: BLE001 - nothing may keep it from its next turn
            self._log.failure("{delays} failed", delays=self)
            self._arm_at(self.host.now() + AGAIN_MS)
            return
        if more:
            self.mark()
        else:
            self._arm(self.host.now())

    def _slice(self, now: int) -> bool:
        """Do a piece of all there is to do, and say whether there is more."""
        self.memory.ripen(now, _RIPEN)
        more = self.releasing.turn(now)
        if now >= self._held_until:
            try:
                more = self._load(now) or more
                more = self.follower.follow(now) or more
                more = self.freeing.turn(now) or more
            except Rebuilt:
                more = True
            except (OSError, TinyMQError) as error:
                self._held_until = now + AGAIN_MS
                self._log.warn("{delays}: {error}", delays=self, error=error)
            if self._acts:
                self._staged_more()
        soon = self.memory.wheel.next_ms()
        return more or (soon is not None and soon <= now)

    def _arm(self, now: int) -> None:
        waiting = self.memory
        times = [waiting.wheel.next_ms()]
        follow = self.follower.next_time()
        if follow is not None:
            times.append(max(follow, self._held_until))
        if waiting.ready and self.releasing.may_go_on:
            times.append(max(now, self.releasing.held_until))
        if self.follower.rows or self._far_end > self.follower.upto:
            times.append(max(waiting.reach[0] - self._margin[0], self._held_until))
        if self._acts:
            times.append(self._held_until)
        found = [time for time in times if time is not None]
        if found:
            # There was nothing to do just now: no turn that comes at once will find more.
            self._arm_at(max(min(found), now + 1))

    def _arm_at(self, due: int) -> None:
        """See to it that the next turn is at a time, or before; 0 is as soon as possible."""
        if self._stopped or (self._timer is not None and self._timer_at <= due):
            return
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer_at = due
        delay = max(0, due - self.host.now()) / 1000 if due else 0
        self._timer = self.host.broker.scheduler.callLater(delay, self._turn)

    @property
    def _margin(self) -> tuple[int, int]:
        """When the reach moves, before it is needed, and how far: less if there is much."""
        many = len(self.memory.wheel) + len(self.memory.ready) > _MANY
        far = _NARROW_MS if many else HORIZON_MS
        return far // 2, far

    def _widen(self, now: int) -> bool:
        """Let memory reach further where nothing lies beyond; say whether it reaches."""
        waiting = self.memory
        if waiting.reach[0] > now + self._margin[0]:
            return True
        if self.follower.rows or self._far_end > self.follower.upto:
            return False
        waiting.reach = now + HORIZON_MS, -1
        self.follower.reached()
        return True

    def _load(self, now: int) -> bool:
        """Take some of what comes soon from the index; say whether there is more."""
        waiting = self.memory
        if self._widen(now):
            return False
        if self._far_end > self.follower.upto:
            return self.follower.step()
        target = now + self._margin[1]
        rows = self.index.rows(self.follower.home, waiting.reach, None, target, _LOAD)
        for row in rows:
            if waiting.knows(row.id):
                continue
            waiting.put(row.id, row.due)
            waiting.lies(row.id, row.offset)
        more = len(rows) == _LOAD
        waiting.reach = (rows[-1].due, rows[-1].id) if more else (target, -1)
        self.follower.reached()
        return more

    def stop(self) -> None:
        """Do nothing by the clock any more."""
        self._stopped = True
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None
