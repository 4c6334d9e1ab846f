"""Comparing what everybody was told with what is in the logs in the end."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from attrs import define, field

from tinymq.verify.history.diary import Event
from tinymq.verify.history.logs import Entry, Logs, by_partition, number_of
from tinymq.verify.report import MOST_PROBLEMS

#: The topic that is published to; everything is about its records.
ORDERS: Final = "orders"
#: The topics to which transactions bring one record each for every record of `ORDERS`.
COPIES: Final = ("copies", "audit")


@define
class Findings:
    """
    Figures and problems.

    Attributes:
        figures: How much of what there was.
        problems: Sentences; none when every promise was kept.
    """

    figures: Counter[str] = field(factory=Counter)
    problems: list[str] = field(factory=list)

    def problem(self, text: str) -> None:
        """
        Take note of something that must not be.

        Args:
            text: What.
        """
        self.figures["broken"] += 1
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(text)


def judge(history: Sequence[Event], logs: Logs, found: Findings) -> None:
    """
    Compare a history with the logs.

    Args:
        history: All events in order of time.
        logs: What is in the topics after everybody was done.
        found: Takes what is wrong.
    """
    judge_publishing(history, logs[ORDERS], found)
    judge_reading(history, logs[ORDERS], found)
    judge_commits(history, found)
    judge_work(history, logs[ORDERS], found)
    judge_transactions(history, logs, found)


def judge_publishing(history: Iterable[Event], log: Sequence[Entry], found: Findings) -> None:
    """
    See that every acknowledged record is where it was said to be, once, and in order.

    Args:
        history: All events.
        log: The records of `ORDERS`.
        found: Takes what is wrong.
    """
    there = {(each.partition, each.offset): each.id for each in log}
    tried = {event.facts["id"] for event in history if event.kind == "try"}
    found.figures["published"] = len(tried)
    for event in history:
        if event.kind == "ack":
            found.figures["acknowledged"] += 1
            place = event.facts["p"], event.facts["o"]
            if there.get(place) != event.facts["id"]:
                found.problem(
                    f"{event.facts['id']} was acknowledged at {place}, where {there.get(place)} is"
                )
    for name, count in Counter(each.id for each in log).items():
        if count > 1:
            found.problem(f"{name} is {count} times in {ORDERS}")
        if name not in tried:
            found.problem(f"{name} is in {ORDERS} and was never sent")
    last: dict[tuple[int, str, str], int] = {}
    for each in log:
        producer, number = number_of(each.id)
        stream = each.partition, producer, each.key
        if number < last.get(stream, -1):
            found.problem(f"{each.id} of key {each.key} lies behind number {last[stream]}")
        last[stream] = number


def judge_reading(history: Iterable[Event], log: Sequence[Entry], found: Findings) -> None:
    """
    See that members of the group handled every record, and in order within each share.

    Args:
        history: All events.
        log: The records of `ORDERS`.
        found: Takes what is wrong.
    """
    ids = {(each.partition, each.offset): each.id for each in log}
    done: Counter[tuple[int, int]] = Counter()
    at: dict[tuple[str, int, int], int] = {}
    for event in history:
        if not event.actor.startswith("member"):
            continue
        facts = event.facts
        share = event.actor, event.life, facts.get("p", -1)
        if event.kind == "begin":
            at[share] = facts["o"]
            found.figures["shares"] += 1
        elif event.kind == "got":
            place = facts["p"], facts["o"]
            found.figures["handed"] += 1
            if ids.get(place) != facts["id"]:
                found.problem(f"{event.actor} got {facts['id']} at {place}: {ids.get(place)}")
            if facts["o"] < at.get(share, 0):
                found.problem(
                    f"{event.actor} got {place} though it stood at {at[share]} of its share"
                )
            at[share] = facts["o"] + 1
        elif event.kind == "done":
            done[facts["p"], facts["o"]] += 1
    for place, name in ids.items():
        if not done[place]:
            found.problem(f"{name} at {place} was handled by no member")
    found.figures["handled"] = len(done)
    found.figures["again"] = sum(done.values()) - len(done)


class _Committed:
    """What was committed of one partition by when; it only rises."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._offsets: list[int] = []

    def add(self, at: float, offset: int) -> None:
        """Take note of an acknowledged commit, in order of time."""
        self._times.append(at)
        self._offsets.append(max(offset, self._offsets[-1] if self._offsets else 0))

    def before(self, at: float) -> int:
        """Say how far it was committed at a time."""
        place = bisect_left(self._times, at)
        return self._offsets[place - 1] if place else 0


