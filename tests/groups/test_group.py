"""A group: who comes, who goes, and what becomes of the partitions."""

from __future__ import annotations

from random import Random

import pytest

from tests.groups.stage import Person, Stage, topic
from tinymq.errors import (
    FencedGeneration,
    InconsistentGroup,
    InvalidRequest,
    Overloaded,
    UnknownMember,
    WireError,
)
from tinymq.groups.describing import group_row, member_row
from tinymq.groups.group import Group
from tinymq.groups.strategies import ROLLING_MS
from tinymq.groups.values import MOST_MEMBERS, MOST_PLACES, Client, Now
from tinymq.wire.messages import Member, MemberReply

T = topic("t", 4).id


def last_error(person: Person) -> WireError:
    """What somebody heard last, which is an error."""
    error = person.answers[-1]
    assert isinstance(error, WireError), error
    return error


def generations(stage: Stage) -> dict[str, set[int]]:
    """In which generations each member was given what it has."""
    return {name: set(person.holds.values()) for name, person in stage.people.items()}


# --- coming and going -------------------------------------------------------------------


def test_members_share_a_topic() -> None:
    """Two that come share what there is, and nothing moves after that."""
    stage = Stage(topic("t", 4))
    stage.join("a", "t")
    stage.join("b", "t")
    stage.run(500)
    stage.settled()
    stage.run(30_000)
    stage.settled()
    assert stage.taken == 4


def test_a_newcomer_gets_its_part_from_the_others() -> None:
    """A third member is given only what the others can spare, once they let it go."""
    stage = Stage(topic("t", 6))
    stage.join("a", "t", drain_ms=400)
    stage.join("b", "t")
    stage.run(500)
    stage.join("c", "t")
    stage.run(1000)
    stage.settled()
    assert stage.taken == 6 + 2
    assert stage.most_idle <= 200


def test_what_is_left_behind_is_taken_at_once() -> None:
    """The partitions of one that leaves are others' within a moment."""
    stage = Stage(topic("t", 6))
    for name in "abc":
        stage.join(name, "t")
    stage.run(500)
    stage.most_idle = 0
    stage.leave("b")
    stage.run(500)
    stage.settled()
    assert stage.taken == 6 + 2
    assert stage.most_idle <= 200


def test_the_silent_lose_what_they_have() -> None:
    """After its session a member that says nothing is gone; it may come back, with nothing."""
    stage = Stage(topic("t", 4))
    stage.join("a", "t")
    stage.join("b", "t")
    stage.run(500)
    stage.robbed = True
    stage.silence("a", 12_000)
    stage.run(9000)
    assert len(stage.people["b"].holds) == 2
    stage.run(2500)
    assert len(stage.people["b"].holds) == 4
    stage.run(3000)
    stage.settled()


def test_one_that_was_silent_keeps_what_nobody_else_was_given() -> None:
    """Alone in its group, a member that was taken for dead goes on with what it has."""
    stage = Stage(topic("t", 4))
    person = stage.join("a", "t")
    stage.run(500)
    before = dict(person.holds)
    stage.silence("a", 12_000)
    stage.run(20_000)
    stage.settled()
    assert person.holds == before


def test_the_slow_lose_what_they_do_not_give_up() -> None:
    """After its time to give up, a partition is another's, by a later right."""
    stage = Stage(topic("t", 4))
    slow = stage.join("a", "t", drain_ms=60_000)
    stage.run(500)
    stage.robbed = True
    new = stage.join("b", "t")
    stage.run(4500)
    assert not new.holds
    assert member_row(stage.group.members["a"], stage.now)["state"] == "draining"
    stage.run(1000)
    assert len(new.holds) == 2
    assert max(slow.holds.values()) < min(new.holds.values())
    assert "took too long" in stage.group.stuck


def test_what_was_to_be_given_up_may_stay() -> None:
    """If the one for whom a partition was meant goes first, its owner keeps it as it was."""
    stage = Stage(topic("t", 4))
    person = stage.join("a", "t", drain_ms=2000)
    stage.run(500)
    before = dict(person.holds)
    stage.join("b", "t")
    stage.run(500)
    assert person.draining
    stage.leave("b")
    stage.run(500)
    stage.settled()
    assert person.holds == before


