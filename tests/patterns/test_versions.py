"""Only newer versions, and all of them in order."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from typing_extensions import override

from tests.patterns.conftest import Base
from tests.patterns.messages import KINDS, GroupMessage, Message, run, version
from tinymq.client.core.handling import Reject, Requeue
from tinymq.errors import UsageError
from tinymq.patterns.idempotence import (
    Gap,
    InOrder,
    MemoryVersions,
    OrderConfig,
    SeenStore,
    TableVersions,
    VersionGuard,
)
from tinymq.patterns.idempotence.calling import Handler
from tinymq.patterns.idempotence.versions import Versions


def table(base: Base, guard: str = "g") -> TableVersions:
    """Return versions in a table."""
    versions = TableVersions(base.connect, base.dialect, guard)
    with closing(base.connect()) as connection:
        versions.create(connection)
        connection.execute("CREATE TABLE IF NOT EXISTS work (value VARCHAR(9))")
        connection.commit()
    return versions


def work_of(base: Base) -> list[str]:
    """Return the work that was committed."""
    with closing(base.connect()) as connection:
        return [row[0] for row in connection.execute("SELECT value FROM work").fetchall()]


def do(message: Message, connection: Any) -> None:
    """Do the work of a message."""
    connection.execute(f"INSERT INTO work VALUES ('{message.offset}')")


# --- only newer ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("where", ["memory", "table"])
def test_only_newer(kind: Callable[[Handler], Handler], where: str, lite: Base) -> None:
    """What is older than the last of its key, or the same, is left alone."""
    done: list[tuple[bytes | None, int]] = []
    versions: Versions = MemoryVersions() if where == "memory" else table(lite)
    guard = VersionGuard(versions=versions)
    handler = guard.newest(kind(lambda message: done.append((message.key, message.offset))))
    for number in (1, 3, 2, 3, 4):
        run(handler, version(number))
    run(handler, version(1, b"other"))

    assert done == [(b"k", 1), (b"k", 3), (b"k", 4), (b"other", 1)]
    assert guard.old == 2


def test_a_failed_version_is_no_version(lite: Base) -> None:
    """What the handler could not do may be done later, unless a newer one came."""
    done: list[int] = []

    def work(message: Message) -> None:
        if message.attempt == 1:
            raise ZeroDivisionError
        done.append(message.offset)

    handler = VersionGuard(versions=table(lite)).newest(work)
    with pytest.raises(ZeroDivisionError):
        handler(version(1))
    again = version(1)
    again.attempt = 2
    handler(again)

    assert done == [1]


def test_versions_of_a_key_do_not_overtake(lite: Base) -> None:
    """While one is at work another one of its key is put off, one of another key is not."""
    gate: Deferred[None] = Deferred()
    handler = VersionGuard().newest(lambda message: gate)
    first = handler(version(1))
    with pytest.raises(Requeue) as put_off:
        handler(version(2))
    other = handler(version(1, b"other"))
    gate.callback(None)

    assert not put_off.value.failure
    assert [run(partial(_same, each)) for each in (first, other)] == [None, None]


@pytest.mark.parametrize("kind", KINDS)
def test_newer_in_a_transaction(base: Base, kind: Callable[[Handler], Handler]) -> None:
    """Version and work are committed together, also when two look at the same time."""
    failing = [True]

    def work(message: Message, connection: Any) -> None:
        do(message, connection)
        if message.offset == 2 and failing:
            failing.clear()
            raise ZeroDivisionError

    guard = VersionGuard(versions=table(base))
    handler = guard.newest_in_transaction(kind(work))
    run(handler, version(1))
    with pytest.raises(ZeroDivisionError):
        run(handler, version(2))
    assert work_of(base) == ["1"]
    for number in (2, 1, 2):
        run(handler, version(number))

    assert (work_of(base), guard.old) == (["1", "2"], 2)
    with pytest.raises(UsageError, match="in a table"):
        VersionGuard().newest_in_transaction(do)
    guard.versions.close()  # type: ignore[attr-defined]


def test_two_at_once(base: Base) -> None:
    """Of two processes with the same versions one does each of them."""
    barrier = threading.Barrier(2, timeout=20)
    versions = [table(base) for _ in range(2)]

    def consume(mine: TableVersions) -> None:
        handler = VersionGuard(versions=mine).newest_in_transaction(do)
        for number in range(10):
            barrier.wait()
            handler(version(number))

    threads = [threading.Thread(target=consume, args=[each]) for each in versions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for each in versions:
        each.close()

    assert work_of(base) == [str(number) for number in range(10)]


def test_within_the_transaction_of_another_guard(lite: Base) -> None:
    """Guards on top of each other share a transaction, in which all of it stands or falls."""
    seen = SeenStore(lite.connect, lite.dialect, "c")
    with closing(lite.connect()) as connection:
        seen.create(connection)
        connection.commit()
    guard = VersionGuard(versions=table(lite))
    failing = [True]

    @seen.in_transaction
    @guard.newest
    def work(message: Message, connection: Any) -> None:
        do(message, connection)
        if failing:
            failing.clear()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work(version(2))
    for number in (2, 2, 1, 3):
        work(version(number))

    assert work_of(lite) == ["2", "3"]
    assert (seen.repeats, guard.old) == (1, 1)
    seen.close()


def test_memory_is_bounded() -> None:
    """Of too many keys those that were not seen for longest are forgotten."""
    versions = MemoryVersions(most=2)
    for key in ("a", "b", "a", "c"):
        versions.raise_to(key, 1)

    assert [versions.last(key) for key in ("a", "b", "c")] == [1, None, 1]


@given(numbers=st.lists(st.integers(-3, 9), max_size=30))
def test_random_versions(numbers: list[int]) -> None:
    """Whatever comes, what is handled rises, and ends with the highest."""
    done: list[int] = []
    handler = VersionGuard().newest(lambda message: done.append(message.offset))
    for number in numbers:
        handler(version(number))

    assert done == sorted({*done})
    assert not numbers or done[-1] == max(numbers)


# --- in order --------------------------------------------------------------------------


def _same(found: Any) -> Any:
    return found


class Line:
    """A handler that is given versions in order."""

    def __init__(
        self,
        kind: Callable[[Handler], Handler] = KINDS[0],
        versions: Versions | None = None,
        **settings: Any,
    ) -> None:
        self.time = 0.0
        self.done: list[int] = []
        self.errors: dict[int, Exception] = {}
        self.versions = versions or MemoryVersions()
        self.handler: InOrder = VersionGuard(versions=self.versions).in_order(
            kind(self.work), OrderConfig(clock=lambda: self.time, **settings)
        )

    def work(self, message: Message) -> None:
        """Work, or fail as ordered, once."""
        error = self.errors.pop(message.offset, None)
        if error is not None:
            raise error
        self.done.append(message.offset)

    def come(self, *numbers: int, key: bytes = b"k") -> list[Message]:
        """Let versions come."""
        messages = [version(number, key) for number in numbers]
        for message in messages:
            run(self.handler, message)
        return messages


def fates(messages: list[Message]) -> list[str]:
    """Tell what became of messages."""
    return [message.fate for message in messages]


@pytest.mark.parametrize("kind", KINDS)
def test_early_ones_wait(kind: Callable[[Handler], Handler]) -> None:
    """A version that comes before those that precede it is held, and handled behind them."""
    line = Line(kind)
    early = line.come(3, 2, 5)
    assert (line.done, fates(early), line.handler.held) == ([], ["", "", ""], 3)

    first = line.come(1, 4)
    assert line.done == [1, 2, 3, 4, 5]
    assert {*fates(early + first)} == {"finished"}
    assert (line.handler.held, line.handler.old) == (0, 0)


def test_keys_do_not_wait_for_each_other() -> None:
    """A gap in one key holds up no other."""
    line = Line()
    line.come(2)
    line.come(1, 2, key=b"other")

    assert line.done == [1, 2]


def test_repeats_are_finished() -> None:
    """What was handled, or is held already, is finished without the handler."""
    line = Line()
    line.come(1)
    (again,) = line.come(1)
    held, once_more = line.come(3), version(3)
    once_more.offset = 33
    line.handler(once_more)

    assert (again.fate, held[0].fate, once_more.fate) == ("finished", "", "finished")
    assert (line.done, line.handler.old) == ([1], 2)


def test_a_process_goes_on_where_another_one_ended(lite: Base) -> None:
    """With versions in a table a new process holds and hands out as the old one did; what the
    old one held comes again.
    """
    Line(versions=table(lite)).come(1, 2, 4)
    line = Line(versions=table(lite))
    line.come(5, 2, 4, 3)

    assert line.done == [3, 4, 5]


def test_the_first_that_comes() -> None:
    """Where it is not known with what a key begins, the first to come is the first."""
    line = Line(first=None)
    line.come(57, 59, 58)

    assert line.done == [57, 58, 59]


@pytest.mark.parametrize("kind", KINDS)
def test_a_gap_for_too_long(kind: Callable[[Handler], Handler]) -> None:
    """Held messages are rejected in the end, with the reason, and nobody waits for ever."""
    line = Line(kind, wait_s=10)
    held = line.come(3, 4)
    line.time = 9.9
    run(line.handler.expire)
    assert fates(held) == ["", ""]

    line.time = 10
    run(line.handler.expire)
    assert fates(held) == ["rejected", "rejected"]
    assert held[1].reason == "version 4 of k has waited for 1 in vain"
    assert (line.handler.given_up, line.handler.held) == (2, 0)
    line.come(1)
    assert line.done == [1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_gap_is_skipped(kind: Callable[[Handler], Handler]) -> None:
    """Where that is wanted, held messages are handled without those that are missing; these
    are too old when they come.
    """
    line = Line(kind, wait_s=10, gap="skip")
    held = line.come(3, 4, 6)
    line.time = 11
    (late,) = line.come(1, key=b"other")
    assert (line.done, late.fate) == ([3, 4, 1], "finished")

    line.come(5)
    (missing,) = line.come(2)
    assert line.done == [3, 4, 1, 5, 6]
    assert (missing.fate, line.handler.skipped, {*fates(held)}) == ("finished", 1, {"finished"})


def test_a_gap_is_judged() -> None:
    """A function of the program's own sees what is missing, and says what becomes of it."""
    seen: list[Gap] = []

    def judge(gap: Gap) -> Any:
        seen.append(gap)
        return "skip" if gap.key == "k" else "reject"

    line = Line(wait_s=10, gap=judge)
    mine, other = line.come(3), line.come(2, key=b"other")
    line.time = 10
    line.handler.expire()

    assert [(gap.key, gap.expected, len(gap.messages)) for gap in seen] == [
        ("k", 1, 1),
        ("other", 1, 1),
    ]
    assert fates(mine + other) == ["finished", "rejected"]


