"""Work on many messages, step by step: planned, asked about, done at a rate, and summed up."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

import click
from attrs import define, field, frozen
from click.exceptions import Exit

from tinymq.cli.confirm import confirm, yes_option
from tinymq.cli.failure import INTERRUPTED, REFUSED
from tinymq.cli.operation import Arguments
from tinymq.cli.output import Row, counted, note, output_option, tell_silent, write_json
from tinymq.cli.progress import progress
from tinymq.cli.session import Session
from tinymq.cli.values import Parsed

#: Messages of one step.
STEP: Final = 100
#: Reasons that are written out when something stays.
_MOST_REASONS: Final = 5
#: What a step may count beside what it did.
_ASIDE: Final = ("skipped", "loops")

_RATE: Final = re.compile(r"(\d+(?:\.\d+)?)(?:/(s|m|h))?")
_SECONDS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, None: 1.0}


def parse_rate(text: str) -> float:
    """
    Read how many messages a second may go.

    Args:
        text: Such as ``100/s``, ``30/m``, or a number a second.

    Raises:
        ValueError: It is none of these.
    """
    found = _RATE.fullmatch(text.strip())
    if found is None or not float(found[1]):
        raise ValueError(f"{text!r} is no rate; write 100/s or 30/m")
    return float(found[1]) / _SECONDS[found[2]]


_RATE_TYPE: Final = Parsed("rate", parse_rate)


def pace_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add what verbs take that go on step by step."""
    for option in (
        output_option,
        yes_option,
        click.option("--max", "most", type=click.IntRange(1), help="Stop after so many."),
        click.option("--rate", type=_RATE_TYPE, help="At most so many, such as 100/s or 30/m."),
    ):
        function = option(function)
    return function


@define
class Sum:
    """
    What all steps did together.

    Attributes:
        done: Messages with which it was done.
        aside: What else steps count, by its name.
        after: Where the next step begins.
        more: Whether there is one.
        steps: How many there were.
        failed: Those that stay, and why.
        silent: Brokers that did not answer.
    """

    done: int = 0
    aside: dict[str, int] = field(factory=dict)
    after: str = ""
    more: bool = True
    steps: int = 0
    failed: list[dict[str, Any]] = field(factory=list)
    silent: dict[str, None] = field(factory=dict)

    @property
    def loops(self) -> int:
        """How many of them came back or went in circles before."""
        return self.aside.get("loops", 0)

    def add(self, reply: Row) -> None:
        """Add a step."""
        self.done += reply["done"]
        for name in _ASIDE:
            if name in reply:
                self.aside[name] = self.aside.get(name, 0) + reply[name]
        self.failed += reply["failed"]
        self.silent |= dict.fromkeys(reply["silent"])
        self.more, self.after = reply["more"], reply["after"] or self.after
        self.steps += 1

    def told(self, *, dry_run: bool) -> dict[str, Any]:
        """As one step would tell it."""
        return {
            "done": self.done,
            **self.aside,
            "failed": self.failed,
            "more": self.more,
            "after": self.after if self.more else None,
            "silent": list(self.silent),
            "dry_run": dry_run,
        }


@frozen
class Work:
    """
    What is done step by step.

    Attributes:
        operation: One step of it.
        arguments: Of every step.
        rate: At most so many messages a second.
        most: So many messages, or None for all.
        words: What was done with them, and what is being done.
        noun: What they are, such as ``dead letter``.
        name: Whose they are; typed to confirm.
        others: What is the matter with those that were not reached.
    """

    operation: str
    arguments: Arguments
    rate: float | None
    most: int | None
    words: tuple[str, str]
    noun: str
    name: str
    others: str

    def steps(self, session: Session, found: Sum, *, dry_run: bool) -> Iterator[Row]:
        """
        Do one step after the other, no faster than is wanted.

        Args:
            session: Where.
            found: What they did together.
            dry_run: Only look.
        """
        began = session.clock()
        arguments = {**self.arguments, "dry_run": dry_run}
        while found.more:
            size = STEP if dry_run or self.rate is None else max(1, min(STEP, int(self.rate)))
            if self.most is not None:
                size = min(size, self.most - found.done)
            if size <= 0:
                return
            after = {"after": found.after} if found.after else {}
            reply = session.operate(self.operation, **{**arguments, **after, "limit": size})
            found.add(reply)
            yield reply
            if self.rate is not None and not dry_run and found.more:
                early = found.done / self.rate - (session.clock() - began)
                if early > 0:
                    session.sleep(early)


def carry_on(session: Session, work: Work, *, dry_run: bool, yes: bool, output: str) -> int:
    """
    Plan, ask, and go on step by step until all is done or somebody stops it.

    Args:
        session: Where.
        work: What.
        dry_run: Only say what would happen.
        yes: Ask nobody.
        output: How it is told.

    Returns:
        The exit status.
    """
    plan = Sum(after=work.arguments.pop("after", ""))
    begin = plan.after
    total: int | None = None
    if dry_run or not yes:
        for _ in work.steps(session, plan, dry_run=True):
            pass
        total = plan.done
        what = f"{counted(plan.done, work.noun)} of {work.name} will be {work.words[0]}"
        if plan.loops:
            what += f"; {plan.loops} of them came back or went in circles before"
        if dry_run:
            return _tell(work, plan, output, what.replace("will be", "would be"), dry_run=True)
        if not (plan.done or plan.failed):
            return _tell(work, plan, output, f"nothing of {work.name} fits", dry_run=False)
        confirm(work.name, what, yes=False)
    found = Sum(after=begin)
    try:
        with progress(work.words[1], total) as advance:
            for reply in work.steps(session, found, dry_run=False):
                advance(reply["done"], f"{found.done} {work.words[0]}, {len(found.failed)} stay")
    except KeyboardInterrupt:
        _stopped(work, found)
        raise Exit(INTERRUPTED) from None
    what = f"{counted(found.done, work.noun)} of {work.name} {were(found.done)} "
    return _tell(work, found, output, f"{what}{work.words[0]}", dry_run=False)


def were(number: int) -> str:
    """Write the verb for so many."""
    return "was" if number == 1 else "were"


def _stopped(work: Work, found: Sum) -> None:
    """Say where it stands."""
    on = f" --after {found.after}" if found.after else ""
    note(
        f"stopped after {counted(found.steps, 'step')}: {counted(found.done, work.noun)} "
        f"{were(found.done)} {work.words[0]}, and perhaps those of the step under way; "
        f"all others {work.others}, and nothing is lost. "
        f"To go on: the same command again{on and f', or with{on}'}"
    )


def _tell(work: Work, found: Sum, output: str, sentence: str, *, dry_run: bool) -> int:
    """Tell what was done, and why some stay; return the exit status."""
    told = found.told(dry_run=dry_run)
    if output in {"json", "ndjson"}:
        write_json(told, indent=2 if output == "json" else None)
    else:
        click.echo(sentence)
    reasons = Counter(row["why"] for row in found.failed)
    for why, count in reasons.most_common(_MOST_REASONS):
        note(f"{counted(count, work.noun)} {'stays' if count == 1 else 'stay'}: {why}")
    if found.loops and not dry_run:
        note(f"{counted(found.loops, 'message')} came back or went in circles before")
    tell_silent(told)
    return REFUSED if found.failed else 0
