"""What has gone wrong in other brokers' queues, and must not here."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from random import Random

import pytest

from tests.fakes.broker import BrokerFixture, batch
from tests.fakes.taking import Taken, Taker
from tinymq.wire.batch import split
from tinymq.wire.records import RecordBatch

Policy = dict[str, str | int | list[str] | tuple[str, ...] | None]


@pytest.fixture(name="broker")
def fixture_broker(tmp_path: Path) -> BrokerFixture:
    """A broker with one topic of one partition."""
    broker = BrokerFixture(tmp_path)
    broker.topic()
    return broker


def letters(broker: BrokerFixture, topic: str = "t.c.dead") -> list[dict[str, bytes]]:
    """The headers of all dead letters."""
    log = broker.partition(topic).log
    chunk = log.read(0, 1 << 20, log.end_offset)
    assert chunk is not None
    return [
        dict(headers)
        for header, data in split(chunk.data)
        for headers in RecordBatch(data, header).headers
    ]


def test_a_handler_that_is_always_too_slow_ends_as_a_dead_letter(broker: BrokerFixture) -> None:
    """After as many time-outs as there may be failures, with that as the reason."""
    policy: Policy = {"attempts": 3, "lease.ms": 1000, "backoff": ["0s"]}
    broker.meta.create_channel("t", "c", policy)
    broker.produce(b"slow")
    taker = Taker(broker)
    taker.subscribe()
    for _ in range(10):
        taker.run(2)
    attempts = [each.attempt for each in taker.take()]
    (told,) = letters(broker)

    assert attempts == [1, 2, 3]
    assert broker.values("t.c.dead") == [b"slow"]
    assert (told["tinymq-reason"], told["tinymq-failures"]) == (b"timeout", b"3")


def test_whose_lease_is_over_is_told_and_the_next_holder_counts(broker: BrokerFixture) -> None:
    """The late settle is refused, and hits nothing; that of the other consumer is taken."""
    policy: Policy = {"lease.ms": 1000, "backoff": ["0s"]}
    broker.meta.create_channel("t", "c", policy)
    broker.produce(b"a")
    slow, quick = Taker(broker), Taker(broker)
    slow.subscribe(credit=1)
    (first,) = slow.take()
    quick.subscribe(credit=1)
    slow.run(1.5)
    quick.run()
    told = list(slow.lost)
    (second,) = quick.take()
    late = slow.finish(first)
    done = quick.finish(second)
    quick.run(60)

    assert [row[1] for row in told] == [first.lease]
    assert (late.done, len(late.late)) == (0, 1)
    assert (done.done, done.late) == (1, [])
    assert slow.take() + quick.take() == []


def test_what_names_a_message_is_never_the_same_twice(broker: BrokerFixture) -> None:
    """Neither offsets nor leases of eight producers' messages, over a kill and a stop."""
    ids: list[tuple[int, int]] = []
    settled: list[tuple[int, int]] = []
    for life in range(3):
        producers = [broker.new_producer() for _ in range(8)]
        for number in range(5):
            for each in producers:
                producer = (each.producer_id, each.epoch, number)
                broker.stage(b"%d" % life, producer=producer)
            broker.turn()
        taker = Taker(broker)
        taker.subscribe()
        taken = taker.take()
        ids += [(each.offset, each.lease << 64 | each.offset - each.base) for each in taken]
        finished = taken[::2]
        taker.finish(*finished)
        settled += [(each.offset, life) for each in finished]
        if life == 0:
            broker.kill()
        else:
            broker.stop()
        broker = broker.again()
    last = Taker(broker)
    last.subscribe(credit=1000)
    last.run(30)
    left = {each.offset for each in last.take()}

    assert len({name for _, name in ids}) == len(ids)
    assert len({offset for offset, _ in settled}) == len(settled)
    assert left == set(range(120)) - {offset for offset, _ in settled}


def test_a_message_that_comes_again_stays_in_front(broker: BrokerFixture) -> None:
    """In a channel that keeps the order, what failed once comes before what was behind it."""
    broker.meta.create_channel("t", "c", {"order": "strict", "backoff": ["0s"]})
    broker.produce(*(b"%d" % number for number in range(1, 9)))
    taker = Taker(broker)
    taker.subscribe(credit=8)
    first = taker.take()[0]
    taker.requeue(first)
    taker.credit(16)
    again = taker.values

    assert again == [b"%d" % number for number in range(1, 9)]


def test_the_order_is_the_same_after_a_consumer_has_died(broker: BrokerFixture) -> None:
    """What it held comes to the next one in its order, one by one."""
    broker.produce(*(b"%d" % number for number in range(1, 9)))
    dying = Taker(broker)
    dying.subscribe(credit=5)
    held = dying.values
    dying.connection.lose()
    other = Taker(broker)
    other.subscribe(credit=0)
    other.run(15)
    order: list[bytes | None] = []
    for granted in range(1, 9):
        other.credit(granted)
        taken = other.take()
        order += [each.value for each in taken]
        other.finish(*taken)

    assert held == [b"%d" % number for number in range(1, 6)]
    assert sorted(order, key=str) == [b"%d" % number for number in range(1, 9)]
    assert [value for value in order if value in held] == held