def test_too_many() -> None:
    """When more are held than may be, the key that waits longest is given up."""
    line = Line(most=3)
    oldest = line.come(5, 6)
    line.time = 1
    younger = line.come(5, 6, key=b"younger")

    assert fates(oldest + younger) == ["rejected", "rejected", "", ""]


@pytest.mark.parametrize("kind", KINDS)
def test_a_failure_stops_the_line(kind: Callable[[Handler], Handler]) -> None:
    """What fails comes again, and what is behind it waits for that; a rejected one is passed."""
    line = Line(kind)
    line.errors = {1: ZeroDivisionError(), 3: Requeue(5), 4: ZeroDivisionError()}
    two, three, four, five = line.come(2, 3, 4, 5)
    with pytest.raises(ZeroDivisionError):
        line.come(1)
    assert (line.done, two.fate) == ([], "")

    line.come(1)
    assert line.done == [1, 2]
    assert (two.fate, three.fate, four.fate) == ("finished", "requeued", "")
    line.come(3)
    assert (line.done, four.fate, five.fate) == ([1, 2, 3], "requeued", "")
    assert four.reason == "ZeroDivisionError: "
    line.errors = {4: Reject("no")}
    with pytest.raises(Reject):
        line.come(4)
    assert (line.done, five.fate) == ([1, 2, 3, 5], "finished")