def test_a_process_that_stood_still_takes_nobody_for_dead() -> None:
    """If nobody could be heard, silence is nobody's fault."""
    stage = Stage(topic("t", 2))
    stage.join("a", "t")
    stage.run(500)
    stage.now = Now(stage.now.mono + 60_000, stage.now.wall + 60_000)
    stage.group.tick(stage.now, late=60_000)
    assert "a" in stage.group.members


def test_a_group_has_only_so_many_members() -> None:
    """One more is refused, and told why."""
    stage = Stage(topic("t", 2))
    for number in range(MOST_MEMBERS):
        stage.group.ask(Member(group="g", member=f"m{number}"), Client(), stage.now, _ignore)
    with pytest.raises(Overloaded, match="1000 members"):
        stage.group.ask(Member(group="g", member="more"), Client(), stage.now, _ignore)


def _ignore(reply: MemberReply | WireError) -> None:
    """Hear nothing."""


# --- generations ------------------------------------------------------------------------


def test_who_is_fenced_is_given_its_part_anew() -> None:
    """A member that was told of a later right says so, and gets one later than that."""
    stage = Stage(topic("t", 2))
    person = stage.join("a", "t")
    stage.run(500)
    fence = stage.now.wall + 5000
    kept = person.holds[T, 1]
    del person.holds[T, 0]
    stage.fences[T, 0] = person.generation = fence
    stage.say(person)
    assert person.holds[T, 0] > fence
    assert person.holds[T, 1] == kept


def test_an_answer_that_was_lost_is_given_again() -> None:
    """A request that does not know the last answer is answered at once."""
    stage = Stage(topic("t", 2))
    person = stage.join("a", "t")
    stage.run(500)
    known = person.generation
    person.generation = known - 1
    heard = len(person.answers)
    stage.say(person)
    assert len(person.answers) == heard + 2  # of the one that waited, and of this
    assert person.generation == known


def test_what_was_not_heard_of_is_not_given_up() -> None:
    """A request that was under way when a share was given does not give it back."""
    stage = Stage(topic("t", 2))
    person = stage.join("a", "t")
    stage.say(person)
    early = person.generation
    stage.run(120)
    before = dict(person.holds)
    assert before
    person.generation, person.holds = early, {}
    stage.say(person)
    assert person.holds == before
    assert stage.group.members["a"].shares == before


# --- static members ---------------------------------------------------------------------


def test_a_restart_of_a_static_member_moves_nothing() -> None:
    """It has its part again under a later right, dead or left; others keep theirs."""
    stage = Stage(topic("t", 4))
    stage.join("a1", "t", instance="a")
    other = stage.join("b1", "t", instance="b")
    stage.run(500)
    before, parts = dict(other.holds), set(stage.people["a1"].holds)
    for number, gone in enumerate((stage.crash, stage.leave, stage.crash)):
        rights = max(stage.people[f"a{number + 1}"].holds.values())
        gone(f"a{number + 1}")
        stage.run(2000)
        again = stage.join(f"a{number + 2}", "t", instance="a")
        assert set(again.holds) == parts
        assert min(again.holds.values()) > rights
        stage.run(1000)
        stage.settled()
        assert other.holds == before
    assert len(stage.group.history.rows) == 1


def test_a_static_member_that_is_about_to_go_keeps_its_place() -> None:
    """Wanting nothing more, it gives up what it reads, and nobody else is given that."""
    stage = Stage(topic("t", 4))
    going = stage.join("a1", "t", instance="a")
    other = stage.join("b", "t")
    stage.run(500)
    before = dict(other.holds)
    parts = set(going.holds)
    going.wanted, going.over = [], True
    while going.holds:
        going.holds.popitem()
        stage.say(going)
        assert stage.group.members["a1"].shares.keys() == parts
        going.holds = {place: each for place, each in going.holds.items() if len(going.holds) < 2}
    stage.leave("a1")
    stage.run(1000)
    again = stage.join("a2", "t", instance="a")
    stage.run(1000)
    stage.settled()
    assert set(again.holds) == parts
    assert other.holds == before
    assert len(stage.group.history.rows) == 1