def judge_commits(history: Iterable[Event], found: Findings) -> None:
    """
    See that what was committed stays so: nobody begins below it, and nobody sees less.

    Args:
        history: All events in order of time.
        found: Takes what is wrong.
    """
    committed: dict[tuple[str, int], _Committed] = defaultdict(_Committed)
    # What transactions commit nobody writes down; but whoever was told of it once, knows.
    told: dict[tuple[str, int], _Committed] = defaultdict(_Committed)
    for event in history:
        facts = event.facts
        if "group" not in facts:
            continue
        share = facts["group"], facts["p"]
        place = committed[share]
        if event.kind == "commit":
            found.figures["commits"] += 1
            place.add(event.at, facts["o"])
        elif event.kind in {"begin", "seen"}:
            # Whoever looks may have been told before others committed more. Whoever takes
            # over may not: from then on nobody else commits.
            since = facts.get("since", event.at)
            least = place.before(since)
            if event.kind == "seen":
                least = max(least, told[share].before(since))
                told[share].add(event.at, facts["o"])
            if facts["o"] < least:
                found.problem(
                    f"{event.actor} found {facts['group']} at {facts['o']} of partition "
                    f"{facts['p']}, which was committed up to {least}"
                )


def judge_work(history: Iterable[Event], log: Sequence[Entry], found: Findings) -> None:
    """
    See that the channel's consumers finished every record, and none that was finished before.

    A consumer that stood still may hand out what it had before its lease was over, and what
    somebody else finished meanwhile. But the broker takes that from nobody a second time.

    Args:
        history: All events in order of time.
        log: The records of `ORDERS`.
        found: Takes what is wrong.
    """
    finished: dict[tuple[int, int], float] = {}
    tried: set[tuple[int, int]] = set()
    late: dict[tuple[str, tuple[int, int]], float] = {}
    for event in history:
        if not event.actor.startswith("worker"):
            continue
        place = event.facts.get("p", -1), event.facts.get("o", -1)
        if event.kind == "got":
            found.figures["delivered"] += 1
            if place in finished:
                late[event.actor, place] = event.at - finished[place]
        elif event.kind == "finish":
            tried.add(place)  # it may be done, whatever became of its confirmation
        elif event.kind == "confirmed":
            found.figures["confirmed"] += 1
            finished.setdefault(place, event.at)
            if (event.actor, place) in late:
                found.problem(
                    f"{event.actor} got {place} {late[event.actor, place]:.1f} s after it was "
                    "finished, and finished it again"
                )
    for each in log:
        if (each.partition, each.offset) not in tried:
            found.problem(f"{each.id} was never finished by a worker")


def judge_transactions(history: Iterable[Event], logs: Logs, found: Findings) -> None:
    """
    See that each record was brought to both topics, once, in order, and never half.

    Args:
        history: All events.
        logs: What is in all topics.
        found: Takes what is wrong.
    """
    place = {each.id: (each.partition, each.offset) for each in logs[ORDERS]}
    for topic in COPIES:
        counts = Counter(each.id for each in logs[topic])
        found.figures[topic] = len(counts)
        for name in sorted(place.keys() - counts.keys()):
            found.problem(f"{name} is not in {topic}")
        for name, count in counts.items():
            if count > 1:
                found.problem(f"{name} is {count} times in {topic}")
            if name not in place:
                found.problem(f"{name} is in {topic} and not in {ORDERS}")
        for entries in by_partition(logs[topic]).values():
            _judge_order(topic, entries, place, found)
    for event in history:
        if event.kind == "moved":
            found.figures["transactions"] += 1
        elif event.kind == "abort":
            found.figures["aborts"] += 1
    _judge_looks(history, logs, found)


def _judge_order(
    topic: str, entries: Iterable[Entry], place: dict[str, tuple[int, int]], found: Findings
) -> None:
    """See that records of one key lie in the order of those that they are copies of."""
    last: dict[str, tuple[int, int]] = {}
    for each in entries:
        here = place.get(each.id, (-1, -1))
        if here < last.get(each.key, (-1, -1)):
            found.problem(f"{each.id} of key {each.key} is out of order in {topic}")
        last[each.key] = here


def _judge_looks(history: Iterable[Event], logs: Logs, found: Findings) -> None:
    """See that nobody who reads what is committed saw something that is not there in the end."""
    final = {
        (topic, each.partition, each.offset): each.id for topic in logs for each in logs[topic]
    }
    for event in history:
        facts = event.facts
        if event.kind != "seen" or "topic" not in facts:
            continue
        found.figures["looks"] += 1
        if final.get((facts["topic"], facts["p"], facts["o"])) != facts["id"]:
            where = f"{facts['topic']}/{facts['p']}@{facts['o']}"
            found.problem(f"{event.actor} saw {facts['id']} at {where}, which is not there now")
