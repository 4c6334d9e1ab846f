"""Giving up what a member is to give up: in peace, late, or because it is lost already."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Final

from tinymq.client.core.group.committing import Committing
from tinymq.client.core.group.hands import Hands
from tinymq.client.core.group.membership import Membership
from tinymq.client.core.group.settings import GroupConfig
from tinymq.client.core.group.share import HeldShare, Stage
from tinymq.errors import TinyMQError

#: Before the coordinator's own patience ends, so that what was lost is known here first.
_SOONER: Final = 0.9


class GivingUp:
    """
    Gives shares up.

    Args:
        hands: The shares.
        committing: Commits what is done.
        membership: Tells the coordinator.
        config: Settings.
        soon: Asks for `drain` soon.

    Attributes:
        by: When `drain` has something to do.
    """

    def __init__(
        self,
        hands: Hands,
        committing: Committing,
        membership: Membership,
        config: GroupConfig,
        soon: Callable[[], None],
    ) -> None:
        self.by = inf
        self._hands = hands
        self._committing = committing
        self._membership = membership
        self._config = config
        self._soon = soon

    def begin(self, shares: list[HeldShare], now: float, within_s: float | None = None) -> None:
        """
        Hand out nothing more of some shares, and wait for what was handed out.

        Args:
            shares: Which.
            now: The time.
            within_s: How long to wait; None means as long as a move may take.
        """
        within_s = self._config.rebalance_s * _SOONER if within_s is None else within_s
        for share in shares:
            if share.stage is Stage.TAKING:
                self._hands.drop(share)
            elif share.stage in (Stage.OPENING, Stage.READING):
                self._hands.stop(share)
                share.stage = Stage.DRAINING
                share.until = now + within_s
                self.by = min(self.by, share.until)
                self._hands.watch(share)
                self._soon()
            elif share.stage is Stage.DRAINING and now + within_s < share.until:
                share.until = self.by = now + within_s

    def keep(self, share: HeldShare, now: float) -> None:
        """
        Read on after all in a share that was to be given up.

        Args:
            share: The share.
            now: The time.
        """
        share.until = inf
        if share.cursor is not None:
            if share.tally.refused:  # the next owner would have had that again
                self._hands.begin_again(share)
            self._hands.go_on(share, now)
            return
        self._hands.drop(share)  # it was not read yet: it is taken over once more
        anew = HeldShare(share.topic_id, share.partition, share.generation)
        self._hands.shares[share.topic_id, share.partition] = anew

    def drain(self, now: float, *, closing: bool) -> None:
        """
        Go on with those whose messages are done, or are not waited for any more.

        Args:
            now: The time.
            closing: Whether the consumer is about to end: then nobody else waits for them.
        """
        drained, late = [], []
        self.by = inf
        for share in self._hands.shares.values():
            if share.held and share.stage is Stage.READING:
                self._hands.release(share, now)
            if share.stage is not Stage.DRAINING:
                continue
            if not share.tally.open:
                drained.append(share)
            elif now >= share.until:
                late.append(share)
            else:
                self.by = min(self.by, share.until)
        if closing:
            drained += late
        elif late:
            self._commit(late, _never_mind, now)
            self.lose(late)
            self._membership.say(now)
        for share in drained:
            share.stage = Stage.CLOSING
        if drained:
            then = partial(self._told, drained)
            self._hands.notice(self._config.on_revoked, drained, then)

    def lose(self, shares: list[HeldShare]) -> None:
        """
        Let go of shares that others may have by now.

        Args:
            shares: Which.
        """
        told = [share for share in shares if share.stage not in (Stage.TAKING, Stage.GONE)]
        for share in shares:
            self._hands.drop(share)
        if told:
            self._hands.notice(self._config.on_lost, told, _nothing)
        self._soon()

    def _told(self, shares: list[HeldShare]) -> None:
        """Commit a last time, now that the user knows."""
        left = [share for share in shares if share.stage is Stage.CLOSING]

        def committed(_: TinyMQError | None) -> None:
            for share in left:
                self._hands.drop(share)
            self._membership.say(self._hands.face.seconds())
            self._soon()

        self._commit(left, committed, self._hands.face.seconds())

    def _commit(
        self,
        shares: list[HeldShare],
        done: Callable[[TinyMQError | None], None],
        now: float,
    ) -> None:
        if self._config.commit == "manual":
            done(None)
        else:
            self._committing.commit(shares, self._membership.id, done, now)


def _never_mind(_: TinyMQError | None) -> None:
    """Nobody waits for this commit."""


def _nothing() -> None:
    """Nothing is to be done after the user was told."""