def test_a_member_that_wants_nothing_is_leaving() -> None:
    """One that is not static gives its part to the others, before it says that it goes."""
    stage = Stage(topic("t", 4))
    going = stage.join("a", "t", drain_ms=200)
    stage.join("b", "t")
    stage.run(500)
    going.wanted = []
    stage.say(going)
    stage.run(1000)
    assert set(stage.who().values()) == {"b"}
    assert stage.group.history.rows[-1].why == "c a is leaving"


def test_a_static_member_that_stays_away_loses_its_place() -> None:
    """After its session, what it had goes to the others."""
    stage = Stage(topic("t", 4))
    stage.join("a", "t", instance="a")
    other = stage.join("b", "t")
    stage.run(500)
    stage.leave("a")
    stage.run(9000)
    assert len(other.holds) == 2
    row = group_row(stage.group, stage.now)
    assert [each["id"] for each in row["members"]] == ["b"]
    assert row["stuck"].startswith("partitions are kept for a:")
    assert sorted(owner for owner, _, _ in row["shares"][0]["partitions"]) == ["", "", "b", "b"]
    stage.run(2000)
    stage.settled()


def test_of_two_with_one_instance_the_newer_wins() -> None:
    """The older is told that it is fenced, and cannot come back under its id."""
    stage = Stage(topic("t", 4))
    older = stage.join("old", "t", instance="a")
    stage.run(500)
    stage.robbed = True
    newer = stage.join("new", "t", instance="a")
    assert isinstance(last_error(older), FencedGeneration)
    assert last_error(older).data == {"instance": "a", "member": "new"}
    assert len(newer.holds) == 4
    older.generation = 0
    stage.say(older)
    assert isinstance(last_error(older), FencedGeneration)


def test_of_two_that_come_to_a_new_coordinator_the_newer_wins_too() -> None:
    """Though the older one comes first, and says that it has everything."""
    for order in (("old", "new"), ("new", "old")):
        stage = Stage(topic("t", 4))
        old = stage.join("old", "t", instance="a")
        stage.run(500)
        rights, known = dict(old.holds), old.generation
        del stage.people["old"]
        stage.join("new", "t", instance="a")
        stage.run(500)
        stage.robbed = True
        stage.people["old"] = old
        old.holds, old.generation = rights, known
        stage.fail_over()
        for name in order:
            stage.say(stage.people[name])
        stage.run(5000)
        assert isinstance(last_error(old), FencedGeneration)
        assert len(stage.people["new"].holds) == 4


# --- eager strategies -------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky"])
def test_the_eager_take_everything_first(strategy: str) -> None:
    """Nobody is given anything before everybody let everything go."""
    stage = Stage(topic("t", 6))
    stage.join("a", "t", strategy=strategy)
    slow = stage.join("b", "t", strategy=strategy, drain_ms=1000)
    stage.run(500)
    new = stage.join("c", "t", strategy=strategy)
    stage.run(500)
    assert set(stage.who().values()) == {"b"}
    stage.run(1000)
    stage.settled()
    assert len({*slow.holds.values(), *new.holds.values()}) == 1
    assert stage.taken == 12


def test_the_eager_move_nothing_for_nothing() -> None:
    """If a division comes out as it was, everybody keeps what it has."""
    stage = Stage(topic("t", 2), topic("u", 2))
    stage.join("a", "t", strategy="range")
    stage.run(500)
    stage.join("b", "u", strategy="range")
    stage.run(1000)
    assert stage.taken == 4 + 2
    stage.join("c", "none", strategy="range")
    stage.run(1000)
    assert stage.taken == 6


# --- strategies -------------------------------------------------------------------------


def test_a_rolling_deploy_takes_a_group_to_another_strategy() -> None:
    """One for each that went may say the new one; with the last of the old it is gone over to."""
    stage = Stage(topic("t", 6))
    for name in "abc":
        stage.join(name, "t", strategy="range")
    stage.run(500)
    for name in "abc":
        stage.leave(name)
        stage.run(1000)
        assert (stage.group.strategy.name == "range") == (name != "c")
        stage.join(f"{name}2", "t", strategy="cooperative-sticky")
        stage.run(1000)
        stage.settled()
    assert stage.group.strategy.name == "cooperative-sticky"
    assert stage.group.strategy.coming == ""