def test_a_lost_message_is_forgotten() -> None:
    """A held message whose lease is lost comes again, and is handled then."""
    line = Line()
    (two,) = line.come(2)
    two.lose()
    assert line.handler.held == 0

    line.come(1)
    assert line.done == [1]
    line.come(2)
    assert line.done == [1, 2]


def test_lost_while_it_is_handled() -> None:
    """What was done is done, also when its message was lost meanwhile and comes again."""
    line = Line()
    message = version(1)

    def slow(message: Message) -> None:
        message.lose()
        line.work(message)

    line.handler._handler = slow
    line.handler(message)
    (again,) = line.come(1)

    assert (line.done, again.fate) == ([1], "finished")


def test_who_forgets_manual_hears_of_it() -> None:
    """Messages that the subscription settles while they are held would be lost in a crash."""
    line = Line()
    for message in line.come(2):
        message.finish()
    with pytest.raises(UsageError, match="manual=True"):
        line.come(3)


def test_a_handler_at_work_is_not_overtaken() -> None:
    """What comes while a version of its key is at work waits, and follows by itself."""
    gates = [Deferred[None](), Deferred[None]()]
    started: list[int] = []

    def work(message: Message) -> Deferred[None]:
        started.append(message.offset)
        return gates[message.offset - 1]

    handler = VersionGuard().in_order(work)
    first = handler(version(1))
    two, one_again = version(2), version(1)
    assert handler(two) is None
    assert handler(one_again) is None
    assert started == [1]

    gates[0].callback(None)
    assert (started, two.fate, one_again.fate) == ([1, 2], "", "finished")
    gates[1].callback(None)
    assert (two.fate, handler.held) == ("finished", 0)
    assert run(lambda: first) is None


