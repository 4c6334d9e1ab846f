"""A lane stores each record once and in order, whatever happens on the way."""

from __future__ import annotations

import random
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from tests.client.puppet import PuppetLog
from tinymq.client.core.batches import Batch
from tinymq.client.core.lane import Lane
from tinymq.errors import (
    ConnectionLost,
    DeadlineExceeded,
    InvalidRequest,
    NotLeader,
    Overloaded,
    ProducerFenced,
    StorageFull,
    TinyMQError,
    UnknownProducer,
    UnknownTopic,
    UnknownTopicId,
    WireError,
)
from tinymq.wire.batch import SEQUENCE_MODULUS, Codec, sequence
from tinymq.wire.messages import ProduceReply

TOPIC = b"t" * 16


class FakeWay:
    """A producer with one lane, and a broker with one log behind a link that fails."""

    def __init__(self, *, window: int = 4, idempotent: bool = True) -> None:
        self.now = 0.0
        self.log = PuppetLog()
        self.lane = Lane("t", TOPIC, 0, self, window, idempotent=idempotent)
        self.flights: list[Batch] = []
        self.replies: list[tuple[Batch, ProduceReply | WireError]] = []
        self.stuck: list[list[bytes]] = []
        self.done: list[Batch] = []
        self.asked = 0
        self.located = 0
        self.refreshed = 0
        self.full = False
        self.producer_id = 0
        self.auto_identify = True

    def add(self, *values: bytes, deadline: float = 1e9) -> Batch:
        """Queue and drain one batch."""
        batch = Batch(list(values), deadline, 0)
        self.lane.add(batch)
        self.lane.drain(self.now)
        return batch

    # --- the lane's calls

    def fly(self, lane: Lane, batch: Batch, now: float) -> None:
        """Encode and keep a batch."""
        batch.encode(Codec.NONE, lane.identity, now)
        self.flights.append(batch)

    def clear(self, lane: Lane) -> bool:
        """Whether the link takes more."""
        return not self.full

    def settled(self, lane: Lane, batch: Batch) -> None:
        """Note the batch."""
        self.done.append(batch)

    def waits(self, lane: Lane) -> bool:
        """Nothing comes before it."""
        return False

    def identify(self, lane: Lane, now: float) -> None:
        """Answer at once, or not."""
        self.asked += 1
        if self.auto_identify:
            self.identified()

    def identified(self, error: TinyMQError | None = None) -> None:
        """Answer INIT_PRODUCER."""
        self.producer_id += 1
        identity = None if error else (self.producer_id, 0)
        self.lane.identified(identity, 64, error, self.now)

    def locate(self, lane: Lane, now: float) -> None:
        """Count."""
        self.located += 1

    def refresh(self, now: float) -> None:
        """Count."""
        self.refreshed += 1

    def delay(self, attempt: int) -> float:
        """As many seconds as failures."""
        return float(attempt)

    # --- the broker's side

    def store(self, batch: Batch) -> ProduceReply | WireError:
        """What the broker makes of a batch."""
        assert batch.data is not None
        try:
            offset, duplicate = self.log.append(batch.data)
        except WireError as error:
            return error
        return ProduceReply(base_offset=offset, timestamp=1, duplicate=duplicate)

    def answer(self, error: TinyMQError | None = None, at: int = 0) -> None:
        """Let one flight arrive, or refuse it."""
        batch = self.flights.pop(at)
        result = error or self.store(batch)
        if isinstance(result, TinyMQError):
            self.lane.answered(batch, None, result, self.now)
        else:
            self.lane.answered(batch, result, None, self.now)
        self.lane.check_invariants()

    def arrive(self) -> None:
        """Let one flight arrive; its answer is on the way."""
        batch = self.flights.pop(0)
        self.replies.append((batch, self.store(batch)))

    def hear(self, at: int) -> None:
        """Let one answer come, whatever their order."""
        batch, result = self.replies.pop(at)
        if isinstance(result, WireError):
            self.lane.answered(batch, None, result, self.now)
        else:
            self.lane.answered(batch, result, None, self.now)
        self.lane.check_invariants()

    def lose(self, *, arrived: int = 0, stuck: bool = False) -> None:
        """Lose the link after so many flights arrived; the others may be stuck in it."""
        flights, self.flights = self.flights, []
        replies, self.replies = self.replies, []
        for batch in flights[:arrived]:
            self.store(batch)
        if stuck:
            self.stuck.append([batch.data for batch in flights[arrived:] if batch.data])
        for batch in [*(batch for batch, _ in replies), *flights]:
            self.lane.answered(batch, None, ConnectionLost(), self.now)
        self.lane.check_invariants()

    def thaw(self, most: int, at: int = 0) -> None:
        """Let some of what is stuck in a lost link arrive, in its order."""
        for data in self.stuck[at][:most]:
            with suppress(WireError):
                self.log.append(data)
        del self.stuck[at][:most]

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
        self.lane.tick(self.now)
        self.lane.check_invariants()

    def settle(self) -> None:
        """Answer everything, with time passing, until nothing is left."""
        for _ in range(100):
            while self.flights or self.replies:
                if self.replies:
                    self.hear(0)
                else:
                    self.answer()
            if self.lane.idle:
                return
            self.advance(1000)
        raise AssertionError("the lane does not come to rest")


