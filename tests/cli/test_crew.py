"""Processes that belong together, with fakes for the processes and for time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import define, field

from tinymq.cli.crew import MOST_DELAY_S, PATIENCE_S, STEADY_S, STOP_S, Crew, Member, Running
from tinymq.cli.failure import Failed

BROKERS = ("broker-1", "broker-2")


@define
class FakeProcess:
    """A process that does as it is told, unless it is deaf."""

    name: str
    pid: int
    world: World
    status: int | None = None
    deaf: bool = False

    def poll(self) -> int | None:
        """Give the status."""
        return self.status

    def terminate(self) -> None:
        """Stop, and note it."""
        self.world.events.append(f"stop {self.name}")
        if not self.deaf:
            self.status = 0

    def kill(self) -> None:
        """End."""
        self.world.events.append(f"kill {self.name}")
        self.status = -9


@define
class World:
    """
    Fake means: time passes when somebody sleeps.

    Attributes:
        events: What happened, in order.
        at: What happens when it is so late, by seconds.
        slow: Members that do not become ready.
        ending: Members that end at once, with this status.
        silence: Members that do not answer since then.
    """

    events: list[str] = field(factory=list)
    at: dict[float, Callable[[], None]] = field(factory=dict)
    slow: set[str] = field(factory=set)
    ending: dict[str, int] = field(factory=dict)
    silence: dict[str, float] = field(factory=dict)
    processes: dict[str, FakeProcess] = field(factory=dict)
    time: float = 0.0
    asked: int = 0
    started: int = 0

    def start(self, member: Member) -> Running:
        """Start a fake."""
        self.started += 1
        self.events.append(f"start {member.name}")
        process = FakeProcess(member.name, self.started, self, self.ending.get(member.name))
        self.processes[member.name] = process
        return process

    def ready(self, member: Member, pid: int) -> bool:
        """Whether the latest process of this name is asked for, and quick."""
        return member.name not in self.slow and self.processes[member.name].pid == pid

    def silent(self, member: Member) -> float:
        """Tell since when it was told to be silent."""
        return self.time - self.silence.get(member.name, self.time)

    def last_words(self, member: Member) -> str:
        """Say something."""
        return f"the last words of {member.name}"

    def now(self) -> float:
        """Tell the fake time."""
        return self.time

    def sleep(self, seconds: float) -> None:
        """Let time pass, and let happen what is due."""
        self.time += seconds
        assert self.time < 10_000, "nothing ends this"
        for moment in [moment for moment in self.at if moment <= self.time]:
            self.at.pop(moment)()

    def tell(self, text: str) -> None:
        """Note what is said."""
        self.events.append(text)

    def ask(self) -> None:
        """Ask for a stop."""
        self.asked += 1


@pytest.fixture
def world() -> World:
    """Return a world in which everything goes well."""
    return World()


def member(name: str) -> Member:
    """Make a member."""
    return Member(name, ("run", name), Path(name), Path("log", name))


@pytest.fixture
def crew(world: World) -> Crew:
    """Return a MetaServer and two brokers."""
    stages = [[member("meta")], [member(name) for name in BROKERS]]
    return Crew(stages, world, lambda: world.asked)


def test_start_and_stop_in_order(world: World, crew: Crew) -> None:
    """Brokers start when the MetaServer is ready, and stop before it."""
    world.slow.add("meta")
    world.at[1.0] = world.slow.clear
    world.at[0.9] = lambda: world.events.append("still alone")
    assert crew.begin() is True
    assert crew.pids == {"meta": 1, "broker-1": 2, "broker-2": 3}
    world.at[world.time + 5] = world.ask
    crew.watch()
    assert crew.stop() is True
    assert world.events == [
        "start meta", "still alone", "start broker-1", "start broker-2",
        "stop broker-1", "stop broker-2", "stop meta",
    ]  # fmt: skip


def test_one_after_the_other(world: World) -> None:
    """A member that is to come after others waits for them, and stops with them."""
    late = Member("broker-2", ("run",), Path("x"), Path("log", "x"), after=True)
    crew = Crew([[member("broker-1"), late, member("broker-3")]], world, lambda: world.asked)
    world.slow.add("broker-1")
    world.at |= {0.9: lambda: world.events.append("still alone"), 1.0: world.slow.clear}
    assert crew.begin() is True
    assert world.events == ["start broker-1", "still alone", "start broker-2", "start broker-3"]
    assert crew.stop() is True
    assert world.events[-3:] == ["stop broker-1", "stop broker-2", "stop broker-3"]


def test_one_that_ends_at_its_start(world: World, crew: Crew) -> None:
    """A failed start says why, and stops those that had started."""
    world.ending["broker-2"] = 1
    with pytest.raises(Failed, match="broker-2 ended at its start with status 1: the last words"):
        crew.begin()
    assert world.events[-2:] == ["stop broker-1", "stop meta"]


def test_a_stop_while_it_starts(world: World, crew: Crew) -> None:
    """A stop that is asked for during a long start is heard."""
    world.slow.add("meta")
    world.at[3.0] = world.ask
    assert crew.begin() is False
    assert crew.stop() is True
    assert world.events == ["start meta", "stop meta"]


def test_a_long_start_is_told_of(world: World, crew: Crew) -> None:
    """A start that takes long is told of again and again, with where to look."""
    world.slow.add("broker-1")
    world.at[2.5 * PATIENCE_S] = world.slow.clear
    assert crew.begin() is True
    told = [event for event in world.events if "is starting for" in event]
    assert told == [
        "broker-1 is starting for 10 s; its log is log/broker-1",
        "broker-1 is starting for 20 s; its log is log/broker-1",
    ]


def test_one_that_dies_is_started_again(world: World, crew: Crew) -> None:
    """A death is told of, and so is that the process is back."""

    def die() -> None:
        world.processes["broker-1"].status = -9

    crew.begin()
    world.events.clear()
    world.at |= {2.0: die, 10.0: world.ask}
    crew.watch()
    assert world.events == [
        "broker-1 ended with signal 9; it is started again in 1 s; its log is log/broker-1",
        "start broker-1",
        "broker-1 is ready again",
    ]
    assert crew.pids["broker-1"] == 4


def test_the_delay_grows_and_has_an_end(world: World, crew: Crew) -> None:
    """Who dies again and again is started ever later, but not later than every half minute."""
    crew.begin()
    world.events.clear()
    world.ending["meta"] = 1
    world.processes["meta"].status = 1
    world.at[300.0] = world.ask
    crew.watch()
    told = [event for event in world.events if event.startswith("meta ended")]
    delays = [float(event.split(" again in ")[1].split(" ")[0]) for event in told]
    assert delays[:5] == [1, 2, 4, 8, 16]
    assert set(delays[5:]) == {MOST_DELAY_S}
    assert told[1].endswith("the last words of meta")
    assert "stop broker-1" not in world.events


def test_a_steady_process_is_forgiven(world: World, crew: Crew) -> None:
    """A process that ran for long is started again as soon as at its first death."""

    def die() -> None:
        world.processes["broker-2"].status = 1

    crew.begin()
    world.at |= {1.0: die, 5.0: die, 10.0 + 2 * STEADY_S: die, 200.0: world.ask}
    crew.watch()
    told = [event for event in world.events if "is started again" in event]
    delays = [event.split(" again in ")[1].split(";")[0] for event in told]
    assert delays == ["1 s", "2 s", "1 s"]


def test_one_that_does_not_stop_is_killed(world: World, crew: Crew) -> None:
    """A process that is deaf is killed after a while, and the MetaServer stops all the same."""
    crew.begin()
    world.processes["broker-1"].deaf = True
    before = world.time
    assert crew.stop() is False
    assert world.time - before >= STOP_S
    assert world.events[-3:] == [
        "broker-1 did not stop in time; it is killed",
        "kill broker-1",
        "stop meta",
    ]


def test_a_second_request_is_urgent(world: World, crew: Crew) -> None:
    """Who asks for the stop twice does not wait."""
    crew.begin()
    world.processes["broker-1"].deaf = True
    world.asked = 1
    world.at[world.time + 1.0] = world.ask
    before = world.time
    assert crew.stop() is False
    assert world.time - before < 2


def test_a_stop_between_death_and_start(world: World, crew: Crew) -> None:
    """A process that waits for its next start is not started any more."""
    crew.begin()
    world.processes["broker-1"].status = 1
    world.at[world.time + 0.5] = world.ask
    crew.watch()
    assert crew.stop() is True
    assert world.events.count("start broker-1") == 1
    assert "stop broker-1" not in world.events


def test_one_that_hangs(world: World, crew: Crew) -> None:
    """Who runs and does not answer is told of once, with where to look, and when it is over."""
    world.at[2.0] = lambda: world.silence.update({"broker-2": 2.0})
    world.at[40.0] = world.silence.clear
    world.at[50.0] = world.ask
    crew.begin()
    world.events.clear()
    crew.watch()
    hung, over = world.events
    assert hung == (
        "broker-2 does not answer for 10 s, though its process 3 runs: "
        "it is stopped, or hangs; its log is log/broker-2"
    )
    assert over == "broker-2 answers again"
