"""The machine of the channel core, for as long as `make long` lets it, and its helper."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.broker.channel.test_channel_machine import ChannelMachine
from tests.endless import LONG_SECONDS, aloud, endless, long_form

#: What is tried with one seed.
ROUND = settings(
    max_examples=100,
    stateful_step_count=100,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def machine(number: int, config: settings = ROUND) -> Counter[str]:
    """Run the machine with a seed, and return what it did."""

    class Machine(ChannelMachine):
        """The machine, with counts of its own."""

        done: ClassVar[Counter[str]] = Counter()

    run_state_machine_as_test(seed(number)(Machine), settings=config)
    return Machine.done


@pytest.mark.long
@long_form
def test_the_machine_without_end(capsys: pytest.CaptureFixture[str]) -> None:
    """For minutes a channel is what a list of messages would be, whatever happens to it."""
    done = endless("channel machine", LONG_SECONDS, machine, aloud(capsys))
    assert min(done[what] for what in ("examples", "steps", "deliveries", "kills")) > 0


def test_statistics() -> None:
    """One seed at least is tried, however short the time, and it is said what was done."""
    few = settings(ROUND, max_examples=2, stateful_step_count=5, phases=[Phase.generate])
    said: list[str] = []
    done = endless("machine", 0.0, lambda number: machine(number, few), said.append, first=7)
    assert said[0].startswith("machine: seeds from 7: ")
    assert done["seeds"] == 1
    assert done["examples"] >= 2
    assert done["steps"] > 0


def test_the_seed_of_a_failure_is_named() -> None:
    """Who sees it fail knows how to repeat it."""

    def fail(number: int) -> Counter[str]:
        if number == 9:
            raise ValueError("found")
        return Counter()

    with pytest.raises(ValueError, match="found") as caught:
        endless("failing", 60.0, fail, print, first=8)
    assert caught.value.__notes__ == [
        "failing: repeat with TINYMQ_LONG_SEED=9 TINYMQ_LONG_SECONDS=0"
    ]