def test_window() -> None:
    """No more than a window flies, and each answer lets one follow."""
    way = FakeWay(window=2)
    for number in range(4):
        way.add(b"%d" % number)

    assert [len(way.flights), way.lane.queued] == [2, 2]
    way.answer()
    assert [len(way.flights), way.lane.queued] == [2, 1]
    way.settle()
    assert way.log.values() == [b"0", b"1", b"2", b"3"]
    assert [batch.base_offset for batch in way.done] == [0, 1, 2, 3]


def test_small_window_of_the_broker() -> None:
    """The broker's memory bounds the window too."""
    way = FakeWay(window=32)
    way.auto_identify = False
    way.add(b"a")
    way.lane.identified((1, 0), 1, None, 0.0)
    way.add(b"b")

    assert len(way.flights) == 1


def test_lost_answers() -> None:
    """Batches whose answers were lost are sent again and stored once."""
    way = FakeWay()
    for number in range(3):
        way.add(b"%d" % number)
    way.lose(arrived=2)
    assert not way.flights
    way.advance(1)

    way.settle()
    assert way.log.values() == [b"0", b"1", b"2"]
    assert [batch.base_offset for batch in way.done] == [0, 1, 2]
    assert way.asked == 1


def test_gap_is_closed_in_order() -> None:
    """After a refusal the rest waits and follows in order."""
    way = FakeWay()
    for number in range(3):
        way.add(b"%d" % number)
    way.answer(NotLeader())
    way.answer()  # refused by the broker as out of order
    way.add(b"3")
    assert len(way.flights) == 1
    way.answer()

    way.settle()
    assert way.log.values() == [b"0", b"1", b"2", b"3"]
    assert [way.refreshed, way.asked] == [1, 1]


def test_head_answered_late() -> None:
    """A follower refused before its predecessor was answered keeps its sequence."""
    way = FakeWay()
    way.add(b"0")
    way.add(b"1")
    way.answer(at=1)
    way.answer()
    way.settle()

    assert way.log.values() == [b"0", b"1"]


def test_forgotten_producer() -> None:
    """A producer that the broker forgot gets a new id and loses nothing."""
    way = FakeWay()
    way.add(b"0")
    way.settle()
    way.log.producers.clear()
    way.add(b"1")
    way.add(b"2")
    way.settle()

    assert way.log.values() == [b"0", b"1", b"2"]
    assert way.lane.identity == (2, 0)
    assert way.lane.renewed


def test_fenced() -> None:
    """A fenced producer goes on under a new id."""
    way = FakeWay()
    way.add(b"0")
    way.answer(ProducerFenced())
    way.settle()

    assert way.log.values() == [b"0"]
    assert way.asked == 2


def test_renewing_waits_for_certainty() -> None:
    """While it is not certain that a follower is not stored, sequences stay as they are."""
    way = FakeWay()
    for number in range(3):
        way.add(b"%d" % number)
    batches = list(way.flights)
    way.answer(UnknownProducer())
    way.flights.clear()
    for batch in batches[1:]:
        way.lane.answered(batch, None, ConnectionLost(), way.now)
    way.advance(1000)

    assert way.asked == 1
    assert batches == way.flights
    way.settle()
    assert way.log.values() == [b"0", b"1", b"2"]