def test_another_strategy_needs_a_place() -> None:
    """Without one that went, or a minute later, or as a third one, it is refused."""
    stage = Stage(topic("t", 6))
    for name in "abc":
        stage.join(name, "t", strategy="range")
    with pytest.raises(AssertionError, match="and this one says sticky"):
        stage.join("x", "t", strategy="sticky")
    del stage.people["x"]
    stage.leave("a")
    stage.run(ROLLING_MS + 1000)
    with pytest.raises(AssertionError, match="restart them one after another"):
        stage.join("x", "t", strategy="sticky")
    del stage.people["x"]
    stage.leave("b")
    stage.join("x", "t", strategy="sticky")
    with pytest.raises(AssertionError, match="range and now sticky"):
        stage.join("y", "t", strategy="roundrobin")


def test_a_member_that_changes_its_mind() -> None:
    """It may want other topics; another strategy only if it is alone."""
    stage = Stage(topic("t", 2), topic("u", 2))
    person = stage.join("a", "t")
    stage.run(500)
    person.wanted, person.strategy = ["u"], "range"
    stage.say(person)
    stage.run(500)
    assert {name for name, _ in person.holds} == {topic("u", 2).id}
    stage.join("b", "t", strategy="range")
    person.strategy = "sticky"
    with pytest.raises(AssertionError, match="this one says sticky"):
        stage.say(person)


# --- the members' own assignor ----------------------------------------------------------


def asked(person: Person) -> MemberReply:
    """The last answer of somebody, which asks for a plan."""
    reply = person.answers[-1]
    assert isinstance(reply, MemberReply)
    assert reply.members is not None
    return reply


def test_a_member_divides_for_all() -> None:
    """One is asked, with what the others want, and its plan counts; the next one if it goes."""
    stage = Stage(topic("t", 3))
    first = stage.join("a", "t", strategy="own")
    second = stage.join("b", "t", strategy="own")
    stage.run(200)
    reply = asked(first)
    assert reply.members == [("a", "", ["t"], b""), ("b", "", ["t"], b"")]
    assert not first.holds
    stage.say(first, plan=[("b", [(T, [0, 1, 2])])])
    stage.run(200)
    assert len(second.holds) == 3
    assert not stage.group.moving
    stage.leave("a")
    stage.run(200)
    assert asked(second).members == [("b", "", ["t"], b"")]
    assert len(second.holds) == 3


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        ([("x", [(T, [0])])], "'x' is no member"),
        ([("a", [(b"?" * 16, [0])])], "nobody in the group reads"),
        ([("a", [(T, [0, 3])])], "3 partitions"),
        ([("a", [(T, [0])]), ("b", [(T, [0])])], "given out twice"),
        ([("b", [(topic("u", 1).id, [0])])], "does not want"),
    ],
)
def test_a_plan_that_cannot_be(
    plan: list[tuple[str, list[tuple[bytes, list[int]]]]], why: str
) -> None:
    """It is refused with what is wrong, all stay with what they have, and it is asked for again."""
    stage = Stage(topic("t", 3), topic("u", 1))
    first = stage.join("a", "t", "u", strategy="own")
    stage.join("b", "t", strategy="own")
    stage.run(200)
    with pytest.raises(AssertionError, match=why):
        stage.say(first, plan=plan)
    assert why in stage.group.stuck
    stage.run(500)
    first.speaks_at = stage.now.mono
    stage.run(1000)
    assert asked(first).members
    stage.say(first, plan=[("a", [(T, [0])])])
    stage.run(200)
    assert set(stage.who()) == {(T, 0)}
    assert stage.group.stuck == ""


def test_another_is_asked_for_a_plan_in_time() -> None:
    """One that sends none is passed over; an old plan is not taken."""
    stage = Stage(topic("t", 3))
    first = stage.join("a", "t", strategy="own", rebalance_ms=2000)
    second = stage.join("b", "t", strategy="own")
    stage.run(2500)
    assert asked(second).members
    assert "sent none" in stage.group.stuck
    stage.say(first, plan=[("a", [(T, [0])])])
    stage.run(200)
    assert not stage.who()
    stage.say(second, plan=[("a", [(T, [1])])])
    stage.run(200)
    assert stage.who() == {(T, 1): "a"}


# --- topics -----------------------------------------------------------------------------