def test_cancelled_at_work() -> None:
    """A version whose handler was cancelled comes again; what waited behind it is given back
    or still held, and in order then.
    """
    done: list[int] = []
    hanging = [True]
    started = asyncio.Event()

    async def work(message: Message) -> None:
        if message.offset == 2 and hanging:
            hanging.clear()
            started.set()
            await asyncio.Event().wait()
        done.append(message.offset)

    async def scene() -> None:
        handler = VersionGuard().in_order(work)
        two, three = version(2), version(3)
        await handler(two)
        await handler(three)
        task = asyncio.create_task(handler(version(1)))
        await started.wait()
        task.cancel()
        await asyncio.wait([task])
        assert (two.fate, three.fate) == ("given back", "")
        never = handler(version(2))
        never.close()
        await handler(version(2))

    asyncio.run(scene())
    assert done == [1, 2, 3]


@pytest.mark.parametrize("kind", KINDS)
def test_messages_of_a_group(kind: Callable[[Handler], Handler]) -> None:
    """A group's messages are held and said to be done; what fails on its turn is an error of
    the call, stays held, and is tried again with the next one.
    """
    line = Line(kind, gap="skip", wait_s=10)
    line.errors = {2: ZeroDivisionError()}
    one, two, three = [GroupMessage(version(number)) for number in (1, 2, 3)]
    for message in (three, two):
        run(line.handler, message)
    with pytest.raises(ZeroDivisionError):
        run(line.handler, one)
    assert (line.done, one.is_done, two.is_done) == ([1], True, False)

    again = GroupMessage(version(1))
    run(line.handler, again)
    assert line.done == [1, 2, 3]
    assert all(message.is_done for message in (two, three, again))


def test_a_group_has_no_dead_letters() -> None:
    """What is given up there must be somebody's business, which is said at once."""
    with pytest.raises(UsageError, match="gap="):
        Line().handler(GroupMessage(version(2)))
    line = Line(gap=lambda gap: "reject", wait_s=10)
    held = GroupMessage(version(2))
    line.handler(held)
    line.time = 10
    line.handler.expire()
    assert held.is_done


def test_delivered_again_while_it_is_held() -> None:
    """The newer delivery takes the place of the older one, whose lease is lost."""
    line = Line()
    old, new = line.come(2, 2)
    assert (old.fate, new.fate) == ("", "")
    old.lose()
    assert line.handler.held == 1
    line.come(1)
    assert (line.done, new.fate) == ([1, 2], "finished")