def test_given_up_behind_a_gap() -> None:
    """A batch that was given up without a word keeps its place for the one behind it."""
    way = FakeWay()
    lost = way.add(b"0", deadline=5)
    way.add(b"1")
    way.flights.clear()
    for batch in way.lane.batches():
        way.lane.answered(batch, None, ConnectionLost("cut"), way.now)
    way.now = 5
    way.lane.tick(way.now)
    assert isinstance(lost.error, DeadlineExceeded)
    assert "cut" in str(lost.error)

    way.settle()
    assert way.log.values() == [b"0", b"1"]
    assert [batch.values for batch in way.done] == [[b"0"], [b"1"]]
    assert way.asked == 1


def test_deadline_while_flying() -> None:
    """A batch without an answer fails at its deadline and blocks nobody."""
    way = FakeWay()
    way.add(b"0")
    way.add(b"1")
    way.answer(DeadlineExceeded())
    way.settle()

    assert way.log.values() == [b"0", b"1"]
    assert [type(batch.error) for batch in way.done] == [DeadlineExceeded, type(None)]


def test_late_bytes_find_no_gap() -> None:
    """Bytes of a half-dead connection that arrive late are duplicates of what was told."""
    way = FakeWay()
    way.add(b"0", deadline=5)
    way.add(b"1")
    way.add(b"2")
    way.lose(stuck=True)
    way.advance(6)
    way.settle()
    way.thaw(2)
    way.thaw(1)

    assert way.log.values() == [b"0", b"1", b"2"]
    assert [batch.error is None for batch in way.done] == [False, True, True]


def test_late_bytes_after_all_were_given_up() -> None:
    """When nothing live is left the lane goes on under an id that nothing late can disturb."""
    way = FakeWay()
    way.add(b"0", deadline=5)
    way.add(b"1", deadline=6)
    way.lose(stuck=True)
    way.advance(5)
    way.lose(stuck=True)
    assert way.lane.unacked == 2
    way.advance(1)
    assert way.lane.unacked == 0
    assert way.lane.renewed
    way.add(b"2")
    way.advance(1000)
    way.lose(stuck=True)
    way.settle()
    for at in (0, 1, 2):
        way.thaw(3, at)

    assert sorted(filter(None, way.log.values())) == [b"0", b"1", b"2"]
    assert [batch.error is None for batch in way.done] == [False, False, True]


def test_given_up_and_certainly_not_stored() -> None:
    """What the broker refused each time leaves its place, and the told reason is the broker's."""
    way = FakeWay()
    way.add(b"0", deadline=5)
    way.answer(StorageFull("no space"))
    way.advance(5)
    way.add(b"1")
    way.settle()

    assert way.log.values() == [b"1"]
    assert isinstance(way.done[0].error, StorageFull)
    assert way.asked == 1


def test_refused_after_a_lost_answer() -> None:
    """The broker's reason is not told as the last word when an earlier answer was lost."""
    way = FakeWay()
    way.add(b"0", deadline=5)
    way.lose(arrived=1)
    way.advance(2)
    way.answer(StorageFull("no space"))
    way.advance(5)

    assert isinstance(way.done[0].error, DeadlineExceeded)
    assert "no space" in str(way.done[0].error)


def test_answer_to_one_that_was_given_up() -> None:
    """A last word that comes late is no second end, and frees what only waited for it."""
    way = FakeWay()
    way.add(b"0", deadline=5)
    way.add(b"1", deadline=9)
    way.add(b"2", deadline=5)
    way.lose()
    way.advance(5)
    assert [batch.values for batch in way.done] == [[b"0"], [b"2"]]
    way.answer()
    assert way.lane.unacked == 2
    way.answer()

    assert [batch.values for batch in way.done] == [[b"0"], [b"2"], [b"1"]]
    assert way.lane.unacked == 0
    way.add(b"3")
    way.settle()
    assert way.log.values() == [b"0", b"1", b"2", b"3"]
    assert len(way.done) == 4