def test_without_a_word_the_number_of_attempts_is_bounded(broker: BrokerFixture) -> None:
    """The bound has a default, which is shown; beyond it a message comes no more."""
    broker.produce(b"bad")
    taker = Taker(broker)
    taker.subscribe()
    shown = broker.operate("channel.info", topic="t", name="c")["channel"]["config"]
    attempts = []
    for _ in range(20):
        taken = taker.take()
        attempts += [each.attempt for each in taken]
        taker.requeue(*taken)
        taker.run(900)

    assert shown["attempts"] == 10
    assert shown["dead.letter"] == ""
    assert attempts == [*range(1, 11)]
    assert broker.values("t.c.dead") == [b"bad"]


class Crew:
    """
    Consumers that come and go, of a channel that keeps the order of each of ten keys.

    Args:
        broker: The broker.
        chance: Decides what happens.
    """

    KEYS = 10

    def __init__(self, broker: BrokerFixture, chance: Random) -> None:
        self.broker = broker
        self.chance = chance
        self.hands: dict[Taker, dict[int, Taken]] = {}
        #: The numbers of each key in the order of their first deliveries.
        self.first: dict[int, list[int]] = defaultdict(list)
        self.published = 0
        self.done: set[int] = set()

    def join(self) -> None:
        """Let one more take messages."""
        taker = Taker(self.broker)
        taker.subscribe(credit=10_000)
        self.hands[taker] = {}

    def publish(self, total: int) -> None:
        """Publish some numbers."""
        numbers = range(self.published, min(self.published + 7, total))
        if numbers:
            keys = [b"%d" % (number % self.KEYS) for number in numbers]
            data = batch(*(b"%d" % number for number in numbers), keys=keys)
            topic = self.broker.meta.describe("t").id
            self.broker.broker.produce(topic, 0, data, lambda answer: None)
            self.published = numbers.stop

    def act(self) -> None:
        """Let one come, go, fail or finish."""
        taker = self.chance.choice(list(self.hands))
        held = self.hands[taker]
        some = [
            held.pop(number) for number in self.chance.sample(sorted(held), (len(held) + 1) // 2)
        ]
        # Of one key the first is done first.
        some.sort(key=lambda taken: taken.offset)
        act = self.chance.randrange(8)
        if act == 0 and len(self.hands) < 5:
            self.join()
        if act == 1 and len(self.hands) > 1:
            taker.unsubscribe()
            del self.hands[taker]
        elif act == 2 and some:
            taker.requeue(*some)
        elif some:
            taker.finish(*some)
            self.done |= {int(taken.value or b"") for taken in some}

    def hear(self) -> None:
        """Read what everybody lost and got."""
        for taker in self.hands:
            taker.run()
        for taker, held in self.hands.items():
            self._lose(taker, held)
        for taker, held in self.hands.items():
            for taken in taker.take():
                number = int(taken.value or b"")
                line = self.first[number % self.KEYS]
                if number not in line:
                    line.append(number)
                held[number] = taken

    @staticmethod
    def _lose(taker: Taker, held: dict[int, Taken]) -> None:
        lost = {(lease, int.from_bytes(bits, "little")) for _, lease, bits in taker.lost}
        taker.lost.clear()
        for number, taken in tuple(held.items()):
            gone = (bits for lease, bits in lost if lease == taken.lease)
            if any(bits >> taken.offset - taken.base & 1 for bits in gone):
                del held[number]

    def check(self) -> None:
        """See that nobody holds messages of a key that another holds messages of."""
        holders = [{number % self.KEYS for number in held} for held in self.hands.values()]
        assert sum(map(len, holders)) == len(set().union(*holders))


@pytest.mark.parametrize("seed", range(3))
def test_keys_keep_their_order_while_consumers_come_and_go(
    broker: BrokerFixture, seed: int
) -> None:
    """First deliveries of each key rise, and no two consumers hold messages of one key."""
    policy: Policy = {"order": "key", "backoff": ["0s"], "attempts": 1000}
    broker.meta.create_channel("t", "c", policy)
    crew = Crew(broker, Random(seed))
    crew.join()
    for _ in range(1000):
        crew.publish(100)
        crew.act()
        crew.hear()
        crew.check()
        if len(crew.done) == 100:
            break

    numbers = [number for line in crew.first.values() for number in line]
    assert len(crew.done) == 100
    assert sorted(numbers) == [*range(100)]
    assert all(line == sorted(line) for line in crew.first.values())
