"""What pages say of brokers: standing, order, versions, silence; and where partitions are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from attrs import evolve

from tests.web.content import lively, troubled
from tests.web.fakes import NOW
from tests.web.fleet import silenced, slowed, three
from tinymq.stats import Backlog, BrokerSnapshot, ClusterSnapshot, SilentBroker
from tinymq.web.brokers import BROKER_SORTS, Order, rows, silence, versions
from tinymq.web.format import Times
from tinymq.web.placement import led_here, placement, ranges, reasons
from tinymq.web.verdict import draining, problems, tightest

TIMES = Times(NOW)


def cluster_of(*brokers: BrokerSnapshot, silent: tuple[SilentBroker, ...] = ()) -> ClusterSnapshot:
    """Make a look at some brokers."""
    return ClusterSnapshot(name="c", taken_ms=NOW, brokers=brokers, silent=silent)


Change = Callable[[BrokerSnapshot], BrokerSnapshot]


@pytest.mark.parametrize(
    ("change", "word", "note"),
    [
        (lambda b: b, "Ready", ""),
        (lambda b: evolve(b, draining=True), "Draining", ""),
        (lambda b: evolve(b, refusing="The disk is full."), "Refusing", "The disk is full."),
        (lambda b: evolve(b, memory=b.memory_limit), "Memory filling", ""),
        (
            lambda b: evolve(b, memory=b.memory_limit, draining=True),
            "Memory filling",
            "Draining too",
        ),
    ],
)
def test_standing_is_one_word_and_a_reason(change: Change, word: str, note: str) -> None:
    """The worst that is so of a broker is its state, and the reason stands beside it."""
    row = rows(cluster_of(change(three()[0])), TIMES)[0]

    assert (row.standing.word, row.standing.note) == (word, note)


def test_silent_broker_keeps_its_row() -> None:
    """Its last known figures stay, under the word that it is silent and since when."""
    first, second, _ = three()

    found = rows(cluster_of(first, second, silent=(silenced(second, 60),)), TIMES)

    assert [row.standing.word for row in found] == ["Ready", "Silent"]
    assert found[1].standing.note == "since 14:31:06 UTC"
    assert found[1].broker.memory == second.memory


def test_broker_that_was_never_heard_has_a_row_without_figures() -> None:
    """Who is known by name only is listed, and nothing is made up of it."""
    first, second, _ = three()

    found = rows(cluster_of(first, silent=(silenced(second, 60),)), TIMES)

    assert (found[1].broker.name, found[1].known) == ("mq-2", False)


def test_worst_brokers_come_first() -> None:
    """By default silent, refusing, warned, draining and ready follow each other."""
    first, second, third = three()
    brokers = (
        evolve(first, id=4),
        evolve(first, id=5, draining=True),
        evolve(first, id=6, descriptors=first.descriptors_limit),
        evolve(first, id=7, refusing="no"),
        third,
        second,
    )
    found = Order().of(rows(cluster_of(*brokers, silent=(silenced(third, 9),)), TIMES))

    assert [row.broker.id for row in found] == [3, 7, 6, 5, 2, 4]


@pytest.mark.parametrize("sort", BROKER_SORTS)
def test_brokers_are_sorted_by_every_column(sort: str) -> None:
    """Every order holds all brokers, and the reverse is the reverse."""
    first, second, third = three()
    blank = evolve(third, id=9, name="z", memory=None, files=None, reactor_lag_ms=None)
    found = rows(cluster_of(first, second, blank), TIMES)
    order = next(one for one in BROKER_SORTS if one == sort)

    ascending = [row.broker.id for row in Order(order).of(found)]

    assert sorted(ascending) == [1, 2, 9]
    assert {row.broker.id for row in Order(order, reverse=True).of(found)} == {1, 2, 9}


def test_versions_are_grouped() -> None:
    """Who runs what, the most common version first."""
    first, second, third = three()

    found = versions(cluster_of(evolve(first, version="0.2"), second, third))

    assert found == [("0.3.0", ["mq-2", "mq-3"]), ("0.2", ["mq-1"])]


def test_silence_names_broker_and_time() -> None:
    """One silent broker is a sentence with its name and the time."""
    cluster = cluster_of(silent=(silenced(three()[1], 1735),))

    found = silence(cluster, TIMES)

    assert found is not None
    assert found.sentence == (
        "mq-2 does not answer since 14:03:11 UTC: figures are the last known."
    )
    assert found.short == "mq-2 silent"
    assert silence(cluster_of(), TIMES) is None
    assert silence(cluster, TIMES, ()) is None


def test_silence_of_many_stays_short() -> None:
    """Several are told by name up to a few; long names are cut beside the age."""
    first = three()[0]
    many = tuple(silenced(evolve(first, id=i, name=f"b{i}"), 60) for i in range(9))

    found = silence(cluster_of(silent=many), TIMES)

    assert found is not None
    assert found.sentence.startswith("9 brokers do not answer, figures are the last known: b0 does")
    assert found.sentence.endswith("and 4 more.")
    assert found.short == "9 brokers silent"
    long = silence(cluster_of(), TIMES, ["n" * 99])
    assert long is not None
    assert long.sentence.endswith("did not answer in time: figures are the last known.")
    assert len(long.short) < 40


def test_verdict_names_silent_slow_and_draining() -> None:
    """The overview's first sentences tell of brokers and clients, each with a way to look."""
    console = troubled()
    found = {one.title: one for one in problems(console.cluster())}

    assert found["mq-2 does not answer"].link == "/brokers/2"
    assert "2 m 15 s ago" in found["mq-2 does not answer"].detail
    assert found["2 clients take no more"].detail.startswith("1 on mq-1, 1 on mq-3.")
    assert found["14 partitions offline"].detail == (
        "payments.capture / 2: fdatasync failed: Input/output error. "
        "orders.created / 1: mq-2 does not answer."
    )
    assert draining(console.cluster()) == "mq-3 is draining and gets no new partitions."