def test_deadline_in_the_queue() -> None:
    """A batch that never flew fails with the reason why."""
    way = FakeWay(window=1)
    way.add(b"0", deadline=5)
    way.add(b"1", deadline=5)
    while way.now < 5:
        if way.flights:
            way.answer(StorageFull("no space"))
        way.advance(1)

    assert [StorageFull, StorageFull] == [type(batch.error) for batch in way.done]
    assert way.lane.idle
    assert way.lane.wake_at == float("inf")


def test_refused_for_good() -> None:
    """A refused batch fails alone, and the next uses its sequence."""
    way = FakeWay()
    way.add(b"0")
    way.answer(InvalidRequest())
    way.add(b"1")
    way.settle()

    assert way.log.values() == [b"1"]
    assert way.asked == 1


def test_refused_in_a_row() -> None:
    """Those behind a refused batch get a new id, after the broker denied having them."""
    way = FakeWay()
    for number in range(3):
        way.add(b"%d" % number)
    way.answer(InvalidRequest())
    way.settle()

    assert way.log.values() == [b"1", b"2"]


def test_no_identity_yet() -> None:
    """Without an id nothing flies; a failure to get one is tried again."""
    way = FakeWay()
    way.auto_identify = False
    way.add(b"0")
    way.identified(Overloaded())
    assert way.asked == 1
    way.advance(1)
    assert way.asked == 2
    way.identified()
    way.settle()

    assert way.log.values() == [b"0"]


def test_topic_made_anew() -> None:
    """Records for a topic that was made anew go to the new one, once."""
    way = FakeWay()
    way.add(b"0")
    way.settle()
    way.add(b"1")
    way.add(b"2")
    way.answer(UnknownTopicId())
    way.answer(UnknownTopicId())
    assert way.located == 1
    way.log = PuppetLog()
    way.lane.located(b"n" * 16, way.now)
    way.settle()

    assert way.log.values() == [b"1", b"2"]
    assert way.lane.topic_id == b"n" * 16


def test_same_topic_still() -> None:
    """If the topic is the same after all, the lane waits and tries again."""
    way = FakeWay()
    way.add(b"0")
    way.answer(UnknownTopicId())
    way.lane.located(TOPIC, way.now)
    assert not way.flights
    way.settle()

    assert way.log.values() == [b"0"]


def test_topic_gone() -> None:
    """If the topic is gone everything fails, and the lane can be used again."""
    way = FakeWay()
    way.add(b"0")
    way.answer(UnknownTopicId())
    way.add(b"1")
    way.lane.give_up(UnknownTopic())
    assert [UnknownTopic, UnknownTopic] == [type(batch.error) for batch in way.done]
    way.add(b"2")
    way.settle()

    assert way.log.values() == [b"2"]


def test_paused_link() -> None:
    """Nothing new flies while the link is full."""
    way = FakeWay()
    way.full = True
    way.add(b"0")
    assert not way.flights
    way.full = False
    way.lane.drain(way.now)

    assert len(way.flights) == 1


def test_sequence_wraps() -> None:
    """Sequences wrap to 0 after 2**31 - 1."""
    way = FakeWay()
    way.add(b"0")
    way.settle()
    key = way.lane.identity
    assert key is not None
    way.log.producers[key].append((0, SEQUENCE_MODULUS - 1, 0))
    way.lane._window._next = SEQUENCE_MODULUS - 1
    way.add(b"1", b"2")
    way.add(b"3")
    way.settle()

    assert way.log.values() == [b"0", b"1", b"2", b"3"]
    assert way.log.headers[-1].base_sequence == 1


def test_without_sequences() -> None:
    """A lane that is not idempotent sends again, and may store twice."""
    way = FakeWay(idempotent=False)
    way.add(b"0")
    way.lose(arrived=1)
    way.settle()

    assert way.log.values() == [b"0", b"0"]
    assert way.asked == 0


def test_late_answer_is_ignored() -> None:
    """An answer to a batch that is settled changes nothing."""
    way = FakeWay()
    batch = way.add(b"0")
    way.answer()
    way.lane.answered(batch, None, ConnectionLost(), way.now)

    assert way.lane.idle


