"""Records that come later or do not live for ever, from the producer to a puppet broker."""

from __future__ import annotations

import pytest

from tests.client.puppet import APPENDED_MS
from tests.client.test_producer_core import Sender, produced
from tinymq.client.core.results import Delayed, PartlySent, Sent
from tinymq.errors import NotLeader, OutOfOrderSequence, Unroutable, UsageError, WireError
from tinymq.wire.header import MessageType
from tinymq.wire.messages import Message, Produce
from tinymq.wire.records import RecordBatch

AT = 1_900_000_000_000


def waiting(sender: Sender, partition: int = 0, topic: str = "t") -> list[RecordBatch]:
    """Read what waits at the broker."""
    return [RecordBatch(data) for data in sender.net.puppet.topics[topic].delays[partition].batches]


def test_delayed_records_have_a_way_of_their_own() -> None:
    """One turn is one batch of what comes now, and one of what comes later."""
    sender = Sender()
    sender.send(b"now")
    sender.send(b"soon", delay=1.5)
    sender.send(b"then", at=AT, key="k", ttl=5)
    sender.send(b"also now", ttl=2)
    sender.go()
    (batch,) = waiting(sender)

    assert sender.values() == [b"now", b"also now"]
    assert (batch.values, batch.dues, batch.keys) == ([b"soon", b"then"], [-1500, AT], [None, b"k"])
    assert batch.ttls == [None, 5000]
    assert sender.stored == [(b"now", 0, 0), (b"also now", 0, 1)]
    assert sender.delayed == [
        (b"soon", Delayed("t", 0, 0, APPENDED_MS + 1500)),
        (b"then", Delayed("t", 0, 1, AT)),
    ]
    assert [str(told) for _, told in sender.delayed] == ["t/0~0", "t/0~1"]
    assert len(produced(sender)) == 2
    sender.check()


def test_a_record_without_times_joins_one_with() -> None:
    """Records with a time to live and without share a batch."""
    sender = Sender()
    for ttl in (None, 1, None):
        sender.send(b"x", ttl=ttl)
    sender.go()
    (data,) = sender.net.puppet.topics["t"].logs[0].batches

    assert RecordBatch(data).ttls == [None, 1000, None]


def test_delays_count_from_the_call() -> None:
    """What waits in the producer is taken off; each record counts from its own call."""
    sender = Sender(linger_ms=400)
    sender.send(b"a", delay=1)
    sender.net.advance(0.25)
    sender.send(b"b", delay=1)
    sender.send(b"c", delay=0.001)
    sender.net.advance(0.2)
    (batch,) = waiting(sender)

    first, second, third = batch.dues
    assert -750 <= first <= -550
    assert second == first - 250
    assert third == min(0, second + 999)


def test_delays_count_while_the_topic_is_looked_up() -> None:
    """A topic that has to be asked for makes nothing later."""
    sender = Sender(topics=())
    known_at = sender.net.now + 3
    sender.net.puppet.refuse = lambda request: NotLeader() if sender.net.now < known_at else None
    sender.send(b"a", delay=10)
    sender.send_many([b"b", b"c"], delay=[10, 1])
    sender.go()
    sender.net.advance(5)
    dues = [due for number in range(8) for batch in waiting(sender, number) for due in batch.dues]

    assert len(dues) == 3
    assert all(-7000 <= due <= 0 for due in dues)


def test_a_batch_of_both() -> None:
    """Of one call some may come at once and some later; the result tells both."""
    sender = Sender()
    sender.send_many([b"a", b"b", b"c"], delay=[0, 5, None], ttl=60)
    sender.send_many([b"d", b"e"], at=AT)
    sender.go()
    both, late = [group.result() for group in sender.groups]
    first, second = waiting(sender)

    assert both == Sent(3, [(0, 0, 2)], delayed=[(0, 0, 1)])
    assert late == Sent(2, [], delayed=[(0, 1, 2)])
    assert repr(both) == "<Sent 3 records, 0@0..1, 0~0..0>"
    assert sender.values() == [b"a", b"c"]
    assert (first.values, first.dues, first.ttls) == ([b"b"], [-5000], [60_000])
    assert (second.values, second.dues, second.ttls) == ([b"d", b"e"], [AT, AT], [None, None])
    sender.check()


def test_a_delayed_batch_by_key_and_cut() -> None:
    """Times stay with their records when these are divided over partitions and batches."""
    sender = Sender(topics=[("t", 3)], batch_bytes=1000)
    values = [b"%03d" % number + bytes(90) for number in range(60)]
    sender.send_many(
        values,
        keys=[f"k{number % 7}" for number in range(60)],
        at=[AT + number for number in range(60)],
        ttl=[1 + number for number in range(60)],
    )
    sender.go()
    found = [
        (value[:3], due - AT, ttl)
        for partition in range(3)
        for batch in waiting(sender, partition)
        for value, due, ttl in zip(batch.values, batch.dues, batch.ttls, strict=True)
        if value is not None
    ]

    assert sorted(found) == [(b"%03d" % n, n, 1000 + 1000 * n) for n in range(60)]
    assert sum(len(waiting(sender, number)) for number in range(3)) > 3