def test_a_topic_made_anew_is_another_one() -> None:
    """Members let the old one go at once, and are given the new one's partitions."""
    stage = Stage(topic("t", 4), topic("u", 1))
    for name in "ab":
        stage.join(name, "t", patterns=["u.*"])
    stage.run(500)
    stage.set_topics(topic("u", 1))
    stage.run(40)
    assert {place[0] for place in stage.who()} == {topic("u", 1).id}
    stage.set_topics(topic("t", 4, version=1), topic("u", 1))
    stage.run(300)
    stage.settled()
    stage.set_topics(topic("t", 6, version=1), topic("u", 1), topic("u2", 2))
    stage.run(300)
    stage.settled()
    assert stage.most_idle <= 300


def test_too_many_partitions_are_said() -> None:
    """What is more than a group reads is left out, topic by topic, and people are told."""
    found = [topic(f"t{number}", 1000) for number in range(6)]
    stage = Stage(*found)
    stage.group.ask(Member(group="g", member="a", patterns=["t."]), Client(), stage.now, _ignore)
    stage.run(200)
    assert len(stage.group.members["a"].shares) == MOST_PLACES
    assert "6000 partitions" in stage.group.stuck


# --- a coordinator that goes ------------------------------------------------------------


def test_another_coordinator_leaves_all_as_it_was() -> None:
    """What members bring along they keep, with its rights, and nothing moves or waits."""
    stage = Stage(topic("t", 6))
    for name in "abc":
        stage.join(name, "t")
    stage.run(500)
    before = generations(stage)
    stage.fail_over()
    stage.run(6000)
    stage.settled()
    assert generations(stage) == before
    assert stage.taken == 6


def test_what_nobody_brings_is_given_out_after_a_while() -> None:
    """A member that died with the coordinator is waited for a few seconds, not for its session."""
    stage = Stage(topic("t", 6))
    for name in "abc":
        stage.join(name, "t")
    stage.run(500)
    stage.crash("b")
    stage.fail_over()
    stage.run(9500)
    assert len(stage.who()) == 4
    stage.run(1000)
    stage.settled()
    assert stage.taken == 6 + 2


def test_members_that_are_late_at_another_coordinator_keep_what_they_have() -> None:
    """They read on meanwhile, and nobody else is given that before they had time to come."""
    stage = Stage(topic("t", 6))
    for name in "abc":
        stage.join(name, "t", strategy="range")
    stage.run(500)
    before = generations(stage)
    stage.fail_over()
    stage.people["b"].speaks_at = stage.now.mono + 6000
    stage.people["c"].speaks_at = stage.now.mono + 9000
    stage.run(12_000)
    stage.settled()
    assert generations(stage) == before


def test_late_members_are_not_waited_for_for_ever() -> None:
    """However they come, half a minute later all that is free is given out."""
    stage = Stage(topic("t", 20), pause_ms=1000)
    for number in range(8):
        place = topic("t", 20).id, number
        person = Person(f"m{number}", ["t"], generation=5, holds={place: 5})
        stage.people[person.name] = person
        stage.say(person)
        stage.run(5000)
    stage.settled()


def test_when_all_came_nobody_is_waited_for() -> None:
    """What no member brings to another coordinator is given out when all of them are there."""
    stage = Stage(topic("t", 6))
    people = [stage.join(name, "t") for name in "abc"]
    stage.run(500)
    for person in people:
        person.holds.clear()
    stage.most_idle = 0
    stage.fail_over(Random(1))
    stage.run(1500)
    stage.settled()
    assert stage.most_idle <= 1300


def test_who_is_missing_is_waited_for_until_its_session_is_over() -> None:
    """Of a short session no more is waited than that, however late the last of the others came."""
    stage = Stage(topic("t", 6))
    for name in "abc":
        stage.join(name, "t", session_ms=3000)
    stage.run(500)
    stage.crash("b")
    stage.fail_over()
    stage.people["c"].speaks_at = stage.now.mono + 2500
    stage.run(2800)
    assert len(stage.who()) == 4
    stage.run(500)
    stage.settled()


def test_a_member_that_leaves_is_not_waited_for() -> None:
    """One that goes while the group gathers at another coordinator is one less to come."""
    stage = Stage(topic("t", 6))
    for name in "abc":
        stage.join(name, "t")
    stage.run(500)
    stage.fail_over()
    stage.run(100)
    stage.leave("b")
    stage.run(300)
    stage.settled()


