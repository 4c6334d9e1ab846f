"""Random runs that go on, seed by seed, until their time is over."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Mapping
from time import monotonic

import pytest

from tests.conftest import LONG

#: Marks a test of the long form: only `make long` runs it, whatever else is chosen.
long_form = pytest.mark.skipif(not LONG, reason="only `make long` runs it")

#: Seconds of each of them in the long form.
LONG_SECONDS = float(os.environ.get("TINYMQ_LONG_SECONDS", "600"))
#: Where seeds begin; by default anywhere.
SEED = int(os.environ.get("TINYMQ_LONG_SEED", "0")) or random.SystemRandom().randrange(1 << 32)


def endless(
    what: str,
    seconds: float,
    run: Callable[[int], Mapping[str, int]],
    say: Callable[[str], None],
    first: int = SEED,
) -> Counter[str]:
    """
    Run something with one seed after the other, at least once; print what was done.

    Args:
        what: What is run, for people.
        seconds: For how long.
        run: Runs it with a seed, and returns what it did.
        say: Told the statistics.
        first: The first seed.

    Returns:
        The sum of what all did.
    """
    done: Counter[str] = Counter()
    until, seed = monotonic() + seconds, first
    while True:
        try:
            done.update(run(seed))
        except BaseException as error:
            error.add_note(f"{what}: repeat with TINYMQ_LONG_SEED={seed} TINYMQ_LONG_SECONDS=0")
            raise
        seed += 1
        if monotonic() >= until:
            break
    done["seeds"] = seed - first
    text = ", ".join(f"{name} {many}" for name, many in sorted(done.items()))
    say(f"{what}: seeds from {first}: {text}")
    return done


def aloud(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Return what lets a text be seen by whoever runs the tests."""

    def say(text: str) -> None:
        with capsys.disabled():
            print(f"\n{text}")  # noqa: T201 - for who runs it

    return say
