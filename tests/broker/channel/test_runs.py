"""Runs and stretches do what plain sets and dicts of offsets do."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tinymq.broker.channel.history import NEW, History, Stretches
from tinymq.broker.channel.runs import Runs, bits_of, cut, offsets_in, runs_in

OFFSETS = st.integers(0, 60)
RUN = st.tuples(OFFSETS, OFFSETS)
STEPS = st.lists(st.tuples(st.sampled_from(["add", "remove"]), RUN), max_size=30)
BITS = st.integers(0, 1 << 70)


def holding(steps: list[tuple[str, tuple[int, int]]]) -> tuple[Runs, set[int]]:
    """Do the same to runs and to a set, checking what each step says."""
    runs, model = Runs(), set[int]()
    for verb, (start, end) in steps:
        wanted = set(range(start, end))
        if verb == "add":
            assert runs.add(start, end) == len(wanted - model)
            model |= wanted
        else:
            assert runs.remove(start, end) == len(wanted & model)
            model -= wanted
    return runs, model


def flat(runs: object) -> set[int]:
    """Return the offsets of runs."""
    return {offset for start, end in runs for offset in range(start, end)}  # type: ignore[attr-defined]


@given(STEPS)
def test_runs_are_a_set(steps: list[tuple[str, tuple[int, int]]]) -> None:
    """After any steps the runs hold what a set holds, sorted, disjoint and not touching."""
    runs, model = holding(steps)

    assert flat(runs) == model
    assert runs.count == len(model)
    assert bool(runs) == bool(model)
    edges = [edge for run in runs for edge in run]
    assert edges == sorted(set(edges))
    assert [offset in runs for offset in range(62)] == [offset in model for offset in range(62)]
    assert not model or runs.first == min(model)
    assert runs.copy() == runs


@given(STEPS, RUN)
def test_a_run_is_split_in_what_is_there_and_what_is_not(
    steps: list[tuple[str, tuple[int, int]]], run: tuple[int, int]
) -> None:
    """What lies within a run and what is missing of it make up the run."""
    runs, model = holding(steps)
    wanted = set(range(*run))

    assert flat(runs.within(*run)) == wanted & model
    assert flat(runs.missing(*run)) == wanted - model


@given(STEPS, STEPS)
def test_intersection(
    first: list[tuple[str, tuple[int, int]]], second: list[tuple[str, tuple[int, int]]]
) -> None:
    """Two sets share what both hold, whichever is asked."""
    one, model = holding(first)
    other, second_model = holding(second)

    assert flat(one.intersect(other)) == model & second_model
    assert one.intersect(other) == other.intersect(one)


@given(OFFSETS, BITS, RUN)
def test_bits(base: int, bits: int, run: tuple[int, int]) -> None:
    """Bits name offsets, in order, and can be cut to a run."""
    expected = [base + bit for bit in range(bits.bit_length()) if bits >> bit & 1]

    assert list(offsets_in(base, bits)) == expected
    assert flat(runs_in(base, bits)) == set(expected)
    assert set(offsets_in(base, cut(base, bits, *run))) == set(expected) & set(range(*run))


def test_bits_of_a_count() -> None:
    """As many bits are set as wanted."""
    assert [bits_of(count) for count in range(4)] == [0, 1, 3, 7]


HISTORIES = st.sampled_from([NEW, History(1, 0, True), History(1, 1, False)])


@given(st.lists(st.tuples(RUN, HISTORIES), max_size=30), STEPS, RUN)
def test_stretches_are_a_dict(
    puts: list[tuple[tuple[int, int], History]],
    steps: list[tuple[str, tuple[int, int]]],
    run: tuple[int, int],
) -> None:
    """Stretches hold what a dict from offset to history holds, in as few runs as can be."""
    stretches, model = Stretches(), dict[int, History]()
    for (start, end), history in puts:
        for offset, _, _ in stretches.remove(start, end):
            assert offset in model
        model = {offset: held for offset, held in model.items() if not start <= offset < end}
        if start < end:
            stretches.put(start, end, history)
            model |= dict.fromkeys(range(start, end), history)
    for _, (start, end) in steps:
        gone = stretches.remove(start, end)
        assert {o for a, b, _ in gone for o in range(a, b)} == model.keys() & set(range(start, end))
        model = {offset: held for offset, held in model.items() if not start <= offset < end}

    assert {o: history for a, b, history in stretches for o in range(a, b)} == model
    assert stretches.count == len(model)
    assert stretches.alone == sum(history.alone for history in model.values())
    assert [stretches.at(offset) for offset in range(62)] == [model.get(o) for o in range(62)]
    assert {o for a, b, _ in stretches.within(*run) for o in range(a, b)} == (
        model.keys() & set(range(*run))
    )
    rows = list(stretches)
    assert all(first[1] < second[0] or first[2] != second[2] for first, second in pairwise(rows))


@given(
    st.lists(st.tuples(RUN, HISTORIES), max_size=30), st.integers(0, 40), st.integers(0, 1 << 20)
)
def test_many_runs_are_removed_as_one_after_another(
    puts: list[tuple[tuple[int, int], History]], base: int, bits: int
) -> None:
    """What is removed together is what is removed run by run, and so is what is left."""
    together, single = Stretches(), Stretches()
    for (start, end), history in puts:
        for stretches in (together, single):
            stretches.remove(start, end)
            if start < end:
                stretches.put(start, end, history)
    runs = list(runs_in(base, bits))

    found = together.remove_all(runs)

    assert found == [sum(b - a for a, b, _ in single.remove(*run)) for run in runs]
    assert list(together) == list(single)
    assert (together.count, together.alone) == (single.count, single.alone)