def test_the_later_claim_counts() -> None:
    """Of two that say they have a partition, the one who was given it later has it."""
    for order in (("a", "b"), ("b", "a")):
        stage = Stage(topic("t", 1))
        stage.robbed = True
        rights = {"a": stage.now.wall + 5, "b": stage.now.wall + 9}
        for name in order:
            person = Person(name, ["t"], generation=rights[name], holds={(T, 0): rights[name]})
            stage.people[name] = person
            stage.say(person)
        stage.run(5000)
        assert stage.who() == {(T, 0): "b"}
        assert stage.people["b"].holds == {(T, 0): rights["b"]}
        assert stage.group.generation >= rights["b"]


def test_a_claim_that_is_out_of_date_is_none() -> None:
    """What somebody else was given since is not taken from nobody by who had it before."""
    stage = Stage(topic("t", 2))
    old = stage.join("a", "t", session_ms=1000)
    stage.run(200)
    rights, known = dict(old.holds), old.generation
    stage.robbed = True
    stage.silence("a", 3000)
    stage.join("b", "t")
    stage.run(2000)
    stage.leave("b")
    old.holds, old.generation = dict(rights), known
    stage.run(4000)
    assert min(old.holds.values()) > max(rights.values())
    stage.settled()


# --- being sent away --------------------------------------------------------------------


def test_who_is_sent_away_has_to_join_again() -> None:
    """It hears why, loses all at once, and may come back as a new one."""
    stage = Stage(topic("t", 4))
    person = stage.join("a", "t")
    other = stage.join("b", "t")
    stage.run(500)
    stage.group.evict(stage.group.find("a"), "too slow", stage.now)
    assert isinstance(last_error(person), UnknownMember)
    assert "too slow" in last_error(person).text
    stage.run(20)
    person.generation, person.speaks_at = 5, None
    stage.say(person)
    assert isinstance(last_error(person), UnknownMember)
    person.speaks_at = None
    stage.run(200)
    assert len(other.holds) == 4
    person.speaks_at = stage.now.mono
    stage.run(1000)
    stage.settled()
    assert [each.why for each in stage.group.history.rows][-2:] == [
        "c a was sent away: too slow",
        "c a joined",
    ]


def test_a_closed_group_tells_all() -> None:
    """Everybody who waits hears why, and nothing is due any more."""
    stage = Stage(topic("t", 4))
    stage.join("a", "t")
    stage.run(500)
    stage.group.close(UnknownMember("it is over"))
    assert last_error(stage.people["a"]).text == "it is over"
    assert stage.group.due is None


def test_what_a_group_tells_of_itself() -> None:
    """Its state, who has what, and the last rebalances, the newest first."""
    stage = Stage(topic("t", 2))
    assert group_row(stage.group, stage.now)["state"] == "empty"
    stage.join("a", "t", instance="one")
    row = group_row(stage.group, stage.now)
    assert (row["state"], row["members"][0]["state"]) == ("moving", "stable")
    stage.run(500)
    for number in range(30):
        stage.join(f"b{number}", "t")
        stage.run(200)
        stage.leave(f"b{number}")
        stage.run(200)
    row = group_row(stage.group, stage.now)
    assert row["state"] == "stable"
    assert len(row["rebalances"]) == 20
    assert row["rebalances"][0]["why"] == "c b29 left"
    (shares,) = row["shares"]
    assert shares["topic"] == "t"
    assert [owner for owner, _, _ in shares["partitions"]] == ["a", "a"]


def test_kinds_of_errors() -> None:
    """What is refused is told with its own kind of error."""
    group = Group("g", Stage(topic("t", 1)).topics, Now(0, 1))
    for said, kind in (
        ({"generation": 1 << 60}, InvalidRequest),
        ({"strategy": "x"}, InvalidRequest),
        ({"metadata": b"x" * 4096}, None),
    ):
        request = Member(group="g", member="a", **said)
        if kind is None:
            group.ask(request, Client(), Now(1, 2), _ignore)
        else:
            with pytest.raises(kind):
                group.ask(request, Client(), Now(1, 2), _ignore)
    assert issubclass(InconsistentGroup, WireError)
