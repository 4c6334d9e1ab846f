"""The judge of histories: a good one is good, and each thing that may go wrong is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tinymq.verify.history.diary import Event
from tinymq.verify.history.judge import COPIES, ORDERS, Findings, judge
from tinymq.verify.history.logs import Entry


class Play:
    """A history in the making: three records, handled, worked off and moved."""

    def __init__(self) -> None:
        ids = ["p.0:0", "p.0:1", "p.0:2"]
        self.logs: dict[str, list[Entry]] = {
            ORDERS: [Entry(0, at, "k", name) for at, name in enumerate(ids)],
            **{topic: [Entry(1, at, "k", name) for at, name in enumerate(ids)] for topic in COPIES},
        }
        self.history: list[Event] = []
        for at, name in enumerate(ids):
            self.add("producer-0", "try", id=name)
            self.add("producer-0", "ack", id=name, p=0, o=at)
        self.add("member-0", "begin", group="readers", p=0, o=0)
        for at, name in enumerate(ids):
            self.add("member-0", "got", p=0, o=at, id=name)
            self.add("member-0", "done", p=0, o=at)
            self.add("member-0", "commit", group="readers", p=0, o=at + 1)
            self.add("worker-0", "got", p=0, o=at)
            self.add("worker-0", "finish", p=0, o=at)
            self.add("worker-0", "confirmed", p=0, o=at)
            self.add("watcher-0", "seen", topic=COPIES[0], p=1, o=at, id=name)
        self.add("mover-0", "moved", n=3)

    def add(self, actor: str, kind: str, life: int = 0, **facts: Any) -> None:
        """Let something happen."""
        self.history.append(Event(float(len(self.history)), actor, life, kind, facts))

    def drop(self, actor: str, kind: str, offset: int) -> None:
        """Let something not have happened."""
        self.history = [
            each
            for each in self.history
            if (each.actor, each.kind, each.facts.get("o")) != (actor, kind, offset)
        ]

    def problems(self) -> list[str]:
        """Judge."""
        return self.judged().problems

    def judged(self) -> Findings:
        """Judge, and tell all that was found."""
        found = Findings()
        judge(self.history, self.logs, found)
        return found


def test_a_good_history() -> None:
    """Nothing is wrong, and everything is counted."""
    play = Play()
    found = play.judged()

    assert found.problems == []
    assert found.figures == {
        "published": 3,
        "acknowledged": 3,
        "shares": 1,
        "handed": 3,
        "handled": 3,
        "again": 0,
        "commits": 3,
        "delivered": 3,
        "confirmed": 3,
        COPIES[0]: 3,
        COPIES[1]: 3,
        "transactions": 1,
        "looks": 3,
    }


def test_a_strike_may_bring_back_what_was_not_committed() -> None:
    """The next member begins at the commit, and handles again what lies behind it."""
    play = Play()
    play.history = [each for each in play.history if each.kind != "commit"]
    play.add("member-1", "begin", group="readers", p=0, o=1)
    play.add("member-1", "got", p=0, o=1, id="p.0:1")
    play.add("member-1", "done", p=0, o=1)

    assert play.problems() == []


def lost(play: Play) -> None:
    """An acknowledged record is gone."""
    play.logs[ORDERS].pop()
    for topic in COPIES:
        play.logs[topic].pop()


def twice(play: Play) -> None:
    """A record is there twice."""
    play.logs[ORDERS].append(Entry(0, 3, "k", "p.0:1"))


def foreign(play: Play) -> None:
    """Something is there that nobody sent."""
    play.logs[ORDERS].append(Entry(2, 0, "k", "x.0:9"))


def disordered(play: Play) -> None:
    """Records of a key change places."""
    first, second, third = play.logs[ORDERS]
    play.logs[ORDERS] = [Entry(0, 0, "k", second.id), Entry(0, 1, "k", first.id), third]


def unhandled(play: Play) -> None:
    """No member finished a record."""
    play.drop("member-0", "done", 1)


def handed_back(play: Play) -> None:
    """A member gets a record of its share again."""
    play.add("member-0", "got", p=0, o=1, id="p.0:1")


def committed_back(play: Play) -> None:
    """The next member begins below what was committed."""
    play.add("member-1", "begin", group="readers", p=0, o=2)


def looked_back(play: Play) -> None:
    """The group stands below what was committed."""
    play.add("watcher-0", "seen", group="readers", p=0, o=1, since=float(len(play.history)))


def told_back(play: Play) -> None:
    """A group of which nobody wrote commits down is behind where it was seen."""
    for offset in (3, 2):
        play.add("watcher-0", "seen", group="movers", p=0, o=offset, since=float(len(play.history)))


def unfinished(play: Play) -> None:
    """Nobody ever finished a record."""
    play.drop("worker-0", "finish", 2)


def returned(play: Play) -> None:
    """A finished message comes again, and is finished once more."""
    play.add("worker-1", "got", p=0, o=0)
    play.add("worker-1", "confirmed", p=0, o=0)


def half(play: Play) -> None:
    """Half of a transaction is missing."""
    play.logs[COPIES[1]].pop()


def moved_twice(play: Play) -> None:
    """A record was moved twice."""
    play.logs[COPIES[0]].append(Entry(1, 3, "k", "p.0:2"))


def moved_out_of_order(play: Play) -> None:
    """Moved records of a key change places."""
    first, second, third = play.logs[COPIES[1]]
    play.logs[COPIES[1]] = [Entry(1, 0, "k", third.id), Entry(1, 1, "k", first.id), second]


def saw_aborted(play: Play) -> None:
    """A reader saw what was aborted."""
    play.add("watcher-0", "seen", topic=COPIES[0], p=1, o=7, id="p.0:2")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lost, "was acknowledged at"),
        (twice, "is 2 times in orders"),
        (foreign, "was never sent"),
        (disordered, "lies behind number"),
        (unhandled, "was handled by no member"),
        (handed_back, "though it stood at 3"),
        (committed_back, "which was committed up to 3"),
        (looked_back, "which was committed up to 3"),
        (told_back, "which was committed up to 3"),
        (unfinished, "was never finished"),
        (returned, "after it was finished"),
        (half, "is not in audit"),
        (moved_twice, "is 2 times in copies"),
        (moved_out_of_order, "is out of order in audit"),
        (saw_aborted, "which is not there now"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_wrong_is_found(spoil: Callable[[Play], None], words: str) -> None:
    """Each promise that is broken is told in words."""
    play = Play()
    spoil(play)

    assert any(words in text for text in play.problems()), play.problems()


def test_who_stood_still_may_hand_out_late() -> None:
    """What a consumer held before it was stopped, somebody else may have finished meanwhile."""
    play = Play()
    play.add("worker-1", "got", p=0, o=0)
    play.add("worker-1", "finish", p=0, o=0)

    assert play.problems() == []


def test_who_looks_before_a_commit_may_see_less() -> None:
    """What was committed while somebody asked, he may not have been told."""
    play = Play()
    play.add("watcher-0", "seen", group="readers", p=0, o=0, since=0.0)

    assert play.problems() == []