def test_nothing_of_a_wrong_call_is_taken() -> None:
    """A wrong time among many refuses the call, and leaves nothing behind."""
    sender = Sender()
    with pytest.raises(UsageError, match="as many of at"):
        sender.send_many([b"a", b"b"], at=[AT])
    with pytest.raises(UsageError):
        sender.send_many([b"a", b"b"], delay=[1, "2"])
    sender.check()


def test_a_written_batch_that_is_repeated() -> None:
    """An attempt that failed makes a delay no longer, and the record waits once."""
    sender = Sender()
    refusals: list[WireError] = [NotLeader(), NotLeader()]

    def refuse(request: Message) -> WireError | None:
        return refusals.pop() if isinstance(request, Produce) and refusals else None

    sender.net.puppet.refuse = refuse
    sender.send(b"a", delay=100)
    sender.go()
    sender.net.advance(20)
    (batch,) = waiting(sender)

    assert -99_990 <= batch.dues[0] <= -80_000
    assert len(sender.delayed) == 1
    sender.check()


def test_an_answer_that_is_lost() -> None:
    """A repeated batch waits once; when it comes is not known then."""
    sender = Sender()
    sender.net.puppet.mute = {MessageType.PRODUCE}
    sender.send(b"a", delay=100)
    sender.send(b"b")
    sender.go()
    sender.net.puppet.mute = set()
    sender.net.cut()
    sender.net.advance(5)

    assert [batch.values for batch in waiting(sender)] == [[b"a"]]
    assert sender.values() == [b"b"]
    assert sender.delayed == [(b"a", Delayed("t", 0, 0, None))]
    sender.check()


def test_sequences_are_counted_apart() -> None:
    """What comes now and what comes later are both in order for the broker."""
    sender = Sender()
    for number in range(6):
        sender.send(b"%d" % number, delay=number % 2)
        sender.go()
    logs = sender.net.puppet.topics["t"]

    assert [header.base_sequence for header in logs.logs[0].headers] == [0, 1, 2]
    assert [header.base_sequence for header in logs.delays[0].headers] == [0, 1, 2]
    assert not [error for _, error in sender.failed if isinstance(error, OutOfOrderSequence)]


def test_nobody_confirms() -> None:
    """Without answers a delayed record has no id, and still goes."""
    sender = Sender(acks="none")
    sender.send(b"a", at=AT)
    sender.go()

    assert sender.delayed == [(b"a", Delayed("t", 0, -1, AT))]
    assert [batch.values for batch in waiting(sender)] == [[b"a"]]


def test_unroutable() -> None:
    """Records that no binding takes fail, and say where they are stored; the others do not."""
    sender = Sender()
    sender.net.puppet.unroutable = b"\x05"
    for value in (b"a", b"b", b"c"):
        sender.send(value)
    sender.go()
    wrong = [error for _, error in sender.failed]

    assert [token for token, _ in sender.failed] == [b"a", b"c"]
    assert all(isinstance(error, Unroutable) for error in wrong)
    assert wrong[1].data == {"exchange": "t", "topic": "t", "partition": 0, "offset": 2}
    assert sender.stored == [(b"b", 0, 1)]
    account = sender.core.ledger.account
    assert (account.sent, account.failed_count) == (1, 2)
    sender.check()


def test_unroutable_of_many() -> None:
    """Of one call the result tells what goes nowhere, also when that is all."""
    sender = Sender()
    sender.net.puppet.unroutable = b"\x02"
    sender.send_many([b"a", b"b", b"c"])
    sender.send_many([b"d"])
    sender.net.pump()
    sender.net.puppet.unroutable = b"\x01"
    sender.send_many([b"e"])
    sender.go()
    some, none, alone = sender.groups

    with pytest.raises(PartlySent, match="no binding of exchange t") as caught:
        some.result()
    assert caught.value.sent == Sent(2, [(0, 0, 1), (0, 2, 1)])
    assert [failed.value for failed in caught.value.failed] == [b"b"]
    assert none.result().count == 1
    with pytest.raises(Unroutable):
        alone.result()


@pytest.mark.parametrize(
    ("text", "expected"),
    [("orders/0~17", Delayed("orders", 0, 17)), ("a/b/12~0", Delayed("a/b", 12, 0))],
)
def test_places_are_read(text: str, expected: Delayed) -> None:
    """The place of a delayed message is text, there and back."""
    assert Delayed.parse(text) == expected
    assert str(expected) == text


@pytest.mark.parametrize("text", ["", "orders", "orders/0@17", "orders/-1~2", "/0~1", "o/0~1 "])
def test_what_is_no_place(text: str) -> None:
    """Anything else is refused with an example."""
    with pytest.raises(UsageError, match="orders/0~17"):
        Delayed.parse(text)