def test_resequenced_batch_is_encoded_anew() -> None:
    """A new place in a sequence changes the header and nothing else."""
    batch = Batch([b"x"], 0.0, 0)
    batch.sequence = 5
    first = batch.encode(Codec.NONE, (1, 0), 0.0)
    batch.data, batch.sequence = None, 0

    assert batch.encode(Codec.NONE, (2, 0), 0.0) == sequence(first, 2, 0, 0)


@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(5, 80))
def test_exactly_once_in_order(seed: int, window: int, steps: int) -> None:
    """Whatever is lost, refused, answered late or forgotten: once, and in order."""
    rng = random.Random(seed)
    way = FakeWay(window=window)
    sent: list[bytes] = []
    passing = (NotLeader, Overloaded, StorageFull)
    for step in range(steps):
        match rng.randrange(10):
            case 0 | 1:
                values = [b"%d.%d" % (step, n) for n in range(rng.randint(1, 3))]
                sent += values
                way.add(*values)
            case 2 | 3 if way.flights:
                way.answer()
            case 4 if way.flights:
                # A broker that refuses the first refuses those behind it too.
                way.answer(passing[rng.randrange(3)]())
            case 5:
                way.lose(arrived=rng.randint(0, len(way.flights)))
            case 6:
                way.advance(rng.random() * 5)
            case 7 if not way.lane.unacked:
                way.log.producers.clear()  # forgotten while idle
            case 8 if way.flights:
                way.arrive()
            case 9 if way.replies:
                way.hear(rng.randrange(len(way.replies)))
            case _:
                pass
    way.settle()

    assert sent == way.log.values()
    assert all(batch.error is None for batch in way.done)


@given(st.integers(0, 2**32), st.integers(5, 60))
def test_never_twice_with_deadlines(seed: int, steps: int) -> None:
    """When batches may be given up, what is stored is stored once, in order, and told right."""
    rng = random.Random(seed)
    way = FakeWay(window=4)
    sent: list[bytes] = []
    for step in range(steps):
        match rng.randrange(8):
            case 0 | 1:
                sent.append(b"%d" % step)
                way.add(sent[-1], deadline=way.now + rng.randint(1, 20))
            case 2 if way.flights:
                way.answer()
            case 3:
                way.lose(arrived=rng.randint(0, len(way.flights)))
            case 4 if way.flights:
                way.answer(InvalidRequest())
            case 5 if way.flights:
                way.arrive()
            case 6 if way.replies:
                way.hear(rng.randrange(len(way.replies)))
            case _:
                way.advance(rng.random() * 8)
    way.settle()
    stored = way.log.values()

    assert len(set(stored)) == len(stored)
    assert stored == [value for value in sent if value in set(stored)]
    for batch in way.done:
        if batch.error is None:
            assert batch.values[0] in stored


@given(st.integers(0, 2**32), st.integers(5, 80))
def test_never_twice_with_half_dead_links(seed: int, steps: int) -> None:
    """Whatever arrives late from links that were lost: nothing twice, what was told in order."""
    rng = random.Random(seed)
    way = FakeWay(window=4)
    sent: list[bytes] = []
    for step in range(steps):
        match rng.randrange(8):
            case 0 | 1:
                sent.append(b"%d" % step)
                way.add(sent[-1], deadline=way.now + rng.randint(1, 20))
            case 2 if way.flights:
                way.answer()
            case 3:
                way.lose(arrived=rng.randint(0, len(way.flights)), stuck=True)
            case 4 if way.flights:
                way.answer(StorageFull())
            case 5 if way.flights:
                way.answer(DeadlineExceeded())
            case 6 if way.stuck:
                way.thaw(rng.randint(1, 3), rng.randrange(len(way.stuck)))
            case _:
                way.advance(rng.random() * 8)
    way.settle()
    for at in sorted(range(len(way.stuck)), key=lambda _: rng.random()):
        way.thaw(100, at)
    stored = way.log.values()
    told = {batch.values[0] for batch in way.done if batch.error is None}

    assert len(set(stored)) == len(stored)
    assert [value for value in sent if value in told] == [one for one in stored if one in told]
    assert len({id(batch) for batch in way.done}) == len(way.done)