def test_verdict_of_one_slow_client_is_grammatical() -> None:
    """One is one."""
    console = lively()
    console.connected[0] = slowed(console.connected[0], 5, 5)

    assert [one.title for one in problems(console.cluster())] == ["1 client takes no more"]


def test_verdict_when_nobody_takes_partitions() -> None:
    """If all that answer are draining, topics cannot be made, and that is a problem."""
    first, second, third = three()
    all_three = [evolve(one, draining=True) for one in (first, second, third)]

    assert [p.title for p in problems(cluster_of(*all_three))] == ["No broker takes new partitions"]
    told = draining(cluster_of(*all_three, *(evolve(b, name="x") for b in all_three)))
    assert told == "mq-1, mq-2, mq-3 and 3 more are draining and get no new partitions."
    assert draining(cluster_of(first)) == ""


def test_verdict_counts_silent_brokers_beyond_a_few() -> None:
    """A rack that is gone is not fifty sentences."""
    first = three()[0]
    many = tuple(silenced(evolve(first, id=i, name=f"b{i}"), 60) for i in range(10, 60))

    titles = [one.title for one in problems(cluster_of(first, silent=many))]

    assert titles == [*(f"b{i} does not answer" for i in (10, 11, 12)), "47 more brokers silent"]


def test_tightest_disk_is_named() -> None:
    """What is left until the first broker refuses, and which one that is."""
    assert tightest(lively().cluster()) == ("mq-1", 149 * 10**9)
    assert tightest(cluster_of()) is None


def test_placement_groups_by_broker_and_marks_skew() -> None:
    """Partitions, records and rate of each broker; one far over its share is hot."""
    console = lively()
    for log in console._topics["orders.created"].partitions[::3]:
        log.rate *= 5
    topic = console.topic("orders.created")

    found = placement(topic, console.cluster())

    assert [(at.name, at.zone, len(at.partitions)) for at in found] == [
        ("mq-1", "eu-1a", 3),
        ("mq-2", "eu-1b", 3),
        ("mq-3", "eu-1c", 2),
    ]
    assert [at.hot for at in found] == [True, False, False]
    assert sum(at.messages for at in found) == topic.messages
    assert sum(at.bytes for at in found) == topic.bytes


def test_placement_without_traffic_has_no_skew() -> None:
    """Nothing is compared where there is nothing to compare."""
    console = lively()

    found = placement(console.topic("empty.topic"), console.cluster())

    assert [at.skew for at in found] == [None]


def test_reasons_are_told_once() -> None:
    """Many partitions of one dead broker are one sentence."""
    assert reasons(troubled().topic("payments.capture")) == [
        ("mq-2 does not answer.", [1, 4]),
        ("fdatasync failed: Input/output error", [2]),
    ]


def test_ranges_are_short() -> None:
    """Neighbours are joined, and a long list is cut."""
    assert ranges([0, 1, 2, 5, 7, 8]) == "0-2, 5, 7-8"
    assert ranges(range(0, 40, 2), most=2) == "0, 2, …"
    assert ranges([]) == ""
    assert led_here((1, 2, 1, 1), 1) == "0, 2-3"


def test_channels_in_trouble_are_problems() -> None:
    """Those that are stuck come first, with why; many are counted; dead letters are a problem."""
    stuck = {
        "topic": "t",
        "name": "c",
        "state": "stuck",
        "lag": 5,
        "lag_ms": 61_000,
        "why": [{"cause": "poison", "text": "message 0@3 has failed 9 times"}],
    }
    idle = {**stuck, "name": "d", "state": "no_consumers", "lag_ms": None, "why": []}
    backlog = Backlog(
        taken_ms=NOW,
        troubled=(idle, stuck, idle, idle),
        troubled_count=9,
        dead_letters=3,
        dead_queues=(("t.c.dead", 3),),
    )

    found = problems(cluster_of(*three()), backlog)

    assert [problem.level for problem in found] == ["bad", "warn", "warn", "warn", "warn"]
    assert found[0].title == "Channel c of topic t is stuck"
    assert found[0].detail == (
        "5 messages wait, the oldest for 1 m 01 s. Message 0@3 has failed 9 times."
    )
    assert found[1].detail == "5 messages wait."
    assert found[3].title == "6 more channels stuck, falling behind or without consumers"
    late = {**idle, "state": "falling_behind", "trend_s": 4.6, "lag_ms": 61_000}
    told = problems(cluster_of(*three()), Backlog(taken_ms=NOW, troubled=(late,)))[0]
    assert (told.level, told.title) == ("bad", "Channel d of topic t is falling behind")
    assert told.detail == "5 messages wait, the oldest for 1 m 01 s, 4.6 a second more."
    assert (found[4].title, found[4].link) == ("3 dead letters", "/dead-letters/t.c.dead")
    assert found[4].detail == "3 in t.c.dead. Channels gave them up."