def test_a_version_that_cannot_be_noted(lite: Base) -> None:
    """When the database is away after the work, the message is not finished, but comes again."""
    line = Line(versions=table(lite))
    broken = [True]
    note = line.versions.raise_to

    def raise_to(*arguments: Any) -> bool:
        if broken:
            broken.clear()
            raise OSError("away")
        return note(*arguments)

    line.versions.raise_to = raise_to  # type: ignore[method-assign, assignment]
    message = version(1)
    with pytest.raises(OSError, match="away"):
        line.handler(message)
    assert message.fate == ""
    line.come(1)
    assert line.done == [1, 1]


class Away(MemoryVersions):
    """Versions in a database that does not answer about one key."""

    key = ""

    @override
    def last(self, key: str, connection: Any = None) -> int | None:
        """Tell the last version of another key."""
        if key == self.key:
            raise OSError("away")
        return super().last(key)


@pytest.mark.parametrize("kind", KINDS)
def test_a_turn_that_does_not_come(kind: Callable[[Handler], Handler]) -> None:
    """What was to go on beside a message that fails at once comes again, and its key goes on."""
    versions = Away()
    line = Line(kind, versions, wait_s=10, gap="skip")
    (held,) = line.come(3)
    line.time, versions.key = 11, "other"
    with pytest.raises(OSError, match="away"):
        line.come(1, key=b"other")
    assert (held.fate, line.done, line.handler.held) == ("given back", [], 0)

    line.come(3)
    line.time = 22
    run(lambda _: line.handler.expire(), None)
    assert line.done == [3]


def test_an_early_one_that_fails_is_not_held() -> None:
    """A message whose caller is told of an error is settled by it, and stands in nobody's way."""
    versions = Away()
    line = Line(versions=versions, most=1)
    line.come(5, key=b"a")
    versions.key = "a"
    early = version(5, key=b"b")
    with pytest.raises(OSError, match="away"):
        line.handler(early)
    early.requeue()
    versions.key = ""

    line.come(1, key=b"b")
    assert (line.done, line.handler.held) == ([1], 1)


def test_one_that_cannot_be_finished() -> None:
    """When a message cannot be settled, the one behind it is not kept for ever."""
    line = Line()
    (early,) = line.come(2)
    first = version(1)

    def finish() -> None:
        raise OSError("away")

    first.finish = finish  # type: ignore[method-assign]
    with pytest.raises(OSError, match="away"):
        line.handler(first)
    assert early.fate == "given back"
    line.come(2)
    assert line.done == [1, 2]


@given(data=st.data())
def test_random_order(data: st.DataObject) -> None:
    """In whatever order versions come, with repeats, failures and losses, each is handled
    once and in order, and nothing is left.
    """
    count = data.draw(st.integers(1, 8))
    line = Line()
    coming = data.draw(st.permutations([*range(1, count + 1)] * 2))
    line.errors = {
        number: data.draw(st.sampled_from([Requeue(), ZeroDivisionError()]))
        for number in data.draw(st.sets(st.integers(1, count)))
    }
    sent: list[Message] = []
    queue = [version(number) for number in coming]
    for place, message in enumerate(queue):
        message.partition = place  # each is a message of its own
    for _ in range(20 * count):
        if not queue:
            break
        message = queue.pop(0)
        sent.append(message)
        try:
            line.handler(message)
        except (Requeue, ZeroDivisionError):
            message.requeue()
        if data.draw(st.integers(0, 9)) == 0:
            for held in [each for each in sent if each.held][:1]:
                held.lose()
        again = [each for each in sent if each.fate == "requeued" or each.is_lost]
        sent = [each for each in sent if each not in again]
        queue += [each.again() for each in again]

    assert line.done == [*range(1, count + 1)]
    assert {each.fate for each in sent} == {"finished"}
    assert line.handler.held == 0


@pytest.mark.parametrize("settings", [{"most": 0}, {"wait_s": 0}])
def test_settings_are_checked(settings: dict[str, Any]) -> None:
    """Nothing can be held for no time."""
    with pytest.raises(UsageError):
        OrderConfig(**settings)
